"""Convolution weight gradient (wgrad) for devices of class "cpu": register blocking without shared memory.

`wgrad_plan` launches the kernels with x, the padded input, and g, the dense gradient of the output, both flat. Each
invocation computes the gradients of several weights, summed over a part of the output rows; the parts are added in
order afterwards. The kernels store y[part, filter, channel, tap]. T is the element type of g, and A that of x and of
the sums. Both kernels have these scalar parameters:

- `rows`: output rows per filter, over the batch; `per_part`: rows per part; `parts`: number of parts.
- `tiles`: invocations per part, over all groups: one for each block of filters, block of channels, and tap.
- The others, and I, are those of the kernels in `direct`.

`debug=False` omits the bounds checks that devices on the CPU make by default.
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
    """Compute the weight gradient for FILTERS filters by COLUMNS channels of one tap per invocation.

    FILTERS and COLUMNS are the constants of `direct`. Filters and channels past the end repeat the last one and aren't
    stored. The other parameters are described in the module docstring.
    """
    # split the flat index into tap, channel block, filter block and group
    e = vk.i32(vk.global_id(0))
    if e >= tiles:
        return
    tap = e % (taps_d * taps_h * taps_w)
    s, r, t = tap % taps_w, tap // taps_w % taps_h, tap // (taps_w * taps_h)
    e = e // (taps_d * taps_h * taps_w)
    channel_blocks = (channels + (COLUMNS - 1)) // COLUMNS
    c, e = e % channel_blocks * COLUMNS, e // channel_blocks
    filter_blocks = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % filter_blocks * FILTERS, e // filter_blocks
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    area = I(O) * I(P) * I(Q)
    sums = zeros(FILTERS * COLUMNS, A)
    for step in range(vk.min(rows - part * per_part, per_part)):
        row = part * per_part + step
        p, o, n = row % P, row // P % O, row // (P * O)
        row_offset = (
            I(o * stride_d + t * dilation_d) * plane + I(p * stride_h + r * dilation_h) * I(width) + I(s * dilation_w)
        )
        x_offsets, g_offsets = (), ()
        for j in vk.unroll(COLUMNS):
            channel = (n * groups + group) * channels + vk.min(c + j, channels - 1)
            x_offsets = x_offsets + (I(channel) * I(depth) * plane + row_offset,)
        for i in vk.unroll(FILTERS):
            k = (n * groups + group) * filters + vk.min(f + i, filters - 1)
            g_offsets = g_offsets + (I(k) * area + I(o * P + p) * I(Q),)
        for q in range(Q):
            g_values, x_values = (), ()
            for i in vk.unroll(FILTERS):
                g_values = g_values + (A(g[g_offsets[i] + q]),)
            for j in vk.unroll(COLUMNS):
                x_values = x_values + (x[x_offsets[j] + q * stride_w],)
            sums = multiply_add_outer(sums, g_values, x_values, FILTERS, COLUMNS, 0, 0, 1)
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
    """Variant of `wgrad_parts` for f32, accessed as 64-bit words of two elements.

    Rows of x have an even width. Rows of g have `pairs` words and are padded with zeros. An invocation computes FILTERS
    filters (the constant of `direct`) by CHANNELS channels by all taps along the width, so that `tiles` counts only the
    taps along depth and height. WINDOW is (taps, stride, dilation) along the width. The other parameters are described
    in the module docstring.
    """
    # split the flat index into tap along height and depth, channel block, filter block and group
    e = vk.i32(vk.global_id(0))
    if e >= tiles:
        return
    r, e = e % taps_h, e // taps_h
    t, e = e % taps_d, e // taps_d
    channel_blocks = (channels + (CHANNELS - 1)) // CHANNELS
    c, e = e % channel_blocks * CHANNELS, e // channel_blocks
    filter_blocks = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % filter_blocks * FILTERS, e // filter_blocks
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    area = I(O) * I(P) * I(pairs)
    sums = zeros(CHANNELS * FILTERS * WINDOW[0], vk.f32)
    for step in range(vk.min(rows - part * per_part, per_part)):
        row = part * per_part + step
        p, o, n = row % P, row // P % O, row // (P * O)
        row_offset = I(o * stride_d + t * dilation_d) * plane + I(p * stride_h + r * dilation_h) * I(width)
        x_offsets, g_offsets = (), ()
        for j in vk.unroll(CHANNELS):
            channel = (n * groups + group) * channels + vk.min(c + j, channels - 1)
            x_offsets = x_offsets + ((I(channel) * I(depth) * plane + row_offset) // 2,)
        for k in vk.unroll(FILTERS):
            filter_ = (n * groups + group) * filters + vk.min(f + k, filters - 1)
            g_offsets = g_offsets + (I(filter_) * area + I(o * P + p) * I(pairs),)
        for q in range(pairs):
            g_values, updated = (), ()
            for k in vk.unroll(FILTERS):
                g_values = g_values + load_f32_pairs(g, g_offsets[k] + q, 1)
            for j in vk.unroll(CHANNELS):
                # elements of a row of x under all taps of the two output columns in a word of g
                span = WINDOW[1] + (WINDOW[0] - 1) * WINDOW[2] + 1
                x_values = load_f32_pairs(x, x_offsets[j] + q * WINDOW[1], (span + 1) // 2)
                for k in vk.unroll(FILTERS):
                    for s in vk.unroll(WINDOW[0]):
                        total = sums[(j * FILTERS + k) * WINDOW[0] + s]
                        total += g_values[2 * k] * x_values[s * WINDOW[2]]
                        total += g_values[2 * k + 1] * x_values[s * WINDOW[2] + WINDOW[1]]
                        updated = updated + (total,)
            sums = updated
    taps = taps_d * taps_h * WINDOW[0]
    for j in vk.unroll(CHANNELS):
        for k in vk.unroll(FILTERS):
            if f + k < filters and c + j < channels:
                filter_ = (part * groups + group) * filters + f + k
                y_offset = (I(filter_) * I(channels) + I(c + j)) * I(taps) + I((t * taps_h + r) * WINDOW[0])
                for s in vk.unroll(WINDOW[0]):
                    y[y_offset + s] = sums[(j * FILTERS + k) * WINDOW[0] + s]
