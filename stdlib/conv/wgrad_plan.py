"""Convolution weight gradient (wgrad) on devices of class "cpu": choose the kernel, and launch it.

Registers the variants of "conv_weight_gradient", from which `dispatch` chooses. The output rows are divided into parts;
the kernels of `wgrad_cpu` (device "cpu") and `wgrad_direct` (others) compute the gradient over each part, and the parts
are then added. x is the input, gy the gradient of the output, gw receives the gradient of the weights.

Devices of class "cpu" have three kinds (`device.caps.kind`): "llvm-cpu" is the device "cpu", which compiles kernels
through LLVM, "cpu" a Vulkan driver on the CPU, and "interpreter" the reference interpreter.
"""

from __future__ import annotations

import math

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, index_type, is_dense, scratch, sum_partials
from ..registry import MAX_CPU_ITERATIONS, variant
from .direct import COLUMNS, FILTERS
from .direct_plan import MAX_WINDOW_SPAN, MAX_WINDOW_TAPS, as_words, padded_input, padded_size
from .geometry import Geometry
from .wgrad_cpu import wgrad_rows
from .wgrad_direct import wgrad_f32_pairs, wgrad_parts

__all__: list[str] = []

INVOCATIONS = 2048
"""Number of invocations of the kernels of `wgrad_direct` that keeps all threads busy."""
MIN_ROWS = 16
"""Minimum number of rows per part of `wgrad_rows`: amortizes the reduction across lanes."""
WORKGROUPS = 64
"""Number of workgroups of `wgrad_rows` that keeps all threads busy."""
PART_BYTES = 1 << 18
"""Bytes of the output gradient per part: they stay in cache for the many workgroups that read the same part in turn."""
MIN_WIDTH = 4
"""Minimum output width at which `wgrad_rows`, with lanes along a row, is faster than the kernels of `wgrad_direct`."""


