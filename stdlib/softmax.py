"""Softmax and log-softmax along one axis, and their gradients.

Enters: dense arrays seen as (outer, C, inner): rows run along the middle axis, `outer * inner` of them. Leaves: the result
arrays that the caller gives. Sums are kept in f32 (f64 for f64). Long rows are cut into chunks: `statistics` gives each
chunk's maximum m and the sum of exp(x - m); whoever reads them combines the chunks in order. On GPUs rows along the last axis take a
workgroup each, which reads x once.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .partial import accumulator, scratch
from .registry import CPU_LOOP, choose, variant

__all__ = ["Rows", "chunk_length", "combined", "gradient", "row_statistics", "softmax", "tree", "widths_for"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

Rows = tuple[int, int, int]
"""(outer, C, inner)"""
LOCAL = 64
BLOCK = 32
"""Terms that are summed before the sum is added to the total: rounding grows with the number of blocks only."""
MOST_HELD = 16
"""Elements of a row that an invocation of a workgroup holds in registers, at most."""


def chunk_length(rows: Rows) -> int:
    """How long the pieces are that rows are cut into: loops stay short, and there are enough of them for all threads."""
    count, length = rows[0] * rows[2], rows[1]
    wanted = max(256, vk.cdiv(count * length, 256))
    return max(1, min(length, CPU_LOOP // 2, wanted))


@vk.func
def combined(m, s, row, chunks):
    """(maximum, sum of exp(x - maximum)) of a whole row from its chunks. Where all is -inf, or NaN is in it, the sum is NaN."""
    top = m[row, 0]
    for c in range(1, chunks):
        top = vk.max(top, m[row, c])
    total = s[row, 0] * vk.exp(m[row, 0] - top)
    for c in range(1, chunks):
        total += s[row, c] * vk.exp(m[row, c] - top)
    return top, total


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def statistics(x: vk.In[T, "outer C inner"], m: vk.Out[A, "rows chunks"], s: vk.Out[A, "rows chunks"], length: vk.i32):
    """m, s = maximum and sum of exp(x - m) of each chunk of `length` elements of a row. s of -inf alone is 0."""
    e = vk.global_id(0)
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // m.shape[1], e % m.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    first = chunk * length
    trips = vk.min(x.shape[1] - first, length)
    top = A(x[i, first, k])
    for j in range(1, trips):
        top = vk.max(top, A(x[i, first + j, k]))
    shift = vk.where(top == -math.inf, 0, top)
    total = A(0)
    for b in range(vk.cdiv(trips, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, trips)):
            part += vk.exp(A(x[i, first + j, k]) - shift)
        total += part
    m[row, chunk] = top
    s[row, chunk] = total


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def normalized(
    x: vk.In[T, "outer C inner"],
    m: vk.In[A, "rows chunks"],
    s: vk.In[A, "rows chunks"],
    y: vk.Out[R, "outer C inner"],
    length: vk.i32,
    LOG: vk.Const[bool],
):
    """y = the softmax of each row, or its logarithm, from `statistics`."""
    e = vk.global_id(0)
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // m.shape[1], e % m.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    first = chunk * length
    top, total = combined(m, s, row, m.shape[1])
    factor, offset = 1 / total, vk.log(total)
    for j in range(vk.min(x.shape[1] - first, length)):
        value = A(x[i, first + j, k]) - top
        if LOG:
            y[i, first + j, k] = R(value - offset)
        else:
            y[i, first + j, k] = R(vk.exp(value) * factor)


@vk.kernel(groups=lambda s: vk.cdiv(s.shape[0] * s.shape[1], LOCAL), local=LOCAL, debug=False)
def gradient_sums(
    g: vk.In[T, "outer C inner"],
    y: vk.In[U, "outer C inner"],
    s: vk.Out[A, "rows chunks"],
    length: vk.i32,
    LOG: vk.Const[bool],
):
    """s = the sum of g y over each chunk; LOG: of g."""
    e = vk.global_id(0)
    if e >= s.shape[0] * s.shape[1]:
        return
    row, chunk = e // s.shape[1], e % s.shape[1]
    i, k = row // g.shape[2], row % g.shape[2]
    first = chunk * length
    total = A(0)
    trips = vk.min(g.shape[1] - first, length)
    for b in range(vk.cdiv(trips, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, trips)):
            if LOG:
                part += A(g[i, first + j, k])
            else:
                part += A(g[i, first + j, k]) * A(y[i, first + j, k])
        total += part
    s[row, chunk] = total


@vk.kernel(groups=lambda s: vk.cdiv(s.shape[0] * s.shape[1], LOCAL), local=LOCAL, debug=False)
def gradient_rows(
    g: vk.In[T, "outer C inner"],
    y: vk.In[U, "outer C inner"],
    s: vk.In[A, "rows chunks"],
    z: vk.Out[R, "outer C inner"],
    length: vk.i32,
    LOG: vk.Const[bool],
):
    """z = the gradient of x from that of y = softmax(x): y (g - sum of g y); LOG: g - exp(y) times the sum of g."""
    e = vk.global_id(0)
    if e >= s.shape[0] * s.shape[1]:
        return
    row, chunk = e // s.shape[1], e % s.shape[1]
    i, k = row // g.shape[2], row % g.shape[2]
    first = chunk * length
    total = s[row, 0]
    for c in range(1, s.shape[1]):
        total += s[row, c]
    for j in range(vk.min(g.shape[1] - first, length)):
        result, slope = A(y[i, first + j, k]), A(g[i, first + j, k])
        if LOG:
            z[i, first + j, k] = R(slope - vk.exp(result) * total)
        else:
            z[i, first + j, k] = R(result * (slope - total))


# -- rows along the last axis, a workgroup each


@vk.func
def tree(values, lane, value, WIDTHS: vk.Const[tuple], MAX: vk.Const[bool]):
    """The sum (MAX: the maximum) of `value` over the workgroup, the same in each invocation; `values` is shared memory."""
    vk.barrier()
    values[lane] = value
    vk.barrier()
    for width in vk.unroll(WIDTHS):
        if lane < width:
            if MAX:
                values[lane] = vk.max(values[lane], values[lane + width])
            else:
                values[lane] = values[lane] + values[lane + width]
        vk.barrier()
    return values[0]


@vk.kernel(groups=lambda x: x.shape[0], local=lambda WIDTHS: 2 * WIDTHS[0], debug=False)
def held_rows(
    x: vk.In[T, "R C"],
    y: vk.Out[R, "R C"],
    HELD: vk.Const[int],
    WIDTHS: vk.Const[tuple],
    LOG: vk.Const[bool],
    A: vk.Const[object],
):
    """As `softmax`; each invocation holds its HELD elements of the row in registers."""
    values = vk.shared(A, 2 * WIDTHS[0])
    lane, row = vk.local_id(0), vk.group_id(0)
    held, top = (), A(-math.inf)
    for i in vk.unroll(HELD):
        value = A(-math.inf)
        if lane + i * (2 * WIDTHS[0]) < x.shape[1]:
            value = A(x[row, lane + i * (2 * WIDTHS[0])])
        held = held + (value,)
        top = vk.max(top, value)
    top = tree(values, lane, top, WIDTHS, True)
    total, powers = A(0), ()
    for i in vk.unroll(HELD):
        power = vk.exp(held[i] - top)
        powers = powers + (power,)
        total += power
    total = tree(values, lane, total, WIDTHS, False)
    factor, offset = 1 / total, vk.log(total)
    for i in vk.unroll(HELD):
        j = lane + i * (2 * WIDTHS[0])
        if j < x.shape[1]:
            if LOG:
                y[row, j] = R(held[i] - top - offset)
            else:
                y[row, j] = R(powers[i] * factor)


@vk.kernel(groups=lambda x: x.shape[0], local=lambda WIDTHS: 2 * WIDTHS[0], debug=False)
def long_rows(
    x: vk.In[T, "R C"],
    y: vk.Out[R, "R C"],
    WIDTHS: vk.Const[tuple],
    LOG: vk.Const[bool],
    A: vk.Const[object],
):
    """As `softmax`, for rows of any length."""
    values = vk.shared(A, 2 * WIDTHS[0])
    lane, row = vk.local_id(0), vk.group_id(0)
    top, total = A(-math.inf), A(0)
    for j in range(lane, x.shape[1], 2 * WIDTHS[0]):
        value = A(x[row, j])
        if value > top or vk.isnan(value):
            total = total * vk.exp(vk.where(top == -math.inf, value, top) - value)
            top = value
        total += vk.exp(value - vk.where(top == -math.inf, 0, top))
    whole = tree(values, lane, top, WIDTHS, True)
    total = tree(values, lane, total * vk.exp(top - whole), WIDTHS, False)
    factor, offset = 1 / total, vk.log(total)
    for j in range(lane, x.shape[1], 2 * WIDTHS[0]):
        value = A(x[row, j]) - whole
        if LOG:
            y[row, j] = R(value - offset)
        else:
            y[row, j] = R(vk.exp(value) * factor)


@vk.kernel(groups=lambda g: g.shape[0], local=lambda WIDTHS: 2 * WIDTHS[0], debug=False)
def gradient_groups(
    g: vk.In[T, "R C"],
    y: vk.In[U, "R C"],
    z: vk.Out[R, "R C"],
    WIDTHS: vk.Const[tuple],
    LOG: vk.Const[bool],
    A: vk.Const[object],
):
    """As `gradient`, a workgroup per row."""
    values = vk.shared(A, 2 * WIDTHS[0])
    lane, row = vk.local_id(0), vk.group_id(0)
    total = A(0)
    for j in range(lane, g.shape[1], 2 * WIDTHS[0]):
        if LOG:
            total += A(g[row, j])
        else:
            total += A(g[row, j]) * A(y[row, j])
    total = tree(values, lane, total, WIDTHS, False)
    for j in range(lane, g.shape[1], 2 * WIDTHS[0]):
        result, slope = A(y[row, j]), A(g[row, j])
        if LOG:
            z[row, j] = R(slope - vk.exp(result) * total)
        else:
            z[row, j] = R(result * (slope - total))


# -- launching


def widths_for(length: int) -> tuple[int, ...]:
    """The steps of the tree over a workgroup that suits rows of that length: 32, 128, 256 or 1024 invocations."""
    size = next((s for s, limit in ((32, 512), (128, 2048), (256, 4096)) if length <= limit), 1024)
    return tuple(size >> i for i in range(1, size.bit_length()))


def _matrix(x: DeviceArray) -> DeviceArray:
    """Rows along the last axis: (outer, C, 1) as (outer, C)."""
    return DeviceArray(x.buffer, x.offset, x.dtype, x.shape[:2], x.strides[:2])


def row_statistics(x: DeviceArray) -> tuple[DeviceArray, DeviceArray, int]:
    """m and s of `statistics`, of shape (outer * inner, chunks), and the length of a chunk. x: (outer, C, inner)."""
    rows: Rows = x.shape  # type: ignore[assignment]  # three axes
    length = chunk_length(rows)
    shape, dtype = (rows[0] * rows[2], vk.cdiv(rows[1], length)), accumulator(x.dtype)
    m, s = scratch(shape, dtype, x.device), scratch(shape, dtype, x.device)
    statistics(x, m, s, length)
    return m, s, length


def softmax(x: DeviceArray, y: DeviceArray, *, log: bool) -> None:
    """y = softmax of x along the middle of its three axes, or with `log` its logarithm."""
    if 0 not in x.shape:
        choose("softmax", x.device)(x, y, log)


def gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, *, log: bool) -> None:
    """z = the gradient of x from g, that of y, and from y itself."""
    if 0 not in g.shape:
        choose("softmax_gradient", g.device)(g, y, z, log)


@variant("softmax", "cpu")
def _softmax_chunks(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    m, s, length = row_statistics(x)
    normalized(x, m, s, y, length, log)


@variant("softmax", "gpu")
def _softmax_groups(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    if x.shape[2] != 1:
        _softmax_chunks(x, y, log)
        return
    widths = widths_for(x.shape[1])
    held = vk.cdiv(x.shape[1], 2 * widths[0])
    if held <= MOST_HELD:
        held_rows(_matrix(x), _matrix(y), held, widths, log, accumulator(x.dtype))
    else:
        long_rows(_matrix(x), _matrix(y), widths, log, accumulator(x.dtype))


@variant("softmax_gradient", "cpu")
def _gradient_chunks(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    rows: Rows = g.shape  # type: ignore[assignment]  # three axes
    length = chunk_length(rows)
    s = scratch((rows[0] * rows[2], vk.cdiv(rows[1], length)), accumulator(g.dtype), g.device)
    gradient_sums(g, y, s, length, log)
    gradient_rows(g, y, s, z, length, log)


@variant("softmax_gradient", "gpu")
def _gradient_groups(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    if g.shape[2] != 1:
        _gradient_chunks(g, y, z, log)
        return
    gradient_groups(_matrix(g), _matrix(y), _matrix(z), widths_for(g.shape[1]), log, accumulator(g.dtype))
