"""Direct convolution for devices of class "cpu": register blocking without shared memory.

`direct_plan` launches the kernels. `pad_rows` copies the input into a padded buffer, `pack_weights` packs the weights
into blocks of interleaved filters. The inner loops of `direct` then need no bounds checks. Each invocation accumulates
a block of FILTERS filters by COLUMNS adjacent columns of one output row in registers.

Arrays are flat (one axis, C order) unless a docstring gives their shape. The kernels share these scalar parameters:

- `groups`: groups of the convolution; `filters`, `channels`: filters and channels per group.
- `first`, `last`: the range of channels of each group that a launch sums; a long sum takes several launches.
- `depth`, `height`, `width`: extents of the padded input; O, P, Q: extents of y; `taps_*`: extents of a filter.
- `stride_*`, `dilation_*`: strides and dilations in elements of x.
- I: the integer type of offsets, i32 or i64.

Element types: T is that of the arrays that `pad_rows` and `pack_weights` copy, and of the padded input; A that of the
copies and of arithmetic; B that of the bias; R that of the result. `debug=False` omits the bounds checks that devices
on the CPU make by default.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

__all__ = [
    "COLUMNS", "FILTERS", "LOCAL", "SEGMENT", "direct", "load_f32_pairs", "multiply_add_outer", "pack_weights", "pad_rows", "zeros",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

FILTERS = 4
"""Default number of filters per invocation."""
COLUMNS = 4
"""Default number of adjacent output columns per invocation."""
SEGMENT = 16
"""Elements of a row that an invocation of `pad_rows` writes."""
LOCAL = 32
"""Default number of invocations per workgroup."""


@vk.kernel(groups=lambda rows, segments: (vk.cdiv(rows * segments, LOCAL), 1, 1), local=LOCAL, debug=False)
def pad_rows(
    x: vk.In[T],
    y: vk.Out[A],
    rows: vk.i32,
    segments: vk.i32,
    depth: vk.i32,
    height: vk.i32,
    width: vk.i32,
    shift_d: vk.i32,
    shift_h: vk.i32,
    shift_w: vk.i32,
    step_d: vk.i32,
    step_h: vk.i32,
    step_w: vk.i32,
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Copy x to y, with padding around and zeros between the elements.

    x is (N, C, D, H, W), y is (N, C, depth, height, width): y[n, c, d, h, w] = x[n, c, (d - shift_d) / step_d, ...], or
    0 where the quotient isn't an index of x. y has `rows` rows of `width` elements; each is divided into `segments`
    segments, one per invocation. The other parameters are described in the module docstring.
    """
    e = vk.i32(vk.global_id(0))
    row = e // segments
    if row >= rows:
        return
    first = (e - row * segments) * SEGMENT
    y_offset = I(row) * I(width)
    h, plane = row % height, row // height
    d, channel = plane % depth, plane // depth
    c = vk.index(channel) % x.shape[1]
    n = vk.index(channel) // x.shape[1]
    source_d, source_h = (d - shift_d) // step_d, (h - shift_h) // step_h
    # a quotient that isn't exact is between elements of x
    inside = source_d * step_d == d - shift_d and source_h * step_h == h - shift_h
    inside = inside and source_d >= 0 and source_d < x.shape[2] and source_h >= 0 and source_h < x.shape[3]
    for i in range(vk.min(width - first, SEGMENT)):
        w = first + i
        value = A(0)
        source_w = (w - shift_w) // step_w
        if inside and source_w >= 0 and source_w < x.shape[4] and source_w * step_w == w - shift_w:
            value = A(x[n, c, source_d, source_h, source_w])
        y[y_offset + I(w)] = value