@variant("conv_weight_gradient", "cpu")
def _on_cpu(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gw: the parts by a kernel of `wgrad_direct`, then their sum."""
    compute = accumulator_type(x.dtype)
    padded = padded_input(x, padded_size(g), g.pad, (1, 1, 1), compute)
    rows = g.batch * g.out[0] * g.out[1]
    window = (g.kernel[2], g.stride[2], g.dilation[2])
    if rows and _supports_f32_pairs(padded, window):
        partial_sums = _wgrad_f32_pairs(padded, gy, gw, g, rows, window)
    else:
        partial_sums = _wgrad_single_elements(padded, gy, gw, g, rows)
    sum_partials(partial_sums, gw)


def _supports_f32_pairs(padded: DeviceArray, window: tuple[int, int, int]) -> bool:
    """True if `wgrad_f32_pairs` supports the padded input and the window, (taps, stride, dilation) along the width."""
    taps, stride, dilation = window
    aligned = padded.shape[4] % 2 == 0 and padded.offset % 8 == 0
    # the elements of a row under all taps of two adjacent output columns, which the kernel loads at once
    span = stride + (taps - 1) * dilation + 1
    unrollable = taps <= MAX_WINDOW_TAPS and span <= MAX_WINDOW_SPAN
    return padded.device.caps.kind == "cpu" and padded.dtype is vk.f32 and aligned and unrollable


def _wgrad_f32_pairs(
    padded: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry, rows: int, window: tuple[int, int, int]
) -> DeviceArray:
    """Queue `wgrad_f32_pairs`; return the partial sums, of shape (parts, number of weights)."""
    pairs = vk.cdiv(g.out[2], 2)
    gradient = padded_input(gy, (g.out[0], g.out[1], 2 * pairs), (0, 0, 0), (1, 1, 1), vk.f32)
    if gradient.offset % 8:  # `padded_input` returned gy itself: ask for other extents, so that it copies
        gradient = padded_input(gy, (g.out[0], g.out[1], 2 * pairs + 2), (0, 0, 0), (1, 1, 1), vk.f32)
        pairs += 1
    # fewer channels for wide filters: an invocation has an accumulator per filter, channel and tap along the width
    channels = 4 if window[0] == 1 else 2 if window[0] <= 3 else 1
    tiles = g.groups * vk.cdiv(g.filters, FILTERS) * vk.cdiv(g.channels, channels) * g.kernel[0] * g.kernel[1]
    per_part = _rows_per_part(rows, pairs, tiles)
    parts = vk.cdiv(rows, per_part)
    partial_sums = scratch((parts, math.prod(gw.shape)), vk.f32, gw.device)
    wgrad_f32_pairs(
        as_words(padded), as_words(gradient), flattened(partial_sums), tiles, parts, rows, per_part, g.groups,
        g.filters, g.channels,
        *padded.shape[2:], g.out[0], g.out[1], pairs, *g.kernel[:2], *g.stride[:2], *g.dilation[:2], window, channels,
        index_type(padded, gradient, partial_sums),
    )  # fmt: skip
    return partial_sums


def _wgrad_single_elements(
    padded: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry, rows: int
) -> DeviceArray:
    """Queue `wgrad_parts`; return the partial sums, of shape (parts, number of weights)."""
    gradient = gy if is_dense(gy) else padded_input(gy, g.out, (0, 0, 0), (1, 1, 1), padded.dtype)
    tiles = g.groups * vk.cdiv(g.filters, FILTERS) * vk.cdiv(g.channels, COLUMNS) * g.taps
    per_part = _rows_per_part(rows, g.out[2], tiles)
    parts = vk.cdiv(rows, per_part) if rows else 0
    partial_sums = scratch((parts, math.prod(gw.shape)), padded.dtype, gw.device)
    if parts:
        wgrad_parts(
            flattened(padded), flattened(gradient), flattened(partial_sums), tiles, parts, rows, per_part, g.groups,
            g.filters, g.channels,
            *padded.shape[2:], *g.out, *g.kernel, *g.stride, *g.dilation, index_type(padded, gradient, partial_sums),
        )  # fmt: skip
    return partial_sums


def _rows_per_part(rows: int, columns: int, tiles: int) -> int:
    """Return the number of output rows per part: loops stay short, and there are enough invocations for all threads.

    `rows` is the number of output rows per filter, `columns` the iterations per row, `tiles` the invocations per part.
    """
    max_rows = max(1, MAX_CPU_ITERATIONS // (columns + 1))  # one more iteration, for the exit test
    busy_rows = vk.cdiv(rows * tiles, INVOCATIONS)  # with which there are about INVOCATIONS invocations in all
    return max(1, min(max_rows, busy_rows, rows))


@variant("conv_weight_gradient", "llvm-cpu")
def _on_llvm_cpu(x: DeviceArray, gy: DeviceArray, gw: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gw: the parts by `wgrad_rows`, then their sum.

    Narrow outputs and wide filters are left to `_on_cpu`.
    """
    caps, rows = gw.device.caps, g.batch * g.out[0] * g.out[1]
    compute = accumulator_type(x.dtype)
    max_sums = _max_sums(caps.subgroup_size, compute.itemsize)
    if not rows or g.kernel[2] > max_sums or g.out[2] < MIN_WIDTH:
        _on_cpu(x, gy, gw, g)
        return
    padded = padded_input(x, padded_size(g), g.pad, (1, 1, 1), compute)
    gradient = gy if is_dense(gy) else padded_input(gy, g.out, (0, 0, 0), (1, 1, 1), compute)
    # an invocation has an accumulator per filter, channel and tap along the width: first as many channels as yield
    # three accumulators per filter, then as many filters as fit
    channels = min(g.channels, max(1, 3 // g.kernel[2]))
    filters = min(g.filters, max_sums // (channels * g.kernel[2]))
    tiles = g.groups * vk.cdiv(g.filters, filters) * vk.cdiv(g.channels, channels) * g.kernel[0] * g.kernel[1]
    per_part = _rows_per_cached_part(rows, tiles, filters * g.out[2] * gradient.dtype.itemsize)
    parts = vk.cdiv(rows, per_part)
    partial_sums = scratch((parts, math.prod(gw.shape)), compute, gw.device)
    wgrad_rows(
        flattened(padded), flattened(gradient), flattened(partial_sums), tiles, parts, rows, per_part, g.groups,
        g.filters, g.channels,
        *padded.shape[2:], *g.out, *g.kernel[:2], *g.stride[:2], *g.dilation[:2],
        (g.kernel[2], g.stride[2], g.dilation[2]), channels, filters, caps.subgroup_size,
        index_type(padded, gradient, partial_sums),
    )  # fmt: skip
    sum_partials(partial_sums, gw)


def _max_sums(lanes: int, itemsize: int) -> int:
    """Return the maximum number of accumulators per invocation: three quarters of the CPU's vector registers.

    `lanes` is the number of lanes of a subgroup, `itemsize` the size of an accumulator in bytes.
    """
    # a subgroup of f32 fills a register, one of f64 two; CPUs with 16 lanes have 32 registers, others 16
    return (24 if lanes >= 16 else 12) * 4 // itemsize


def _rows_per_cached_part(rows: int, tiles: int, row_bytes: int) -> int:
    """Return the number of output rows per part of `wgrad_rows`: a part stays in cache, and all threads are busy.

    `rows` is the number of output rows per filter, `tiles` the workgroups per part, `row_bytes` the bytes of gy that a
    workgroup reads per row.
    """
    busy_rows = vk.cdiv(rows * tiles, WORKGROUPS)  # rows per part with which there are about WORKGROUPS workgroups
    cached_rows = PART_BYTES // max(1, row_bytes)
    chosen = max(MIN_ROWS, min(busy_rows, cached_rows))
    return max(1, min(rows, chosen))
