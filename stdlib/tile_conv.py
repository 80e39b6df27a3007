"""2-D convolutions on tiles as implicit GEMM: matrix products whose operands are gathered from the arrays in place.

Inputs are (N, groups * channels, 1, H, W), weights (groups * filters, channels, 1, R, S), outputs and their gradients
(N, groups * filters, 1, P, Q), of any strides; a `Geometry` describes the convolution. M, N and K of the products:

    forward            filters by output pixels, summed over channels and taps
    input gradient     channels by input pixels, summed over filters and taps
    weight gradient    filters by channels and taps, summed over output pixels (split-K, added in a fixed order)

Padding is represented by indices outside of the array, which gather 0. Sums are in f32 (f64 for f64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.interface import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape

from .matmul_tiles import LEAST_GROUPS, parts_for
from .partial import accumulator, dense, scratch, sum_parts
from .registry import CPU_LOOP, choose, variant

if TYPE_CHECKING:
    from .conv import Geometry

__all__ = ["ConvPlan", "convolve_by_tiles", "input_gradient_by_tiles", "weight_gradient_by_tiles"]

T = TypeVar("T", bound=vk.Element)
B = TypeVar("B", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """Tiling of a convolution: tiles of `rows` x `columns`, `depth` elements of K per iteration, workgroups of
    `threads`.

    `longest` limits the K extent that one invocation sums, 0 for no limit. `ahead`: software pipelining, the operands
    of the next iteration are loaded during the current product.
    """

    rows: int
    columns: int
    depth: int
    threads: int
    longest: int = 0
    ahead: bool = False

    @property
    def numbers(self) -> tuple[int, int, int, int]:
        return self.rows, self.columns, self.depth, self.threads


WANTED_GROUPS = 256


@variant("conv tiles", "gpu")
def _on_gpu(y: DeviceArray, rows: int, pixels: int) -> ConvPlan:
    """With cooperative matrices, choose tiles as high as the rows of the result fill: all of a tile's rows share the
    gathered operand. `rows` 0 chooses small tiles.
    """
    matrices = native_shape(y.device.caps.matrices, y.dtype.name, y.dtype.name, "f32") is not None
    for high, threads in ((256, 8), (128, 4)):
        if matrices and rows > high // 2 and -(-rows // high) * -(-pixels // 128) >= LEAST_GROUPS:
            return ConvPlan(
                high, 128, 32, threads * y.device.caps.subgroup_size, ahead=high < 256
            )  # 256 rows hide the latency without pipelining
    return ConvPlan(64, 128, 32, 256)


@variant("conv tiles", "cpu")
def _on_cpu(_y: DeviceArray, _rows: int, _pixels: int) -> ConvPlan:
    return ConvPlan(16, 32, 16, 64, CPU_LOOP)


@variant("conv tiles", "llvm-cpu")
def _on_processor(_y: DeviceArray, _rows: int, _pixels: int) -> ConvPlan:
    return ConvPlan(32, 64, 32, 64)


@vk.func
def seen_by(
    wg, x, n, g, top, left, k, dilation_h, dilation_w, KERNEL: vk.Const[tuple], BK: vk.Const[int]
):  # fmt: skip
    """Gather the elements of x for BK channels and taps from k on; zeros outside of x and past the last channel."""
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
    AHEAD: vk.Const[bool] = False,
):  # fmt: skip
    """y = x * w + bias; D counts channels and taps. AHEAD: load the operands of the next iteration during the current
    product.
    """
    wg, g = vk.workgroup(), vk.i32(vk.group_id(2))
    i, j = vk.i32(vk.group_id(1)) * BM, vk.i32(vk.group_id(0)) * BN
    P, Q = vk.i32(y.shape[3]), vk.i32(y.shape[4])
    f, pixel = (i + wg.arange(BM))[:, None], (j + wg.arange(BN))[None, :]
    q, p, n = pixel % Q, pixel // Q % P, pixel // (P * Q)
    top, left = p * stride_h - pad_h, q * stride_w - pad_w
    acc = wg.zeros((BM, BN), ACC)
    if AHEAD:
        depth = vk.i32(w.shape[2])
        seen = seen_by(wg, x, n, g, top, left, 0, dilation_h, dilation_w, KERNEL, BK)
        for k in range(0, depth, BK):
            following = seen_by(wg, x, n, g, top, left, k + BK, dilation_h, dilation_w, KERNEL, BK)
            acc = wg.mma(w[g, i : i + BM, k : k + BK], seen, acc, prefetch="early")
            seen = following
    else:
        for k in range(0, vk.i32(w.shape[2]), BK):
            seen = seen_by(wg, x, n, g, top, left, k, dilation_h, dilation_w, KERNEL, BK)
            acc = wg.mma(w[g, i : i + BM, k : k + BK], seen, acc)
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
    """x = the gradient of the input."""
    wg, g = vk.workgroup(), vk.i32(vk.group_id(2))
    i, j = vk.i32(vk.group_id(1)) * BM, vk.i32(vk.group_id(0)) * BN
    H, W = vk.i32(x.shape[3]), vk.i32(x.shape[4])
    c, pixel = (i + wg.arange(BM))[:, None], (j + wg.arange(BN))[None, :]
    v, h, n = pixel % W, pixel // W % H, pixel // (H * W)
    acc = wg.zeros((BM, BN), ACC)
    for k in range(0, vk.i32(w.shape[1]) * (KERNEL[0] * KERNEL[1]), BK):
        d = k + wg.arange(BK)
        s, r, f = d % KERNEL[1], d // KERNEL[1] % KERNEL[0], d // (KERNEL[0] * KERNEL[1])
        left = wg.gather(w, (g, f[None, :], c, r[None, :], s[None, :]))
        up, across = h + pad_h - r[:, None] * dilation_h, v + pad_w - s[:, None] * dilation_w
        p = vk.where(up % stride_h == 0, up // stride_h, -1)  # -1, outside, where no tap maps to an output row
        q = vk.where(across % stride_w == 0, across // stride_w, -1)
        acc = wg.mma(left, wg.gather(gy, (n, g, f[:, None], p, q)), acc)
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
    """parts[s] = the gradient of the weights over the `chunk` output pixels from s * chunk on; `chunk` is a multiple of
    BK.
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
        left = wg.gather(gy, (n[None, :], g, f, p[None, :], q[None, :]))
        h, v = p[:, None] * stride_h - pad_h + r * dilation_h, q[:, None] * stride_w - pad_w + s * dilation_w
        acc = wg.mma(left, wg.gather(x, (n[:, None], g, c, h, v)), acc)
    wg.store(parts[part, g, i : i + BM, j : j + BN], acc)


