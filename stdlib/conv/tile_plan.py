"""2D convolutions by the tile kernels of `tiles`: choose the tiling and split-K parts, and launch.

An alternative to the kernels that `dispatch` chooses, which benchmarks and tests call directly. g is the `Geometry` of
the convolution, with a depth of 1 (ArgumentError otherwise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.device import DeviceArray
from vkjit.runtime.matrix_shapes import native_shape

from ..matmul.tile_plan import MIN_GROUPS, split_k_parts
from ..partial_sums import accumulator_type, is_dense, scratch, sum_partials
from ..registry import MAX_CPU_ITERATIONS, choose, variant
from .geometry import Geometry
from .tiles import forward, input_gradient, weight_gradient

__all__ = ["ConvPlan", "convolve_by_tiles", "input_gradient_by_tiles", "weight_gradient_by_tiles"]

TARGET_GROUPS = 256
"""Number of workgroups that split-K aims at."""


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """Tiling of a convolution as a matrix product (see `tiles`): the kernel parameters BM, BN, BK and THREADS.

    Each workgroup of `threads` invocations computes a tile of `rows` x `columns` results, in steps of `depth` along K.
    `max_k` limits the K extent of a split-K part; 0 is no limit. `pipelined`: the operands of the next iteration are
    loaded during the current product (software pipelining).
    """

    rows: int
    columns: int
    depth: int
    threads: int
    max_k: int = 0
    pipelined: bool = False

    @property
    def kernel_arguments(self) -> tuple[int, int, int, int]:
        """The parameters BM, BN, BK and THREADS of the kernels."""
        return self.rows, self.columns, self.depth, self.threads


@variant("conv tiles", "gpu")
def _on_gpu(y: DeviceArray, rows: int, pixels: int) -> ConvPlan:
    """Choose the tiling for a result of `rows` x `pixels`, stored to y; `rows` = 0 chooses small tiles.

    With cooperative matrices, choose the highest tiles of which the result fills more than half the rows, because all
    rows of a tile share the gathered operand.
    """
    has_matrices = native_shape(y.device.caps.matrices, y.dtype.name, y.dtype.name, "f32") is not None
    for tile_rows, subgroups in ((256, 8), (128, 4)):
        workgroups = vk.cdiv(rows, tile_rows) * vk.cdiv(pixels, 128)
        if has_matrices and rows > tile_rows // 2 and workgroups >= MIN_GROUPS:
            # tiles of 256 rows hide the latency without pipelining
            return ConvPlan(tile_rows, 128, 32, subgroups * y.device.caps.subgroup_size, pipelined=tile_rows < 256)
    return ConvPlan(64, 128, 32, 256)


@variant("conv tiles", "cpu")
def _on_cpu(_y: DeviceArray, _rows: int, _pixels: int) -> ConvPlan:
    """Choose small tiles, and limit the loops to the iterations that drivers allow."""
    return ConvPlan(16, 32, 16, 64, MAX_CPU_ITERATIONS)


@variant("conv tiles", "llvm-cpu")
def _on_llvm_cpu(_y: DeviceArray, _rows: int, _pixels: int) -> ConvPlan:
    """Choose fixed tile sizes."""
    return ConvPlan(32, 64, 32, 64)


def _grouped(array: DeviceArray, groups: int) -> DeviceArray:
    """View (N, groups * C, 1, H, W) as (N, groups, C, H, W)."""
    n, c, _, h, w = array.shape
    step_n, step_c, _, step_h, step_w = array.strides
    shape, strides = (n, groups, c // groups, h, w), (step_n, c // groups * step_c, step_c, step_h, step_w)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, strides)


def _weights(array: DeviceArray, groups: int) -> DeviceArray:
    """View (groups * F, C, 1, R, S) as (groups, F, C, R, S)."""
    f, c, _, r, s = array.shape
    step_f, step_c, _, step_r, step_s = array.strides
    shape, strides = (groups, f // groups, c, r, s), (f // groups * step_f, step_f, step_c, step_r, step_s)
    return DeviceArray(array.buffer, array.offset, array.dtype, shape, strides)


def _flat_filters(array: DeviceArray) -> DeviceArray:
    """View dense weights (G, F, C, R, S) as (G, F, C * R * S)."""
    groups, filters, depth = *array.shape[:2], math.prod(array.shape[2:])
    return DeviceArray(array.buffer, array.offset, array.dtype, (groups, filters, depth), (filters * depth, depth, 1))


def _convolution_parameters(g: Geometry) -> tuple[Any, ...]:
    """Return strides, padding, dilations and filter extents along height and width, as the kernels take them.

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
    """Queue y = x * w + bias on the device of y; `bias` has one element per filter.

    Raises ArgumentError if w isn't dense.
    """
    parameters = _convolution_parameters(g)
    if 0 in y.shape:
        return
    if not is_dense(w):
        raise ArgumentError(
            f"the weights have to lie in C order without gaps, found strides {w.strides}: copy them first"
        )
    plan = plan or choose("conv tiles", y.device)(y, g.filters, g.groups * g.pixels)
    # The kernel doesn't read the placeholder of a missing bias. It is w rather than y, which would alias the output,
    # unless w is empty.
    placeholder = w if math.prod(w.shape) else y
    bias_or_placeholder = placeholder if bias is None else bias
    bias_stride = 0 if bias is None else bias.strides[0]
    by_filter = DeviceArray(
        bias_or_placeholder.buffer,
        bias_or_placeholder.offset,
        bias_or_placeholder.dtype,
        (g.groups, g.filters),
        (g.filters * bias_stride, bias_stride),
    )
    forward(
        _grouped(x, g.groups), _flat_filters(_weights(w, g.groups)), by_filter, _grouped(y, g.groups), *parameters,
        *plan.kernel_arguments, accumulator_type(y.dtype), bias is not None, plan.pipelined,
    )  # fmt: skip


