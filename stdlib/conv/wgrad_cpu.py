"""Convolution weight gradient (wgrad) on the device "cpu" (LLVM): SIMD lanes along an output row, register blocking.

`wgrad_plan` launches the kernel with x, the padded input, and g, the dense gradient of the output, both flat. The
output rows are split into parts; the kernel computes the gradient over each part, and the parts are added in order
afterwards.

A workgroup is one SIMD vector of SIZE invocations. It computes the gradients of a block of FILTERS filters by CHANNELS
channels, for one tap along depth and height and all taps along the width. Each invocation accumulates its own sums over
every SIZE-th output column; they are added across the lanes at the end. WINDOW is (taps, stride, dilation) along the
width. T is the element type of g, and A that of x and of the sums. `debug=False` omits the bounds checks that devices
on the CPU make by default.
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
    """Return the offsets of n consecutive channels or filters, the first of which has index `first`.

    Channels or filters are `step` elements apart. Indices from `end` on are replaced by the last one, `end` - 1, so
    that loads stay in bounds; the caller discards the results.
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

    `x_offset` is the offset of the element of x that the column reads at its first tap along the width, in the first
    channel of the group; `g_offset` is the offset of the column in the first filter of the group. `channel_offsets` and
    `filter_offsets` are the distances from there to the channels and filters of the block. A is the type of the sums.
    The other parameters are described in the module docstring.
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
    """Compute y[part, filter, channel, tap], the weight gradient summed over the output rows of each part.

    There are `rows` output rows per filter, over the whole batch, in `parts` parts of `per_part` rows. `tiles` is the
    number of workgroups that share a part, over all groups: one for each block of filters, block of channels, and tap
    along depth and height. I is the integer type of offsets. WINDOW, CHANNELS, FILTERS and SIZE are described in the
    module docstring; the other parameters are those of the kernels in `direct`.
    """
    # split the index of the workgroup into tap (r along height, t along depth), first channel c, first filter f, group
    sg, lane, e = vk.subgroup(), vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    r, e = e % taps_h, e // taps_h
    t, e = e % taps_d, e // taps_d
    channel_blocks = (channels + (CHANNELS - 1)) // CHANNELS
    c, e = e % channel_blocks * CHANNELS, e // channel_blocks
    filter_blocks = (filters + (FILTERS - 1)) // FILTERS
    f, group = e % filter_blocks * FILTERS, e // filter_blocks
    part = vk.i32(vk.group_id(1))
    plane = I(height) * I(width)
    # offsets of this workgroup's channels and filters, and of its tap along depth and height
    channel_offsets = offsets(c, channels, I(depth) * plane, CHANNELS)
    filter_offsets = offsets(f, filters, I(O) * I(P) * I(Q), FILTERS)
    tap_offset = I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
    first, end = part * per_part, vk.min(rows, (part + 1) * per_part)  # the output rows of the part
    whole = Q // SIZE * SIZE  # the columns in whole vectors
    area = I(O) * I(P) * I(Q)
    x_stride, g_stride = I(channels) * I(depth) * plane, I(filters) * area  # between groups
    sums = zeros(FILTERS * CHANNELS * WINDOW[0], A)
    # The columns past the last whole vector come first, with some lanes inactive. The sums of inactive lanes are still
    # zero at this point, so that no registers are needed to preserve them.
    if whole + lane < Q:
        p, o, n = first % P, first // P % O, first // (P * O)  # row, plane and sample of the first output row
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
    # add the sums of the lanes; lane 0 stores them, except for filters and channels past the last one
    taps = taps_d * taps_h * WINDOW[0]
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(CHANNELS):
            y_offset = (I((part * groups + group) * filters + f + i) * I(channels) + I(c + j)) * I(taps)
            y_offset += I((t * taps_h + r) * WINDOW[0])
            for s in vk.unroll(WINDOW[0]):
                total = sg.sum(sums[(i * CHANNELS + j) * WINDOW[0] + s])
                if lane == 0 and f + i < filters and c + j < channels:
                    y[y_offset + s] = total
