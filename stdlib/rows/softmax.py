"""Softmax and log-softmax along one axis, and their gradients: the kernels, and the choice between them.

`vkjit.tensor.nn.softmax` calls `softmax` and `gradient`. Arrays are dense and viewed as (outer, C, inner); a row is a
slice along the middle axis, so there are `outer * inner` rows. The kernels for rows along the last axis (inner = 1)
take matrices (R, C). Element types: T is that of x or g, U that of y as an input, R that of the result, and A that of
maxima and sums: f32, or f64 for f64.

Long rows are split into chunks of `length` elements. `chunk_statistics` computes each chunk's maximum m and the sum s
of exp(x - m); the kernels that read m and s combine the chunks of a row in order (`combine_chunks`). On GPUs, rows
along the last axis are processed by workgroups, which read a row once if it fits into registers.

In all kernels, LOG selects log-softmax. In the gradients, y is the result of the forward pass, g the gradient of y, and
z receives the gradient of x.
"""

from __future__ import annotations

import math
from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, scratch
from ..registry import MAX_CPU_ITERATIONS, choose, device_class, variant

__all__ = [
    "GROUP",
    "Rows",
    "chunk_length",
    "combine_chunks",
    "gradient",
    "matrix",
    "row_statistics",
    "softmax",
    "use_workgroups",
]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)

Rows = tuple[int, int, int]
"""The shape (outer, C, inner) of an array whose rows run along the middle axis."""
LOCAL = 64
"""Invocations per workgroup of the kernels in which each invocation processes a chunk alone."""
GROUP = 256
"""Invocations of a workgroup that processes a chunk of a row."""
BLOCK = 32
"""Number of terms that are summed before their sum is added to the total.

The rounding error thus grows with the number of blocks instead of the number of terms.
"""
MAX_ELEMENTS_PER_INVOCATION = 32
"""Maximum number of elements of a row that an invocation of a workgroup keeps in registers."""
MAX_VECTORS_PER_INVOCATION = MAX_ELEMENTS_PER_INVOCATION // 4
"""Maximum number of vec4s of a row that an invocation of a workgroup keeps in registers."""


