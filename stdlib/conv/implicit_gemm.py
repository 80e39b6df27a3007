"""Implicit GEMM convolution for GPUs: fprop, dgrad and wgrad as matrix products, without an im2col buffer.

`gpu_plan` launches the kernel. The matrices of the GEMM never exist in memory: the elements of the left operand are
loaded from the array a, those of the right operand from b, at offsets that are computed from their row and column.
DIRECTION selects the product:

- "forward" (fprop): a is the weights, b the input; M = filters, N = output pixels, K = channels and taps.
- "input" (dgrad): a is the weights, b the output gradient; M = channels, N = input pixels, K = filters and taps.
- "weight" (wgrad): a is the output gradient, b the input; M = filters, N = channels and taps, K = output pixels.
  Split-K parts are added afterwards. With ONES, the right operand has an additional last column of ones, which yields
  the gradient of the bias.

A workgroup of 16 x 16 invocations, each with TILE x TILE results, computes a tile of the product. Tiles of both
operands, with an extent of BK along K, are staged in shared memory; the next ones are loaded into registers while the
current ones are multiplied.

A pixel is an element of the input or output of one channel or filter, at (batch, depth, height, width). In device
functions, `counts` is (groups, filters per group, channels per group); `size`, `out`, `stride`, `pad`, `dilation` and
`kernel` are those of `geometry.Geometry`: extents of input and output, strides, padding, dilations, and extents of a
filter along the three axes. T, U, B and R are the element types of a, b, bias and the result.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .direct import zeros

__all__ = ["BK", "SIDE", "implicit_gemm"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

SIDE = 16
"""Invocations along each side of a workgroup's tile."""
BK = 16
"""Extent along K of the operand tiles in shared memory."""
PAD = 2
"""Padding of each row in shared memory, in elements: invocations that write a column then access different banks."""


@vk.func
def split_taps(k, kernel: vk.Const[tuple]):
    """Split a flat index over (channel, tap) into (channel, t, r, s), where (t, r, s) is the tap."""
    s, remaining = k % kernel[2], k // kernel[2]
    r, remaining = remaining % kernel[1], remaining // kernel[1]
    return remaining // kernel[0], remaining % kernel[0], r, s


@vk.func
def split_pixel(n, size):
    """Split a flat index over the pixels of a batch, with extents `size`, into (batch, depth, height, width)."""
    w, remaining = n % size[2], n // size[2]
    h, remaining = remaining % size[1], remaining // size[1]
    return remaining // size[0], remaining % size[0], h, w


