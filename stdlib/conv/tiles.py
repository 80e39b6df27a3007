"""2D convolutions as tile kernels (see docs/tiles.md), by implicit GEMM: the operands are gathered in place.

`tile_plan` launches the kernels. It passes views without the depth axis and with one for the groups: inputs (N, G, C,
H, W), outputs and their gradients (N, G, F, P, Q), weights (G, F, C, R, S), where C and F are channels and filters per
group. Arrays have any strides. M, N and K of the products:

    forward            filters by output pixels, summed over channels and taps
    input gradient     channels by input pixels, summed over filters and taps
    weight gradient    filters by channels and taps, summed over output pixels (split-K, added in a fixed order)

Padding is represented by indices outside of the array, for which `wg.gather` returns 0. T is the element type of the
operands, B that of the bias, and R that of the result. A flat index over (channel or filter, tap) is called d, its
extent D; v is the column of an input pixel, because w is the weights. The kernels share these parameters: `stride_*`,
`pad_*` and `dilation_*` along height (h) and width (w); KERNEL, the extent of a filter (R, S); ACC, the type of sums,
f32 (f64 for f64); BM, BN, BK and THREADS: a workgroup of THREADS invocations computes a tile of BM x BN results, in
steps of BK along K.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["forward", "input_gradient", "weight_gradient"]

T = TypeVar("T", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


@vk.func
def gather_input(
    wg, x, n, g, top, left, k, dilation_h, dilation_w, KERNEL: vk.Const[tuple], BK: vk.Const[int]
):  # fmt: skip
    """Gather a tile of the right operand of `forward`: row i holds the elements of x for pair k + i of (channel, tap).

    Its columns are output pixels. n is the sample of each pixel, `top` and `left` are the row and column of x at the
    pixel's first tap, g is the group. The result is 0 outside of x and past the last channel. The other parameters are
    described in the module docstring.
    """
    d = (k + wg.arange(BK))[:, None]
    s, r, c = d % KERNEL[1], d // KERNEL[1] % KERNEL[0], d // (KERNEL[0] * KERNEL[1])
    return wg.gather(x, (n, g, c, top + r * dilation_h, left + s * dilation_w))


@vk.kernel(
    groups=lambda y, BM, BN: (vk.cdiv(y.shape[0] * y.shape[3] * y.shape[4], BN), vk.cdiv(y.shape[2], BM), y.shape[1]),
    local=lambda THREADS: THREADS, debug=False,
)  # fmt: skip
def forward(
    x: vk.In[T, "N G C H W"],
    w: vk.In[T, "G F D"],
    bias: vk.In[B, "G F"],
    y: vk.Out[R, "N G F P Q"],
    stride_h: vk.i32, stride_w: vk.i32, pad_h: vk.i32, pad_w: vk.i32, dilation_h: vk.i32, dilation_w: vk.i32,
    KERNEL: vk.Const[tuple],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    ACC: vk.Const[Any],
    BIASED: vk.Const[bool],
    PIPELINED: vk.Const[bool] = False,
):  # fmt: skip
    """Compute the convolution y = x * w + bias. The weights are passed as (G, F, D), where D = C * R * S.

    BIASED: add `bias`; otherwise it is a placeholder that isn't read. PIPELINED: load the operands of the next
    iteration during the current product. The other parameters are described in the module docstring.
    """
    wg, g = vk.workgroup(), vk.i32(vk.group_id(2))
    i, j = vk.i32(vk.group_id(1)) * BM, vk.i32(vk.group_id(0)) * BN
    P, Q = vk.i32(y.shape[3]), vk.i32(y.shape[4])
    f, pixel = (i + wg.arange(BM))[:, None], (j + wg.arange(BN))[None, :]
    q, p, n = pixel % Q, pixel // Q % P, pixel // (P * Q)
    top, left = p * stride_h - pad_h, q * stride_w - pad_w
    acc = wg.zeros((BM, BN), ACC)
    if PIPELINED:
        depth = vk.i32(w.shape[2])
        gathered = gather_input(wg, x, n, g, top, left, 0, dilation_h, dilation_w, KERNEL, BK)
        for k in range(0, depth, BK):
            next_gathered = gather_input(wg, x, n, g, top, left, k + BK, dilation_h, dilation_w, KERNEL, BK)
            acc = wg.mma(w[g, i : i + BM, k : k + BK], gathered, acc, prefetch="early")
            gathered = next_gathered
    else:
        for k in range(0, vk.i32(w.shape[2]), BK):
            gathered = gather_input(wg, x, n, g, top, left, k, dilation_h, dilation_w, KERNEL, BK)
            acc = wg.mma(w[g, i : i + BM, k : k + BK], gathered, acc)
    if BIASED:
        acc = acc + ACC(wg.load(bias[g, i : i + BM]))[:, None]
    wg.scatter(y, (n, g, f, p, q), R(acc))


@vk.kernel(
    groups=lambda x, BM, BN: (vk.cdiv(x.shape[0] * x.shape[3] * x.shape[4], BN), vk.cdiv(x.shape[2], BM), x.shape[1]),
    local=lambda THREADS: THREADS, debug=False,
)  # fmt: skip
def input_gradient(
    gy: vk.In[T, "N G F P Q"],
    w: vk.In[T, "G F C R S"],
    x: vk.Out[R, "N G C H W"],
    stride_h: vk.i32, stride_w: vk.i32, pad_h: vk.i32, pad_w: vk.i32, dilation_h: vk.i32, dilation_w: vk.i32,
    KERNEL: vk.Const[tuple],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    ACC: vk.Const[Any],
):  # fmt: skip
    """Compute x, the gradient of the input, from `gy`, the gradient of the output.

    The parameters are described in the module docstring.
    """
    wg, g = vk.workgroup(), vk.i32(vk.group_id(2))
    i, j = vk.i32(vk.group_id(1)) * BM, vk.i32(vk.group_id(0)) * BN
    H, W = vk.i32(x.shape[3]), vk.i32(x.shape[4])
    c, pixel = (i + wg.arange(BM))[:, None], (j + wg.arange(BN))[None, :]
    v, h, n = pixel % W, pixel // W % H, pixel // (H * W)
    acc = wg.zeros((BM, BN), ACC)
    for k in range(0, vk.i32(w.shape[1]) * (KERNEL[0] * KERNEL[1]), BK):
        d = k + wg.arange(BK)
        s, r, f = d % KERNEL[1], d // KERNEL[1] % KERNEL[0], d // (KERNEL[0] * KERNEL[1])
        left_operand = wg.gather(w, (g, f[None, :], c, r[None, :], s[None, :]))
        scaled_p, scaled_q = h + pad_h - r[:, None] * dilation_h, v + pad_w - s[:, None] * dilation_w
        # -1, an index outside of gy, where no output row or column reads the input pixel by this tap
        p = vk.where(scaled_p % stride_h == 0, scaled_p // stride_h, -1)
        q = vk.where(scaled_q % stride_w == 0, scaled_q // stride_w, -1)
        acc = wg.mma(left_operand, wg.gather(gy, (n, g, f[:, None], p, q)), acc)
    wg.scatter(x, (n, g, c, h, v), R(acc))


@vk.kernel(
    groups=lambda parts, BM, BN: (
        vk.cdiv(parts.shape[3], BN), vk.cdiv(parts.shape[2], BM), parts.shape[0] * parts.shape[1],
    ),
    local=lambda THREADS: THREADS, debug=False,
)  # fmt: skip
def weight_gradient(
    x: vk.In[T, "N G C H W"],
    gy: vk.In[T, "N G F P Q"],
    parts: vk.Out[R, "S G F D"],
    chunk: vk.i32,
    stride_h: vk.i32, stride_w: vk.i32, pad_h: vk.i32, pad_w: vk.i32, dilation_h: vk.i32, dilation_w: vk.i32,
    KERNEL: vk.Const[tuple],
    BM: vk.Const[int],
    BN: vk.Const[int],
    BK: vk.Const[int],
    THREADS: vk.Const[int],  # noqa: ARG001  # used by `local`
    ACC: vk.Const[Any],
):  # fmt: skip
    """Compute the split-K parts of the gradient of the weights, from the input x and `gy`, the gradient of the output.

    parts[s] is the sum over the `chunk` output pixels from s * chunk on, where `chunk` is a multiple of BK and D = C *
    R * S. The other parameters are described in the module docstring.
    """
    wg, groups = vk.workgroup(), vk.i32(parts.shape[1])
    g, part = vk.i32(vk.group_id(2)) % groups, vk.i32(vk.group_id(2)) // groups
    i, j = vk.i32(vk.group_id(1)) * BM, vk.i32(vk.group_id(0)) * BN
    P, Q = vk.i32(gy.shape[3]), vk.i32(gy.shape[4])
    f, d = (i + wg.arange(BM))[:, None], (j + wg.arange(BN))[None, :]
    s, r, c = d % KERNEL[1], d // KERNEL[1] % KERNEL[0], d // (KERNEL[0] * KERNEL[1])
    acc = wg.zeros((BM, BN), ACC)
    end = vk.min((part + 1) * chunk, vk.i32(gy.shape[0]) * P * Q)
    for k in range(part * chunk, end, BK):
        pixel = k + wg.arange(BK)
        q, p, n = pixel % Q, pixel // Q % P, pixel // (P * Q)
        left_operand = wg.gather(gy, (n[None, :], g, f, p[None, :], q[None, :]))
        h, v = p[:, None] * stride_h - pad_h + r * dilation_h, q[:, None] * stride_w - pad_w + s * dilation_w
        acc = wg.mma(left_operand, wg.gather(x, (n[:, None], g, c, h, v)), acc)
    wg.store(parts[part, g, i : i + BM, j : j + BN], acc)
