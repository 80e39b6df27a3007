"""Convolution on GPUs: choose between the kernels of `shared_patch` and `implicit_gemm`, and launch the latter.

Registers the host functions that `dispatch` calls on GPUs, for the forward convolution and all gradients. Forward
convolutions and input gradients first try the kernel of `shared_patch`, whose unit of work is a strip of pixels:
`convolve_strips` and `input_gradient_strips` of `shared_patch_plan` launch it, or return False if it doesn't support
the arguments. `implicit_gemm` supports all convolutions. It also computes the weight gradient, together with the bias
gradient if that is cheap ("conv_parameter_gradients").

Kernel arguments that a launch doesn't use, such as a missing bias, are replaced by another array as a placeholder.
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
"""Minimum number of workgroups that keeps a large GPU busy; half as many are enough if each computes large tiles."""
MIN_PART_TILES = 16
"""Approximate minimum extent of a split-K part along K, in operand tiles of BK elements."""


def _as_dense(x: DeviceArray) -> DeviceArray:
    """Return x in C order, as a copy if necessary."""
    # `padded_input` without padding (shift 0) and without zeros between elements (steps of 1) is a plain copy
    return x if is_dense(x) else padded_input(x, x.shape[2:], (0, 0, 0), (1, 1, 1), x.dtype)


def _choose_tile(rows: int, columns: int, products: int) -> int:
    """Return the parameter TILE of `implicit_gemm`: each invocation computes TILE x TILE results.

    A workgroup then computes TILE * SIDE rows and columns. TILE is 8 if enough workgroups remain to fill the device, 2
    for small results, else 4. `products` is the number of products of rows x columns results: groups times split-K
    parts.
    """
    workgroups_of_8 = vk.cdiv(rows, 8 * SIDE) * vk.cdiv(columns, 8 * SIDE) * products
    # a tile is only worthwhile if more than half of its rows (and, for TILE = 4, of its columns) are in the result
    if workgroups_of_8 >= MIN_GROUPS // 2 and rows > 4 * SIDE:
        return 8
    return 4 if min(rows, columns) > 2 * SIDE else 2


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
    is (M, N, K) of the product for one group. With `ones`, the last column of the right operand consists of ones.
    """
    rows, columns, depth = shape
    products = g.groups * parts
    k_per_part = vk.cdiv(vk.cdiv(depth, parts), BK) * BK  # whole operand tiles
    a, b = _as_dense(a), _as_dense(b)
    implicit_gemm(
        flattened(a), flattened(b), flattened(a) if bias is None else bias, flattened(y),
        rows, columns, products, depth, k_per_part, g.groups, g.filters, g.channels,
        *g.size, *g.out, *g.stride, *g.pad, *g.dilation,
        g.kernel, direction, _choose_tile(rows, columns, products), bias is not None, ones,
        accumulator_type(y.dtype), index_type(a, b, y),
    )  # fmt: skip


@variant("conv", "gpu")
def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """Queue y = x * w + bias, where * is the convolution described by g."""
    if not convolve_strips(x, w, bias, y, g):
        convolve_implicit_gemm(x, w, bias, y, g)


def convolve_implicit_gemm(
    x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry
) -> None:
    """Queue y = x * w + bias by `implicit_gemm`, which supports any strides and dilations."""
    _launch("forward", w, x, bias, y, g, (g.filters, g.pixels, g.channels * g.taps))


@variant("conv_input_gradient", "gpu")
def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gx, the gradient of the input, from gy, the gradient of the output."""
    if not input_gradient_strips(gy, w, gx, g):
        input_gradient_implicit_gemm(gy, w, gx, g)


def input_gradient_implicit_gemm(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gx, the gradient of the input, by `implicit_gemm`.

    The kernel supports any strides and dilations.
    """
    _launch("input", w, gy, None, gx, g, (g.channels, g.batch * math.prod(g.size), g.filters * g.taps))


def _split_k_parts(rows: int, columns: int, depth: int, groups: int) -> int:
    """Return the number of split-K parts with which the weight gradient keeps a large GPU busy.

    `rows`, `columns` and `depth` are M, N and K of the product for each group.
    """
    tile_size = SIDE * _choose_tile(rows, columns, groups)
    workgroups_per_part = vk.cdiv(rows, tile_size) * vk.cdiv(columns, tile_size) * groups
    max_parts = vk.cdiv(depth, MIN_PART_TILES * BK)
    return max(1, min(MIN_GROUPS // workgroups_per_part, max_parts))


@variant("conv_weight_gradient", "gpu")
def weight_gradient(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gw, the gradient of the weights.

    It is computed in split-K parts, which are then added, if a single part doesn't keep a GPU busy.
    """
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
    """Queue the computation of gw and gb, the gradients of weights and bias, in one launch of `implicit_gemm`.

    The bias gradient takes an additional column of results. Return False, and queue nothing, if that column would need
    additional tiles, or if there are no output pixels.
    """
    rows, columns, depth = g.filters, g.channels * g.taps, g.pixels
    tile_size = SIDE * _choose_tile(rows, columns, g.groups)
    if columns % tile_size == 0 or not depth:  # without a remainder, no tile has a column to spare
        return False
    parts = _split_k_parts(rows, columns, depth, g.groups)
    partial_sums = scratch((parts, g.groups * rows * (columns + 1)), accumulator_type(gw.dtype), gw.device)
    _launch("weight", gy, x, None, partial_sums, g, (rows, columns + 1, depth), parts, ones=True)
    sum_partials_into_two(partial_sums, gw, gb)
    return True


@variant("conv_parameter_gradients", "cpu")
def no_parameter_gradients(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, gb: DeviceArray, g: Geometry) -> bool:  # noqa: ARG001  # fmt: skip
    """Return False: on devices of class "cpu" the two gradients are computed separately.

    The counterpart of `parameter_gradients`, so that `dispatch` finds a variant on every device.
    """
    return False
