"""Checks of metamorphic relations, such as linearity or batch invariance, which test a function without a reference.

A metamorphic relation compares the results of a function for related arguments. Each check takes a function (a kernel
that returns its Out, or a function that calls kernels) and one set of arguments, and raises `RelationFailure` if the
relation is violated. Parameters that several checks share:

- `at`: the position of the argument that the relation changes, or a sequence of positions.
- `axis`: the axis of arguments and results that the relation refers to.
- `relative`: floats may differ by this share of the largest magnitude. The default is 64 epsilons of the argument's
  type, plus one epsilon per element of the argument.
- `seed`: the seed of the relation's random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

__all__ = [
    "RelationFailure", "associative", "batch_invariant", "deterministic", "idempotent", "linear", "permutation_equivariant",
    "round_trip",
]  # fmt: skip

Array = npt.NDArray[Any]


class RelationFailure(AssertionError):  # noqa: N818  the function failed, not the law
    """Raised if a metamorphic relation is violated.

    `law` is the name of the relation. `found` and `expected` are the two values of the element with the largest error,
    and `index` is its index in the function's result. `allowed` is the allowed difference.

    If the relation permutes or mixes arguments, the index refers to the result for the changed arguments. If the
    relation compares slices, the index refers to the result for the complete arguments. For a scalar result, the index
    is (). If shapes differ, `found` and `expected` are shapes, and the index is ().
    """

    def __init__(self, law: str, index: tuple[int, ...], found: Any, expected: Any, allowed: float) -> None:
        self.law, self.index, self.found, self.expected, self.allowed = law, index, found, expected, allowed
        if isinstance(found, tuple):
            text = f"the result has the shape {found}, the law says {expected}"
        else:
            place = f"at [{', '.join(map(str, index))}] there is" if index else "the result is"
            text = f"{place} {found!r}, the law says {expected!r}; {allowed:.3g} is allowed"
        super().__init__(f"not {law}: {text}")


def deterministic(function: Callable[..., Any], *arguments: Any, runs: int = 5) -> None:
    """Check that the same arguments give bit-identical results in `runs` calls."""
    first_results = _arrays(function(*_copies(arguments)))
    for _ in range(runs - 1):
        for first, again in zip(first_results, _arrays(function(*_copies(arguments))), strict=True):
            if first.tobytes() != again.tobytes():
                index = _worst(first, again)
                raise RelationFailure("deterministic", index, again[index].item(), first[index].item(), 0.0)


def linear(
    function: Callable[..., Any], *arguments: Any, at: int = 0, seed: int = 0, relative: float | None = None
) -> None:
    """Check f(a x + b y) = a f(x) + b f(y) in one argument.

    x is the argument, and y a random permutation of its elements. a is 2 and b is -1/2, so that the products are exact.
    """
    x = _argument("linear", arguments, at)
    if x.dtype.kind != "f":
        raise ArgumentError(f"linear: argument {at} is {x.dtype}, expected floating point numbers")
    y = np.random.default_rng(seed).permutation(x.reshape(-1)).reshape(x.shape)
    mixed = (2 * x - 0.5 * y).astype(x.dtype)
    f_x, f_y = _result(function, arguments, at, x), _result(function, arguments, at, y)
    _compare(
        "linear",
        _result(function, arguments, at, mixed),
        2 * f_x - 0.5 * f_y,
        x,
        relative,
        magnitude=np.abs(2 * f_x) + np.abs(f_y),
    )


def permutation_equivariant(
    function: Callable[..., Any], *arguments: Any, at: Sequence[int] = (0,), axis: int = 0, seed: int = 0
) -> None:
    """Check that a permutation of the arguments along an axis permutes the result in the same way, bit for bit."""
    size = min(_argument("permutation_equivariant", arguments, i, axis).shape[axis] for i in at)
    order = np.random.default_rng(seed).permutation(size)
    unpermuted = _arrays(function(*_copies(arguments)))
    changed = [np.take(a, order, axis) if i in at else a for i, a in enumerate(arguments)]
    relation = "permutation equivariant"
    for result, permuted_result in zip(unpermuted, _arrays(function(*_copies(changed))), strict=True):
        _same(relation, permuted_result, np.take(_with_axis(relation, result, axis, size), order, axis))


def batch_invariant(function: Callable[..., Any], *arguments: Any, at: Sequence[int] = (0,), axis: int = 0) -> None:
    """Check that the result for each single slice along an axis is a slice of the result for the batch, bit for bit."""
    size = min(_argument("batch_invariant", arguments, i, axis).shape[axis] for i in at)
    whole = _arrays(function(*_copies(arguments)))
    for k in range(size):
        part = [np.take(a, [k], axis) if i in at else a for i, a in enumerate(arguments)]
        for batch_result, slice_result in zip(whole, _arrays(function(*_copies(part))), strict=True):
            relation = f"batch invariant (slice {k})"
            expected = np.take(_with_axis(relation, batch_result, axis, size), [k], axis)
            _same(relation, slice_result, expected, (axis, k))


def idempotent(function: Callable[..., Any], *arguments: Any, at: int = 0, relative: float | None = None) -> None:
    """Check f(f(x)) = f(x) in one argument."""
    given = _argument("idempotent", arguments, at)
    once = _result(function, arguments, at, given)
    twice = _result(function, arguments, at, once.astype(given.dtype))
    _compare("idempotent", twice, once, given, relative)


def associative(function: Callable[..., Any], x: Any, y: Any, z: Any, relative: float | None = None) -> None:
    """Check f(f(x, y), z) = f(x, f(y, z)) up to rounding errors."""
    left = np.asarray(function(np.asarray(function(*_copies([x, y]))), *_copies([z])))
    right = np.asarray(function(*_copies([x]), np.asarray(function(*_copies([y, z])))))
    # if the function is addition, no intermediate result exceeds the sum of the largest magnitudes
    largest_xy = np.abs(np.asarray(x, np.float64)).max(initial=0) + np.abs(np.asarray(y, np.float64)).max(initial=0)
    _compare(
        "associative",
        left,
        right,
        np.asarray(x),
        relative,
        magnitude=largest_xy + np.abs(np.asarray(z, np.float64)).max(initial=0),
    )


def round_trip(there: Callable[..., Any], back: Callable[..., Any], x: Any, relative: float | None = 0.0) -> None:
    """Check back(there(x)) = x: bit for bit if `relative` is 0, else within this bound."""
    returned = np.asarray(back(np.asarray(there(*_copies([x])))))
    if relative == 0.0:
        _same("a round trip", returned, np.asarray(x))
    else:
        _compare("a round trip", returned, np.asarray(x), np.asarray(x), relative)


# -- comparison


def _copies(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments with arrays copied, since the function may modify them."""
    return [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]


