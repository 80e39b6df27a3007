"""Cumulative operations (sums, products, logsumexp, min/max) along the last of three axes; triangular parts of
matrices.

`vkjit.tensor.ops.cumulative` reshapes arrays to (A, B, R) and launches these kernels. A row is x[a, b, :]; it is
scanned sequentially by one invocation, or block by block by a workgroup. The caller splits long rows into segments,
which are the rows of a launch, and combines their results.

Constants of the sum-like kernels:

- COMBINE: a device function of two values, `add`, `multiply` or `log_add`. INIT is its neutral element.
- ACC: the type in which COMBINE computes.
- SEEDED: true if a row's scan starts from the value in `ends` instead of INIT.
- LIMIT: an upper bound of the row length, as a hint for the compiler.
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
    """True if x replaces y as the cumulative maximum: if it is at least as large, or NaN."""
    return (x >= y) | (x != x)


@vk.func
def replaces_minimum(x, y):
    """True if x replaces y as the cumulative minimum: if it is at least as small, or NaN."""
    return (x <= y) | (x != x)


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

    The initial value is INIT or, if SEEDED, ends[a, b]. ends[a, b] receives the last result of the row.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    total = ACC(ends[a, b]) if SEEDED else ACC(INIT)
    for r in range(vk.min(x.shape[2], LIMIT)):
        total = COMBINE(total, ACC(x[a, b, r]))
        y[a, b, r] = U(total)
    ends[a, b] = V(total)


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

    Where fewer than four rows remain, the last row is scanned repeatedly.
    """
    a, first_row, last_row = vk.group_id(1), vk.group_id(0) * 4, x.shape[1] - 1
    b0, b1, b2, b3 = (
        first_row,
        vk.min(first_row + 1, last_row),
        vk.min(first_row + 2, last_row),
        vk.min(first_row + 3, last_row),
    )
    t0, t1, t2, t3 = ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT)
    if SEEDED:
        t0, t1, t2, t3 = ACC(ends[a, b0]), ACC(ends[a, b1]), ACC(ends[a, b2]), ACC(ends[a, b3])
    for r in range(x.shape[2]):
        t0 = COMBINE(t0, ACC(x[a, b0, r]))
        t1 = COMBINE(t1, ACC(x[a, b1, r]))
        t2 = COMBINE(t2, ACC(x[a, b2, r]))
        t3 = COMBINE(t3, ACC(x[a, b3, r]))
        y[a, b0, r] = U(t0)
        y[a, b1, r] = U(t1)
        y[a, b2, r] = U(t2)
        y[a, b3, r] = U(t3)
    ends[a, b0] = V(t0)
    ends[a, b1] = V(t1)
    ends[a, b2] = V(t2)
    ends[a, b3] = V(t3)


@functools.cache
def cumulative_per_workgroup(op: str, local: int, lanes: int) -> Any:
    """Return a variant of `cumulative` with a workgroup of `local` invocations per row and coalesced loads.

    `op` is COMBINE as the name of a collective scan, "add" or "mul". `lanes` is the subgroup size; a workgroup of a
    single subgroup needs no shared memory.
    """
    single_subgroup = local == lanes

    @vk.kernel(groups=lambda x: (x.shape[1], x.shape[0]), local=local, debug=False)
    def running_rows(
        x: vk.In[T, "A B R"],
        ends: vk.InOut[V, "A B"],
        y: vk.Out[U, "A B R"],
        COMBINE: vk.Const[Any],
        INIT: vk.Const[Any],
        ACC: vk.Const[Any],
        SEEDED: vk.Const[bool],
        LIMIT: vk.Const[int],
    ):
        b, a, lane = vk.group_id(0), vk.group_id(1), vk.local_id(0)
        n = x.shape[2]
        total = ACC(ends[a, b]) if SEEDED else ACC(INIT)
        full_blocks = vk.min(n // local, LIMIT)
        for q in range(full_blocks):
            r = q * local + lane
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
        if full_blocks * local < n:
            r = full_blocks * local + lane
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
        if lane == 0:
            ends[a, b] = V(total)

    return running_rows


@vk.kernel(over="ends", debug=False)
def cumulative_extremes(
    x: vk.In[T, "A B R"],
    indices: vk.In[vk.i64, "A B R"],
    ends: vk.Out[T, "A B"],
    places: vk.Out[vk.i64, "A B"],
    y: vk.Out[T, "A B R"],
    where: vk.Out[vk.i64, "A B R"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Cumulative min/max: y[a, b, r] = the min or max of x[a, b, 0] to x[a, b, r], by one invocation per row.

    `indices` holds the original index of each element, and where[a, b, r] = the index of the last element equal to
    y[a, b, r]. `ends` and `places` receive the last elements of each row of y and `where`. REPLACES is `replaces_maximum`
    or `replaces_minimum`; elements are compared in the type IN. Rows have at most LIMIT elements.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    best = IN(x[a, b, 0])
    best_index = indices[a, b, 0]
    for r in range(vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        if REPLACES(value, best) and (best == best or value != value):
            best = value
            best_index = indices[a, b, r]
        y[a, b, r] = T(best)
        where[a, b, r] = best_index
    ends[a, b] = T(best)
    places[a, b] = best_index


@vk.kernel(over="y", debug=False)
def apply_prefix_extremes(
    prefix: vk.In[T, "A B"],
    prefix_indices: vk.In[vk.i64, "A B"],
    y: vk.InOut[T, "A B R"],
    where: vk.InOut[vk.i64, "A B R"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Combine each segment's cumulative min/max with those of the preceding segments of its row, in place.

    y and `where` are the results of `cumulative_extremes` for segments [a, b]. prefix[a, b] is the min/max of all
    preceding segments, prefix_indices[a, b] its index. REPLACES and IN are those of `cumulative_extremes`.
    """
    r, b, a = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    own, earlier = IN(y[a, b, r]), IN(prefix[a, b])
    if not (REPLACES(own, earlier) and (earlier == earlier or own != own)):
        y[a, b, r] = T(earlier)
        where[a, b, r] = prefix_indices[a, b]


@vk.kernel(over="y", debug=False)
def triangle(x: vk.In[T, "G M N"], y: vk.Out[T, "G M N"], diagonal: vk.i64, UPPER: vk.Const[bool]):
    """y = x on a diagonal of each matrix and above it (UPPER) or below it, else 0.

    `diagonal` is the column minus the row of its elements: 0 for the main diagonal.
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