def input_gradient_by_tiles(
    gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry, plan: ConvPlan | None = None
) -> None:
    """Queue the computation of gx, the gradient of the input, from gy, the gradient of the output, on gx's device."""
    parameters = _convolution_parameters(g)
    if 0 in gx.shape:
        return
    plan = plan or choose("conv tiles", gx.device)(gx, 0, 0)  # 0 rows: small tiles
    input_gradient(
        _grouped(gy, g.groups),
        _weights(w, g.groups),
        _grouped(gx, g.groups),
        *parameters,
        *plan.kernel_arguments,
        accumulator_type(gx.dtype),
    )


def weight_gradient_by_tiles(
    x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry, plan: ConvPlan | None = None
) -> None:
    """Queue the computation of gw, the gradient of the weights, from gy, the gradient of the output.

    gw is dense, and the computation runs on its device.
    """
    parameters = _convolution_parameters(g)
    if 0 in gw.shape:
        return
    plan = plan or choose("conv tiles", gw.device)(gw, 0, 0)  # 0 rows: small tiles
    depth, accumulator = g.channels * g.taps, accumulator_type(gw.dtype)
    tiles = g.groups * vk.cdiv(g.filters, plan.rows) * vk.cdiv(depth, plan.columns)
    parts = split_k_parts(tiles, g.pixels, TARGET_GROUPS, plan.max_k)
    chunk = max(1, vk.cdiv(vk.cdiv(g.pixels, parts), plan.depth)) * plan.depth  # pixels per part, in whole steps
    partials = scratch((max(1, vk.cdiv(g.pixels, chunk)), g.groups, g.filters, depth), accumulator, gw.device)
    weight_gradient(
        _grouped(x, g.groups), _grouped(gy, g.groups), partials, chunk, *parameters, *plan.kernel_arguments, accumulator
    )
    sums = DeviceArray(
        partials.buffer, 0, accumulator, (partials.shape[0], math.prod(gw.shape)), (math.prod(gw.shape), 1)
    )
    sum_partials(sums, gw)