@vk.kernel(over="y", debug=False)
def pack_weights(
    w: vk.In[T],
    y: vk.Out[A, "N"],
    blocks: vk.i32,
    filters: vk.i32,
    channels: vk.i32,
    TRANSPOSED: vk.Const[bool],
    FILTERS: vk.Const[int],
):
    """Pack the weights w (groups * filters, channels, T, R, S) as y[block, channel, tap, filter within the block].

    A block has FILTERS filters of one group, or zeros past the last filter of the group; `blocks` is the number of
    blocks per group. TRANSPOSED: pack for the input gradient (dgrad), in which filters and channels are swapped and the
    taps reversed. The other parameters are described in the module docstring.
    """
    # y is written in order: split the flat index into (block, c, t, r, s, f)
    e = vk.i32(vk.global_id(0))
    f, e = e % FILTERS, e // FILTERS
    s, e = e % w.shape[4], e // w.shape[4]
    r, e = e % w.shape[3], e // w.shape[3]
    t, e = e % w.shape[2], e // w.shape[2]
    c, block = e % channels, e // channels
    group, f = block // blocks, f + block % blocks * FILTERS
    value = A(0)
    if f < filters:
        if TRANSPOSED:
            value = A(w[group * channels + c, f, w.shape[2] - 1 - t, w.shape[3] - 1 - r, w.shape[4] - 1 - s])
        else:
            value = A(w[group * filters + f, c, t, r, s])
    y[vk.global_id(0)] = value


@vk.func
def load_f32_pairs(x, offset, n: vk.Const[int]):
    """Load n 64-bit words of x from `offset` on, counted in words, and unpack them into 2 n values of f32."""
    values = ()
    for i in vk.unroll(n):
        word = x[offset + i]
        values = values + (vk.bitcast(vk.f32, vk.u32(word)), vk.bitcast(vk.f32, vk.u32(word >> 32)))
    return values


@vk.func
def load_broadcast(sg, lane, w, offset, n: vk.Const[int], SIZE: vk.Const[int]):
    """Load n elements of w from `offset` on, the same for all SIZE lanes of the subgroup sg.

    Each lane loads some of the elements and broadcasts them.
    """
    values = ()
    for first in vk.unroll(0, n, SIZE):
        my_value = w[offset + vk.min(first + lane, n - 1)]
        for i in vk.unroll(SIZE):
            if first + i < n:
                values = values + (sg.broadcast(my_value, i),)
    return values


@vk.func
def zeros(n: vk.Const[int], A: vk.Const[object]):
    """Return a tuple of n zeros of type A."""
    values = ()
    for _ in vk.unroll(n):
        values = values + (A(0),)
    return values


@vk.func
def load_strided(x, offset, step, n: vk.Const[int]):
    """Load n elements of x from `offset` on, `step` apart."""
    values = ()
    for i in vk.unroll(n):
        values = values + (x[offset + i * step],)
    return values


@vk.func
def multiply_add_outer(
    sums,
    a,
    b,
    rows: vk.Const[int],
    columns: vk.Const[int],
    skip: vk.Const[int],
    first: vk.Const[int],
    step: vk.Const[int],
):
    """Return the outer-product update sums[i, j] + a[skip + i] * b[first + j * step] of rows x columns sums.

    `sums` is a flat tuple; a and b are tuples, of which `skip`, `first` and `step` select elements.
    """
    updated = ()
    for i in vk.unroll(rows):
        for j in vk.unroll(columns):
            updated = updated + (sums[i * columns + j] + a[skip + i] * b[first + j * step],)
    return updated


