"""Direct convolution on devices of class "cpu": choose the blocking, and launch the kernels of `direct` or `cpu_rows`.

Registers the variants of "conv" and "conv_input_gradient", from which `dispatch` chooses. The input is first copied
into a padded buffer, and the weights are packed. The input gradient is a convolution of the output gradient, with zeros
between its elements if the convolution has a stride.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, index_type, is_dense, scratch, sum_partials
from ..registry import MAX_CPU_ITERATIONS, variant
from . import cpu_rows
from .direct import COLUMNS, FILTERS, LOCAL, SEGMENT, direct, pack_weights, pad_rows
from .geometry import Geometry, Triple

__all__ = ["as_words", "padded_input", "padded_size"]


MAX_COLUMNS = 8
"""Maximum number of columns per invocation; padded rows cover a multiple of it."""
MIN_GROUPS = 256
"""Minimum number of workgroups of `cpu_rows.pad_rows` that keeps all threads busy."""
MIN_WIDTH = 12
"""Minimum output width for `cpu_rows.convolve_rows`: narrower outputs leave too many lanes idle."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Blocking of the kernels `direct.direct` and `cpu_rows.convolve_rows`.

    Each invocation computes `filters` x `columns` results, in workgroups of `group_size` invocations. `window` and
    `words` are the WINDOW and F32_PAIRS of `direct.direct`.
    """

    filters: int
    columns: int
    group_size: int
    window: tuple[int, ...]
    words: bool


def _choose_blocking(x: DeviceArray, filters: int, columns: int, taps: int, stride: int, dilation: int) -> Blocking:
    """Choose the blocking of `direct.direct` for a padded input x.

    `filters` is their number per group, `columns` the width of the output; `taps`, `stride` and `dilation` are those
    along the width. Unrolling is limited, because drivers take seconds to compile large loop bodies.
    """
    caps = x.device.caps
    words = caps.kind == "cpu" and "subgroup_shuffle" in caps.features and x.dtype is vk.f32
    words = words and x.shape[4] % 2 == 0 and x.offset % 8 == 0
    for f, c in ((8, 8), (8, 4), (4, 4)) if words else ():
        span = (c - 1) * stride + (taps - 1) * dilation + 1
        if f // 2 < filters and (c == 4 or columns > 4) and f * c * taps <= 256 and span <= 24:
            return Blocking(f, c, caps.subgroup_size, (taps, stride, dilation), True)
    span = (COLUMNS - 1) * stride + (taps - 1) * dilation + 1
    window = (taps, stride, dilation) if 1 < taps <= 7 and span <= 16 else ()
    return Blocking(FILTERS, COLUMNS, LOCAL, window, False)


def as_words(x: DeviceArray) -> DeviceArray:
    """View an array of f32 as a flat array of 64-bit words of two elements."""
    return DeviceArray(x.buffer, x.offset, vk.u64, (math.prod(x.shape) // 2,), (1,))


def padded_input(x: DeviceArray, size: Triple, shift: Triple, step: Triple, dtype: DType) -> DeviceArray:
    """Copy x (N, C, D, H, W) to a dense array (N, C, *size) of type `dtype`, with zeros around and between elements.

    `shift` is the index of the first element of x in the result, `step` the distance of its elements there. Return x
    itself if it is such an array already.
    """
    if shift == (0, 0, 0) and step == (1, 1, 1) and size == x.shape[2:] and x.dtype is dtype and is_dense(x):
        return x
    padded = scratch((*x.shape[:2], *size), dtype, x.device)
    if x.device.caps.kind == "llvm-cpu":
        planes, lanes = math.prod(padded.shape[:-2]), x.device.caps.subgroup_size
        per_group = max(8, vk.cdiv(planes * size[1], MIN_GROUPS))
        cpu_rows.pad_rows(
            x, flattened(padded), planes, min(per_group, size[1]), *size, *shift, *step, lanes, index_type(padded)
        )
        return padded
    rows, segments = math.prod(padded.shape[:-1]), vk.cdiv(size[2], SEGMENT)
    pad_rows(x, flattened(padded), rows, segments, *size, *shift, *step, index_type(padded))
    return padded


def _run(
    x: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray | None,
    y: DeviceArray,
    g: Geometry,
    channels: int,
    filters: int,
    kernel: Triple,
    stride: Triple,
    dilation: Triple,
    transposed: bool,
) -> None:
    """Convolve the padded x, of `channels` channels per group, to y, of `filters` filters per group.

    On the device "cpu", wide rows are computed by `cpu_rows.convolve_rows`; everything else by `direct.direct`. If
    `transposed`, the weights are packed for the input gradient. The channels are split over several launches if one
    invocation would loop too long; the launches add to y, or to scratch memory in the accumulator type.
    """
    device, dtype = y.device, x.dtype
    blocking = _choose_blocking(x, filters, y.shape[4], kernel[2], stride[2], dilation[2])
    use_rows = device.caps.kind == "llvm-cpu" and y.shape[4] >= MIN_WIDTH
    if use_rows:
        size = device.caps.subgroup_size
        blocking = Blocking(*_rows_blocking(size, filters, y.shape[4]), size, (), False)
    blocks = vk.cdiv(filters, blocking.filters)
    packed = scratch((g.groups * blocks * channels * math.prod(kernel) * blocking.filters,), dtype, device)
    pack_weights(w, packed, blocks, filters, channels, transposed, blocking.filters)
    max_channels = max(1, 4 * MAX_CPU_ITERATIONS // _iterations(*kernel[:2], *(() if blocking.window else kernel[2:])))
    target = y
    if channels > max_channels and y.dtype is not dtype:
        target = scratch(y.shape, dtype, device)
    tiles = g.batch * y.shape[2] * y.shape[3] * vk.cdiv(y.shape[4], blocking.columns)
    lines = g.batch * y.shape[2] * y.shape[3]
    for first in range(0, channels, max_channels):
        if use_rows:
            cpu_rows.convolve_rows(
                flattened(x), packed, packed if bias is None else bias, flattened(target), lines, g.groups * blocks, g.groups,
                filters, channels, first, min(channels, first + max_channels), *x.shape[2:], *y.shape[2:], *kernel,
                *stride[:2], *dilation, stride[2], blocking.filters, blocking.columns, blocking.group_size,
                bias is not None and first == 0, first > 0, index_type(x, y),
            )  # fmt: skip
            continue
        direct(
            as_words(x) if blocking.words else flattened(x), packed, packed if bias is None else bias, flattened(target),
            tiles, g.groups * blocks, g.groups, filters, channels, first, min(channels, first + max_channels),
            *x.shape[2:], *y.shape[2:], *kernel, *stride, *dilation,
            blocking.window, blocking.filters, blocking.columns, blocking.group_size, blocking.words,
            bias is not None and first == 0, first > 0, index_type(x, y),
        )  # fmt: skip
    if target is not y:
        sum_partials(DeviceArray(target.buffer, 0, dtype, (1, math.prod(y.shape)), (math.prod(y.shape), 1)), y)


def _iterations(*nest: int) -> int:
    """Return the total number of loop iterations in one iteration of a loop that contains a loop nest.

    `nest` are the trip counts of the nested loops, outermost first. Each loop is counted with one more iteration, for
    its exit test; that iteration includes one exit test of each loop inside.
    """
    active, idle = 0, 0
    for trips in reversed(nest):
        active, idle = trips * (1 + active) + 1 + idle, 1 + idle
    return 1 + active


@variant("conv", "cpu")
def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """Queue y = x * w + bias."""
    size = padded_size(g)
    padded = padded_input(x, size, g.pad, (1, 1, 1), accumulator_type(x.dtype))
    _run(padded, w, bias, y, g, g.channels, g.filters, g.kernel, g.stride, g.dilation, transposed=False)


def padded_size(g: Geometry) -> Triple:
    """Return the extents of the padded input: enough for all taps of whole blocks of columns, with an even width.

    They are the extents of the input itself if it needs no padding.
    """
    d, h = ((g.out[i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 for i in (0, 1))
    blocks = vk.cdiv(g.out[2], MAX_COLUMNS) * MAX_COLUMNS
    w = (blocks - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1
    fits = g.pad == (0, 0, 0) and all(have >= need for have, need in zip(g.size, (d, h, w), strict=True))
    return g.size if fits else (d, h, w + w % 2)


@variant("conv_input_gradient", "cpu")
def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue gx, the gradient of the input: gy, with zeros inserted for the stride, convolved with the reversed taps."""
    reach = tuple((k - 1) * d for k, d in zip(g.kernel, g.dilation, strict=True))
    shift = tuple(r - p for r, p in zip(reach, g.pad, strict=True))
    blocks = vk.cdiv(g.size[2], MAX_COLUMNS) * MAX_COLUMNS
    size = (g.size[0] + reach[0], g.size[1] + reach[1], blocks + reach[2] + reach[2] % 2)
    padded = padded_input(gy, size, shift, g.stride, accumulator_type(gy.dtype))
    _run(padded, w, None, gx, g, g.filters, g.channels, g.kernel, (1, 1, 1), g.dilation, transposed=True)


def _rows_blocking(size: int, filters: int, columns: int) -> tuple[int, int]:
    """Return (filters, columns) per invocation of `cpu_rows.convolve_rows`, such that accumulators fit into registers.

    `size` is the number of SIMD lanes, `filters` the number of filters per group, `columns` the width of the output.
    """
    if columns % (2 * size) == 0:
        return (8 if size >= 16 else 4, 2)
    return (16 if size >= 16 and filters > 8 else 8, 1)
