"""Convolution weight gradient (wgrad) on the device "cpu" (LLVM): SIMD lanes along an output row, register blocking.

`wgrad_plan` launches the kernel with x, the padded input, and g, the dense gradient of the output, both flat. A
workgroup is one SIMD vector of SIZE invocations. Each accumulates the gradients of FILTERS filters by CHANNELS channels
by all taps along the width, over the output columns of its lane; the lanes are summed at the end. The output rows are
split into parts, whose sums are added in order afterwards. WINDOW is (taps, stride, dilation) along the width.
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
    """Return the offsets of n consecutive channels or filters, from number `first` on, which are `step` elements apart.

    Numbers from `end` on are replaced by `end` - 1.
    """
    result = ()
    for i in vk.unroll(n):
        result = result + (vk.min(first + i, end - 1) * step,)
    return result


@vk.func
def next_row(p, o, n, P, O):  # noqa: E741
    """Return the (row, plane, sample) of the output row after row p of plane o of sample n.

    A plane has P rows, a sample O planes.
    """
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
    x_offset,
    g_offset,
    channel_offsets,
    filter_offsets,
    WINDOW: vk.Const[tuple],
    CHANNELS: vk.Const[int],
    FILTERS: vk.Const[int],
    A: vk.Const[object],
):
    """Return the sums, a tuple over (filter, channel, tap along the width), plus the products for one output column.

    `x_offset` and `g_offset` are the offsets of the column in the first channel of x and in the first filter of g;
    `channel_offsets` and `filter_offsets` are those of the channels and filters, relative to the first ones. A is the
    type of the sums. The other parameters are described in the module docstring.
    """
    values, updated = (), ()
    for j in vk.unroll(CHANNELS):
        for s in vk.unroll(WINDOW[0]):
            values = values + (x[x_offset + channel_offsets[j] + s * WINDOW[2]],)
    for i in vk.unroll(FILTERS):
        g_value = A(g[g_offset + filter_offsets[i]])
        for j in vk.unroll(CHANNELS * WINDOW[0]):
            updated = updated + (sums[i * (CHANNELS * WINDOW[0]) + j] + g_value * values[j],)
    return updated


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
    """Compute y[part, filter, channel, tap], the weight gradient summed over `per_part` output rows.

    There are `rows` output rows per filter, over the batch, in `parts` parts. `tiles` is the number of workgroups that
    share a part: blocks of filters, of channels, and taps along depth and height. WINDOW, CHANNELS, FILTERS and SIZE
    are described in the module docstring; the other parameters are those of the kernels in `direct`.
    """
    lanes, lane, e = vk.subgroup(), vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    r, e = e % taps_h, e // taps_h
    t, e = e % taps_d, e // taps_d
    channel_blocks = (channels + (CHANNELS - 1)) // CHANNELS
    c, e = e % channel_blocks * CHANNELS, e // channel_blocks
    filter_blocks = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % filter_blocks * FILTERS, e // filter_blocks
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    # this workgroup's channels, filters, and its tap along depth and height
    channel_offsets = offsets(c, channels, I(depth) * plane, CHANNELS)
    filter_offsets = offsets(f, filters, I(O) * I(P) * I(Q), FILTERS)
    tap_offset = I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
    first, end = part * per_part, vk.min(rows, (part + 1) * per_part)
    whole = Q // SIZE * SIZE
    area = I(O) * I(P) * I(Q)
    x_stride, g_stride = I(channels) * I(depth) * plane, I(filters) * area
    sums = zeros(FILTERS * CHANNELS * WINDOW[0], A)
    # The columns past the last whole vector come first. Only some lanes are active there; as the sums of the others are
    # still zero, they need no registers meanwhile.
    if whole + lane < Q:
        p, o, n = first % P, first // P % O, first // (P * O)
        for _ in range(first, end):
            x_offset = I(n * groups + group) * x_stride + tap_offset
            x_offset += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I((whole + lane) * WINDOW[1])
            g_offset = I(n * groups + group) * g_stride + I(o * P + p) * I(Q) + I(whole + lane)
            sums = accumulate_column(
                x, g, sums, x_offset, g_offset, channel_offsets, filter_offsets, WINDOW, CHANNELS, FILTERS, A
            )
            p, o, n = next_row(p, o, n, P, O)
    if whole > 0:
        p, o, n = first % P, first // P % O, first // (P * O)
        for _ in range(first, end):
            x_offset = I(n * groups + group) * x_stride + tap_offset
            x_offset += I(o * stride_d) * plane + I(p * stride_h) * I(width)
            g_offset = I(n * groups + group) * g_stride + I(o * P + p) * I(Q)
            for q in range(0, whole, SIZE):
                sums = accumulate_column(
                    x, g, sums, x_offset + I((q + lane) * WINDOW[1]), g_offset + I(q + lane), channel_offsets, filter_offsets,
                    WINDOW, CHANNELS, FILTERS, A,
                )  # fmt: skip
            p, o, n = next_row(p, o, n, P, O)
    taps = taps_d * taps_h * WINDOW[0]
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(CHANNELS):
            y_offset = (I((part * groups + group) * filters + f + i) * I(channels) + I(c + j)) * I(taps)
            y_offset += I((t * taps_h + r) * WINDOW[0])
            for s in vk.unroll(WINDOW[0]):
                total = lanes.sum(sums[(i * CHANNELS + j) * WINDOW[0] + s])
                if lane == 0 and f + i < filters and c + j < channels:
                    y[y_offset + s] = total
