"""Gather and scatter along an axis.

The caller reshapes arrays to three axes, (A, E, B) or for indices and values (A, N, B): the axes before the indexed
axis (A), the indexed axis (E elements, N indices), and the axes after it (B). Kernels whose name ends in `_last` have
no axis after it. `where` holds integer indices along the indexed axis. With Const FROM_END, negative ones count from
the end; otherwise they are out of range. A gather returns 0 for an out-of-range index and reports it by `assert`. A
scatter skips an out-of-range index; the caller launches `check_indices` before it on CPUs and in debug mode, to report
such indices.

The `scatter_combine*` kernels combine values with elements of y by Const COMBINE, a device function of the old element
and the new value, such as `add`. It computes in the type C. Scatters are deterministic except in `scatter_atomic`: one
invocation per slice along the axis processes the indices in order, so the last write wins and sums have a fixed order.
For long slices on GPUs, `scatter_last_writer` and `assign_last_writer` assign in parallel with the same result.

T is the type of x and of values, I that of indices, and U that of y in the `scatter_combine*` kernels.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = [
    "add",
    "assign_last_writer",
    "check_indices",
    "gather",
    "gather_last",
    "maximum",
    "minimum",
    "multiply",
    "scatter_assign",
    "scatter_atomic",
    "scatter_combine",
    "scatter_combine_serial",
    "scatter_combine_vector",
    "scatter_last_writer",
    "take",
    "take_last",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
I = TypeVar("I", bound=vk.Element)  # noqa: E741  # the type of indices

GROUP = 256
"""Invocations of a workgroup."""


@vk.func
def from_start(position, extent, FROM_END):
    """Return the index `position` along an axis of `extent` elements, counted from the start. Doesn't check the range.

    FROM_END is True if negative indices count from the end.
    """
    return vk.where(position < 0, position + extent, position) if FROM_END else position


@vk.func
def checked_index(position, extent, FROM_END):
    """Return the index like `from_start`, and assert that it is in range."""
    if not FROM_END:
        assert position >= 0, (
            f"index {position} is negative, expected 0 to {extent - 1}: only x[index], take, put, index_fill and "
            "take_along_dim count from the end"
        )
    index = from_start(position, extent, FROM_END)
    assert 0 <= index < extent, f"index {position} is out of range for an axis of {extent} elements"
    return index


@vk.kernel(over="y")
def take(x: vk.In[T, "A E B"], where: vk.In[I, "N"], y: vk.Out[T, "A N B"], FROM_END: vk.Const[bool]):
    """y[a, n, b] = x[a, where[n], b]."""
    b, n, a = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    p = checked_index(vk.i64(where[n]), x.shape[1], FROM_END)
    y[a, n, b] = x.get(a, p, b, pad=0)


@vk.kernel(over="y")
def take_last(x: vk.In[T, "A E"], where: vk.In[I, "N"], y: vk.Out[T, "A N"], FROM_END: vk.Const[bool]):
    """y[a, n] = x[a, where[n]]."""
    n, a = vk.global_id(0), vk.global_id(1)
    p = checked_index(vk.i64(where[n]), x.shape[1], FROM_END)
    y[a, n] = x.get(a, p, pad=0)


@vk.kernel(over="y")
def gather(x: vk.In[T, "A E B"], where: vk.In[I, "A N B"], y: vk.Out[T, "A N B"], FROM_END: vk.Const[bool]):
    """y[a, n, b] = x[a, where[a, n, b], b]."""
    b, n, a = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    p = checked_index(vk.i64(where[a, n, b]), x.shape[1], FROM_END)
    y[a, n, b] = x.get(a, p, b, pad=0)


@vk.kernel(over="y")
def gather_last(x: vk.In[T, "A E"], where: vk.In[I, "A N"], y: vk.Out[T, "A N"], FROM_END: vk.Const[bool]):
    """y[a, n] = x[a, where[a, n]]."""
    n, a = vk.global_id(0), vk.global_id(1)
    p = checked_index(vk.i64(where[a, n]), x.shape[1], FROM_END)
    y[a, n] = x.get(a, p, pad=0)


@vk.func
def add(x, y):
    """x + y."""
    return x + y


@vk.func
def multiply(x, y):
    """x * y."""
    return x * y


@vk.func
def maximum(x, y):
    """max(x, y); NaN propagates."""
    return vk.max(x, y)


@vk.func
def minimum(x, y):
    """min(x, y); NaN propagates."""
    return vk.min(x, y)


@vk.kernel(over="where")
def check_indices(where: vk.In[I, "*N"], extent: vk.i64, FROM_END: vk.Const[bool]):
    """Report indices that are out of range for an axis of `extent` elements; the scatter kernels don't report them."""
    checked_index(vk.i64(where[vk.index()]), extent, FROM_END)


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="grid", debug=False)
def scatter_combine(
    grid: vk.In[T, "A B"],  # noqa: ARG001  # its shape gives the grid
    where: vk.In[I, "A N B"],
    values: vk.In[T, "A N B"],
    y: vk.InOut[U, "A E B"],
    start: vk.i64,
    stop: vk.i64,
    FROM_END: vk.Const[bool],
    COMBINE: vk.Const[Any],
    C: vk.Const[object],
):
    """Combine values[a, n, b] into y[a, where[a, n, b], b] for n in [start, stop), in order.

    One invocation per slice [a, :, b]. `grid` only gives the grid its shape. Since a loop over all n may be too long
    for a driver, the caller may launch the kernel for several ranges [start, stop).
    """
    b, a = vk.global_id(0), vk.global_id(1)
    for n in range(start, stop):
        p = from_start(vk.i64(where[a, n, b]), y.shape[1], FROM_END)
        y.put(a, p, b, U(COMBINE(C(y.get(a, p, b, pad=0)), C(values[a, n, b]))))


