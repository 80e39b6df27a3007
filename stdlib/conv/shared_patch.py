"""Direct 2D convolution with stride 1 for GPUs: an input patch is staged in shared memory and reused by all taps.

`shared_patch_plan` chooses the tiling and launches the kernel. Arrays are dense and flat, in the shapes of `dispatch`
with a depth of 1. The input gradient is the same convolution of the output gradient, with filters and channels swapped
and the taps reversed: in this module, "filters" are the channels of the result and "channels" those of the operand that
is convolved.

A *strip* is a block of pixels, ROWS high and 4 wide. An invocation computes FILTERS filters of one strip; a workgroup
computes HIGH x WIDE strips (rows by columns of strips) for FILTER_GROUPS times FILTERS filters. Each iteration loads
two arrays for DEPTH channels into shared memory: the *patch*, the part of the input that the strips read, including its
halo, and the weights, with filters interleaved. All loads from shared memory are vec4. Sums are accumulated in the type
A, f32, in the order of channels, then taps. T is the element type of x and w, B that of the bias, R that of the result.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

__all__ = ["convolve_tile"]

T = TypeVar("T", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


@vk.func
def load_patch_vec4(
    x,
    index,
    base,
    channels,
    top,
    left,
    height,
    width,
    PATCH_ROWS: vk.Const[int],
    PATCH_VECTORS: vk.Const[int],
    I: vk.Const[object],  # noqa: E741
):
    """Load four contiguous elements of the patch from x, or zeros outside the image.

    `index` is the flat index of the vec4 in the patch, over (channel, PATCH_ROWS rows, PATCH_VECTORS vec4s of a row).
    `base` is the offset in x of the patch's first channel, `channels` the number of channels left from there, `top` and
    `left` the row and the column of the image at which the patch begins. I is the integer type of offsets in x.
    """
    c, row, column = (
        index // (PATCH_ROWS * PATCH_VECTORS),
        top + index // PATCH_VECTORS % PATCH_ROWS,
        left + index % PATCH_VECTORS * 4,
    )
    # outside the image or past the last channel, the offset is replaced by one that is in bounds, and the value by 0
    inside_rows = c < channels and row >= 0 and row < height
    row_offset = I(vk.where(inside_rows, (c * height + row) * width, 0)) + base
    values = ()
    for l in vk.unroll(4):  # noqa: E741
        inside_image = inside_rows and column + l >= 0 and column + l < width
        values = values + (vk.where(inside_image, x[row_offset + vk.where(inside_image, column + l, 0)], x.dtype(0)),)
    return values


@vk.func
def load_weights_vec4(
    w, base, k, m, end, count, channel_stride, filter_stride, TAPS: vk.Const[int], TRANSPOSED: vk.Const[bool]
):
    """Load the weights of filters m to m + 3 for k, the flat index over (channel, tap).

    Zeros for k >= `end` and for filters from `count` on. `base` is the offset of the first weight; `filter_stride` and
    `channel_stride` are in elements. TAPS is the number of taps; with TRANSPOSED, the taps are reversed.
    """
    c, tap = k // TAPS, k % TAPS
    tap_index = TAPS - 1 - tap if TRANSPOSED else tap
    values = ()
    for l in vk.unroll(4):  # noqa: E741
        in_range = k < end and m + l < count  # otherwise load element 0, which is in bounds, and replace it by 0
        values = values + (
            vk.where(
                in_range,
                w[vk.where(in_range, base + c * channel_stride + (m + l) * filter_stride + tap_index, 0)],
                w.dtype(0),
            ),
        )
    return values


@vk.kernel(
    groups=lambda tiles, blocks: (tiles, blocks, 1),
    local=lambda WIDE, HIGH, FILTER_GROUPS: WIDE * HIGH * FILTER_GROUPS,
    debug=False,
)
def convolve_tile(
    x: vk.In[T],
    w: vk.In[T],
    bias: vk.In[B],
    y: vk.Out[R],
    tiles: vk.i32,  # noqa: ARG001  # used by `groups`
    blocks: vk.i32,
    groups: vk.i32,
    channels: vk.i32,
    filters: vk.i32,
    height: vk.i32,
    width: vk.i32,
    out_h: vk.i32,
    out_w: vk.i32,
    line: vk.i32,
    pad_h: vk.i32,
    pad_w: vk.i32,
    KERNEL: vk.Const[tuple],
    TRANSPOSED: vk.Const[bool],
    WIDE: vk.Const[int],
    HIGH: vk.Const[int],
    ROWS: vk.Const[int],
    FILTERS: vk.Const[int],
    FILTER_GROUPS: vk.Const[int],
    DEPTH: vk.Const[int],
    STORE_VEC4: vk.Const[bool],
    BIAS: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Compute y = x * w + bias with stride 1.

    The convolution has `groups` groups (not workgroups), each with `channels` channels and `filters` filters. `tiles`
    is the number of workgroups along the pixels and the batch, `blocks` that along the filters of all groups of the
    convolution. `height`, `width` are the extents of x, `out_h`, `out_w` those of y, and `pad_h`, `pad_w` the zeros
    before the first row and column of x. `line` is the number of whole vec4s in a row of y.

    KERNEL is the extent (height, width) of a filter. TRANSPOSED: compute the input gradient, where w are the weights of
    the forward convolution. STORE_VEC4: `out_w` is a multiple of 4, so each row of a strip can be stored as one vec4.
    BIAS: add `bias`. I is the integer type of offsets. The tiling parameters WIDE to DEPTH are described in the module
    docstring.
    """
    # A workgroup has STRIPS strips and SIZE invocations, and computes GROUP_FILTERS filters. Its patch has PATCH_ROWS
    # rows of PATCH_VECTORS vec4s per channel. A strip reads REACH vec4s of a row: its 4 pixels need 4 + KERNEL[1] - 1
    # elements. Adjacent strips start one vec4 apart.
    V = vk.vec(A, 4)
    TAPS, STRIPS = KERNEL[0] * KERNEL[1], WIDE * HIGH
    SIZE, REACH = STRIPS * FILTER_GROUPS, 1 + (KERNEL[1] + 2) // 4
    PATCH_ROWS, PATCH_VECTORS, GROUP_FILTERS = HIGH * ROWS + KERNEL[0] - 1, WIDE + REACH - 1, FILTERS * FILTER_GROUPS
    # PITCH, the distance of patch rows in vec4s, avoids bank conflicts. The 32 banks of shared memory hold 8 vec4s, and
    # the 8 invocations of a quarter warp read one vec4 each at the same time. If WIDE is less than 8, they belong to
    # several rows of strips, whose vec4s are ROWS * PITCH apart. With ROWS = 2 there are no conflicts if this distance
    # is 4 modulo 8 (WIDE = 4) or 2 modulo 4 (WIDE = 2). So PITCH is 2 modulo 4 for WIDE = 4, else odd.
    PITCH = PATCH_VECTORS + (2 - PATCH_VECTORS % 4) % 4 if WIDE == 4 else PATCH_VECTORS | 1
    patch = vk.shared(V, (DEPTH * PATCH_ROWS, PITCH))
    # rows of weights have an odd number of vec4s, also to avoid bank conflicts
    weights = vk.shared(V, (DEPTH * TAPS, GROUP_FILTERS // 4 + 1 - GROUP_FILTERS // 4 % 2))
    invocation = vk.i32(vk.local_id(0))
    strip, filter_group = invocation % STRIPS, invocation // STRIPS
    strip_row, strip_column = strip // WIDE, strip % WIDE
    blocks_per_group = blocks // groups
    group, m0 = vk.i32(vk.group_id(1)) // blocks_per_group, vk.i32(vk.group_id(1)) % blocks_per_group * GROUP_FILTERS
    tiles_across, tiles_down = vk.cdiv(out_w, WIDE * 4), vk.cdiv(out_h, HIGH * ROWS)
    tile, n = (
        vk.i32(vk.group_id(0)) % (tiles_across * tiles_down),
        vk.i32(vk.group_id(0)) // (tiles_across * tiles_down),
    )
    # first row and column of this workgroup's results
    p0, q0 = tile // tiles_across * (HIGH * ROWS), tile % tiles_across * (WIDE * 4)
    volume = height * width
    x_offset = I(n * groups + group) * I(channels) * I(volume)
    channel_stride, filter_stride = TAPS, channels * TAPS
    w_offset = group * filters * channels * TAPS
    if TRANSPOSED:
        channel_stride, filter_stride = filters * TAPS, TAPS
    acc = vk.local(V, (FILTERS, ROWS))
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(ROWS):
            acc[i, j] = V(0)
    for c in range(0, channels, DEPTH):
        # load the patch and the weights of DEPTH channels into shared memory
        vk.barrier()
        for step in vk.unroll(vk.cdiv(DEPTH * PATCH_ROWS * PATCH_VECTORS, SIZE)):
            e = step * SIZE + invocation
            if e < DEPTH * PATCH_ROWS * PATCH_VECTORS:
                values = load_patch_vec4(
                    x,
                    e,
                    x_offset + I(c) * I(volume),
                    channels - c,
                    p0 - pad_h,
                    q0 - pad_w,
                    height,
                    width,
                    PATCH_ROWS,
                    PATCH_VECTORS,
                    I,
                )
                patch[e // PATCH_VECTORS, e % PATCH_VECTORS] = V(A(values[0]), A(values[1]), A(values[2]), A(values[3]))
        for step in vk.unroll(vk.cdiv(DEPTH * TAPS * (GROUP_FILTERS // 4), SIZE)):
            e = step * SIZE + invocation
            if e < DEPTH * TAPS * (GROUP_FILTERS // 4):
                k, quad = e % (DEPTH * TAPS), e // (DEPTH * TAPS)
                values = load_weights_vec4(
                    w,
                    w_offset + c * channel_stride,
                    k,
                    m0 + quad * 4,
                    (channels - c) * TAPS,
                    filters,
                    channel_stride,
                    filter_stride,
                    TAPS,
                    TRANSPOSED,
                )
                weights[k, quad] = V(A(values[0]), A(values[1]), A(values[2]), A(values[3]))
        vk.barrier()
        # For each of the DEPTH channels, `rows` are the rows of the patch that the strip has read so far. Each is
        # loaded once and used by all taps: row j of the strip reads row r + j for the taps in row r of the filter.
        for d in range(DEPTH):
            rows = ()
            for r in vk.unroll(ROWS - 1):
                rows = rows + (load_patch_row(patch, d * PATCH_ROWS + strip_row * ROWS + r, strip_column, REACH),)
            for r in vk.unroll(KERNEL[0]):
                rows = rows + (
                    load_patch_row(patch, d * PATCH_ROWS + strip_row * ROWS + ROWS - 1 + r, strip_column, REACH),
                )
                for s in vk.unroll(KERNEL[1]):
                    for i in vk.unroll(FILTERS // 4):
                        factors = weights[d * TAPS + r * KERNEL[1] + s, filter_group * (FILTERS // 4) + i]
                        for j in vk.unroll(ROWS):
                            values = rows[r + j]
                            vec4 = V(values[s], values[s + 1], values[s + 2], values[s + 3])
                            for l in vk.unroll(4):  # noqa: E741
                                acc[i * 4 + l, j] = vk.fma(vec4, factors[l], acc[i * 4 + l, j])
    for i in vk.unroll(FILTERS):
        m = m0 + filter_group * FILTERS + i
        bias_value = A(0)
        if BIAS:
            bias_value = A(bias[group * filters + vk.min(m, filters - 1)])
        for j in vk.unroll(ROWS):
            p, q = p0 + strip_row * ROWS + j, q0 + strip_column * 4
            if m < filters and p < out_h:
                row = I(n * groups + group) * I(filters * out_h) + I(m * out_h + p)
                if STORE_VEC4:
                    if q < out_w:
                        # row * out_w + q, written as a multiple of 4 so that the pass `widen_access` recognizes the
                        # alignment and merges the four stores into one vec4 store
                        offset = (row * I(line) + I(q // 4)) * 4
                        for l in vk.unroll(4):  # noqa: E741
                            y[offset + l] = R(acc[i, j][l] + bias_value)
                else:
                    for l in vk.unroll(4):  # noqa: E741
                        if q + l < out_w:
                            y[row * I(out_w) + I(q + l)] = R(acc[i, j][l] + bias_value)


@vk.func
def load_patch_row(patch, row, column, REACH: vk.Const[int]):
    """Load the elements of a row of the patch that a strip needs: REACH vec4s, from vec4 `column` on."""
    values = ()
    for i in vk.unroll(REACH):
        vec4 = patch[row, column + i]
        values = values + (vec4[0], vec4[1], vec4[2], vec4[3])
    return values
