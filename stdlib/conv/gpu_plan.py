"""Convolution on GPUs: choose between the kernels of `shared_patch` and `implicit_gemm`, and launch the latter.

Registers the variants of the forward convolution and all gradients for GPUs, from which `dispatch` chooses.
`shared_patch_plan` launches the kernel of `shared_patch`, which is preferred for forward convolutions and input
gradients where it is supported.
"""

from __future__ import annotations

import math

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import (
    accumulator_type,
    flattened,
    index_type,
    is_dense,
    scratch,
    sum_partials,
    sum_partials_into_two,
)
from ..registry import variant
from .direct_plan import padded_input
from .geometry import Geometry
from .implicit_gemm import BK, SIDE, implicit_gemm
from .shared_patch_plan import convolve_strips, input_gradient_strips

__all__ = ["convolve_implicit_gemm", "input_gradient_implicit_gemm"]


MIN_GROUPS = 512
"""Number of workgroups that keeps a large GPU busy."""


def _as_dense(x: DeviceArray) -> DeviceArray:
    """Return x in C order, as a copy if necessary."""
    return x if is_dense(x) else padded_input(x, x.shape[2:], (0, 0, 0), (1, 1, 1), x.dtype)


def _tile_side(rows: int, columns: int, layers: int) -> int:
    """Return the parameter TILE of `implicit_gemm`: each invocation computes TILE x TILE results.

    TILE is 8 if enough workgroups remain to fill the device, 2 for small results, else 4. `layers` is the number of
    products of rows x columns results: groups times split-K parts.
    """
    large = vk.cdiv(rows, 8 * SIDE) * vk.cdiv(columns, 8 * SIDE) * layers
    return 8 if large >= MIN_GROUPS // 2 and rows > 4 * SIDE else 4 if min(rows, columns) > 2 * SIDE else 2


def _launch(
    direction: str,
    a: DeviceArray,
    b: DeviceArray,
    bias: DeviceArray | None,
    y: DeviceArray,
    g: Geometry,
    shape: tuple[int, int, int],
    parts: int = 1,
    ones: bool = False,
) -> None:
    """Queue one of the three products of `implicit_gemm`, in `parts` split-K parts.

    a and b are the operands, y receives the result. `direction` is the parameter DIRECTION of `implicit_gemm`. `shape`
    is (M, N, K) of the product. With `ones`, the last column of the right operand consists of ones.
    """
    rows, columns, depth = shape
    a, b = _as_dense(a), _as_dense(b)
    implicit_gemm(
        flattened(a), flattened(b), flattened(a) if bias is None else bias, flattened(y),
        rows, columns, g.groups * parts, depth, vk.cdiv(vk.cdiv(depth, parts), BK) * BK, g.groups, g.filters, g.channels,
        *g.size, *g.out, *g.stride, *g.pad, *g.dilation,
        g.kernel, direction, _tile_side(rows, columns, g.groups * parts), bias is not None, ones,
        accumulator_type(y.dtype), index_type(a, b, y),
    )  # fmt: skip


@variant("conv", "gpu")
def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """Queue y = x * w + bias."""
    if not convolve_strips(x, w, bias, y, g):
        convolve_implicit_gemm(x, w, bias, y, g)


def convolve_implicit_gemm(
    x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry
) -> None:
    """Queue y = x * w + bias by `implicit_gemm`, which supports any strides and dilations."""
    _launch("forward", w, x, bias, y, g, (g.filters, g.pixels, g.channels * g.taps))


@variant("conv_input_gradient", "gpu")
def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue gx, the gradient of the input, from gy, the gradient of the output."""
    if not input_gradient_strips(gy, w, gx, g):
        input_gradient_implicit_gemm(gy, w, gx, g)


def input_gradient_implicit_gemm(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue gx, the gradient of the input, by `implicit_gemm`, which supports any strides and dilations."""
    _launch("input", w, gy, None, gx, g, (g.channels, g.batch * math.prod(g.size), g.filters * g.taps))


def _split_k_parts(rows: int, columns: int, depth: int, groups: int) -> int:
    """Return the number of split-K parts with which the weight gradient keeps a large GPU busy.

    `rows`, `columns` and `depth` are M, N and K of the product for each group.
    """
    tile = SIDE * _tile_side(rows, columns, groups)
    tiles = vk.cdiv(rows, tile) * vk.cdiv(columns, tile) * groups
    return max(1, min(MIN_GROUPS // tiles, vk.cdiv(depth, 16 * BK)))


@variant("conv_weight_gradient", "gpu")
def weight_gradient(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Queue gw, the gradient of the weights, and the sum of the split-K parts if there are several."""
    rows, columns, depth = g.filters, g.channels * g.taps, g.pixels
    parts = _split_k_parts(rows, columns, depth, g.groups)
    if parts == 1:
        _launch("weight", gy, x, None, gw, g, (rows, columns, depth))
        return
    partial_sums = scratch((parts, math.prod(gw.shape)), accumulator_type(gw.dtype), gw.device)
    _launch("weight", gy, x, None, partial_sums, g, (rows, columns, depth), parts)
    sum_partials(partial_sums, gw)


@variant("conv_parameter_gradients", "gpu")
def parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:
    """Queue gw and gb, the gradients of weights and bias, in one launch of `implicit_gemm`.

    The bias gradient takes an additional column of results. Return False, and queue nothing, if that column would need
    additional tiles.
    """
    rows, columns, depth = g.filters, g.channels * g.taps, g.pixels
    tile = SIDE * _tile_side(rows, columns, g.groups)
    if columns % tile == 0 or not depth:
        return False
    parts = _split_k_parts(rows, columns, depth, g.groups)
    partial_sums = scratch((parts, g.groups * rows * (columns + 1)), accumulator_type(gw.dtype), gw.device)
    _launch("weight", gy, x, None, partial_sums, g, (rows, columns + 1, depth), parts, ones=True)
    sum_partials_into_two(partial_sums, gw, gb)
    return True


@variant("conv_parameter_gradients", "cpu")
def no_parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:  # noqa: ARG001  # fmt: skip
    """Return False: on these devices the two gradients are computed separately."""
    return False
