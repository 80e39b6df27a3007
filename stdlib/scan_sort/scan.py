"""Scans along the last of three axes: cumulative sum, product, logsumexp, min and max. Also `triangle`, for tril/triu.

`vkjit.tensor.ops.cumulative` reshapes arrays to (A, B, R) and launches these kernels. A row is x[a, b, :]. It is
scanned sequentially by one invocation, or by a workgroup in blocks of one element per invocation. The caller splits
long rows into segments, launches the kernels with each segment as a row, and combines the results of the segments.

The kernels whose names begin with `cumulative`, except `cumulative_extremes`, share these constants:

- COMBINE: a device function of two values, `add`, `multiply` or `log_add`. INIT is its neutral element.
- ACC: the type in which COMBINE computes.
- SEEDED: true if the scan of a row starts from the value in `ends`, false if it starts from INIT.
- LIMIT: an upper bound of the number of loop iterations, as a hint for the compiler.

T is the type of x, U that of the results y, and V that of `ends`.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import vkjit as vk

from ..elementwise.special_functions import logaddexp

__all__ = [
    "add",
    "apply_prefix_extremes",
    "cumulative",
    "cumulative_extremes",
    "cumulative_per_workgroup",
    "cumulative_rows_vec4",
    "log_add",
    "multiply",
    "replaces_maximum",
    "replaces_minimum",
    "triangle",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
V = TypeVar("V", bound=vk.Element)


@vk.func
def add(x, y):
    """x + y."""
    return x + y


@vk.func
def multiply(x, y):
    """x * y."""
    return x * y


@vk.func
def log_add(x, y):
    """log(exp(x) + exp(y)) without overflow."""
    return logaddexp(x, y)


@vk.func
def replaces_maximum(x, y):
    """True if x replaces y as the cumulative maximum: if x is at least as large as y, or x is NaN."""
    return (x >= y) | (x != x)


@vk.func
def replaces_minimum(x, y):
    """True if x replaces y as the cumulative minimum: if x is at most y, or x is NaN."""
    return (x <= y) | (x != x)


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="ends", debug=False)
def cumulative(
    x: vk.In[T, "A B R"],
    ends: vk.InOut[V, "A B"],
    y: vk.Out[U, "A B R"],
    COMBINE: vk.Const[Any],
    INIT: vk.Const[Any],
    ACC: vk.Const[Any],
    SEEDED: vk.Const[bool],
    LIMIT: vk.Const[int],
):
    """Inclusive scan: y[a, b, r] = the initial value combined with x[a, b, 0] to x[a, b, r]; one invocation per row.

    The initial value is INIT or, if SEEDED, the value of ends[a, b] before the launch. The kernel then stores the last
    result of each row to ends[a, b].
    """
    b, a = vk.global_id(0), vk.global_id(1)
    result = ACC(ends[a, b]) if SEEDED else ACC(INIT)
    for r in range(vk.min(x.shape[2], LIMIT)):
        result = COMBINE(result, ACC(x[a, b, r]))
        y[a, b, r] = U(result)
    ends[a, b] = V(result)


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], 4), x.shape[0]), local=1, debug=False)
def cumulative_rows_vec4(
    x: vk.In[T, "A B R"],
    ends: vk.InOut[V, "A B"],
    y: vk.Out[U, "A B R"],
    COMBINE: vk.Const[Any],
    INIT: vk.Const[Any],
    ACC: vk.Const[Any],
    SEEDED: vk.Const[bool],
):
    """Variant of `cumulative` for CPUs: an invocation scans four rows, whose dependency chains overlap.

    Where fewer than four rows remain, the indices of missing rows are clamped to the last row, which is then computed
    and stored several times.
    """
    a, first_row, last_row = vk.group_id(1), vk.group_id(0) * 4, x.shape[1] - 1
    b0, b1, b2, b3 = (
        first_row,
        vk.min(first_row + 1, last_row),
        vk.min(first_row + 2, last_row),
        vk.min(first_row + 3, last_row),
    )
    total0, total1, total2, total3 = ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT)
    if SEEDED:
        total0, total1, total2, total3 = ACC(ends[a, b0]), ACC(ends[a, b1]), ACC(ends[a, b2]), ACC(ends[a, b3])
    for r in range(x.shape[2]):
        total0 = COMBINE(total0, ACC(x[a, b0, r]))
        total1 = COMBINE(total1, ACC(x[a, b1, r]))
        total2 = COMBINE(total2, ACC(x[a, b2, r]))
        total3 = COMBINE(total3, ACC(x[a, b3, r]))
        y[a, b0, r] = U(total0)
        y[a, b1, r] = U(total1)
        y[a, b2, r] = U(total2)
        y[a, b3, r] = U(total3)
    ends[a, b0] = V(total0)
    ends[a, b1] = V(total1)
    ends[a, b2] = V(total2)
    ends[a, b3] = V(total3)


@functools.cache
def cumulative_per_workgroup(op: str, local: int, lanes: int) -> Any:
    """Return a variant of `cumulative` with a workgroup of `local` invocations per row and coalesced loads.

    `op`, "add" or "mul", names the operation of COMBINE for the workgroup's scans. `lanes` is the subgroup size. If
    `local` equals it, subgroup operations suffice, which need no shared memory.
    """
    single_subgroup = local == lanes

    @vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=local, debug=False)
    def cumulative_per_workgroup_kernel(
        x: vk.In[T, "A B R"],
        ends: vk.InOut[V, "A B"],
        y: vk.Out[U, "A B R"],
        COMBINE: vk.Const[Any],
        INIT: vk.Const[Any],
        ACC: vk.Const[Any],
        SEEDED: vk.Const[bool],
        LIMIT: vk.Const[int],
    ):
        b, a, thread = vk.group_id(0), vk.group_id(1), vk.local_id(0)
        length = x.shape[2]
        total = ACC(ends[a, b]) if SEEDED else ACC(INIT)
        # a block has one element per invocation; `total` is the last result of the previous block
        full_blocks = vk.min(length // local, LIMIT)
        for block in range(full_blocks):
            r = block * local + thread
            value = ACC(x[a, b, r])
            result = COMBINE(
                total, vk.subgroup().scan(value, op) if single_subgroup else vk.workgroup().scan(value, op)
            )
            y[a, b, r] = U(result)
            total = (
                vk.subgroup().broadcast(result, local - 1)
                if single_subgroup
                else vk.workgroup().broadcast(result, local - 1)
            )
        if full_blocks * local < length:  # the last block is shorter: pad it
            r = full_blocks * local + thread
            value = ACC(x.get(a, b, r, pad=INIT))
            result = COMBINE(
                total, vk.subgroup().scan(value, op) if single_subgroup else vk.workgroup().scan(value, op)
            )
            y.put(a, b, r, U(result))
            total = (
                vk.subgroup().broadcast(result, local - 1)
                if single_subgroup
                else vk.workgroup().broadcast(result, local - 1)
            )
        if thread == 0:
            ends[a, b] = V(total)

    return cumulative_per_workgroup_kernel


@vk.kernel(over="ends", debug=False)
def cumulative_extremes(
    x: vk.In[T, "A B R"],
    x_indices: vk.In[vk.i64, "A B R"],
    ends: vk.Out[T, "A B"],
    end_indices: vk.Out[vk.i64, "A B"],
    y: vk.Out[T, "A B R"],
    y_indices: vk.Out[vk.i64, "A B R"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Cumulative min/max: y[a, b, r] = the min or max of x[a, b, 0] to x[a, b, r], by one invocation per row.

    `x_indices` holds the original index of each element of x. y_indices[a, b, r] is the original index of the element
    found; of equal elements, the last one's. `ends` and `end_indices` receive the last elements of each row of y and of
    `y_indices`. REPLACES is `replaces_maximum` or `replaces_minimum`. Elements are compared in the type IN. Rows have
    at most LIMIT elements.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    best = IN(x[a, b, 0])
    best_index = x_indices[a, b, 0]
    for r in range(vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        # NaN propagates: if `best` is NaN (best != best), only another NaN replaces it
        if REPLACES(value, best) and (best == best or value != value):
            best = value
            best_index = x_indices[a, b, r]
        y[a, b, r] = T(best)
        y_indices[a, b, r] = best_index
    ends[a, b] = T(best)
    end_indices[a, b] = best_index


@vk.kernel(over="y", debug=False)
def apply_prefix_extremes(
    prefix: vk.In[T, "A B"],
    prefix_indices: vk.In[vk.i64, "A B"],
    y: vk.InOut[T, "A B R"],
    y_indices: vk.InOut[vk.i64, "A B R"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Extend the cumulative min/max of each segment to all preceding segments of its row, in place.

    y[a, b, :] and y_indices[a, b, :] are the results of `cumulative_extremes` for segment [a, b]. prefix[a, b] is the min
    or max of all preceding segments of the row, and prefix_indices[a, b] its original index. REPLACES and IN are those
    of `cumulative_extremes`.
    """
    r, b, a = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    own_extreme, earlier_extreme = IN(y[a, b, r]), IN(prefix[a, b])
    # as in `cumulative_extremes`: if the earlier extreme is NaN, only another NaN replaces it
    if not (
        REPLACES(own_extreme, earlier_extreme) and (earlier_extreme == earlier_extreme or own_extreme != own_extreme)
    ):
        y[a, b, r] = T(earlier_extreme)
        y_indices[a, b, r] = prefix_indices[a, b]


@vk.kernel(over="y", debug=False)
def triangle(x: vk.In[T, "G M N"], y: vk.Out[T, "G M N"], diagonal: vk.i64, UPPER: vk.Const[bool]):
    """y = the upper (UPPER) or lower triangle of each matrix x[g], and 0 in the rest.

    A triangle includes the diagonal of the elements whose column minus row is `diagonal`: 0 for the main diagonal.
    """
    g, i, j = vk.index()
    distance = vk.i64(j) - vk.i64(i)
    if UPPER:
        is_kept = distance >= diagonal
    else:
        is_kept = distance <= diagonal
    if is_kept:
        y[g, i, j] = x[g, i, j]
    else:
        y[g, i, j] = T(0)