# -- launches
def _flat(array: DeviceArray, groups: int) -> DeviceArray:
    """View (N, groups * C, 1, H, W) as (N, groups, C, H, W)."""
    (n, c, _, h, w), (s, t, _, u, v) = array.shape, array.strides
    return DeviceArray(
        array.buffer, array.offset, array.dtype, (n, groups, c // groups, h, w), (s, c // groups * t, t, u, v)
    )


def _weights(array: DeviceArray, groups: int) -> DeviceArray:
    """View (groups * F, C, 1, R, S) as (groups, F, C, R, S)."""
    (f, c, _, h, w), (s, t, _, u, v) = array.shape, array.strides
    return DeviceArray(
        array.buffer, array.offset, array.dtype, (groups, f // groups, c, h, w), (f // groups * s, s, t, u, v)
    )


def _rows(array: DeviceArray) -> DeviceArray:
    """View dense weights (G, F, C, R, S) as (G, F, C * R * S)."""
    groups, filters, depth = *array.shape[:2], math.prod(array.shape[2:])
    return DeviceArray(array.buffer, array.offset, array.dtype, (groups, filters, depth), (filters * depth, depth, 1))


def _walk(g: Geometry) -> tuple[Any, ...]:
    """Return strides, padding, dilation and taps as the kernels take them.

    Raises ArgumentError for convolutions over three axes.
    """
    if g.size[0] != 1 or g.kernel[0] != 1 or g.out[0] != 1 or g.pad[0]:
        raise ArgumentError(
            f"these kernels convolve over two axes, found a depth of {g.size[0]} and {g.kernel[0]} taps along it"
        )
    return (*g.stride[1:], *g.pad[1:], *g.dilation[1:], g.kernel[1:])


def convolve_by_tiles(
    x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry, plan: ConvPlan | None = None
) -> None:
    """Queue y = x * w + bias on the device of y. `w` is dense; `bias` has one element per filter."""
    walk = _walk(g)
    if 0 in y.shape:
        return
    if not dense(w):
        raise ArgumentError(
            f"the weights have to lie in C order without gaps, found strides {w.strides}: copy them first"
        )
    plan = plan or choose("conv tiles", y.device)(y, g.filters, g.groups * g.pixels)
    spare = w if math.prod(w.shape) else y  # placeholder that isn't read; y would alias the output
    added = spare if bias is None else bias
    step = 0 if bias is None else bias.strides[0]
    by_filter = DeviceArray(added.buffer, added.offset, added.dtype, (g.groups, g.filters), (g.filters * step, step))
    forward(
        _flat(x, g.groups), _rows(_weights(w, g.groups)), by_filter, _flat(y, g.groups), *walk, *plan.numbers,
        accumulator(y.dtype), bias is not None, plan.ahead,
    )  # fmt: skip


def input_gradient_by_tiles(
    gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry, plan: ConvPlan | None = None
) -> None:
    """Queue gx = the gradient of the input on the device of gx."""
    walk = _walk(g)
    if 0 in gx.shape:
        return
    plan = plan or choose("conv tiles", gx.device)(gx, 0, 0)
    input_gradient(
        _flat(gy, g.groups), _weights(w, g.groups), _flat(gx, g.groups), *walk, *plan.numbers, accumulator(gx.dtype)
    )


def weight_gradient_by_tiles(
    x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry, plan: ConvPlan | None = None
) -> None:
    """Queue gw = the gradient of the weights, dense, on the device of gw."""
    walk = _walk(g)
    if 0 in gw.shape:
        return
    plan = plan or choose("conv tiles", gw.device)(gw, 0, 0)
    depth, total = g.channels * g.taps, accumulator(gw.dtype)
    tiles = g.groups * vk.cdiv(g.filters, plan.rows) * vk.cdiv(depth, plan.columns)
    parts = parts_for(tiles, g.pixels, WANTED_GROUPS, plan.longest)
    chunk = max(1, vk.cdiv(vk.cdiv(g.pixels, parts), plan.depth)) * plan.depth
    partials = scratch((max(1, vk.cdiv(g.pixels, chunk)), g.groups, g.filters, depth), total, gw.device)
    weight_gradient(_flat(x, g.groups), _flat(gy, g.groups), partials, chunk, *walk, *plan.numbers, total)
    sums = DeviceArray(partials.buffer, 0, total, (partials.shape[0], math.prod(gw.shape)), (math.prod(gw.shape), 1))
    sum_parts(sums, gw)
