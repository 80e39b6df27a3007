"""Convolution weight gradient (wgrad) on CPUs (LLVM): SIMD lanes along an output row, register blocking over the weights.

Takes the padded input and the dense gradient of the output. A workgroup is one SIMD vector of invocations. Each accumulates
FILTERS filters by CHANNELS channels by all taps along the width for its columns; the lanes are summed at the end. The output
rows are split into parts, which are added in order afterwards.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .direct import zeros

__all__ = ["wgrad_rows"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


@vk.func
def offsets(first, end, step, n: vk.Const[int]):
    """Return the offsets of n consecutive items from `first` on, `step` elements apart; past the end the last repeats."""
    made = ()
    for i in vk.unroll(n):
        made = made + (vk.min(first + i, end - 1) * step,)
    return made


@vk.func
def next_row(p, o, n, P, O):  # noqa: E741
    """Return the coordinates of the output row after (p, o, n)."""
    p += 1
    if p == P:
        p, o = 0, o + 1
        if o == O:
            o, n = 0, n + 1
    return p, o, n


@vk.func
def accumulate_column(
    x,
    g,
    sums,
    source,
    target,
    channel,
    filter_,
    WINDOW: vk.Const[tuple],
    CHANNELS: vk.Const[int],
    FILTERS: vk.Const[int],
    A: vk.Const[object],
):
    """Return the sums plus the products for one output column.

    `source` and `target` are the column's offsets in a channel of x and in a filter of g; `channel` and `filter_` are the
    offsets of the channels and filters.
    """
    values, made = (), ()
    for j in vk.unroll(CHANNELS):
        for s in vk.unroll(WINDOW[0]):
            values = values + (x[source + channel[j] + s * WINDOW[2]],)
    for i in vk.unroll(FILTERS):
        slope = A(g[target + filter_[i]])
        for j in vk.unroll(CHANNELS * WINDOW[0]):
            made = made + (sums[i * (CHANNELS * WINDOW[0]) + j] + slope * values[j],)
    return made


@vk.kernel(groups=lambda tiles, parts: (tiles, parts, 1), local=lambda SIZE: SIZE, debug=False)
def wgrad_rows(
    x: vk.In[A],
    g: vk.In[T],
    y: vk.Out[A],
    tiles: vk.i32,  # noqa: ARG001  # used by `groups`
    parts: vk.i32,  # noqa: ARG001
    rows: vk.i32,
    per_part: vk.i32,
    groups: vk.i32,
    filters: vk.i32,
    channels: vk.i32,
    depth: vk.i32,
    height: vk.i32,
    width: vk.i32,
    O: vk.i32,  # noqa: E741
    P: vk.i32,
    Q: vk.i32,
    taps_d: vk.i32,
    taps_h: vk.i32,
    stride_d: vk.i32,
    stride_h: vk.i32,
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    WINDOW: vk.Const[tuple],
    CHANNELS: vk.Const[int],
    FILTERS: vk.Const[int],
    SIZE: vk.Const[int],
    I: vk.Const[object],  # noqa: E741
):
    """y[part, filter, channel, tap] = the weight gradient over `per_part` output rows.

    WINDOW is (taps, stride, dilation) along the width.
    """
    lanes, lane, e = vk.subgroup(), vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    r, e = e % taps_h, e // taps_h
    t, e = e % taps_d, e // taps_d
    across = (channels + (CHANNELS - 1)) // CHANNELS
    c, e = e % across * CHANNELS, e // across
    down = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % down * FILTERS, e // down
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    channel = offsets(c, channels, I(depth) * plane, CHANNELS)
    filter_ = offsets(f, filters, I(O) * I(P) * I(Q), FILTERS)
    corner = I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
    first, end = part * per_part, vk.min(rows, (part + 1) * per_part)
    whole = Q // SIZE * SIZE
    area = I(O) * I(P) * I(Q)
    in_x, in_g = I(channels) * I(depth) * plane, I(filters) * area
    sums = zeros(FILTERS * CHANNELS * WINDOW[0], A)
    if whole + lane < Q:  # the tail comes first: the sums of inactive lanes are then still zeros and take no registers
        p, o, n = first % P, first // P % O, first // (P * O)
        for _ in range(first, end):
            source = I(n * groups + group) * in_x + corner
            source += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I((whole + lane) * WINDOW[1])
            target = I(n * groups + group) * in_g + I(o * P + p) * I(Q) + I(whole + lane)
            sums = accumulate_column(x, g, sums, source, target, channel, filter_, WINDOW, CHANNELS, FILTERS, A)
            p, o, n = next_row(p, o, n, P, O)
    if whole > 0:
        p, o, n = first % P, first // P % O, first // (P * O)
        for _ in range(first, end):
            source = I(n * groups + group) * in_x + corner
            source += I(o * stride_d) * plane + I(p * stride_h) * I(width)
            target = I(n * groups + group) * in_g + I(o * P + p) * I(Q)
            for q in range(0, whole, SIZE):
                sums = accumulate_column(
                    x, g, sums, source + I((q + lane) * WINDOW[1]), target + I(q + lane), channel, filter_, WINDOW,
                    CHANNELS, FILTERS, A,
                )  # fmt: skip
            p, o, n = next_row(p, o, n, P, O)
    taps = taps_d * taps_h * WINDOW[0]
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(CHANNELS):
            spot = (I((part * groups + group) * filters + f + i) * I(channels) + I(c + j)) * I(taps)
            spot += I((t * taps_h + r) * WINDOW[0])
            for s in vk.unroll(WINDOW[0]):
                total = lanes.sum(sums[(i * CHANNELS + j) * WINDOW[0] + s])
                if lane == 0 and f + i < filters and c + j < channels:
                    y[spot + s] = total