@vk.kernel(groups=lambda tiles, blocks, SIZE: (vk.cdiv(tiles, SIZE), blocks, 1), local=lambda SIZE: SIZE, debug=False)
def direct(
    x: vk.In[T],
    w: vk.In[A],
    bias: vk.In[B],
    y: vk.InOut[R],
    tiles: vk.i32,
    blocks: vk.i32,
    groups: vk.i32,
    filters: vk.i32,
    channels: vk.i32,
    first: vk.i32,
    last: vk.i32,
    depth: vk.i32,
    height: vk.i32,
    width: vk.i32,
    O: vk.i32,  # noqa: E741  # the usual names of output extents
    P: vk.i32,
    Q: vk.i32,
    taps_d: vk.i32,
    taps_h: vk.i32,
    taps_w: vk.i32,
    stride_d: vk.i32,
    stride_h: vk.i32,
    stride_w: vk.i32,
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    dilation_w: vk.i32,
    WINDOW: vk.Const[tuple],
    FILTERS: vk.Const[int],
    COLUMNS: vk.Const[int],
    SIZE: vk.Const[int],
    F32_PAIRS: vk.Const[bool],
    BIAS: vk.Const[bool],
    ADD: vk.Const[bool],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Convolve the channels [first, last) of each group.

    The sum over these channels and all taps is stored to y, or with ADD added to y. x is padded, so that no load is out
    of bounds; w is the result of `pack_weights`. `tiles` is the number of sets of COLUMNS adjacent output columns, over
    all rows of one filter and the batch; `blocks` is the number of blocks of FILTERS filters over all groups. A
    workgroup has SIZE invocations. BIAS: add `bias`.

    WINDOW is (taps, stride, dilation) along the width, as compile-time constants: the elements of a row of x are then
    loaded into registers once for all taps. With (), the loop over the taps isn't unrolled and each tap loads its own
    elements. F32_PAIRS: x is an array of 64-bit words of two f32 with rows of even width, and a workgroup is one
    subgroup, whose lanes share the loads of the weights. The other parameters are described in the module docstring.
    """
    # Split the flat index into the first column q and the row p, plane o and sample n. Invocations past the end repeat
    # the last tile, because subgroup broadcasts need all lanes; they don't store.
    lane = vk.i32(vk.local_id(0))
    e = vk.min(vk.i32(vk.global_id(0)), tiles - 1)
    tiles_per_row = (Q + (COLUMNS - 1)) // COLUMNS
    q, e = e % tiles_per_row * COLUMNS, e // tiles_per_row
    p, e = e % P, e // P
    o, n = e % O, e // O
    block = vk.i32(vk.group_id(1))
    blocks_per_group = blocks // groups
    group, f = block // blocks_per_group, block % blocks_per_group * FILTERS
    # `x_offset` and `w_offset` are the offsets of the first elements that this invocation reads.
    plane = I(height) * I(width)
    volume = I(depth) * plane
    x_offset = I(n * groups + group) * I(channels) * volume
    x_offset += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I(q * stride_w)
    w_offset = (I(block) * I(channels) + I(first)) * I(taps_d * taps_h * taps_w * FILTERS)
    sums = zeros(FILTERS * COLUMNS, A)
    for c in range(first, last):
        for t in range(taps_d):
            for r in range(taps_h):
                row_offset = x_offset + I(c) * volume + I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
                if F32_PAIRS:
                    # elements of a row of x under all taps of all columns
                    span = (COLUMNS - 1) * WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1
                    row = load_f32_pairs(x, row_offset // 2, (span + 1) // 2)
                    factors = load_broadcast(vk.subgroup(), lane, w, w_offset, WINDOW[0] * FILTERS, SIZE)
                    for s in vk.unroll(WINDOW[0]):
                        sums = multiply_add_outer(
                            sums, factors, row, FILTERS, COLUMNS, s * FILTERS, s * WINDOW[2], WINDOW[1]
                        )
                    w_offset += WINDOW[0] * FILTERS
                elif WINDOW:
                    row = load_strided(x, row_offset, 1, (COLUMNS - 1) * WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1)
                    for s in vk.unroll(WINDOW[0]):
                        factors = load_strided(w, w_offset + s * FILTERS, 1, FILTERS)
                        sums = multiply_add_outer(sums, factors, row, FILTERS, COLUMNS, 0, s * WINDOW[2], WINDOW[1])
                    w_offset += WINDOW[0] * FILTERS
                else:
                    for s in range(taps_w):
                        row = load_strided(x, row_offset + I(s * dilation_w), stride_w, COLUMNS)
                        factors = load_strided(w, w_offset, 1, FILTERS)
                        sums = multiply_add_outer(sums, factors, row, FILTERS, COLUMNS, 0, 0, 1)
                        w_offset += FILTERS
    area = I(O) * I(P) * I(Q)
    filter_index = group * filters + f
    y_offset = I(n * groups * filters + filter_index) * area + I(o * P + p) * I(Q) + I(q)
    for i in vk.unroll(FILTERS):
        if f + i < filters and vk.global_id(0) < tiles:
            bias_value = A(0)
            if BIAS:
                bias_value = A(bias[filter_index + i])
            for j in vk.unroll(COLUMNS):
                if q + j < Q:
                    offset = y_offset + i * area + j
                    if ADD:
                        y[offset] = R(y[offset] + sums[i * COLUMNS + j])
                    else:
                        y[offset] = R(sums[i * COLUMNS + j] + bias_value)
