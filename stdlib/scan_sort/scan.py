"""Cumulative operations (scans) along the last of three axes - sums, products, logsumexp, min/max - and triangular
parts of matrices.

The caller reshapes arrays to three axes. A row is scanned sequentially by one invocation, or block by block by a
workgroup.
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
    """Return x + y."""
    return x + y


@vk.func
def multiply(x, y):
    """Return x * y."""
    return x * y


@vk.func
def log_add(x, y):
    """Return log(exp(x) + exp(y))."""
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
    """Inclusive scan: y[a, b, r] = x[a, b, 0] combined with ... x[a, b, r]; ends[a, b] = the last of them.

    COMBINE computes in the type ACC. The scan starts from INIT or, if SEEDED, from the value in ends[a, b]. Rows have at most
    LIMIT elements.
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
    """Variant of `cumulative` in which one invocation scans four rows at a time, for CPUs, where the four dependency
    chains overlap.

    If fewer than four rows are left, the last one is scanned repeatedly.
    """
    a, first, last = vk.group_id(1), vk.group_id(0) * 4, x.shape[1] - 1
    b0, b1, b2, b3 = first, vk.min(first + 1, last), vk.min(first + 2, last), vk.min(first + 3, last)
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
    """Return a variant of `cumulative` with a workgroup of `local` invocations per row and coalesced loads; op: "add" or
    "mul".

    If the workgroup is a single subgroup (of `lanes` lanes), it uses no shared memory.
    """
    alone = local == lanes

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
        whole = vk.min(n // local, LIMIT)
        for q in range(whole):
            r = q * local + lane
            value = ACC(x[a, b, r])
            here = COMBINE(total, vk.subgroup().scan(value, op) if alone else vk.workgroup().scan(value, op))
            y[a, b, r] = U(here)
            total = vk.subgroup().broadcast(here, local - 1) if alone else vk.workgroup().broadcast(here, local - 1)
        if whole * local < n:
            r = whole * local + lane
            value = ACC(x.get(a, b, r, pad=INIT))
            here = COMBINE(total, vk.subgroup().scan(value, op) if alone else vk.workgroup().scan(value, op))
            y.put(a, b, r, U(here))
            total = vk.subgroup().broadcast(here, local - 1) if alone else vk.workgroup().broadcast(here, local - 1)
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
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Cumulative min/max: y[a, b, r] = the extreme of x[a, b, 0..r], where[a, b, r] = the value of `indices` at its last
    occurrence.

    `ends` and `places` receive the last entries of y and `where`. TAKES is `replaces_maximum` or `replaces_minimum`; elements
    are compared in the type IN. Rows have at most LIMIT elements.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    best = IN(x[a, b, 0])
    place = indices[a, b, 0]
    for r in range(vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        if TAKES(value, best) and (best == best or value != value):
            best = value
            place = indices[a, b, r]
        y[a, b, r] = T(best)
        where[a, b, r] = place
    ends[a, b] = T(best)
    places[a, b] = place


@vk.kernel(over="y", debug=False)
def apply_prefix_extremes(
    prefix: vk.In[T, "A B"],
    prefix_indices: vk.In[vk.i64, "A B"],
    y: vk.InOut[T, "A B R"],
    where: vk.InOut[vk.i64, "A B R"],
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
):
    """Combine the cumulative extremes of each segment with `prefix`, the extreme of all preceding segments, and
    `prefix_indices`, its index.
    """
    r, b, a = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    own, earlier = IN(y[a, b, r]), IN(prefix[a, b])
    if not (TAKES(own, earlier) and (earlier == earlier or own != own)):
        y[a, b, r] = T(earlier)
        where[a, b, r] = prefix_indices[a, b]


@vk.kernel(over="y", debug=False)
def triangle(x: vk.In[T, "G M N"], y: vk.Out[T, "G M N"], diagonal: vk.i64, UPPER: vk.Const[bool]):
    """y = x on and above (UPPER) or on and below a diagonal, else 0."""
    g, i, j = vk.index()
    distance = vk.i64(j) - vk.i64(i)
    if UPPER:
        kept = distance >= diagonal
    else:
        kept = distance <= diagonal
    if kept:
        y[g, i, j] = x[g, i, j]
    else:
        y[g, i, j] = T(0)
