"""Checks of one operation against PyTorch: results, `out=`, in-place variants.

Each check takes an operation of PyTorch's database and a `Setting`. It raises `Finding` if values, types or shapes
differ from PyTorch's, if operands or adjacent memory change, or if an error is unclear or missing.

PyTorch computes on copies, so that its results are well-defined even if operands share memory. Floats are compared as
in `opinfo_compare`. Calls are repeated often enough to use cached dispatches (`vkjit/tensor/op_cache/`).
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

import vkjit as vk
from tests.parity.memory_fuzz.places import Place, Setting, mapped, places, positions, view_of, with_values
from tests.parity.ops import opinfo_compare
from tests.parity.ops.opinfo_bridge import DTYPES, function_of, leaves, to_torch, upload
from vkjit.errors import InternalError, VkjitError
from vkjit.tensor import outputs

__all__ = ["KNOWN", "Finding", "Inapplicable", "Refusal", "aliases", "in_place", "out", "sequence"]

CALLS = 5
"""Calls per layout: two are counted, one is recorded, the others are replayed."""


class Finding(Exception):
    """A failed check."""


class Refusal(Exception):
    """A clear error where PyTorch has a result."""


class Inapplicable(Exception):
    """Raised if PyTorch rejects the arguments, too."""


@dataclass
class _Expected:
    """PyTorch's results in the given types and in f64, and the tensors for which gradients are compared."""

    result: Any
    exact: Any
    tensors: dict[Place, torch.Tensor]
    exact_tensors: dict[Place, torch.Tensor]


def _torch(call: Callable[..., Any], packed: Any) -> Any:
    args, kwargs = packed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(*args, **kwargs)
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
            raise Inapplicable(str(error)) from error


def _wide(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, torch.dtype):
        return torch.float64 if value.is_floating_point else value
    return value


def _expected(call: Callable[..., Any], setting: Setting, gradients: bool) -> _Expected:
    packed, tensors = setting.for_torch(gradients=gradients)
    result = _torch(call, packed)
    if any(t.dtype not in DTYPES or t.layout is not torch.strided for t in leaves(result, torch.Tensor)):
        raise Inapplicable("the result is complex or sparse")
    wide = {p: _wide(t.detach()).requires_grad_(t.requires_grad) for p, t in tensors.items()}
    try:
        exact = _torch(call, mapped(setting.arguments, wide.__getitem__, _wide))
    except Inapplicable:
        exact = None
    return _Expected(result, exact, tensors, wide)


def _ours(call: Callable[[], Any]) -> Any:
    """Return vkjit's result; raises Refusal for a clear error."""
    try:
        return call()
    except InternalError as error:
        raise Finding(f"InternalError: {error}") from error
    except (VkjitError, NotImplementedError) as error:
        raise Refusal(f"{type(error).__name__}: {error}") from error
    except Exception as error:  # any other error is a defect
        raise Finding(f"{type(error).__name__}: {error}") from error


def _fetched(value: Any) -> Any:
    """Return vkjit's result as PyTorch tensors; kernel errors surface here."""
    return _ours(lambda: to_torch(value))


def _compare(name: str, found: Any, expected: _Expected, setting: Setting) -> None:
    try:
        given = _fetched(found)
        if name in opinfo_compare.TIES:
            (args, kwargs), _ = setting.for_torch()
            sample = SimpleNamespace(input=args[0], args=args[1:], kwargs=kwargs)
            given = opinfo_compare.with_ties(name, given, expected.result, sample)
        opinfo_compare.compare(given, _detached(expected.result), _detached(expected.exact), "result:", values=True)
    except opinfo_compare.Mismatch as error:
        raise Finding(str(error)) from error