def _arrays(result: Any) -> list[Array]:
    """Return the function's result, an array or a tuple of arrays, as a list."""
    if result is None:
        raise ArgumentError("the function returns nothing: a law needs a result")
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def _argument(relation: str, arguments: Sequence[Any], at: int, axis: int | None = None) -> Array:
    """Return the argument at a position. Raises ArgumentError if there is none, or if it doesn't have the axis."""
    if not 0 <= at < len(arguments):
        raise ArgumentError(
            f"{relation}: there is no argument {at}: give the arguments of the function behind it, and `at` among them"
        )
    array = np.asarray(arguments[at])
    if axis is not None and not -array.ndim <= axis < array.ndim:
        raise ArgumentError(f"{relation}: argument {at} has the shape {array.shape}, expected one with an axis {axis}")
    return array


def _result(function: Callable[..., Any], arguments: Sequence[Any], at: int, value: Array) -> Array:
    """Return the function's first result, as float64, with one argument replaced by `value`."""
    changed = [value if i == at else a for i, a in enumerate(arguments)]
    return _arrays(function(*_copies(changed)))[0].astype(np.float64)


def _with_axis(relation: str, result: Array, axis: int, size: int) -> Array:
    """Return the result. Raises RelationFailure unless it has `size` slices along the axis."""
    if not -result.ndim <= axis < result.ndim or result.shape[axis] != size:
        expected_shape = list(result.shape) or [1]  # the same shape with `size` slices, for the message
        expected_shape[axis if -len(expected_shape) <= axis < len(expected_shape) else 0] = size
        raise RelationFailure(relation, (), result.shape, tuple(expected_shape), 0.0)
    return result


def _worst(found: Array, expected: Array) -> tuple[int, ...]:
    """Return the index at which two arrays differ most; a NaN in one of them counts as an infinite difference."""
    with np.errstate(all="ignore"):
        distance = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    distance = np.where(np.isnan(distance), np.inf, distance)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(distance)), found.shape))


def _same(relation: str, found: Array, expected: Array, slice_at: tuple[int, int] | None = None) -> None:
    """Raise RelationFailure unless two arrays are equal; NaN equals NaN.

    If the arrays are one slice of the result, `slice_at` is the axis and the index of this slice. The error then has
    the index in the whole result.
    """
    if found.shape != expected.shape:
        raise RelationFailure(relation, (), found.shape, expected.shape, 0.0)
    if not np.array_equal(found, expected, equal_nan=found.dtype.kind == "f"):
        index = _worst(found, expected)
        whole = list(index)
        if slice_at is not None:
            whole[slice_at[0]] = slice_at[1]
        raise RelationFailure(relation, tuple(whole), found[index].item(), expected[index].item(), 0.0)


def _compare(
    relation: str, found: Array, expected: Array, like: Array, relative: float | None, magnitude: Any = 0.0
) -> None:
    """Raise RelationFailure unless two arrays are equal within `relative` (see the module's docstring).

    `relative` is multiplied by the largest magnitude in `expected` and in `magnitude`, which holds the magnitudes of
    intermediate results. The type and size of `like`, an argument of the function, determine the default of `relative`.
    """
    if found.shape != expected.shape:
        raise RelationFailure(relation, (), found.shape, expected.shape, 0.0)
    eps = float(np.finfo(like.dtype).eps) if like.dtype.kind == "f" else 0.0
    share = (64 + like.size) * eps if relative is None else relative
    largest = max(_largest(np.abs(expected)), _largest(np.asarray(magnitude)))
    with np.errstate(all="ignore"):
        # `~ <=` instead of `>` also covers a NaN in one of the arrays; equal infinities have the distance NaN
        differs = ~(np.abs(found.astype(np.float64) - expected) <= share * largest) & ~(found == expected)
        differs &= ~(np.isnan(found) & np.isnan(expected))
    if differs.any():
        index = _worst(np.where(differs, found, expected), expected)
        raise RelationFailure(relation, index, float(found[index]), float(expected[index]), share * largest)


def _largest(magnitudes: Array) -> float:
    """Return the largest finite magnitude; infinities don't widen the bound."""
    return float(np.max(magnitudes, initial=0.0, where=np.isfinite(magnitudes)))