@vk.func
def load_a(a, m, k, group, counts, out, kernel: vk.Const[tuple], DIRECTION: vk.Const[str]):
    """Load element (m, k) of the GEMM's left operand: a weight, or for "weight" an element of the output gradient.

    DIRECTION is described in the module docstring.
    """
    taps = kernel[0] * kernel[1] * kernel[2]
    filters, channels = counts[1], counts[2]
    if DIRECTION == "forward":
        return a[(group * filters + m) * (channels * taps) + k]
    if DIRECTION == "input":
        return a[((group * filters + k // taps) * channels + m) * taps + k % taps]
    area = out[0] * out[1] * out[2]
    return a[((k // area * counts[0] + group) * filters + m) * area + k % area]


@vk.func
def load_input(x, pixel, tap_position, group, counts, size, stride, pad, dilation):
    """Load the element of x that the output pixel `pixel` reads at `tap_position`; 0 in the padding.

    `tap_position` is (channel, t, r, s), as `split_taps` returns it, and `pixel` a result of `split_pixel`.
    """
    d = pixel[1] * stride[0] - pad[0] + tap_position[1] * dilation[0]
    h = pixel[2] * stride[1] - pad[1] + tap_position[2] * dilation[1]
    w = pixel[3] * stride[2] - pad[2] + tap_position[3] * dilation[2]
    if d < 0 or d >= size[0] or h < 0 or h >= size[1] or w < 0 or w >= size[2]:
        return x.dtype(0)
    plane = (pixel[0] * counts[0] + group) * counts[2] + tap_position[0]
    return x[((plane * size[0] + d) * size[1] + h) * size[2] + w]


@vk.func
def load_output_grad(g, pixel, tap_position, group, counts, out, stride, pad, dilation):
    """Load the element of g, the output gradient, that contributes to the gradient of an input pixel by a tap.

    `pixel` is the input pixel, a result of `split_pixel`, and `tap_position` is (filter, t, r, s). The result is 0 if
    there is no such element.
    """
    d = pixel[1] + pad[0] - tap_position[1] * dilation[0]
    h = pixel[2] + pad[1] - tap_position[2] * dilation[1]
    w = pixel[3] + pad[2] - tap_position[3] * dilation[2]
    o, p, q = d // stride[0], h // stride[1], w // stride[2]
    if o * stride[0] != d or p * stride[1] != h or q * stride[2] != w:
        return g.dtype(0)
    if o < 0 or o >= out[0] or p < 0 or p >= out[1] or q < 0 or q >= out[2]:
        return g.dtype(0)
    plane = (pixel[0] * counts[0] + group) * counts[1] + tap_position[0]
    return g[((plane * out[0] + o) * out[1] + p) * out[2] + q]


@vk.func
def column_coordinates(n, size, out, kernel: vk.Const[tuple], DIRECTION: vk.Const[str]):
    """Return what column n of the right operand stands for: (channel, t, r, s) for "weight", else a pixel.

    DIRECTION is described in the module docstring.
    """
    if DIRECTION == "weight":
        return split_taps(n, kernel)
    if DIRECTION == "input":
        return split_pixel(n, size)
    return split_pixel(n, out)


@vk.func
def load_b(b, k, coordinates, group, counts, geometry, kernel: vk.Const[tuple], DIRECTION: vk.Const[str]):
    """Load the element of the right operand in row k of the column with the given `column_coordinates`.

    `geometry` is (size, out, stride, pad, dilation). DIRECTION is described in the module docstring.
    """
    size, out, stride, pad, dilation = geometry
    if DIRECTION == "weight":
        return load_input(b, split_pixel(k, out), coordinates, group, counts, size, stride, pad, dilation)
    if DIRECTION == "input":
        return load_output_grad(b, coordinates, split_taps(k, kernel), group, counts, out, stride, pad, dilation)
    return load_input(b, coordinates, split_taps(k, kernel), group, counts, size, stride, pad, dilation)


@vk.func
def multiply_k_tile(sums, shared_a, shared_b, ty, tx, TILE: vk.Const[int]):
    """Return the invocation's TILE x TILE sums, rows ty + 16 i by columns tx + 16 j, plus the product of two tiles."""
    for k in range(BK):
        a_values, b_values, updated = (), (), ()
        for i in vk.unroll(TILE):
            a_values, b_values = a_values + (shared_a[k, ty + i * SIDE],), b_values + (shared_b[k, tx + i * SIDE],)
        for i in vk.unroll(TILE):
            for j in vk.unroll(TILE):
                # an explicit fma: drivers don't contract where signed zeros and infinities are preserved
                updated = updated + (vk.fma(a_values[i], b_values[j], sums[i * TILE + j]),)
        sums = updated
    return sums


@vk.func
def result_offset(m, n, part, columns, group, counts, size, out, DIRECTION: vk.Const[str], ONES: vk.Const[bool]):
    """Return the offset in y of the result (m, n) of a group and split-K part.

    `columns` is N, including the column of ones. DIRECTION and ONES are described in the module docstring.
    """
    if ONES:  # y holds the weights of all filters, then the biases
        filter_, filters, bias_column = group * counts[1] + m, counts[0] * counts[1], columns - 1
        return part * (filters * columns) + vk.where(
            n < bias_column, filter_ * bias_column + n, filters * bias_column + filter_
        )
    if DIRECTION == "weight":
        return ((part * counts[0] + group) * counts[1] + m) * columns + n
    if DIRECTION == "input":
        volume = size[0] * size[1] * size[2]
        return ((n // volume * counts[0] + group) * counts[2] + m) * volume + n % volume
    area = out[0] * out[1] * out[2]
    return ((n // area * counts[0] + group) * counts[1] + m) * area + n % area


@vk.kernel(groups=lambda rows, columns, layers, TILE: (vk.cdiv(columns, SIDE * TILE), vk.cdiv(rows, SIDE * TILE), layers),
           local=SIDE * SIDE, debug=False)  # fmt: skip
def implicit_gemm(
    a: vk.In[T],
    b: vk.In[U],
    bias: vk.In[B],
    y: vk.Out[R],
    rows: vk.i32,
    columns: vk.i32,
    layers: vk.i32,  # noqa: ARG001  # used by `groups`
    k_extent: vk.i32,
    k_per_part: vk.i32,
    groups: vk.i32,
    filters: vk.i32,
    channels: vk.i32,
    size_d: vk.i32,
    size_h: vk.i32,
    size_w: vk.i32,
    out_d: vk.i32,
    out_h: vk.i32,
    out_w: vk.i32,
    stride_d: vk.i32,
    stride_h: vk.i32,
    stride_w: vk.i32,
    pad_d: vk.i32,
    pad_h: vk.i32,
    pad_w: vk.i32,
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    dilation_w: vk.i32,
    KERNEL: vk.Const[tuple],
    DIRECTION: vk.Const[str],
    TILE: vk.Const[int],
    BIAS: vk.Const[bool],
    ONES: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Compute one of the three products of the module docstring, which DIRECTION selects.

    `rows` is M, `columns` N and `k_extent` K; a split-K part sums `k_per_part` of it. `layers` is groups times split-K
    parts. KERNEL is the extent of a filter along depth, height and width. TILE: each invocation computes TILE x TILE
    results. ONES: the last column of the right operand consists of ones. BIAS: add `bias`, one element per filter. A is
    the accumulator type, I the integer type of offsets. Arrays are flat; the other scalars are the fields of
    `geometry.Geometry`.
    """
    size, out = (I(size_d), I(size_h), I(size_w)), (I(out_d), I(out_h), I(out_w))
    stride, pad = (I(stride_d), I(stride_h), I(stride_w)), (I(pad_d), I(pad_h), I(pad_w))
    geometry = (size, out, stride, pad, (I(dilation_d), I(dilation_h), I(dilation_w)))
    counts = (I(groups), I(filters), I(channels))
    # column and row of this invocation in its workgroup, and first column and row of the workgroup's results
    tx, ty = I(vk.local_id(0)) % SIDE, I(vk.local_id(0)) // SIDE
    group, part = I(vk.group_id(2)) % groups, I(vk.group_id(2)) // groups
    n0, m0 = I(vk.group_id(0)) * (SIDE * TILE), I(vk.group_id(1)) * (SIDE * TILE)
    shared_a, shared_b = vk.shared(A, (BK, SIDE * TILE + PAD)), vk.shared(A, (BK, SIDE * TILE + PAD))
    k_begin, k_end = part * k_per_part, vk.min((part + 1) * k_per_part, I(k_extent))
    # Each invocation loads TILE elements of the tiles of both operands: left[ty + 16 i, tx] and right[ty, tx + 16 i],
    # or right[tx, ty + 16 i] for "weight". Adjacent invocations then read adjacent pixels.
    k_index, n_index = tx, ty
    if DIRECTION != "weight":
        k_index, n_index = ty, tx
    b_coordinates = ()  # what each of the TILE columns that this invocation loads from b stands for
    data_columns = columns - 1 if ONES else columns
    for i in vk.unroll(TILE):
        b_coordinates = b_coordinates + (column_coordinates(n0 + n_index + i * SIDE, size, out, KERNEL, DIRECTION),)
    sums, next_a, next_b = zeros(TILE * TILE, A), zeros(TILE, A), zeros(TILE, A)
    # The first iteration only loads the first tiles: `k0` starts one tile before the first.
    for k0 in range(k_begin - BK, k_end, BK):
        if k0 >= k_begin:
            vk.barrier()
            for i in vk.unroll(TILE):
                shared_a[tx, ty + i * SIDE] = next_a[i]
                shared_b[k_index, n_index + i * SIDE] = next_b[i]
            vk.barrier()
        # prefetch the next tiles into registers; they arrive while the current ones are multiplied below
        ka, kb = k0 + BK + tx, k0 + BK + k_index
        next_a, next_b = (), ()
        for i in vk.unroll(TILE):
            a_value, b_value, m, n = A(0), A(0), m0 + ty + i * SIDE, n0 + n_index + i * SIDE
            if m < rows and ka < k_end:
                a_value = A(load_a(a, m, ka, group, counts, out, KERNEL, DIRECTION))
            if n < data_columns and kb < k_end:
                b_value = A(load_b(b, kb, b_coordinates[i], group, counts, geometry, KERNEL, DIRECTION))
            if ONES:
                if n == data_columns:  # also past the end of K, where the left operand is 0
                    b_value = A(1)
            next_a, next_b = next_a + (a_value,), next_b + (b_value,)
        if k0 >= k_begin:
            sums = multiply_k_tile(sums, shared_a, shared_b, ty, tx, TILE)
    for i in vk.unroll(TILE):
        m = m0 + ty + i * SIDE
        for j in vk.unroll(TILE):
            n = n0 + tx + j * SIDE
            if m < rows and n < columns:
                value = sums[i * TILE + j]
                if BIAS:
                    value += A(bias[group * filters + m])
                y[result_offset(m, n, part, I(columns), group, counts, size, out, DIRECTION, ONES)] = R(value)