def chunk_length(rows: Rows) -> int:
    """Return the number of elements per chunk, for one invocation per chunk.

    Loops stay short, and there are enough chunks for all threads.
    """
    count, length = rows[0] * rows[2], rows[1]
    target = max(256, vk.cdiv(count * length, 256))  # at most about 256 chunks in all
    chosen = max(1, min(length, MAX_CPU_ITERATIONS // 2, target))
    return chosen + chosen % 2 if chosen < length else chosen  # even, for the kernels that access pairs of elements


@vk.func
def combine_chunks(m, s, row, chunks):
    """Combine the `chunks` chunks of a row into (maximum, sum of exp(x - maximum)) of the row.

    m and s are the results of `chunk_statistics`. The sum is NaN if the row contains NaN or only -inf.
    """
    top = m[row, 0]
    for c in range(1, chunks):
        top = vk.max(top, m[row, c])
    total = s[row, 0] * vk.exp(m[row, 0] - top)
    for c in range(1, chunks):
        total += s[row, c] * vk.exp(m[row, c] - top)
    return top, total


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def chunk_statistics(
    x: vk.In[T, "outer C inner"], m: vk.Out[A, "rows chunks"], s: vk.Out[A, "rows chunks"], length: vk.i32
):
    """Compute m, the maximum, and s, the sum of exp(x - m), of each chunk of `length` elements of a row.

    One invocation per chunk. s is 0 for chunks of only -inf.
    """
    e = vk.global_id(0)
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // m.shape[1], e % m.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    first = chunk * length
    count = vk.min(x.shape[1] - first, length)
    top = A(x[i, first, k])
    for j in range(1, count):
        top = vk.max(top, A(x[i, first + j, k]))
    shift = vk.where(top == -math.inf, 0, top)  # -inf - -inf would be NaN
    total = A(0)
    for b in range(vk.cdiv(count, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, count)):
            part += vk.exp(A(x[i, first + j, k]) - shift)
        total += part
    m[row, chunk] = top
    s[row, chunk] = total


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def normalize(
    x: vk.In[T, "outer C inner"],
    m: vk.In[A, "rows chunks"],
    s: vk.In[A, "rows chunks"],
    y: vk.Out[R, "outer C inner"],
    length: vk.i32,
    LOG: vk.Const[bool],
):
    """y = the softmax of each row, or with LOG its logarithm, from the m and s of `chunk_statistics`."""
    e = vk.global_id(0)
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // m.shape[1], e % m.shape[1]
    i, k = row // x.shape[2], row % x.shape[2]
    first = chunk * length
    top, total = combine_chunks(m, s, row, m.shape[1])
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
    """s = the sum of g * y over each chunk of `length` elements of a row; with LOG, the sum of g."""
    e = vk.global_id(0)
    if e >= s.shape[0] * s.shape[1]:
        return
    row, chunk = e // s.shape[1], e % s.shape[1]
    i, k = row // g.shape[2], row % g.shape[2]
    first = chunk * length
    total = A(0)
    count = vk.min(g.shape[1] - first, length)
    for b in range(vk.cdiv(count, BLOCK)):
        part = A(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, count)):
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
    """z = y * (g - sum(g * y)), or with LOG g - exp(y) * sum(g), where s holds the sums (`gradient_sums`)."""
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


# -- rows of f32 along the last axis on software drivers: accesses to 64-bit words of two elements are twice as fast


@vk.func
def unpack_f32x2(word):
    """Unpack the two f32 in a 64-bit word; the element with the lower index is in the lower half."""
    return vk.bitcast(vk.f32, vk.u32(word)), vk.bitcast(vk.f32, vk.u32(word >> 32))


@vk.func
def pack_f32x2(low, high):
    """Pack two f32 into a 64-bit word."""
    return vk.u64(vk.bitcast(vk.u32, low)) | (vk.u64(vk.bitcast(vk.u32, high)) << 32)


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def chunk_statistics_f32x2(
    x: vk.In[vk.u64, "rows words"], m: vk.Out[vk.f32, "rows chunks"], s: vk.Out[vk.f32, "rows chunks"], length: vk.i32
):
    """Variant of `chunk_statistics` for 64-bit words of two f32; `length` is the number of words per chunk."""
    e = vk.i32(vk.global_id(0))
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // vk.i32(m.shape[1]), e % vk.i32(m.shape[1])
    first = chunk * length
    count = vk.min(vk.i32(x.shape[1]) - first, length)
    top = vk.f32(-math.inf)
    for j in range(count):
        low, high = unpack_f32x2(x[row, first + j])
        top = vk.max(top, vk.max(low, high))
    shift = vk.where(top == -math.inf, 0, top)  # -inf - -inf would be NaN
    total = vk.f32(0)
    for b in range(vk.cdiv(count, BLOCK)):
        part = vk.f32(0)
        for j in range(b * BLOCK, vk.min((b + 1) * BLOCK, count)):
            low, high = unpack_f32x2(x[row, first + j])
            part += vk.exp(low - shift) + vk.exp(high - shift)
        total += part
    m[row, chunk] = top
    s[row, chunk] = total


@vk.kernel(groups=lambda m: vk.cdiv(m.shape[0] * m.shape[1], LOCAL), local=LOCAL, debug=False)
def normalize_f32x2(
    x: vk.In[vk.u64, "rows words"],
    m: vk.In[vk.f32, "rows chunks"],
    s: vk.In[vk.f32, "rows chunks"],
    y: vk.Out[vk.u64, "rows words"],
    length: vk.i32,
    LOG: vk.Const[bool],
):
    """Variant of `normalize` for 64-bit words of two f32; `length` is the number of words per chunk.

    LOG selects log-softmax.
    """
    e = vk.i32(vk.global_id(0))
    if e >= m.shape[0] * m.shape[1]:
        return
    row, chunk = e // vk.i32(m.shape[1]), e % vk.i32(m.shape[1])
    first = chunk * length
    top, total = combine_chunks(m, s, row, m.shape[1])
    factor, offset = 1 / total, vk.log(total)
    for j in range(vk.min(vk.i32(x.shape[1]) - first, length)):
        low, high = unpack_f32x2(x[row, first + j])
        if LOG:
            y[row, first + j] = pack_f32x2(low - top - offset, high - top - offset)
        else:
            y[row, first + j] = pack_f32x2(vk.exp(low - top) * factor, vk.exp(high - top) * factor)


# -- rows along the last axis, one workgroup per row or chunk


@vk.kernel(groups=lambda x: x.shape[0], local=lambda SIZE: SIZE, debug=False)
def softmax_in_registers(
    x: vk.In[T, "R C"],
    y: vk.Out[R, "R C"],
    VECTORS: vk.Const[int],
    SIZE: vk.Const[int],
    LOG: vk.Const[bool],
    A: vk.Const[object],
    VECTOR_SIZE: vk.Const[int] = 1,
):
    """y = the softmax of each row, or with LOG its logarithm, by a workgroup that keeps the row in registers.

    Each of SIZE invocations keeps VECTORS vectors of VECTOR_SIZE adjacent elements, where VECTOR_SIZE divides the row
    length. A is the type in which the row is kept and summed. See `register_plan`.
    """
    wg, first, row = vk.workgroup(), vk.i32(vk.local_id(0)) * VECTOR_SIZE, vk.i32(vk.group_id(0))
    length = vk.i32(x.shape[1])
    row_values, top = (), A(-math.inf)
    for i in vk.unroll(VECTORS):
        values = (A(-math.inf),) * VECTOR_SIZE  # past the end of the row: exp(-inf) adds nothing to the sum
        if first + i * (SIZE * VECTOR_SIZE) < length:
            values = ()
            for k in vk.unroll(VECTOR_SIZE):
                values = values + (A(x[row, first + i * (SIZE * VECTOR_SIZE) + k]),)
        row_values = row_values + values
        for k in vk.unroll(VECTOR_SIZE):
            top = vk.max(top, values[k])
    top = wg.max(top)
    total, powers = A(0), ()
    for i in vk.unroll(VECTORS * VECTOR_SIZE):
        power = vk.exp(row_values[i] - top)
        powers = powers + (power,)
        total += power
    total = wg.sum(total)
    factor, offset = 1 / total, vk.log(total)
    for i in vk.unroll(VECTORS):
        j = first + i * (SIZE * VECTOR_SIZE)
        if j < length:
            for k in vk.unroll(VECTOR_SIZE):
                if LOG:
                    y[row, j + k] = R(row_values[i * VECTOR_SIZE + k] - top - offset)
                else:
                    y[row, j + k] = R(powers[i * VECTOR_SIZE + k] * factor)


@vk.kernel(groups=lambda m: (m.shape[0], m.shape[1], 1), local=GROUP, debug=False)
def online_statistics(x: vk.In[T, "R C"], m: vk.Out[A, "R chunks"], s: vk.Out[A, "R chunks"], length: vk.i32):
    """Variant of `chunk_statistics` with one workgroup per chunk, which reads the chunk once.

    Online softmax: where an invocation finds a new maximum, it rescales the sum that it has so far.
    """
    wg, invocation = vk.workgroup(), vk.i32(vk.local_id(0))
    row, chunk = vk.group_id(0), vk.group_id(1)
    first = vk.i32(chunk) * length
    top, total = A(-math.inf), A(0)
    for j in range(first + invocation, vk.min(first + length, vk.i32(x.shape[1])), GROUP):
        value = A(x[row, j])
        # each `where` replaces a maximum of -inf, because -inf - -inf would be NaN
        if value > top or vk.isnan(value):
            total *= vk.exp(vk.where(top == -math.inf, value, top) - value)  # times 1 if there is no maximum yet
            top = value
        total += vk.exp(value - vk.where(top == -math.inf, 0, top))
    chunk_top = wg.max(top)
    total = wg.sum(total * vk.exp(top - vk.where(chunk_top == -math.inf, 0, chunk_top)))
    if invocation == 0:
        m[row, chunk] = chunk_top
        s[row, chunk] = total


@vk.kernel(groups=lambda g: g.shape[0], local=lambda SIZE: SIZE, debug=False)
def gradient_in_registers(
    g: vk.In[T, "R C"],
    y: vk.In[U, "R C"],
    z: vk.Out[R, "R C"],
    VECTORS: vk.Const[int],
    SIZE: vk.Const[int],
    LOG: vk.Const[bool],
    A: vk.Const[object],
    VECTOR_SIZE: vk.Const[int] = 1,
):
    """z = the gradient of softmax, or with LOG of log-softmax, by a workgroup per row that keeps the row in registers.

    VECTORS, SIZE, A and VECTOR_SIZE have the same meaning as in `softmax_in_registers`.
    """
    wg, first, row = vk.workgroup(), vk.i32(vk.local_id(0)) * VECTOR_SIZE, vk.i32(vk.group_id(0))
    length = vk.i32(g.shape[1])
    slopes, results, total = (), (), A(0)
    for i in vk.unroll(VECTORS):
        slope, value = (A(0),) * VECTOR_SIZE, (A(0),) * VECTOR_SIZE
        if first + i * (SIZE * VECTOR_SIZE) < length:
            slope, value = (), ()
            for k in vk.unroll(VECTOR_SIZE):
                slope = slope + (A(g[row, first + i * (SIZE * VECTOR_SIZE) + k]),)
            for k in vk.unroll(VECTOR_SIZE):
                value = value + (A(y[row, first + i * (SIZE * VECTOR_SIZE) + k]),)
        slopes, results = slopes + slope, results + value
    for i in vk.unroll(VECTORS * VECTOR_SIZE):
        if LOG:
            total += slopes[i]
        else:
            total += slopes[i] * results[i]
    total = wg.sum(total)
    for i in vk.unroll(VECTORS):
        j = first + i * (SIZE * VECTOR_SIZE)
        if j < length:
            for k in vk.unroll(VECTOR_SIZE):
                if LOG:
                    z[row, j + k] = R(slopes[i * VECTOR_SIZE + k] - vk.exp(results[i * VECTOR_SIZE + k]) * total)
                else:
                    z[row, j + k] = R(results[i * VECTOR_SIZE + k] * (slopes[i * VECTOR_SIZE + k] - total))


@vk.kernel(groups=lambda x, chunks: (x.shape[0], chunks, 1), local=GROUP, debug=False)
def normalize_workgroup(
    x: vk.In[T, "R C"],
    m: vk.In[A, "R parts"],
    s: vk.In[A, "R parts"],
    y: vk.Out[R, "R C"],
    length: vk.i32,
    chunks: vk.i32,  # noqa: ARG001  # used by the grid size
    LOG: vk.Const[bool],
):
    """Variant of `normalize` with one workgroup per chunk: `chunks` chunks of `length` elements per row.

    LOG selects log-softmax.
    """
    invocation, row = vk.i32(vk.local_id(0)), vk.group_id(0)
    first = vk.i32(vk.group_id(1)) * length
    top, total = combine_chunks(m, s, row, m.shape[1])
    factor, offset = 1 / total, vk.log(total)
    for j in range(first + invocation, vk.min(first + length, vk.i32(x.shape[1])), GROUP):
        value = A(x[row, j]) - top
        if LOG:
            y[row, j] = R(value - offset)
        else:
            y[row, j] = R(vk.exp(value) * factor)


# -- launching


def register_plan(length: int) -> tuple[int, int, int] | None:
    """Return (vectors per invocation, invocations, elements per vector) for a workgroup that keeps a row in registers.

    These are VECTORS, SIZE and VECTOR_SIZE of `softmax_in_registers`. None if a row of `length` elements is too long.
    """
    # Vec4s: the smallest workgroup with at most 4 of them per invocation, or 512 invocations with up to 8. Single
    # elements: at most 4, 8, 16 or 32 per invocation for the workgroup sizes 32, 64, 128 and 256.
    if length % 4 == 0 and 128 <= length <= 4 * MAX_VECTORS_PER_INVOCATION * 512:
        vectors = length // 4
        size = next((n for n in (32, 64, 128, 256) if vectors <= 4 * n), 512)
        return vk.cdiv(vectors, size), size, 4
    size = next((n for n, limit in ((32, 128), (64, 512), (128, 2048), (256, 8192)) if length <= limit), 512)
    per_invocation = vk.cdiv(length, size)
    return (per_invocation, size, 1) if per_invocation <= MAX_ELEMENTS_PER_INVOCATION else None


def matrix(x: DeviceArray) -> DeviceArray:
    """View an array (outer, C, 1), with rows along the last axis, as (outer, C)."""
    return DeviceArray(x.buffer, x.offset, x.dtype, x.shape[:2], x.strides[:2])


def row_statistics(x: DeviceArray) -> tuple[DeviceArray, DeviceArray, int]:
    """Compute the m and s of `chunk_statistics` by the kernel that suits x, an array (outer, C, inner).

    Return m and s, both of shape (outer * inner, chunks), and the number of elements per chunk.
    """
    rows: Rows = x.shape
    by_workgroups = use_workgroups(x)
    length = workgroup_chunk_length(rows) if by_workgroups else chunk_length(rows)
    shape, dtype = (rows[0] * rows[2], vk.cdiv(rows[1], length)), accumulator_type(x.dtype)
    m, s = scratch(shape, dtype, x.device), scratch(shape, dtype, x.device)
    if by_workgroups:
        online_statistics(matrix(x), m, s, length)
    elif use_f32x2(x):
        chunk_statistics_f32x2(as_f32x2(x), m, s, length // 2)
    else:
        chunk_statistics(x, m, s, length)
    return m, s, length


def use_f32x2(*arrays: DeviceArray) -> bool:
    """True if the rows of all arrays should be accessed as 64-bit words of two f32.

    That is the case on software drivers, for rows along the last axis that are aligned and have an even length.
    """
    return all(
        a.device.caps.kind == "cpu"
        and a.dtype is vk.f32
        and a.shape[2] == 1
        and a.shape[1] % 2 == 0
        and a.offset % 8 == 0
        for a in arrays
    )


def as_f32x2(x: DeviceArray) -> DeviceArray:
    """View an array of f32 of shape (outer, C, 1) as 64-bit words of shape (outer, C / 2)."""
    words = x.shape[1] // 2
    return DeviceArray(x.buffer, x.offset, vk.u64, (x.shape[0], words), (words, 1))


def use_workgroups(x: DeviceArray) -> bool:
    """True if workgroups process the rows of x (outer, C, inner): on GPUs, for long rows along the last axis."""
    return device_class(x.device) == "gpu" and x.shape[2] == 1 and x.shape[1] >= GROUP // 4


def workgroup_chunk_length(rows: Rows) -> int:
    """Return the number of elements per chunk, for one workgroup per chunk: at least 4096, but few chunks in all."""
    return min(rows[1], max(4096, vk.cdiv(rows[0] * rows[1], 1024)))


def softmax(x: DeviceArray, y: DeviceArray, *, log: bool) -> None:
    """Compute y = the softmax of x along the middle of its three axes, or with `log` its logarithm."""
    if 0 not in x.shape:
        choose("softmax", x.device)(x, y, log)


def gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, *, log: bool) -> None:
    """Compute z, the gradient of `softmax` with respect to x, from its result y and the gradient g of y."""
    if 0 not in g.shape:
        choose("softmax_gradient", g.device)(g, y, z, log)


@variant("softmax", "cpu")
def _softmax_chunks(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    """Compute the statistics of chunks, then normalize with one invocation per chunk."""
    m, s, length = row_statistics(x)
    if use_f32x2(x, y):
        normalize_f32x2(as_f32x2(x), m, s, as_f32x2(y), length // 2, log)
    else:
        normalize(x, m, s, y, length, log)


@variant("softmax", "gpu")
def _softmax_groups(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    """Process rows along the last axis by workgroups, in registers if they fit; leave others to `_softmax_chunks`."""
    plan = register_plan(x.shape[1])
    if x.shape[2] != 1:
        _softmax_chunks(x, y, log)
    elif plan is not None:
        vectors, size, vector_size = plan
        softmax_in_registers(matrix(x), matrix(y), vectors, size, log, accumulator_type(x.dtype), vector_size)
    else:
        m, s, length = row_statistics(x)
        normalize_workgroup(matrix(x), m, s, matrix(y), length, m.shape[1], log)


@variant("softmax_gradient", "cpu")
def _gradient_chunks(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    """Compute the sums of chunks, then the gradient, with one invocation per chunk."""
    rows: Rows = g.shape
    length = chunk_length(rows)
    s = scratch((rows[0] * rows[2], vk.cdiv(rows[1], length)), accumulator_type(g.dtype), g.device)
    gradient_sums(g, y, s, length, log)
    gradient_rows(g, y, s, z, length, log)


@variant("softmax_gradient", "gpu")
def _gradient_groups(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    """Process rows along the last axis by workgroups if they fit into registers; leave others to `_gradient_chunks`."""
    plan = register_plan(g.shape[1])
    if g.shape[2] == 1 and plan is not None:
        vectors, size, vector_size = plan
        gradient_in_registers(
            matrix(g), matrix(y), matrix(z), vectors, size, log, accumulator_type(g.dtype), vector_size
        )
    else:
        _gradient_chunks(g, y, z, log)
