"""Implicit GEMM convolution for GPUs: fprop, dgrad and wgrad as matrix products, without an im2col buffer.

A workgroup of 16 x 16 invocations computes an output tile of (16 * TILE) x (16 * TILE). K tiles of both operands, BK deep, are
staged in shared memory; the next one is loaded into registers while the current one is multiplied. DIRECTION selects the
GEMM's M, N and K dimensions:
- "forward": M = filters, N = output pixels, K = channels and taps;
- "input": M = channels, N = input pixels, K = filters and taps;
- "weight": M = filters, N = channels and taps, K = output pixels, with split-K partial sums that are added afterwards. An
  extra column of ones in the right operand yields the gradient of the bias.
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
"""Invocations along each side of a tile."""
BK = 16
"""Extent of a K tile."""
PAD = 2
"""Padding of each row in shared memory, in elements: invocations that write a column access different banks."""


@vk.func
def split_taps(k, kernel: vk.Const[tuple]):
    """Split a flat index over channels and taps into (channel, tap along depth, height, width)."""
    s, rest = k % kernel[2], k // kernel[2]
    r, rest = rest % kernel[1], rest // kernel[1]
    return rest // kernel[0], rest % kernel[0], r, s


@vk.func
def split_pixel(n, size):
    """Split a flat index over the batch and the pixels of `size` into (batch, depth, height, width)."""
    w, rest = n % size[2], n // size[2]
    h, rest = rest % size[1], rest // size[1]
    return rest // size[0], rest % size[0], h, w


@vk.func
def load_a(a, m, k, group, counts, out, kernel: vk.Const[tuple], WHAT: vk.Const[str]):
    """Load element (m, k) of the GEMM's left operand. `counts` is (groups, filters, channels)."""
    taps = kernel[0] * kernel[1] * kernel[2]
    filters, channels = counts[1], counts[2]
    if WHAT == "forward":
        return a[(group * filters + m) * (channels * taps) + k]
    if WHAT == "input":
        return a[((group * filters + k // taps) * channels + m) * taps + k % taps]
    area = out[0] * out[1] * out[2]
    return a[((k // area * counts[0] + group) * filters + m) * area + k % area]


@vk.func
def load_input(x, pixel, point, group, counts, size, stride, pad, dilation):
    """Load the element of x that output pixel `pixel` reads through `point` = (channel, tap); 0 in the padding."""
    d = pixel[1] * stride[0] - pad[0] + point[1] * dilation[0]
    h = pixel[2] * stride[1] - pad[1] + point[2] * dilation[1]
    w = pixel[3] * stride[2] - pad[2] + point[3] * dilation[2]
    if d < 0 or d >= size[0] or h < 0 or h >= size[1] or w < 0 or w >= size[2]:
        return x.dtype(0)
    plane = (pixel[0] * counts[0] + group) * counts[2] + point[0]
    return x[((plane * size[0] + d) * size[1] + h) * size[2] + w]


@vk.func
def load_output_grad(g, pixel, point, group, counts, out, stride, pad, dilation):
    """Load the output gradient that input pixel `pixel` receives through `point` = (filter, tap); 0 if there is none."""
    d = pixel[1] + pad[0] - point[1] * dilation[0]
    h = pixel[2] + pad[1] - point[2] * dilation[1]
    w = pixel[3] + pad[2] - point[3] * dilation[2]
    o, p, q = d // stride[0], h // stride[1], w // stride[2]
    if o * stride[0] != d or p * stride[1] != h or q * stride[2] != w:
        return g.dtype(0)
    if o < 0 or o >= out[0] or p < 0 or p >= out[1] or q < 0 or q >= out[2]:
        return g.dtype(0)
    plane = (pixel[0] * counts[0] + group) * counts[1] + point[0]
    return g[((plane * out[0] + o) * out[1] + p) * out[2] + q]


@vk.func
def column_coordinates(n, size, out, kernel: vk.Const[tuple], WHAT: vk.Const[str]):
    """Return the coordinates of column n of the right operand: (channel, tap) for "weight", else a pixel."""
    if WHAT == "weight":
        return split_taps(n, kernel)
    if WHAT == "input":
        return split_pixel(n, size)
    return split_pixel(n, out)


@vk.func
def load_b(b, k, spot, group, counts, geometry, kernel: vk.Const[tuple], WHAT: vk.Const[str]):
    """Load row k of the right operand in the column at coordinates `spot`.

    `geometry` is (size, out, stride, pad, dilation).
    """
    size, out, stride, pad, dilation = geometry
    if WHAT == "weight":
        return load_input(b, split_pixel(k, out), spot, group, counts, size, stride, pad, dilation)
    if WHAT == "input":
        return load_output_grad(b, spot, split_taps(k, kernel), group, counts, out, stride, pad, dilation)
    return load_input(b, spot, split_taps(k, kernel), group, counts, size, stride, pad, dilation)


@vk.func
def multiply_k_tile(sums, shared_a, shared_b, ty, tx, TILE: vk.Const[int]):
    """Return sums plus the product of the K tiles, for rows ty + 16 i and columns tx + 16 j."""
    for k in range(BK):
        factors, others, made = (), (), ()
        for i in vk.unroll(TILE):
            factors, others = factors + (shared_a[k, ty + i * SIDE],), others + (shared_b[k, tx + i * SIDE],)
        for i in vk.unroll(TILE):
            for j in vk.unroll(TILE):
                # an explicit fma: drivers don't contract where signed zeros and infinities are preserved
                made = made + (vk.fma(factors[i], others[j], sums[i * TILE + j]),)
        sums = made
    return sums


@vk.func
def result_offset(m, n, part, columns, group, counts, size, out, WHAT: vk.Const[str], ONES: vk.Const[bool]):
    """Return the offset in y of the result (m, n)."""
    if ONES:  # y holds the weights of all filters, then the biases
        filter_, filters, last = group * counts[1] + m, counts[0] * counts[1], columns - 1
        return part * (filters * columns) + vk.where(n < last, filter_ * last + n, filters * last + filter_)
    if WHAT == "weight":
        return ((part * counts[0] + group) * counts[1] + m) * columns + n
    if WHAT == "input":
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
    """Compute one of the three products (see the module docstring).

    `k_extent` is K and `k_per_part` the part of it that a workgroup sums; `layers` is groups times split-K parts. KERNEL is the
    number of taps along depth, height and width. ONES: the last column of the right operand consists of ones. BIAS: add `bias`.
    A is the accumulator type, I the index type.
    """
    size, out = (I(size_d), I(size_h), I(size_w)), (I(out_d), I(out_h), I(out_w))
    stride, pad = (I(stride_d), I(stride_h), I(stride_w)), (I(pad_d), I(pad_h), I(pad_w))
    geometry = (size, out, stride, pad, (I(dilation_d), I(dilation_h), I(dilation_w)))
    counts = (I(groups), I(filters), I(channels))
    tx, ty = I(vk.local_id(0)) % SIDE, I(vk.local_id(0)) // SIDE
    group, part = I(vk.group_id(2)) % groups, I(vk.group_id(2)) // groups
    n0, m0 = I(vk.group_id(0)) * (SIDE * TILE), I(vk.group_id(1)) * (SIDE * TILE)
    shared_a, shared_b = vk.shared(A, (BK, SIDE * TILE + PAD)), vk.shared(A, (BK, SIDE * TILE + PAD))
    low, high = part * k_per_part, vk.min((part + 1) * k_per_part, I(k_extent))
    # Each invocation loads TILE elements of both K tiles: left[ty + 16 i, tx] and right[ty, tx + 16 i], or right[tx, ty + 16 i]
    # for "weight". Adjacent invocations then read adjacent pixels.
    along, across = tx, ty
    if DIRECTION != "weight":
        along, across = ty, tx
    spots = ()
    gathered = columns - 1 if ONES else columns
    for i in vk.unroll(TILE):
        spots = spots + (column_coordinates(n0 + across + i * SIDE, size, out, KERNEL, DIRECTION),)
    sums, next_a, next_b = zeros(TILE * TILE, A), zeros(TILE, A), zeros(TILE, A)
    for k0 in range(low - BK, high, BK):
        if k0 >= low:
            vk.barrier()
            for i in vk.unroll(TILE):
                shared_a[tx, ty + i * SIDE] = next_a[i]
                shared_b[along, across + i * SIDE] = next_b[i]
            vk.barrier()
        # prefetch the next K tile while this one is multiplied
        ka, kb = k0 + BK + tx, k0 + BK + along
        next_a, next_b = (), ()
        for i in vk.unroll(TILE):
            a_value, b_value, m, n = A(0), A(0), m0 + ty + i * SIDE, n0 + across + i * SIDE
            if m < rows and ka < high:
                a_value = A(load_a(a, m, ka, group, counts, out, KERNEL, DIRECTION))
            if n < gathered and kb < high:
                b_value = A(load_b(b, kb, spots[i], group, counts, geometry, KERNEL, DIRECTION))
            if ONES:
                if n == gathered:  # past the end of K the left operand is 0
                    b_value = A(1)
            next_a, next_b = next_a + (a_value,), next_b + (b_value,)
        if k0 >= low:
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
