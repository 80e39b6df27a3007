"""Direct convolution on CPUs (LLVM): SIMD lanes along an output row, blocks of filters in registers.

The input is padded and the weights are packed into blocks of interleaved filters (`direct.pack_weights`). A workgroup
is one SIMD vector of invocations. Each invocation keeps FILTERS x COLUMNS accumulators in registers; the elements of x are
loaded as vectors and multiplied by weights that are uniform across the lanes.
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
def load_vectors(x, at, lane, step, n: vk.Const[int], SIZE: vk.Const[int]):
    """Load n elements of x per lane: adjacent lanes read `step` elements apart, and each lane SIZE * step apart."""
    made = ()
    for j in vk.unroll(n):
        made = made + (x[at + (lane + j * SIZE) * step],)
    return made


@vk.func
def load_uniform(w, at, n: vk.Const[int]):
    """Load n contiguous elements of w from `at` on, uniform across lanes."""
    made = ()
    for i in vk.unroll(n):
        made = made + (w[at + i],)
    return made


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
    """Convolve the channels [first, last) of each group: y = the sum over them and all taps, added to y if ADD.

    `lines` is the number of output rows over the batch, `blocks` that of blocks of FILTERS filters over all groups. STRIDE
    is the stride along the width. If COLUMNS isn't 1, the width of y is a multiple of SIZE * COLUMNS.
    """
    lane, e, block = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(1)), vk.i32(vk.group_id(2))
    begin = vk.i32(vk.group_id(0)) * (SIZE * COLUMNS)
    p, e = e % P, e // P
    o, n = e % O, e // O
    in_group = blocks // groups
    group, f = block // in_group, block % in_group * FILTERS
    plane = I(height) * I(width)
    volume = I(depth) * plane
    source = I(n * groups + group) * I(channels) * volume
    source += I(o * stride_d) * plane + I(p * stride_h) * I(width) + I(begin * STRIDE)
    weight = (I(block) * I(channels) + I(first)) * I(taps_d * taps_h * taps_w * FILTERS)
    area = I(O) * I(P) * I(Q)
    k = group * filters + f
    target = I(n * groups * filters + k) * area + I(o * P + p) * I(Q) + I(begin)
    if begin + lane < Q:
        sums = zeros(FILTERS * COLUMNS, A)
        for c in range(first, last):
            for t in range(taps_d):
                for r in range(taps_h):
                    at = source + I(c) * volume + I(t * dilation_d) * plane + I(r * dilation_h) * I(width)
                    for s in range(taps_w):
                        values = load_vectors(x, at + I(s * dilation_w), I(lane), STRIDE, COLUMNS, SIZE)
                        factors = load_uniform(w, weight, FILTERS)
                        sums = multiply_add_outer(sums, factors, values, FILTERS, COLUMNS, 0, 0, 1)
                        weight += FILTERS
        for i in vk.unroll(FILTERS):
            if f + i < filters:
                extra = A(0)
                if BIAS:
                    extra = A(bias[k + i])
                for j in vk.unroll(COLUMNS):
                    spot = target + i * area + j * SIZE + I(lane)
                    if ADD:
                        y[spot] = R(y[spot] + sums[i * COLUMNS + j])
                    else:
                        y[spot] = R(sums[i * COLUMNS + j] + extra)


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
    """Copy x to y (N, C, depth, height, width), which is 0 elsewhere.

    x begins at `shift_d`, `shift_h`, `shift_w` in y; its elements are `step_d`, `step_h` and STEP apart.
    A workgroup of SIZE invocations copies `per_group` rows of one of the `planes` planes.
    """
    lane, e = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(0))
    first = vk.i32(vk.group_id(1)) * per_group
    target = (I(e) * I(height) + I(first)) * I(width)
    d, e = e % depth - shift_d, e // depth
    c, n = e % vk.i32(x.shape[1]), e // vk.i32(x.shape[1])
    from_d = d // step_d
    in_depth = d >= 0 and from_d * step_d == d and from_d < vk.i32(x.shape[2])
    for line in range(first, vk.min(first + per_group, height)):
        h = line - shift_h
        from_h = h // step_h
        inside = in_depth and h >= 0 and from_h * step_h == h and from_h < vk.i32(x.shape[3])
        for start in range(0, width, SIZE):
            w = start + lane
            if w < width:
                value = A(0)
                from_w = w - shift_w
                if inside and from_w >= 0 and from_w % STEP == 0 and from_w // STEP < vk.i32(x.shape[4]):
                    value = A(x[n, c, from_d, from_h, from_w // STEP])
                y[target + I(w)] = value
        target += I(width)
