"""Direct 2D convolution with stride 1 for GPUs: an input patch is staged in shared memory and reused by all taps.

Takes dense arrays over two spatial axes, as `dispatch` does. The input gradient is the same convolution of the output gradient,
with filters and channels swapped and the taps reversed. An invocation computes FILTERS filters of a strip of pixels, ROWS
high and 4 wide; a workgroup computes HIGH x WIDE strips of FILTER_GROUPS such sets of filters. The channels are processed
DEPTH at a time: the patch of the input with its halo and the weights, filters interleaved, are loaded into shared memory. All
loads from shared memory are vec4. Sums are accumulated in f32, in the order of channels, then taps.
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
    e,
    first,
    channels,
    top,
    edge,
    height,
    width,
    HIGH: vk.Const[int],
    WIDE: vk.Const[int],
    I: vk.Const[object],  # noqa: E741
):
    """Load four adjacent elements of the patch, zeros outside the image; e is the flat index over (channel, row, quad)."""
    c, row, column = e // (HIGH * WIDE), top + e // WIDE % HIGH, edge + e % WIDE * 4
    inside = c < channels and row >= 0 and row < height
    at = I(vk.where(inside, (c * height + row) * width, 0)) + first
    values = ()
    for l in vk.unroll(4):  # noqa: E741
        reached = inside and column + l >= 0 and column + l < width
        values = values + (vk.where(reached, x[at + vk.where(reached, column + l, 0)], x.dtype(0)),)
    return values


@vk.func
def load_weights_vec4(w, base, k, m, rest, count, inner, outer, TAPS: vk.Const[int], TRANSPOSED: vk.Const[bool]):
    """Load the weights of output channels m to m + 3 for k, the flat index over (channel, tap).

    Zeros for k >= `rest` and for output channels past `count`. `base` is the offset of the first weight, `outer` the stride
    of output channels and `inner` that of input channels, in elements.
    """
    c, tap = k // TAPS, k % TAPS
    place = TAPS - 1 - tap if TRANSPOSED else tap
    values = ()
    for l in vk.unroll(4):  # noqa: E741
        reached = k < rest and m + l < count
        values = values + (
            vk.where(reached, w[vk.where(reached, base + c * inner + (m + l) * outer + place, 0)], w.dtype(0)),
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
    QUADS: vk.Const[bool],
    BIAS: vk.Const[bool],
    A: vk.Const[object],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """y = x * w + bias with stride 1, summed over `channels` for each of `filters` per group.

    `blocks` is the number of blocks of filters over all groups. QUADS: rows of y consist of `line` whole vec4s.
    """
    V = vk.vec(A, 4)
    TAPS, LANES = KERNEL[0] * KERNEL[1], WIDE * HIGH
    SIZE, REACH = LANES * FILTER_GROUPS, 1 + (KERNEL[1] + 2) // 4
    TALL, BROAD, MOST = HIGH * ROWS + KERNEL[0] - 1, WIDE + REACH - 1, FILTERS * FILTER_GROUPS
    # a quarter warp reads 8 vectors; the pitch puts those of the next row of strips into other banks
    PITCH = BROAD + (2 - BROAD % 4) % 4 if WIDE == 4 else BROAD | 1
    patch = vk.shared(V, (DEPTH * TALL, PITCH))
    weights = vk.shared(V, (DEPTH * TAPS, MOST // 4 + 1 - MOST // 4 % 2))
    lane = vk.i32(vk.local_id(0))
    strip, mine = lane % LANES, lane // LANES
    down, across = strip // WIDE, strip % WIDE
    in_group = blocks // groups
    group, m0 = vk.i32(vk.group_id(1)) // in_group, vk.i32(vk.group_id(1)) % in_group * MOST
    wide, high = vk.cdiv(out_w, WIDE * 4), vk.cdiv(out_h, HIGH * ROWS)
    tile, n = vk.i32(vk.group_id(0)) % (wide * high), vk.i32(vk.group_id(0)) // (wide * high)
    p0, q0 = tile // wide * (HIGH * ROWS), tile % wide * (WIDE * 4)
    volume = height * width
    source = I(n * groups + group) * I(channels) * I(volume)
    inner, outer = TAPS, channels * TAPS
    start = group * filters * channels * TAPS
    if TRANSPOSED:
        inner, outer = filters * TAPS, TAPS
    acc = vk.local(V, (FILTERS, ROWS))
    for i in vk.unroll(FILTERS):
        for j in vk.unroll(ROWS):
            acc[i, j] = V(0)
    for c in range(0, channels, DEPTH):
        vk.barrier()
        for step in vk.unroll(vk.cdiv(DEPTH * TALL * BROAD, SIZE)):
            e = step * SIZE + lane
            if e < DEPTH * TALL * BROAD:
                v = load_patch_vec4(
                    x, e, source + I(c) * I(volume), channels - c, p0 - pad_h, q0 - pad_w, height, width, TALL, BROAD, I
                )
                patch[e // BROAD, e % BROAD] = V(A(v[0]), A(v[1]), A(v[2]), A(v[3]))
        for step in vk.unroll(vk.cdiv(DEPTH * TAPS * (MOST // 4), SIZE)):
            e = step * SIZE + lane
            if e < DEPTH * TAPS * (MOST // 4):
                k, quad = e % (DEPTH * TAPS), e // (DEPTH * TAPS)
                v = load_weights_vec4(
                    w,
                    start + c * inner,
                    k,
                    m0 + quad * 4,
                    (channels - c) * TAPS,
                    filters,
                    inner,
                    outer,
                    TAPS,
                    TRANSPOSED,
                )
                weights[k, quad] = V(A(v[0]), A(v[1]), A(v[2]), A(v[3]))
        vk.barrier()
        for d in range(DEPTH):
            rows = ()
            for r in vk.unroll(ROWS - 1):
                rows = rows + (load_patch_row(patch, d * TALL + down * ROWS + r, across, REACH),)
            for r in vk.unroll(KERNEL[0]):
                rows = rows + (load_patch_row(patch, d * TALL + down * ROWS + ROWS - 1 + r, across, REACH),)
                for s in vk.unroll(KERNEL[1]):
                    for i in vk.unroll(FILTERS // 4):
                        factors = weights[d * TAPS + r * KERNEL[1] + s, mine * (FILTERS // 4) + i]
                        for j in vk.unroll(ROWS):
                            v = rows[r + j]
                            vec4 = V(v[s], v[s + 1], v[s + 2], v[s + 3])
                            for l in vk.unroll(4):  # noqa: E741
                                acc[i * 4 + l, j] = vk.fma(vec4, factors[l], acc[i * 4 + l, j])
    for i in vk.unroll(FILTERS):
        m = m0 + mine * FILTERS + i
        extra = A(0)
        if BIAS:
            extra = A(bias[group * filters + vk.min(m, filters - 1)])
        for j in vk.unroll(ROWS):
            p, q = p0 + down * ROWS + j, q0 + across * 4
            if m < filters and p < out_h:
                row = I(n * groups + group) * I(filters * out_h) + I(m * out_h + p)
                if QUADS:
                    if q < out_w:
                        spot = (row * I(line) + I(q // 4)) * 4
                        for l in vk.unroll(4):  # noqa: E741
                            y[spot + l] = R(acc[i, j][l] + extra)
                else:
                    for l in vk.unroll(4):  # noqa: E741
                        if q + l < out_w:
                            y[row * I(out_w) + I(q + l)] = R(acc[i, j][l] + extra)


@vk.func
def load_patch_row(patch, row, column, REACH: vk.Const[int]):
    """Load the elements of a patch row that a strip needs, from its first column on: REACH vectors of four."""
    values = ()
    for i in vk.unroll(REACH):
        vec4 = patch[row, column + i]
        values = values + (vec4[0], vec4[1], vec4[2], vec4[3])
    return values
