"""Direct convolution on the device "cpu" (LLVM): SIMD lanes along an output row, blocks of filters in registers.

`direct_plan` launches the kernels. The input is padded (`pad_rows`), and the weights are packed into blocks of
interleaved filters (`direct.pack_weights`). A workgroup is one SIMD vector of SIZE invocations. Each invocation keeps
FILTERS x COLUMNS accumulators in registers; the elements of x are loaded as vectors and multiplied by weights that are
uniform across the lanes.

Scalar parameters that the kernels share with those of `direct`, the type variables T, A, B and R, and `debug=False` are
described in that module. Offsets have the integer type I.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk

from .direct import multiply_add_outer, zeros

__all__ = ["convolve_rows", "pad_rows"]

T = TypeVar("T", bound=vk.Element)
A = TypeVar("A", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


@vk.func
def load_vectors(x, offset, lane, step, n: vk.Const[int], SIZE: vk.Const[int]):
    """Load n elements of x per lane, from `offset` on.

    Adjacent lanes load elements that are `step` apart, and each lane loads elements that are SIZE * step apart.
    """
    values = ()
    for j in vk.unroll(n):
        values = values + (x[offset + (lane + j * SIZE) * step],)
    return values


@vk.func
def load_uniform(w, offset, n: vk.Const[int]):
    """Load n contiguous elements of w from `offset` on, the same for all lanes."""
    values = ()
    for i in vk.unroll(n):
        values = values + (w[offset + i],)
    return values


@vk.kernel(
    groups=lambda Q, lines, blocks, SIZE, COLUMNS: (vk.cdiv(Q, SIZE * COLUMNS), lines, blocks),
    local=lambda SIZE: SIZE,
    debug=False,
)
def convolve_rows(
    x: vk.In[T],
    w: vk.In[A],
    bias: vk.In[B],
    y: vk.InOut[R],
    lines: vk.i32,  # noqa: ARG001  # used by `groups`
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
    dilation_d: vk.i32,
    dilation_h: vk.i32,
    dilation_w: vk.i32,
    STRIDE: vk.Const[int],
    FILTERS: vk.Const[int],
    COLUMNS: vk.Const[int],
    SIZE: vk.Const[int],
    BIAS: vk.Const[bool],
    ADD: vk.Const[bool],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Convolve the channels [first, last) of each group.

    The sum over these channels and all taps is stored to y, or with ADD added to y.

    `lines` is the number of output rows of one filter over the batch, `blocks` the number of blocks of FILTERS filters
    over all groups. Each lane computes COLUMNS columns, SIZE apart; if COLUMNS isn't 1, the width of y is a multiple of
    SIZE * COLUMNS. STRIDE is the stride along the width. BIAS: add `bias`. The other parameters are described in the
    module docstring.
    """
    lane, e, block = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(1)), vk.i32(vk.group_id(2))
    begin = vk.i32(vk.group_id(0)) * (SIZE * COLUMNS)
    # split the number of the output row into row p, plane o and sample n
    p, e = e % P, e // P
    o, n = e % O, e // O
    blocks_per_group = blocks // groups
    group, f = block // blocks_per_group, block % blocks_per_group * FILTERS
    # `x_offset`, `w_offset` and `y_offset` are the offsets of the first elements that this workgroup accesses.
    plane = I(height) * I(width)
    volume = I(depth) * plane
    x_offset = I(n * groups + group) * I(channels) * volume
    x_offset += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I(begin * STRIDE)
    w_offset = (I(block) * I(channels) + I(first)) * I(taps_d * taps_h * taps_w * FILTERS)
    area = I(O) * I(P) * I(Q)
    filter_index = group * filters + f
    y_offset = I(n * groups * filters + filter_index) * area + I(o * P + p) * I(Q) + I(begin)
    if begin + lane < Q:
        sums = zeros(FILTERS * COLUMNS, A)
        for c in range(first, last):
            for t in range(taps_d):
                for r in range(taps_h):
                    row_offset = x_offset + I(c) * volume + I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
                    for s in range(taps_w):
                        values = load_vectors(x, row_offset + I(s * dilation_w), I(lane), STRIDE, COLUMNS, SIZE)
                        factors = load_uniform(w, w_offset, FILTERS)
                        sums = multiply_add_outer(sums, factors, values, FILTERS, COLUMNS, 0, 0, 1)
                        w_offset += FILTERS
        for i in vk.unroll(FILTERS):
            if f + i < filters:
                bias_value = A(0)
                if BIAS:
                    bias_value = A(bias[filter_index + i])
                for j in vk.unroll(COLUMNS):
                    offset = y_offset + i * area + j * SIZE + I(lane)
                    if ADD:
                        y[offset] = R(y[offset] + sums[i * COLUMNS + j])
                    else:
                        y[offset] = R(sums[i * COLUMNS + j] + bias_value)


@vk.kernel(
    groups=lambda planes, height, per_group: (planes, vk.cdiv(height, per_group)), local=lambda SIZE: SIZE, debug=False
)
def pad_rows(
    x: vk.In[T, "N C D H W"],
    y: vk.Out[A],
    planes: vk.i32,  # noqa: ARG001  # used by `groups`
    per_group: vk.i32,
    depth: vk.i32,
    height: vk.i32,
    width: vk.i32,
    shift_d: vk.i32,
    shift_h: vk.i32,
    shift_w: vk.i32,
    step_d: vk.i32,
    step_h: vk.i32,
    STEP: vk.Const[int],
    SIZE: vk.Const[int],
    I: vk.Const[object],  # noqa: E741  # the index type
):
    """Copy x to y, a flat array of the shape (N, C, depth, height, width); all other elements of y become 0.

    Element (0, 0, 0) of x is copied to (`shift_d`, `shift_h`, `shift_w`), and adjacent elements of x are `step_d`,
    `step_h` and STEP apart in y. y has `planes` planes of height x width elements; a workgroup of SIZE invocations
    writes `per_group` rows of one plane. I is described in the module docstring.
    """
    lane, e = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    first = vk.i32(vk.group_id(1)) * per_group
    y_offset = (I(e) * I(height) + I(first)) * I(width)
    # split the number of the plane into depth d, channel c and sample n; d and h are relative to the first element of x
    d, e = e % depth - shift_d, e // depth
    c, n = e % vk.i32(x.shape[1]), e // vk.i32(x.shape[1])
    source_d = d // step_d
    in_depth = d >= 0 and source_d * step_d == d and source_d < vk.i32(x.shape[2])
    for row in range(first, vk.min(first + per_group, height)):
        h = row - shift_h
        source_h = h // step_h
        inside = in_depth and h >= 0 and source_h * step_h == h and source_h < vk.i32(x.shape[3])
        for start in range(0, width, SIZE):
            w = start + lane
            if w < width:
                value = A(0)
                source_w = w - shift_w
                if inside and source_w >= 0 and source_w % STEP == 0 and source_w // STEP < vk.i32(x.shape[4]):
                    value = A(x[n, c, source_d, source_h, source_w // STEP])
                y[y_offset + I(w)] = value
        y_offset += I(width)