@vk.kernel(groups=lambda grid: (grid.shape[1], grid.shape[0]), local=1, debug=False)
def scatter_combine_serial(
    grid: vk.In[T, "A B"],  # noqa: ARG001  # its shape gives the grid
    where: vk.In[I, "A N B"],
    values: vk.In[T, "A N B"],
    y: vk.InOut[U, "A E B"],
    start: vk.i64,
    stop: vk.i64,
    FROM_END: vk.Const[bool],
    COMBINE: vk.Const[Any],
    C: vk.Const[object],
):
    """Variant of `scatter_combine` for CPUs: a workgroup of one invocation per slice, which compiles to scalar code."""
    b, a = vk.group_id(0), vk.group_id(1)
    for n in range(start, stop):
        p = from_start(vk.i64(where[a, n, b]), y.shape[1], FROM_END)
        y.put(a, p, b, U(COMBINE(C(y.get(a, p, b, pad=0)), C(values[a, n, b]))))


@vk.kernel(groups=lambda: 1, local=1, debug=False)
def scatter_combine_vector(
    where: vk.In[I, "N"],
    values: vk.In[T, "N"],
    y: vk.InOut[U, "E"],
    FROM_END: vk.Const[bool],
    COMBINE: vk.Const[Any],
    C: vk.Const[object],
):
    """Variant of `scatter_combine_serial` for vectors: one invocation combines values[n] into y[where[n]] for all n."""
    for n in range(where.shape[0]):
        p = from_start(vk.i64(where[n]), y.shape[0], FROM_END)
        if p >= 0 and p < y.shape[0]:
            y[p] = U(COMBINE(C(y[p]), C(values[n])))


@vk.func
def unravel(array, i):
    """Return the coordinates of the i-th element, in C order, of an array with three axes."""
    extent_b = array.shape[2]
    row = i // extent_b
    return row // array.shape[1], row % array.shape[1], i % extent_b


@vk.kernel(
    groups=lambda values: vk.cdiv(values.shape[0] * values.shape[1] * values.shape[2], GROUP), local=GROUP, debug=False
)
def scatter_atomic(
    where: vk.In[I, "A N B"], values: vk.In[T, "A N B"], y: vk.InOut[T, "A E B"], FROM_END: vk.Const[bool]
):
    """y[a, where[a, n, b], b] += values[a, n, b] by atomics, in any order."""
    i = vk.global_id(0)
    if i < values.shape[0] * values.shape[1] * values.shape[2]:
        a, n, b = unravel(values, i)
        p = from_start(vk.i64(where[a, n, b]), y.shape[1], FROM_END)
        if p >= 0 and p < y.shape[1]:
            vk.atomic.add(y, (a, p, b), values[a, n, b])


@vk.kernel(
    groups=lambda where: vk.cdiv(where.shape[0] * where.shape[1] * where.shape[2], GROUP), local=GROUP, debug=False
)
def scatter_last_writer(where: vk.In[I, "A N B"], last: vk.InOut[vk.i32, "A E B"], FROM_END: vk.Const[bool]):
    """last[a, e, b] = the largest n with where[a, n, b] = e, by atomic max. The caller initializes `last` to -1.

    The first pass of a parallel scatter: value n is the one that a sequential scatter would write last.
    """
    i = vk.global_id(0)
    if i < where.shape[0] * where.shape[1] * where.shape[2]:
        a, n, b = unravel(where, i)
        p = from_start(vk.i64(where[a, n, b]), last.shape[1], FROM_END)
        if p >= 0 and p < last.shape[1]:
            vk.atomic.max(last, (a, p, b), vk.i32(n))


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0] * y.shape[1] * y.shape[2], GROUP), local=GROUP, debug=False)
def assign_last_writer(last: vk.In[vk.i32, "A E B"], values: vk.In[T, "A N B"], y: vk.InOut[T, "A E B"]):
    """y[a, e, b] = values[a, last[a, e, b], b] where `last` isn't -1: the second pass, after `scatter_last_writer`."""
    i = vk.global_id(0)
    if i < y.shape[0] * y.shape[1] * y.shape[2]:
        a, e, b = unravel(y, i)
        n = last[a, e, b]
        if n >= 0:
            y[a, e, b] = values[a, n, b]


@vk.kernel(over="grid", debug=False)
def scatter_assign(
    grid: vk.In[T, "A B"],  # noqa: ARG001  # its shape gives the grid
    where: vk.In[I, "A N B"],
    values: vk.In[T, "A N B"],
    y: vk.InOut[T, "A E B"],
    start: vk.i64,
    stop: vk.i64,
    FROM_END: vk.Const[bool],
):
    """y[a, where[a, n, b], b] = values[a, n, b] for n in [start, stop), in order.

    One invocation per slice [a, :, b]; `grid` only gives the grid its shape.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    for n in range(start, stop):
        p = from_start(vk.i64(where[a, n, b]), y.shape[1], FROM_END)
        y.put(a, p, b, values[a, n, b])
