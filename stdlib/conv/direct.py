"""Direct convolution for devices of class "cpu": register blocking without shared memory.

`pad_rows` copies the input into a padded buffer, `pack_weights` packs the weights into blocks of interleaved filters. The inner
loops of `direct` then need no bounds checks. Each invocation accumulates a block of filters by columns of one output row in
registers.
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
"""Filters per invocation."""
COLUMNS = 4
"""Adjacent output columns per invocation."""
SEGMENT = 16
"""Elements of a row that an invocation of `pad_rows` copies."""
LOCAL = 32


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
    """y[n, c, d, h, w] = x[n, c, (d - shift_d) / step_d, ...], or 0 where the quotient isn't an index of x.

    y has `rows` rows of `width` elements, copied in `segments` segments each.
    """
    e = vk.i32(vk.global_id(0))
    row = e // segments
    if row >= rows:
        return
    first = (e - row * segments) * SEGMENT
    at = I(row) * I(width)
    h, plane = row % height, row // height
    d, channel = plane % depth, plane // depth
    c = vk.index(channel) % x.shape[1]
    n = vk.index(channel) // x.shape[1]
    source_d, source_h = (d - shift_d) // step_d, (h - shift_h) // step_h
    inside = source_d * step_d == d - shift_d and source_h * step_h == h - shift_h
    inside = inside and source_d >= 0 and source_d < x.shape[2] and source_h >= 0 and source_h < x.shape[3]
    for i in range(vk.min(width - first, SEGMENT)):
        w = first + i
        value = A(0)
        source_w = (w - shift_w) // step_w
        if inside and source_w >= 0 and source_w < x.shape[4] and source_w * step_w == w - shift_w:
            value = A(x[n, c, source_d, source_h, source_w])
        y[at + I(w)] = value


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
    """Pack the weights as y[block, channel, tap, FILTERS], with zeros for filters past the end of a group.

    `blocks`, `filters` and `channels` are per group. TRANSPOSED: pack for the input gradient (dgrad): filters and channels are
    swapped and the taps reversed.
    """
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
def load_f32_pairs(x, at, n: vk.Const[int]):
    """Load n 64-bit words of x and unpack them into 2 n values of f32."""
    made = ()
    for i in vk.unroll(n):
        two = x[at + i]
        made = made + (vk.bitcast(vk.f32, vk.u32(two)), vk.bitcast(vk.f32, vk.u32(two >> 32)))
    return made


@vk.func
def load_broadcast(lanes, lane, w, at, n: vk.Const[int], SIZE: vk.Const[int]):
    """Load n elements of w from `at`, uniform in a subgroup of SIZE lanes: each lane loads some and broadcasts them."""
    made = ()
    for first in vk.unroll(0, n, SIZE):
        mine = w[at + vk.min(first + lane, n - 1)]
        for i in vk.unroll(SIZE):
            if first + i < n:
                made = made + (lanes.broadcast(mine, i),)
    return made


@vk.func
def zeros(n: vk.Const[int], A: vk.Const[object]):
    """Return a tuple of n zeros of type A."""
    made = ()
    for _ in vk.unroll(n):
        made = made + (A(0),)
    return made


@vk.func
def load_strided(x, at, step, n: vk.Const[int]):
    """Load n elements of x from `at` on, `step` apart."""
    made = ()
    for i in vk.unroll(n):
        made = made + (x[at + i * step],)
    return made


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
    """Return sums[i, j] + a[skip + i] * b[first + j * step] (an outer-product update)."""
    made = ()
    for i in vk.unroll(rows):
        for j in vk.unroll(columns):
            made = made + (sums[i * columns + j] + a[skip + i] * b[first + j * step],)
    return made


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
    WORDS: vk.Const[bool],
    BIAS: vk.Const[bool],
    ADD: vk.Const[bool],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Convolve the channels [first, last) of each group: y = the sum over them and all taps, added to y if ADD.

    x is padded, so that no load is out of bounds. `tiles` counts the tiles of COLUMNS output columns, `blocks` the blocks
    of FILTERS filters over all groups. WINDOW is (taps, stride, dilation) along the width: a row of x is then loaded into
    registers once for all taps. It is () if they aren't compile-time constants. WORDS: x is an array of 64-bit words of
    two f32 with rows of even width, and a workgroup is one subgroup, whose lanes share the loads of the weights.
    """
    lane = vk.i32(vk.local_id(0))
    e = vk.min(vk.i32(vk.global_id(0)), tiles - 1)
    across = (Q + (COLUMNS - 1)) // COLUMNS
    q, e = e % across * COLUMNS, e // across
    p, e = e % P, e // P
    o, n = e % O, e // O
    block = vk.i32(vk.group_id(1))
    in_group = blocks // groups
    group, f = block // in_group, block % in_group * FILTERS
    plane = I(height) * I(width)
    volume = I(depth) * plane
    source = I(n * groups + group) * I(channels) * volume
    source += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I(q * stride_w)
    weight = (I(block) * I(channels) + I(first)) * I(taps_d * taps_h * taps_w * FILTERS)
    sums = zeros(FILTERS * COLUMNS, A)
    for c in range(first, last):
        for t in range(taps_d):
            for r in range(taps_h):
                at = source + I(c) * volume + I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
                if WORDS:
                    span = (COLUMNS - 1) * WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1
                    row = load_f32_pairs(x, at // 2, (span + 1) // 2)
                    factors = load_broadcast(vk.subgroup(), lane, w, weight, WINDOW[0] * FILTERS, SIZE)
                    for s in vk.unroll(WINDOW[0]):
                        sums = multiply_add_outer(
                            sums, factors, row, FILTERS, COLUMNS, s * FILTERS, s * WINDOW[2], WINDOW[1]
                        )
                    weight += WINDOW[0] * FILTERS
                elif WINDOW:
                    row = load_strided(x, at, 1, (COLUMNS - 1) * WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1)
                    for s in vk.unroll(WINDOW[0]):
                        factors = load_strided(w, weight + s * FILTERS, 1, FILTERS)
                        sums = multiply_add_outer(sums, factors, row, FILTERS, COLUMNS, 0, s * WINDOW[2], WINDOW[1])
                    weight += WINDOW[0] * FILTERS
                else:
                    for s in range(taps_w):
                        row = load_strided(x, at + I(s * dilation_w), stride_w, COLUMNS)
                        factors = load_strided(w, weight, 1, FILTERS)
                        sums = multiply_add_outer(sums, factors, row, FILTERS, COLUMNS, 0, 0, 1)
                        weight += FILTERS
    area = I(O) * I(P) * I(Q)
    k = group * filters + f
    target = I(n * groups * filters + k) * area + I(o * P + p) * I(Q) + I(q)
    for i in vk.unroll(FILTERS):
        if f + i < filters and vk.global_id(0) < tiles:
            extra = A(0)
            if BIAS:
                extra = A(bias[k + i])
            for j in vk.unroll(COLUMNS):
                if q + j < Q:
                    spot = target + i * area + j
                    if ADD:
                        y[spot] = R(y[spot] + sums[i * COLUMNS + j])
                    else:
                        y[spot] = R(sums[i * COLUMNS + j] + extra)
