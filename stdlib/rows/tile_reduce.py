"""Reductions, argmin/argmax and scans along an axis, on tiles.

x is (A x P x Q), of any strides. AXIS, 1 or 2, is the reduced axis; OP is "sum", "prod", "min" or "max"; ACC is the
accumulator type; REST is the identity of OP in x's type. y is (A x the other axis), or for scans (A x P x Q). A
workgroup processes BB rows in steps of BR elements along the axis; the order of combination is fixed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.dtypes import DType

__all__ = ["arg_reduce", "identity", "reduce", "scan", "tile_shape"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


def identity(op: str, dtype: DType) -> Any:
    """Return the identity of an operation for an element type."""
    if op in ("sum", "prod"):
        return 0 if op == "sum" else 1
    if dtype.is_float:
        return float("inf") if op == "min" else -float("inf")
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return low + (1 << dtype.bits) - 1 if op == "min" else low


def tile_shape(lines: int, length: int) -> tuple[int, int]:
    """Return (BR, BB) for `lines` rows of `length` elements: up to 2048 elements, longer along the axis if rows are
    few.
    """
    across = min(32, 1 << max(lines - 1, 0).bit_length())
    return min(2048 // across, 1 << max(length - 1, 0).bit_length()), across


def _groups(x: Any, AXIS: int, BB: int) -> tuple[int, int]:
    return vk.cdiv(x.shape[3 - AXIS], BB), x.shape[0]


@vk.func
def combine(a, b, OP: vk.Const[str]):
    """Combine two elements."""
    if OP == "sum":
        return a + b
    if OP == "prod":
        return a * b
    return vk.min(a, b) if OP == "min" else vk.max(a, b)


@vk.func
def replaces_extreme(a, b, OP: vk.Const[str]):
    """True if a replaces b as the extreme; NaN does unless b is NaN."""
    better = a < b if OP == "min" else a > b
    return better | ((a != a) & (b == b))


@vk.func
def reduce_tile(wg, t, axis: vk.Const[int], OP: vk.Const[str]):
    """Reduce a tile along an axis."""
    if OP == "sum":
        return wg.sum(t, axis=axis)
    if OP == "prod":
        return wg.prod(t, axis=axis)
    return wg.min(t, axis=axis) if OP == "min" else wg.max(t, axis=axis)


@vk.kernel(groups=_groups, local=128)
def reduce(
    x: vk.In[T, "A P Q"],
    y: vk.Out[U, "A L"],
    AXIS: vk.Const[int],
    OP: vk.Const[str],
    IDENTITY: vk.Const[Any],
    ACC: vk.Const[Any],
    BR: vk.Const[int] = 32,
    BB: vk.Const[int] = 32,
) -> None:
    """y = the reduction along the axis."""
    wg, a, b = vk.workgroup(), vk.group_id(1), vk.group_id(0) * BB
    acc = wg.full((BR, BB) if AXIS == 1 else (BB, BR), ACC(IDENTITY), ACC)
    for r in range(0, x.shape[AXIS], BR):
        part = x[a, r : r + BR, b : b + BB] if AXIS == 1 else x[a, b : b + BB, r : r + BR]
        acc = combine(acc, ACC(wg.load(part, pad=IDENTITY)), OP)
    wg.store(y[a, b : b + BB], reduce_tile(wg, acc, AXIS - 1, OP))


@vk.kernel(groups=_groups, local=128)
def arg_reduce(
    x: vk.In[T, "A P Q"],
    y: vk.Out[U, "A L"],
    AXIS: vk.Const[int],
    OP: vk.Const[str],
    IDENTITY: vk.Const[Any],
    ACC: vk.Const[Any],
    BR: vk.Const[int] = 32,
    BB: vk.Const[int] = 32,
) -> None:
    """y = the first index of the extreme (OP "min" or "max") along the axis, or of the first NaN if there is one."""
    wg, a, b = vk.workgroup(), vk.group_id(1), vk.group_id(0) * BB
    shape, line = ((BR, BB), wg.arange(BR)[:, None]) if AXIS == 1 else ((BB, BR), wg.arange(BR)[None, :])
    best, place = wg.full(shape, ACC(IDENTITY), ACC), wg.zeros(shape, vk.i32)
    for r in range(0, x.shape[AXIS], BR):
        part = x[a, r : r + BR, b : b + BB] if AXIS == 1 else x[a, b : b + BB, r : r + BR]
        t = ACC(wg.load(part, pad=IDENTITY))
        better = replaces_extreme(t, best, OP)
        best, place = vk.where(better, t, best), vk.where(better, vk.i32(r) + line, place)
    found = reduce_tile(wg, best, AXIS - 1, OP)
    found = found[None, :] if AXIS == 1 else found[:, None]
    same = (best == found) | ((best != best) & (found != found))
    wg.store(y[a, b : b + BB], U(wg.min(vk.where(same, place, 2147483647), axis=AXIS - 1)))


@vk.kernel(groups=_groups, local=128)
def scan(
    x: vk.In[T, "A P Q"],
    y: vk.Out[U, "A P Q"],
    AXIS: vk.Const[int],
    OP: vk.Const[str],
    IDENTITY: vk.Const[Any],
    ACC: vk.Const[Any],
    BR: vk.Const[int] = 32,
    BB: vk.Const[int] = 32,
) -> None:
    """y = the inclusive scan along the axis."""
    wg, a, b = vk.workgroup(), vk.group_id(1), vk.group_id(0) * BB
    name = "add" if OP == "sum" else "mul" if OP == "prod" else OP
    before = wg.full(BB, ACC(IDENTITY), ACC)
    for r in range(0, x.shape[AXIS], BR):
        part = x[a, r : r + BR, b : b + BB] if AXIS == 1 else x[a, b : b + BB, r : r + BR]
        target = y[a, r : r + BR, b : b + BB] if AXIS == 1 else y[a, b : b + BB, r : r + BR]
        t = ACC(wg.load(part, pad=IDENTITY))
        wg.store(
            target, combine(wg.scan(t, name, axis=AXIS - 1), before[None, :] if AXIS == 1 else before[:, None], OP)
        )
        before = combine(before, reduce_tile(wg, t, AXIS - 1, OP), OP)
