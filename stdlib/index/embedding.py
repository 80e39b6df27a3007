"""Embedding lookup and its gradient, sums and argmax of bags, and one-hot encoding.

The table is (V, D), the dense integer indices `where` are (M,), and the gradient g of the gathered rows is (M, D). A
bag, as in PyTorch's EmbeddingBag, is a run of consecutive rows that are combined to one: bag b consists of the rows
from offsets[b] to offsets[b + 1], exclusive.

The gradient of the table needs neither sorting nor atomics. `link_duplicates` finds the next occurrence of each index,
which links equal indices to a chain. In `sum_chains`, the invocations of each index's first occurrence follow its chain
and add the rows of g in order. Results are reproducible. Linking is quadratic in the number of indices, so they are
processed in segments of SEGMENT indices, whose sums are added in order.

Type variables: T is the type of tables, rows and gradients, K that of indices, A the type in which sums are
accumulated, and R that of other arrays.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, scratch
from ..registry import MAX_CPU_ITERATIONS

__all__ = ["bag_argmax", "bag_sums", "embedding", "gradient", "one_hot"]

T = TypeVar("T", bound=vk.Element)
K = TypeVar("K", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

SEGMENT = MAX_CPU_ITERATIONS
"""Number of indices that are linked at a time."""


@vk.kernel(over="y")
def gather_rows(table: vk.In[T, "V D"], indices: vk.In[K, "M"], y: vk.Out[T, "M D"]):
    """y[m] = table[indices[m]]; an out-of-range index is reported and yields zeros."""
    d, m = vk.global_id(0), vk.global_id(1)
    v = vk.i64(indices[m])
    assert v >= 0, f"index {v} is no row of the table: it is below 0"
    assert v < table.shape[0], f"index {v} is no row of the table: there are {table.shape[0]}"
    y[m, d] = table.get(v, d, pad=0)


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(over="following", debug=False)
def link_duplicates(where: vk.In[K, "S"], following: vk.Out[vk.i32, "S"], is_duplicate: vk.Out[vk.boolean, "S"]):
    """following[m] = the next position i > m with where[i] = where[m], or -1 if there is none.

    Sets is_duplicate[m] if there is a position i < m with where[i] = where[m]. The caller initializes
    `is_duplicate` to False.
    """
    m = vk.i32(vk.global_id(0))
    index, next_position = where[m], vk.i32(-1)
    for i in range(where.shape[0] - m - 1):
        if where[m + 1 + i] == index:
            next_position = m + 1 + vk.i32(i)
            break
    following[m] = next_position
    if next_position >= 0:
        is_duplicate[next_position] = True


@vk.kernel(groups=lambda g: (vk.cdiv(g.shape[1], 32), g.shape[0], 1), local=32, debug=False)
def sum_chains(
    g: vk.In[T, "S D"],
    where: vk.In[K, "S"],
    following: vk.In[vk.i32, "S"],
    is_duplicate: vk.In[vk.boolean, "S"],
    y: vk.InOut[A, "V D"],
    padding_index: vk.i64,
):
    """y[v] += the sum of g[m] over all m with where[m] = v, except for v = `padding_index`.

    The invocations of the first m with where[m] = v, for which is_duplicate[m] is false, compute the sum, one per column.
    `following` and `is_duplicate` are the results of `link_duplicates`.
    """
    d, m = vk.global_id(0), vk.group_id(1)
    v = vk.i64(where[m])
    if d >= g.shape[1] or is_duplicate[m] or v == padding_index or v < 0 or v >= y.shape[0]:
        return
    total, position = A(0), vk.i32(m)
    for _ in range(g.shape[0]):
        total += A(g[position, d])
        position = following[position]
        if position < 0:
            break
    y[v, d] = y[v, d] + total


@vk.kernel(over="y", debug=False)
def one_hot_rows(where: vk.In[K, "M"], y: vk.Out[R, "M C"]):
    """y[m, c] = 1 if where[m] = c, else 0; an index outside the C classes is reported."""
    c, m = vk.global_id(0), vk.global_id(1)
    v = vk.i64(where[m])
    assert 0 <= v < y.shape[1], f"index {v} is out of range for {y.shape[1]} classes"
    y[m, c] = R(v == c)


@vk.kernel(over="y", debug=False)
def sum_bags(x: vk.In[T, "M D"], offsets: vk.In[K, "E"], y: vk.Out[A, "B D"]):
    """y[b] = the sum of the rows of x in bag b, added in order. `offsets` has one element more than there are bags.

    Reports invalid offsets, as described at `bag_sums`.
    """
    d, b = vk.global_id(0), vk.global_id(1)
    first, last = vk.i64(offsets[b]), vk.i64(offsets[b + 1])
    if b == 0:
        assert first == 0, f"the first bag begins at {first}: offsets begin with 0"
    assert first <= last, f"a bag begins at {first} and ends at {last}: offsets don't fall"
    assert last <= x.shape[0], f"a bag ends at {last}: there are {x.shape[0]} indices"
    if b == y.shape[0] - 1:
        assert last == x.shape[0], f"the last bag ends at {last}: there are {x.shape[0]} indices"
    total = A(0)
    for m in range(vk.max(first, 0), vk.min(last, x.shape[0])):
        total += A(x[m, d])
    y[b, d] = total


@vk.kernel(over="y", debug=False)
def argmax_of_bags(
    x: vk.In[T, "M D"], where: vk.In[K, "M"], offsets: vk.In[R, "E"], y: vk.Out[vk.i64, "B D"], padding_index: vk.i64
):
    """y[b, d] = the argmax of x[:, d] over the rows of bag b, or -1 if there are none.

    Rows m with where[m] = `padding_index` are left out. Of equal elements the first counts; NaN counts as the largest.
    `offsets` has one element more than there are bags.
    """
    d, b = vk.global_id(0), vk.global_id(1)
    best = vk.i64(-1)
    largest = T(0)
    for m in range(vk.max(vk.i64(offsets[b]), 0), vk.min(vk.i64(offsets[b + 1]), x.shape[0])):
        value = x[m, d]
        # the first NaN wins: it is taken if the largest element so far isn't NaN, and no element is greater than NaN
        if vk.i64(where[m]) != padding_index and (
            best < 0 or value > largest or (value != value and largest == largest)
        ):
            best, largest = vk.i64(m), value
    y[b, d] = best


@vk.kernel(over="y", debug=False)
def convert(x: vk.In[A, "V D"], y: vk.Out[T, "V D"]):
    """y = x, converted to the type of y."""
    d, v = vk.global_id(0), vk.global_id(1)
    y[v, d] = T(x[v, d])


def embedding(table: DeviceArray, where: DeviceArray, y: DeviceArray) -> None:
    """y[m] = table[where[m]]; an out-of-range index is reported and yields zeros."""
    if 0 not in y.shape:
        gather_rows(table, where, y)


def gradient(g: DeviceArray, where: DeviceArray, y: DeviceArray, *, padding_index: int = -1) -> None:
    """y = the gradient of the table: y[v] is the sum of g[m] over all m with where[m] = v.

    The gradient for v = `padding_index` is 0. Sums are in f32 (f64 for f64).
    """
    if 0 in y.shape:
        return
    device, dtype = y.device, accumulator_type(y.dtype)
    total = y if y.dtype is dtype else scratch(y.shape, dtype, device)
    device.fill(total.buffer, total.offset, _padded_bytes(total), 0)
    for start in range(0, where.shape[0], SEGMENT):
        stop = min(where.shape[0], start + SEGMENT)
        part_g, part_where = _slice_rows(g, start, stop), _slice_rows(where, start, stop)
        following, is_duplicate = (
            scratch(part_where.shape, vk.i32, device),
            scratch(part_where.shape, vk.boolean, device),
        )
        device.fill(is_duplicate.buffer, 0, _padded_bytes(is_duplicate), 0)
        link_duplicates(part_where, following, is_duplicate)
        sum_chains(part_g, part_where, following, is_duplicate, total, padding_index)
    if total is not y:
        convert(total, y)


def bag_sums(x: DeviceArray, offsets: DeviceArray, y: DeviceArray) -> None:
    """y[b] = the sum of the rows of x from offsets[b] to offsets[b + 1], exclusive.

    Offsets that decrease, don't start with 0, or don't end with the number of rows are reported.
    """
    if 0 in y.shape:
        return
    dtype = accumulator_type(y.dtype)
    total = y if y.dtype is dtype else scratch(y.shape, dtype, y.device)
    sum_bags(x, offsets, total)
    if total is not y:
        convert(total, y)


def bag_argmax(
    x: DeviceArray, where: DeviceArray, offsets: DeviceArray, y: DeviceArray, *, padding_index: int = -1
) -> None:
    """y[b, d] = the index (i64) of the row of bag b with the largest x[:, d].

    Rows m with where[m] = `padding_index` are left out; -1 if no row remains.
    """
    if 0 not in y.shape:
        argmax_of_bags(x, where, offsets, y, padding_index)


def _padded_bytes(array: DeviceArray) -> int:
    """Return the size of a dense array in bytes, rounded up to a multiple of 4: memory is filled in 4-byte words."""
    count = array.dtype.itemsize
    for extent in array.shape:
        count *= extent
    return (count + 3) & ~3


def _slice_rows(array: DeviceArray, start: int, stop: int) -> DeviceArray:
    """Return the view array[start:stop]."""
    offset = array.offset + start * array.strides[0] * array.dtype.itemsize
    return DeviceArray(array.buffer, offset, array.dtype, (stop - start, *array.shape[1:]), array.strides)


def one_hot(where: DeviceArray, y: DeviceArray) -> None:
    """y[m, c] = 1 if where[m] = c, else 0; an index outside the classes is reported."""
    if 0 not in y.shape:
        one_hot_rows(where, y)
