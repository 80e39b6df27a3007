"""The operations that random graphs consist of.

`TABLE` holds for each operation the number and kinds of its inputs, a generator for its parameters, and one line of
code for both libraries, `call(xp, p, *tensors)`, where xp is the package and p the parameters. The operations keep
values small and within a function's domain.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["TABLE", "Entry"]

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An operation. `kinds` has a letter per input: f float, i integer, b bool, n number, a any.

    `draw` returns parameters for the shapes of the inputs, or None if the shapes are invalid."""

    kinds: str
    call: Callable[..., Any]
    draw: Callable[[random.Random, Sequence[Shape]], tuple[Any, ...] | None]


def _none(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...]:
    return ()


def _same(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    """Accept shapes that broadcast."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    fits = all(len({n for n in axis if n != 1}) <= 1 for axis in zip(*padded, strict=True))
    return () if fits else None


def _axis(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    rank = len(shapes[0])
    return (rng.randrange(-rank, rank),) if rank and 0 not in shapes[0] else None


def _axis_kept(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    axis = _axis(rng, shapes)
    return None if axis is None else (*axis, rng.random() < 0.5)


def _two_axes(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    rank = len(shapes[0])
    return tuple(rng.sample(range(rank), 2)) if rank > 1 else None


def _permutation(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    rank = len(shapes[0])
    return (tuple(rng.sample(range(rank), rank)),) if rank > 1 else None


def _slice(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    """Draw an axis, a start, an end and a step."""
    found = [a for a, n in enumerate(shapes[0]) if n > 1]
    if not found:
        return None
    axis = rng.choice(found)
    start = rng.randrange(shapes[0][axis])
    return axis, start, rng.randint(start + 1, shapes[0][axis] + 1), rng.choice([1, 1, 2, 3])


def _new_shape(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    count = 1
    for n in shapes[0]:
        count *= n
    choices: list[Shape] = [(count,), (1, count), (count, 1), (-1,)]
    choices += [(count // n, n) for n in (2, 3, 4, 5) if count and count % n == 0]
    choices += [(2, count // 4, 2)] if count and count % 4 == 0 else []
    return (rng.choice(choices),) if count else None


def _expanded(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...]:
    made = tuple(rng.choice([2, 3]) if n == 1 else n for n in shapes[0])
    return (((rng.choice([1, 2]), *made) if rng.random() < 0.4 else made),)


def _square(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    one, two = shapes
    fits = len(one) > 1 and len(two) > 1 and one[-1] == two[-2] and len(one) <= 3 and len(two) <= 3
    return () if fits and _same(rng, [one[:-2], two[:-2]]) is not None else None


def _dot_transposed(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    one, two = shapes
    return () if 1 < len(one) <= 3 and len(two) == 2 and one[-1] == two[-1] else None


def _combined(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    one, two = shapes
    if len(one) != len(two) or not one:
        return None
    different = [a for a, (m, n) in enumerate(zip(one, two, strict=True)) if m != n]
    return None if len(different) > 1 else (different[0] if different else rng.randrange(len(one)),)


def _stacked(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return (rng.randint(0, len(shapes[0])),) if shapes[0] == shapes[1] and len(shapes[0]) < 4 else None


def _shift(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    axis = _axis(rng, shapes)
    return None if axis is None else (rng.randint(-3, 3), *axis)


def _number(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...]:
    return (rng.choice([-2, 2, 3, 0.5, -1.5]),)


def _indices(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    """Draw an axis and indices along it."""
    axis = _axis(rng, shapes)
    if axis is None:
        return None
    return *axis, tuple(rng.randrange(shapes[0][axis[0]]) for _ in range(rng.randint(1, 4)))


def _inserted(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return (rng.randint(0, len(shapes[0])),) if len(shapes[0]) < 4 else None


def _diagonal(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return (rng.randint(-1, 1),) if len(shapes[0]) > 1 and min(shapes[0]) > 1 else None


def _margins(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return (rng.randint(0, 2), rng.randint(0, 2)) if shapes[0] else None


def _long_lines(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return () if shapes[0] and shapes[0][-1] > 2 else None


def _cut(xp: Any, p: Any, x: Any) -> Any:
    return x[(slice(None),) * p[0] + (slice(p[1], p[2], p[3]),)]


def _written(xp: Any, p: Any, x: Any, y: Any) -> Any:
    """Update a slice of a copy in place."""
    copy = x.clone()
    part = (slice(None),) * p[0] + (slice(p[1], p[2], p[3]),)
    copy[part] = copy[part] * 2 + y
    return copy


def _written_fits(rng: random.Random, shapes: Sequence[Shape]) -> tuple[Any, ...] | None:
    return _slice(rng, shapes) if shapes[1] == () else None


def _at(xp: Any, p: Any, x: Any) -> Any:
    return x.index_select(p[0], xp.tensor(list(p[1]), device=x.device))


def _gathered(xp: Any, p: Any, x: Any) -> Any:
    """Gather along an axis with the same indices in every row."""
    axis = p[0] % len(x.shape)
    shape = [1] * len(x.shape)
    shape[axis] = len(p[1])
    wide = [len(p[1]) if a == axis else n for a, n in enumerate(x.shape)]
    places = xp.tensor(list(p[1]), device=x.device).reshape(shape).expand(*wide)
    return xp.gather(x, axis, places)


_MAPS: dict[str, Callable[..., Any]] = {
    "neg": lambda xp, p, x: -x,
    "abs": lambda xp, p, x: x.abs(),
    "exp": lambda xp, p, x: x.clamp(-3, 3).exp(),
    "tanh": lambda xp, p, x: x.tanh(),
    "sigmoid": lambda xp, p, x: x.sigmoid(),
    "relu": lambda xp, p, x: x.relu(),
    "sin": lambda xp, p, x: x.sin(),
    "atan": lambda xp, p, x: x.atan(),
    "root": lambda xp, p, x: (x * x + 0.5).sqrt(),
    "log": lambda xp, p, x: (x * x + 0.5).log(),
    "reciprocal": lambda xp, p, x: (x.abs() + 0.5).reciprocal(),
    "square": lambda xp, p, x: x.clamp(-9, 9).square(),
    "floor": lambda xp, p, x: x.floor(),
    "round": lambda xp, p, x: x.round(),
    "sign": lambda xp, p, x: x.sign(),
    "gelu": lambda xp, p, x: xp.nn.functional.gelu(x),
    "silu": lambda xp, p, x: xp.nn.functional.silu(x),
    "softplus": lambda xp, p, x: xp.nn.functional.softplus(x),
    "clone": lambda xp, p, x: x.clone(),
    "detached": lambda xp, p, x: x.detach() + x,
    "in_place": lambda xp, p, x: (x * 1).mul_(2).add_(1),
    "total": lambda xp, p, x: x.sum(),
    "flat": lambda xp, p, x: x.flatten(),
    "contiguous": lambda xp, p, x: x.contiguous(),
    "whole": lambda xp, p, x: x.clamp(-50, 50).to(xp.int32 if hasattr(xp, "int32") else xp.i32),
}

_PAIRS: dict[str, Callable[..., Any]] = {
    "add": lambda xp, p, x, y: x + y,
    "sub": lambda xp, p, x, y: x - y,
    "mul": lambda xp, p, x, y: x.clamp(-20, 20) * y.clamp(-20, 20),
    "div": lambda xp, p, x, y: x / (y * y + 0.5),
    "maximum": lambda xp, p, x, y: xp.maximum(x, y),
    "minimum": lambda xp, p, x, y: xp.minimum(x, y),
    "atan2": lambda xp, p, x, y: xp.atan2(x, y.abs() + 0.5),
    "chosen": lambda xp, p, x, y: xp.where(x > 0, x, y),
    "hypot": lambda xp, p, x, y: xp.hypot(x, y.abs() + 0.5),
    "lerp": lambda xp, p, x, y: xp.lerp(x, y, 0.25),
    "broadcast": lambda xp, p, x, y: xp.broadcast_tensors(x, y)[0] * 2,
}

_LINES: dict[str, Callable[..., Any]] = {
    "cumsum": lambda xp, p, x: x.cumsum(p[0]),
    "softmax": lambda xp, p, x: xp.softmax(x, p[0]),
    "log_softmax": lambda xp, p, x: xp.log_softmax(x, p[0]),
    "logsumexp": lambda xp, p, x: xp.logsumexp(x, p[0]),
    "flip": lambda xp, p, x: xp.flip(x, [p[0]]),
    "unbound": lambda xp, p, x: x.unbind(p[0])[-1],
    "halves": lambda xp, p, x: xp.chunk(x, 2, p[0])[0],
    "squeezed": lambda xp, p, x: x.squeeze(p[0]),
    "sorted": lambda xp, p, x: xp.sort(x, p[0])[0],
}

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": lambda xp, p, x: x.sum(dim=p[0], keepdim=p[1]),
    "mean": lambda xp, p, x: x.mean(dim=p[0], keepdim=p[1]),
    "amax": lambda xp, p, x: x.amax(dim=p[0], keepdim=p[1]),
    "amin": lambda xp, p, x: x.amin(dim=p[0], keepdim=p[1]),
    "var": lambda xp, p, x: x.var(dim=p[0], keepdim=p[1], correction=0),
}

_OTHERS: dict[str, Entry] = {
    "normalised": Entry("f", lambda xp, p, x: xp.nn.functional.layer_norm(x, x.shape[-1:], eps=0.1), _long_lines),
    "greater": Entry("nn", lambda xp, p, x, y: x > y, _same),
    "equal": Entry("ii", lambda xp, p, x, y: x == y, _same),
    "masked": Entry(
        "fb", lambda xp, p, x, m: x.masked_fill(m, p[0]), lambda r, s: _number(r, s) if _fills(s) else None
    ),
    "where": Entry("bff", lambda xp, p, m, x, y: xp.where(m, x, y), _same),
    "not": Entry("b", lambda xp, p, m: ~m, _none),
    "any": Entry("b", lambda xp, p, m: m.any(dim=p[0], keepdim=p[1]), _axis_kept),
    "count": Entry("b", lambda xp, p, m: m.sum(dim=p[0], keepdim=p[1]), _axis_kept),
    "added": Entry("ni", lambda xp, p, x, i: x + i, _same),
    "remainder": Entry("ii", lambda xp, p, i, j: i % (j.abs() + 1), _same),
    "quotient": Entry("ii", lambda xp, p, i, j: i // (j.abs() + 1), _same),
    "halved": Entry("i", lambda xp, p, i: i / 2, _none),
    "floats": Entry("b", lambda xp, p, m: m * 0.5, _none),
    "argmax": Entry("f", lambda xp, p, x: x.argmax(dim=p[0], keepdim=p[1]), _axis_kept),
    "scaled": Entry("f", lambda xp, p, x: x * p[0], _number),
    "shifted": Entry("n", lambda xp, p, x: 1 - x, _none),
    "cut": Entry("a", _cut, _slice),
    "reshaped": Entry("a", lambda xp, p, x: x.reshape(p[0]), _new_shape),
    "transposed": Entry("a", lambda xp, p, x: x.transpose(*p), _two_axes),
    "permuted": Entry("a", lambda xp, p, x: x.permute(p[0]), _permutation),
    "expanded": Entry("a", lambda xp, p, x: x.expand(p[0]), _expanded),
    "inserted": Entry("a", lambda xp, p, x: x.unsqueeze(p[0]), _inserted),
    "diagonal": Entry("f", lambda xp, p, x: x.diagonal(p[0]), _diagonal),
    "upper": Entry("f", lambda xp, p, x: xp.triu(x, p[0]), _diagonal),
    "rolled": Entry("a", lambda xp, p, x: xp.roll(x, p[0], p[1]), _shift),
    "padded": Entry("f", lambda xp, p, x: xp.nn.functional.pad(x, p), _margins),
    "joined": Entry("ff", lambda xp, p, x, y: xp.cat([x, y], p[0]), _combined),
    "stacked": Entry("ff", lambda xp, p, x, y: xp.stack([x, y], p[0]), _stacked),
    "matmul": Entry("ff", lambda xp, p, x, y: x.clamp(-9, 9) @ y.clamp(-9, 9), _square),
    "linear": Entry("ff", lambda xp, p, x, w: xp.nn.functional.linear(x.clamp(-9, 9), w.clamp(-9, 9)), _dot_transposed),
    "taken": Entry("f", _at, _indices),
    "gathered": Entry("f", _gathered, _indices),
    "written": Entry("ff", _written, _written_fits),
}


def _fills(shapes: Sequence[Shape]) -> bool:
    """True if the mask broadcasts to the masked tensor."""
    return shapes[0] == shapes[1] or shapes[1] == ()


TABLE: dict[str, Entry] = {
    **{name: Entry("f", call, _none) for name, call in _MAPS.items()},
    **{name: Entry("ff", call, _same) for name, call in _PAIRS.items()},
    **{name: Entry("f", call, _axis) for name, call in _LINES.items()},
    **{name: Entry("f", call, _axis_kept) for name, call in _REDUCTIONS.items()},
    **_OTHERS,
}
