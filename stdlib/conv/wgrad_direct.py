"""Convolution weight gradient (wgrad) for devices of class "cpu": register blocking without shared memory.

Takes the padded input and the gradient of the output. Each invocation sums over a part of the output rows for several weights;
the parts are added in order afterwards.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .direct import COLUMNS, FILTERS, LOCAL, load_f32_pairs, multiply_add_outer, zeros

__all__ = ["wgrad_f32_pairs", "wgrad_parts"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)


@vk.kernel(groups=lambda tiles, parts: (vk.cdiv(tiles, LOCAL), parts, 1), local=LOCAL, debug=False)
def wgrad_parts(
    x: vk.In[A],
    g: vk.In[T],
    y: vk.Out[A],
    tiles: vk.i32,
    parts: vk.i32,  # noqa: ARG001  # used by `groups`
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
    taps_w: vk.i32,
    stride_d: vk.i32,
    stride_h: vk.i32,
    stride_w: vk.i32,
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    dilation_w: vk.i32,
    I: vk.Const[object],  # noqa: E741
):
    """y[part, filter, channel, tap] = the weight gradient over `per_part` output rows; x is padded, g is dense.

    An invocation accumulates FILTERS filters by COLUMNS channels of one tap in registers; those past the end repeat the last.
    """
    e = vk.i32(vk.global_id(0))
    if e >= tiles:
        return
    tap = e % (taps_d * taps_h * taps_w)
    s, r, t = tap % taps_w, tap // taps_w % taps_h, tap // (taps_w * taps_h)
    e = e // (taps_d * taps_h * taps_w)
    across = (channels + (COLUMNS - 1)) // COLUMNS
    c, e = e % across * COLUMNS, e // across
    down = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % down * FILTERS, e // down
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    area = I(O) * I(P) * I(Q)
    sums = zeros(FILTERS * COLUMNS, A)
    for i in range(vk.min(rows - part * per_part, per_part)):
        row = part * per_part + i
        p, o, n = row % P, row // P % O, row // (P * O)
        at = I(o * stride_d + t * dilation_d) * plane + I(p * stride_h + r * dilation_h) * I(width) + I(s * dilation_w)
        source, target = (), ()
        for j in vk.unroll(COLUMNS):
            channel = (n * groups + group) * channels + vk.min(c + j, channels - 1)
            source = source + (I(channel) * I(depth) * plane + at,)
        for i in vk.unroll(FILTERS):
            k = (n * groups + group) * filters + vk.min(f + i, filters - 1)
            target = target + (I(k) * area + I(o * P + p) * I(Q),)
        for q in range(Q):
            a, b = (), ()
            for i in vk.unroll(FILTERS):
                a = a + (A(g[target[i] + q]),)
            for j in vk.unroll(COLUMNS):
                b = b + (x[source[j] + q * stride_w],)
            sums = multiply_add_outer(sums, a, b, FILTERS, COLUMNS, 0, 0, 1)
    taps = taps_d * taps_h * taps_w
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(COLUMNS):
            if f + i < filters and c + j < channels:
                k = part * groups * filters + group * filters + f + i
                y[(I(k) * I(channels) + I(c + j)) * I(taps) + I(tap)] = sums[i * COLUMNS + j]


@vk.kernel(groups=lambda tiles, parts: (vk.cdiv(tiles, LOCAL), parts, 1), local=LOCAL, debug=False)
def wgrad_f32_pairs(
    x: vk.In[vk.u64],
    g: vk.In[vk.u64],
    y: vk.Out[vk.f32],
    tiles: vk.i32,
    parts: vk.i32,  # noqa: ARG001  # used by `groups`
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
    pairs: vk.i32,
    taps_d: vk.i32,
    taps_h: vk.i32,
    stride_d: vk.i32,
    stride_h: vk.i32,
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    WINDOW: vk.Const[tuple],
    CHANNELS: vk.Const[int],
    I: vk.Const[object],  # noqa: E741
):
    """Like `wgrad_parts`, for f32 in 64-bit words of two.

    Rows of x have an even width, those of g have `pairs` words and are padded with zeros. An invocation accumulates FILTERS
    filters by CHANNELS channels by all taps along the width. WINDOW is (taps, stride, dilation) there.
    """
    e = vk.i32(vk.global_id(0))
    if e >= tiles:
        return
    r, e = e % taps_h, e // taps_h
    t, e = e % taps_d, e // taps_d
    across = (channels + (CHANNELS - 1)) // CHANNELS
    c, e = e % across * CHANNELS, e // across
    down = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % down * FILTERS, e // down
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    area = I(O) * I(P) * I(pairs)
    sums = zeros(CHANNELS * FILTERS * WINDOW[0], vk.f32)
    for i in range(vk.min(rows - part * per_part, per_part)):
        row = part * per_part + i
        p, o, n = row % P, row // P % O, row // (P * O)
        at = I(o * stride_d + t * dilation_d) * plane + I(p * stride_h + r * dilation_h) * I(width)
        source, target = (), ()
        for j in vk.unroll(CHANNELS):
            channel = (n * groups + group) * channels + vk.min(c + j, channels - 1)
            source = source + ((I(channel) * I(depth) * plane + at) // 2,)
        for k in vk.unroll(FILTERS):
            filter_ = (n * groups + group) * filters + vk.min(f + k, filters - 1)
            target = target + (I(filter_) * area + I(o * P + p) * I(pairs),)
        for q in range(pairs):
            slopes, made = (), ()
            for k in vk.unroll(FILTERS):
                slopes = slopes + load_f32_pairs(g, target[k] + q, 1)
            for j in vk.unroll(CHANNELS):
                span = WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1
                values = load_f32_pairs(x, source[j] + q * WINDOW[1], (span + 1) // 2)
                for k in vk.unroll(FILTERS):
                    for s in vk.unroll(WINDOW[0]):
                        total = sums[(j * FILTERS + k) * WINDOW[0] + s]
                        total += slopes[2 * k] * values[s * WINDOW[2]]
                        total += slopes[2 * k + 1] * values[s * WINDOW[2] + WINDOW[1]]
                        made = made + (total,)
            sums = made
    taps = taps_d * taps_h * WINDOW[0]
    for j in vk.unroll(CHANNELS):
        for k in vk.unroll(FILTERS):
            if f + k < filters and c + j < channels:
                filter_ = (part * groups + group) * filters + f + k
                spot = (I(filter_) * I(channels) + I(c + j)) * I(taps) + I((t * taps_h + r) * WINDOW[0])
                for s in vk.unroll(WINDOW[0]):
                    y[spot + s] = sums[(j * FILTERS + k) * WINDOW[0] + s]