def _detached(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach()
    return [_detached(v) for v in value] if isinstance(value, (list, tuple)) else value


WRITING = frozenset(["nn.functional.batch_norm", "nn.functional.instance_norm"])
"""Operations that update running statistics, which are operands."""


def _unchanged(memories: list[Any], setting: Setting, what: str) -> None:
    for number, (memory, original) in enumerate(zip(memories, setting.memories, strict=True)):
        if not _same(_fetched(memory), original):
            raise Finding(f"{what}: memory {number} of the operands changed")


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """True if all bits are equal; all NaNs are equal."""
    if found.is_floating_point():
        nan = torch.isnan(expected)
        signs = torch.signbit(found) == torch.signbit(expected)
        return bool(((found == expected) & signs | (torch.isnan(found) & nan)).all())
    return bool(torch.equal(found, expected))


# -- results


def sequence(op: Any, settings: list[Setting], rng: random.Random, device: Any, *, gradients: bool) -> None:
    """Check repeated calls in several settings, in random order, with different values; optionally gradients."""
    function = function_of(op.name)
    if function is None:
        return
    order = [s for s in settings for _ in range(CALLS)]
    rng.shuffle(order)
    late: list[Callable[[], None]] = []
    for number, chosen in enumerate(order):
        setting = with_values(chosen, rng) if op.name not in ORDERED else chosen
        try:
            expected = _expected(op.op, setting, gradients)
        except Inapplicable:
            continue
        check = _called(op, function, setting, expected, device, gradients, f"call {number} [{setting.words}]")
        if rng.random() < 0.5:
            check()
        else:
            late.append(check)
    for check in late:
        check()


ORDERED = frozenset(
    "bucketize searchsorted nn.functional.embedding_bag nn.functional.ctc_loss segment_reduce histogram split "
    "split_with_sizes tensor_split unique_consecutive".split()
)
"""Operations that require sorted or consistent operands: their values aren't permuted."""


KNOWN = {
    ("__rdiv__", "types"): "PyTorch's method multiplies by the reciprocal, which has other types than a quotient",
    ("nn.functional.binary_cross_entropy_with_logits", "types"): "PyTorch's result has the type of the targets",
    **{(name, "special"): "NaN and infinities as integers" for name in ("byte", "char", "int", "long", "short")},
    **{
        (f"nn.functional.conv_transpose{n}d", "special"): "infinite weights meet the zeros between an input's elements"
        for n in (1, 2, 3)
    },
    ("std_mean", "special"): "PyTorch's mean there isn't that of mean(): NaN where it is infinite",
    ("var_mean", "special"): "as std_mean",
    ("unique", "special"): "PyTorch leaves rows with NaN in any order",
    ("scatter_reduce", "gradients"): "PyTorch divides gradients with a self of the same value that isn't included",
    ("take_along_dim", "results"): "positions past the end, after extents were cut",
}
"""Reasons for results that differ from PyTorch's, by operation and check."""


def _called(
    op: Any, function: Any, setting: Setting, expected: _Expected, device: Any, gradients: bool, what: str
) -> Callable[[], None]:
    """Make the call; return a function that does the comparison."""
    (args, kwargs), memories, tensors = setting.for_vkjit(device, gradients=gradients)
    try:
        found = _ours(lambda: function(*args, **kwargs))
        slopes = _slopes(op.name, found, expected, tensors, setting) if gradients else None
    except (Finding, Refusal) as error:
        raise type(error)(f"{what}: {error}") from error

    def check() -> None:
        try:
            _compare(op.name, found, expected, setting)
            if slopes is not None:
                _compare_slopes(slopes)
        except (Finding, Refusal) as error:
            raise type(error)(f"{what}: {error}") from error
        if op.name not in WRITING:
            _unchanged(memories, setting, what)

    return check


Slopes = list[tuple[Any, torch.Tensor | None, torch.Tensor | None]]


def _slopes(name: str, found: Any, expected: _Expected, tensors: dict[Place, Any], setting: Setting) -> Slopes | None:
    """Return the gradients of a weighted sum of the results: vkjit's, PyTorch's, and PyTorch's in f64."""
    wanted = [p for p in places(setting.arguments) if p.requires_grad]
    theirs = [t for t in leaves(expected.result, torch.Tensor)]
    if not wanted or not any(t.requires_grad for t in theirs):
        return None
    truths = leaves(expected.exact, torch.Tensor) if expected.exact is not None else []
    weights = [torch.linspace(0.5, 1.5, max(t.numel(), 1))[: t.numel()].reshape(t.shape).to(t.dtype) for t in theirs]
    mine = leaves(found, vk.Tensor)
    if len(mine) != len(theirs) or any(
        t.requires_grad and not m.requires_grad for t, m in zip(theirs, mine, strict=True)
    ):
        raise Finding("a result doesn't require a gradient")
    chosen = [n for n, t in enumerate(theirs) if t.requires_grad]
    cotangents = [upload(weights[n], DTYPES[weights[n].dtype], mine[n].device) for n in chosen]
    if name in opinfo_compare.TIES and _tied(setting):
        return None
    ours = _ours(
        lambda: vk.grad([mine[n] for n in chosen], [tensors[p] for p in wanted], cotangents, allow_unused=True)
    )
    right = _autograd(theirs, chosen, [expected.tensors[p] for p in wanted], weights)
    if right is None:
        return None
    exact = _autograd(truths, chosen, [expected.exact_tensors[p] for p in wanted], weights) if truths else None
    return list(zip(ours, right, exact or [None] * len(right), strict=True))


def _tied(setting: Setting) -> bool:
    """True if the first operand has equal elements, so that the gradient may go to any of them."""
    first = setting.read(places(setting.arguments)[0])
    return bool(first.unique().numel() < first.numel())


def _autograd(results: list[torch.Tensor], chosen: list[int], inputs: Any, weights: list[torch.Tensor]) -> Any:
    try:
        return torch.autograd.grad(
            [results[n] for n in chosen], inputs, [weights[n].to(results[n].dtype) for n in chosen], allow_unused=True
        )
    except (RuntimeError, IndexError):
        return None


def _compare_slopes(slopes: Slopes) -> None:
    for number, (ours, right, exact) in enumerate(slopes):
        if ours is None or right is None:
            if (ours is not None and bool(_fetched(ours).any())) or (right is not None and bool(right.any())):
                raise Finding(f"gradient {number} is missing on one side")
            continue
        given = _fetched(ours)
        if right.dtype in (torch.float16, torch.bfloat16):
            given, right, exact = _of_16_bits(given, right, exact)
        try:
            opinfo_compare.compare(given, right, exact, f"gradient {number}:", values=True)
        except opinfo_compare.Mismatch as error:
            raise Finding(str(error)) from error


def _of_16_bits(*gradients: torch.Tensor | None) -> list[torch.Tensor | None]:
    """Return 16-bit gradients with differences within the error of several roundings and long sums removed."""
    known = [g for g in gradients if g is not None]
    largest = max([float(g.double().abs().nan_to_num(0, 0, 0).max()) for g in known if g.numel()], default=0.0)
    step = largest / 64 or 1.0
    return [None if g is None else _stepped(g, known[1], step) for g in gradients]


def _stepped(gradient: torch.Tensor, right: torch.Tensor, step: float) -> torch.Tensor:
    near = (gradient.double() - right.double()).abs() <= step
    return torch.where(near, right.double(), gradient.double()) if gradient.shape == right.shape else gradient


# -- aliasing of results and operands


def aliases(op: Any, setting: Setting, device: Any) -> None:
    """Results share memory with operands exactly where PyTorch's do."""
    function = function_of(op.name)
    packed, tensors = setting.for_torch()
    theirs = leaves(_torch(op.op, packed), torch.Tensor)
    (args, kwargs), _, mine = setting.for_vkjit(device)
    ours = leaves(_ours(lambda: function(*args, **kwargs)), vk.Tensor) if function else []
    if len(ours) != len(theirs):
        return
    for found, right in zip(ours, theirs, strict=True):
        for place, tensor in tensors.items():
            if not place.count or not right.numel() or op.name in ("to", "contiguous"):
                continue
            shared = right.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
            if shared is not found.shares_memory_with(mine[place]):
                raise Finding(f"the result {'is no view' if shared else 'is a view'} of an operand [{setting.words}]")


# -- out=


def out(op: Any, setting: Setting, rng: random.Random, device: Any) -> None:
    """Check `out=` in separate memory, over an operand, overlapping one, and with other types and shapes."""
    short = op.name.rsplit(".", 1)[-1]
    function = function_of(op.name)
    if short not in outputs.NAMES or not op.supports_out or function is None:
        return
    for _ in range(CALLS):
        fresh = with_values(setting, rng) if op.name not in ORDERED else setting
        try:
            expected = _expected(op.op, fresh, False)
        except Inapplicable:
            return
        result = expected.result
        if not isinstance(result, torch.Tensor):
            return
        kind = rng.choice(["own", "own", "over", "beside", "type", "shape", "empty"])
        made = _out_place(kind, result, fresh, rng)
        if made is None:
            continue
        with_out, place = made
        try:
            _out_call(op, function, with_out, place, expected, kind, device)
        except (Finding, Refusal) as error:
            raise type(error)(f"out {kind} {place} [{setting.words}]: {error}") from error


def _out_place(kind: str, result: torch.Tensor, setting: Setting, rng: random.Random) -> tuple[Setting, Place] | None:
    """Return a setting with memory for `out` and its place; None if the kind doesn't apply."""
    shape, dtype = tuple(result.shape), result.dtype
    if kind in ("over", "beside"):
        fitting = [
            p for p in places(setting.arguments) if setting.memories[p.memory].dtype is dtype and p.shape == shape
        ]
        fitting = [p for p in fitting if 0 not in p.strides and p.count]
        if not fitting:
            return None
        chosen = rng.choice(fitting)
        if kind == "over":
            return setting, Place(chosen.memory, shape, chosen.strides, chosen.offset)
        longer = [torch.cat([m, m[:3]]) if n == chosen.memory else m for n, m in enumerate(setting.memories)]
        moved = Place(chosen.memory, shape, chosen.strides, chosen.offset + 1)
        fits = int(positions(moved).max()) < longer[chosen.memory].numel()
        return (Setting(longer, setting.arguments, setting.words), moved) if fits else None
    if kind == "type":
        dtype = rng.choice(
            [torch.float16, torch.float32, torch.float64, torch.int32, torch.int64, torch.bool, torch.uint8]
        )
    if kind == "shape":
        shape = (*shape[:-1], shape[-1] + 1) if shape else (2,)
    if kind == "empty":
        shape = (0,)
    steps = [2 * s for s in torch.empty(shape).stride()] if kind == "own" else list(torch.empty(shape).stride())
    if len(shape) > 1 and kind == "own":
        steps = [2 * s for s in torch.empty(shape[::-1]).stride()][::-1]
    place = Place(len(setting.memories), shape, tuple(steps), 3 if kind == "own" else 0)
    size = int(positions(place).max()) + 2 if place.count else place.offset
    memory = torch.full((size,), 1, dtype=dtype)
    return Setting([*setting.memories, memory], setting.arguments, setting.words), place


def _out_call(
    op: Any, function: Any, setting: Setting, place: Place, expected: _Expected, kind: str, device: Any
) -> None:
    (args, kwargs), memories, _ = setting.for_vkjit(device)
    target = view_of(memories[place.memory], place)
    right = _out_reference(op, setting, place, kind)
    try:
        given = _ours(lambda: function(*args, **kwargs, out=target))
    except Refusal:
        if right is None or kind in ("type", "shape", "empty"):
            return
        raise
    if kind == "shape" and place.count and place.shape != tuple(expected.result.shape):
        raise Finding("no error for an out of another shape")
    if right is None:
        if kind == "type":
            raise Finding(f"no error for an out of {setting.memories[place.memory].dtype}, which PyTorch refuses")
        return
    if given is not target:
        raise Finding("what it gives isn't out")
    if kind == "type":
        if not torch.isfinite(expected.result.double()).all():
            return
        _compare(op.name, target, _Expected(right, None, {}, {}), setting)
        return
    _compare(op.name, target, expected, setting)
    if kind != "empty":
        _only_there(memories, setting, place)


def _out_reference(op: Any, setting: Setting, place: Place, kind: str) -> torch.Tensor | None:
    """Return PyTorch's `out`, or None if it rejects that."""
    packed, _ = setting.for_torch()
    target = torch.ones(place.shape, dtype=setting.memories[place.memory].dtype)
    args, kwargs = packed
    try:
        _torch(lambda *a, **k: op.op(*a, **k, out=target), (args, kwargs))
    except Inapplicable:
        return None
    return target


def _only_there(memories: list[Any], setting: Setting, place: Place) -> None:
    """Check that nothing was written outside a place."""
    for number, (memory, original) in enumerate(zip(memories, setting.memories, strict=True)):
        found = _fetched(memory)
        if number == place.memory:
            where = positions(place).reshape(-1)
            original = original.clone()
            original[where] = found[where]
        if not _same(found, original):
            raise Finding(f"memory {number} changed beside what was to be written")


# -- in place


def in_place(op: Any, setting: Setting, rng: random.Random, device: Any) -> None:
    """Check the in-place method on a view: the values match PyTorch's, and memory outside the view is unchanged."""
    variant = op.inplace_variant
    name = getattr(variant, "__name__", "")
    args, kwargs = setting.arguments
    if not name.endswith("_") or not hasattr(vk.Tensor, name) or not args or not isinstance(args[0], Place):
        return
    kind = rng.choice(["as it is", "as it is", "itself", "beside"])
    chosen = setting if kind == "as it is" else _over(setting, kind)
    if chosen is None:
        return
    for number in range(CALLS):
        fresh = with_values(chosen, rng) if op.name not in ORDERED else chosen
        try:
            expected = _expected(lambda x, *a, **k: variant(x.clone(), *a, **k), fresh, False)
        except Inapplicable:
            return
        place = fresh.arguments[0][0]
        try:
            _written(op, name, fresh, place, expected, device)
        except (Finding, Refusal) as error:
            raise type(error)(f"in place {kind}, call {number} {place} [{setting.words}]: {error}") from error


def _over(setting: Setting, kind: str) -> Setting | None:
    """Return the setting with an operand that is the target or overlaps it."""
    args, kwargs = setting.arguments
    target = args[0]
    dtype = setting.memories[target.memory].dtype
    fitting = [p for p in places((args[1:], kwargs)) if p.shape == target.shape and p != target]
    fitting = [p for p in fitting if setting.memories[p.memory].dtype is dtype]
    if not fitting or not target.count or not dtype.is_floating_point:
        return None
    longer = [torch.cat([m, m[:3]]) if n == target.memory else m for n, m in enumerate(setting.memories)]
    moved = target
    if kind == "beside":
        moved = Place(target.memory, target.shape, target.strides, target.offset + 1)
        if int(positions(moved).max()) >= longer[target.memory].numel():
            return None
    rest = mapped((args[1:], kwargs), lambda p: moved if p == fitting[0] else p)
    return Setting(longer, ((target, *rest[0]), rest[1]), setting.words)


VIEWS = frozenset(
    "t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ resize_ resize_as_ requires_grad_ zero_".split()
)
"""Methods that change only the shape, or set all elements to one value."""


def _written(op: Any, name: str, setting: Setting, place: Place, expected: _Expected, device: Any) -> None:
    (args, kwargs), memories, _ = setting.for_vkjit(device)
    where = positions(place).reshape(-1)
    overlapping = where.unique().numel() < where.numel()
    try:
        given = _ours(lambda: getattr(args[0], name)(*args[1:], **kwargs))
    except Refusal:
        if overlapping:
            _unchanged(memories, setting, "a refused write")
            return
        raise
    if overlapping and name not in VIEWS:
        raise Finding("no error for a target with several elements in one place")
    if given is not args[0]:
        raise Finding("what it gives isn't its operand")
    if name in VIEWS:
        return
    _compare(op.name, args[0], expected, setting)
    _only_there(memories, setting, place)
