"""Reductions, argmin/argmax and scans along an axis, as tile kernels (see docs/tiles.md).

x is (A x P x Q), of any strides. AXIS, 1 or 2, is the axis along which x is reduced or scanned; a row is a slice along
it. OP is "sum", "prod", "min" or "max", IDENTITY the identity of OP in the type of x (see `identity`). T and U are the
element types of x and y, and ACC is the accumulator type. The result y of a reduction has the shape (A x L), where L is
Q for reductions along axis 1 and P for reductions along axis 2; that of a scan has the shape of x. A workgroup
processes BB rows, in steps of BR elements along the axis. Its tile has two axes, P and Q, of which AXIS - 1 is the one
along the rows. The order of combination is fixed.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.dtypes import DType

__all__ = ["arg_reduce", "identity", "reduce", "scan", "tile_shape"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


def identity(op: str, dtype: DType) -> Any:
    """Return the identity of an operation ("sum", "prod", "min" or "max") for an element type."""
    if op in ("sum", "prod"):
        return 0 if op == "sum" else 1
    if dtype.is_float:
        return float("inf") if op == "min" else -float("inf")
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0  # the type's lowest value; the highest is 2**bits - 1 more
    return low + (1 << dtype.bits) - 1 if op == "min" else low


def tile_shape(lines: int, length: int) -> tuple[int, int]:
    """Return (BR, BB) for `lines` rows of `length` elements: powers of two with a product of at most 2048.

    BB is at most 32. The fewer rows there are, the longer the tile is along the axis.
    """
    across = min(32, 1 << max(lines - 1, 0).bit_length())
    return min(2048 // across, 1 << max(length - 1, 0).bit_length()), across


def _groups(x: Any, AXIS: int, BB: int) -> tuple[int, int]:
    """Return the grid: the number of blocks of BB rows, and the extent of axis 0."""
    return vk.cdiv(x.shape[3 - AXIS], BB), x.shape[0]  # 3 - AXIS is the other one of the axes 1 and 2


@vk.func
def combine(a, b, OP: vk.Const[str]):
    """Combine two elements, or two tiles elementwise, by OP."""
    if OP == "sum":
        return a + b
    if OP == "prod":
        return a * b
    return vk.min(a, b) if OP == "min" else vk.max(a, b)


@vk.func
def replaces_extreme(a, b, OP: vk.Const[str]):
    """True if a replaces b as the minimum (OP "min") or maximum so far. A NaN replaces all but another NaN."""
    better = a < b if OP == "min" else a > b
    return better | ((a != a) & (b == b))


@vk.func
def reduce_tile(wg, t, axis: vk.Const[int], OP: vk.Const[str]):
    """Reduce the tile t along an axis by OP, with the operations of the workgroup wg."""
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
    """y = the reduction of x by OP along the axis.

    AXIS, IDENTITY, ACC, BR and BB are described in the module docstring.
    """
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
    """y = the lowest index of the minimum or maximum (OP "min" or "max") along the axis, or of the first NaN.

    Each element of the tile keeps the best value that it has seen so far, and the index of its first occurrence. At the
    end, the tile elements whose best value is the row's minimum or maximum compete for the lowest index; the largest
    i32 stands in for the index of all others. The other parameters are described in the module docstring.
    """
    wg, a, b = vk.workgroup(), vk.group_id(1), vk.group_id(0) * BB
    shape, offsets = ((BR, BB), wg.arange(BR)[:, None]) if AXIS == 1 else ((BB, BR), wg.arange(BR)[None, :])
    best, best_index = wg.full(shape, ACC(IDENTITY), ACC), wg.zeros(shape, vk.i32)
    for r in range(0, x.shape[AXIS], BR):
        part = x[a, r : r + BR, b : b + BB] if AXIS == 1 else x[a, b : b + BB, r : r + BR]
        t = ACC(wg.load(part, pad=IDENTITY))
        better = replaces_extreme(t, best, OP)
        best, best_index = vk.where(better, t, best), vk.where(better, vk.i32(r) + offsets, best_index)
    extreme = reduce_tile(wg, best, AXIS - 1, OP)
    extreme = extreme[None, :] if AXIS == 1 else extreme[:, None]
    is_extreme = (best == extreme) | ((best != best) & (extreme != extreme))
    wg.store(y[a, b : b + BB], U(wg.min(vk.where(is_extreme, best_index, 2147483647), axis=AXIS - 1)))


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
    """y = the inclusive scan of x by OP along the axis (a cumulative sum for "sum").

    AXIS, IDENTITY, ACC, BR and BB are described in the module docstring.
    """
    wg, a, b = vk.workgroup(), vk.group_id(1), vk.group_id(0) * BB
    op_name = "add" if OP == "sum" else "mul" if OP == "prod" else OP
    before = wg.full(BB, ACC(IDENTITY), ACC)  # for each row, the reduction of the elements before the tile
    for r in range(0, x.shape[AXIS], BR):
        part = x[a, r : r + BR, b : b + BB] if AXIS == 1 else x[a, b : b + BB, r : r + BR]
        target = y[a, r : r + BR, b : b + BB] if AXIS == 1 else y[a, b : b + BB, r : r + BR]
        t = ACC(wg.load(part, pad=IDENTITY))
        wg.store(
            target, combine(wg.scan(t, op_name, axis=AXIS - 1), before[None, :] if AXIS == 1 else before[:, None], OP)
        )
        before = combine(before, reduce_tile(wg, t, AXIS - 1, OP), OP)
