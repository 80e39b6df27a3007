"""Direct convolution on devices of class "cpu": choose the blocking and launch the kernels of `direct`, or of `cpu_rows`.

The input is first copied into a padded buffer (with zeros between elements for the gradient of a strided convolution), and the
weights are packed. Registers the variants of "conv" and "conv_input_gradient".
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
"""Minimum number of workgroups that keeps all threads busy."""
MIN_WIDTH = 12
"""Minimum output width for `rows`: narrower ones leave too many lanes idle."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Blocking of the kernel `direct.direct`.

    Each invocation computes `filters` x `columns` results, in workgroups of `group_size`. `window` and `words` are the
    WINDOW and WORDS of the kernel.
    """

    filters: int
    columns: int
    group_size: int
    window: tuple[int, ...]
    words: bool


def _choose_blocking(x: DeviceArray, filters: int, columns: int, taps: int, stride: int, dilation: int) -> Blocking:
    """Choose the blocking for a padded input. Unrolling is limited: drivers take seconds to compile large bodies."""
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
    """View an array of f32 as 64-bit words of two."""
    return DeviceArray(x.buffer, x.offset, vk.u64, (math.prod(x.shape) // 2,), (1,))


def padded_input(x: DeviceArray, size: Triple, shift: Triple, step: Triple, dtype: DType) -> DeviceArray:
    """Copy x to a dense array (N, C, *size), shifted by `shift`, with elements `step` apart and zeros elsewhere.

    Return x itself if it is such an array already.
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
    """Convolve a padded x of `channels` to `filters` per group, by `cpu_rows.rows` on CPUs (LLVM) with wide rows, else by `direct`.

    The channels are split over several launches where one invocation would loop too long; the launches add to y, or to
    scratch memory in the accumulator type.
    """
    device, dtype = y.device, x.dtype
    form = _choose_blocking(x, filters, y.shape[4], kernel[2], stride[2], dilation[2])
    in_rows = device.caps.kind == "llvm-cpu" and y.shape[4] >= MIN_WIDTH
    if in_rows:
        size = device.caps.subgroup_size
        form = Blocking(*_rows_form(size, filters, y.shape[4]), size, (), False)
    blocks = vk.cdiv(filters, form.filters)
    packed = scratch((g.groups * blocks * channels * math.prod(kernel) * form.filters,), dtype, device)
    pack_weights(w, packed, blocks, filters, channels, transposed, form.filters)
    max_channels = max(1, 4 * MAX_CPU_ITERATIONS // _iterations(*kernel[:2], *(() if form.window else kernel[2:])))
    target = y
    if channels > max_channels and y.dtype is not dtype:
        target = scratch(y.shape, dtype, device)
    tiles = g.batch * y.shape[2] * y.shape[3] * vk.cdiv(y.shape[4], form.columns)
    lines = g.batch * y.shape[2] * y.shape[3]
    for first in range(0, channels, max_channels):
        if in_rows:
            cpu_rows.convolve_rows(
                flattened(x), packed, packed if bias is None else bias, flattened(target), lines, g.groups * blocks, g.groups,
                filters, channels, first, min(channels, first + max_channels), *x.shape[2:], *y.shape[2:], *kernel,
                *stride[:2], *dilation, stride[2], form.filters, form.columns, form.group_size,
                bias is not None and first == 0, first > 0, index_type(x, y),
            )  # fmt: skip
            continue
        direct(
            as_words(x) if form.words else flattened(x), packed, packed if bias is None else bias, flattened(target),
            tiles, g.groups * blocks, g.groups, filters, channels, first, min(channels, first + max_channels),
            *x.shape[2:], *y.shape[2:], *kernel, *stride, *dilation,
            form.window, form.filters, form.columns, form.group_size, form.words, bias is not None and first == 0, first > 0,
            index_type(x, y),
        )  # fmt: skip
    if target is not y:
        sum_partials(DeviceArray(target.buffer, 0, dtype, (1, math.prod(y.shape)), (math.prod(y.shape), 1)), y)


def _iterations(*nest: int) -> int:
    """Return the iterations to charge for one iteration of a loop that contains the loops `nest`.

    Every loop is charged an extra iteration for its exit test, and in it the exit tests of the loops inside.
    """
    active, idle = 0, 0
    for trips in reversed(nest):
        active, idle = trips * (1 + active) + 1 + idle, 1 + idle
    return 1 + active


@variant("conv", "cpu")
def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    size = padded_size(g)
    padded = padded_input(x, size, g.pad, (1, 1, 1), accumulator_type(x.dtype))
    _run(padded, w, bias, y, g, g.channels, g.filters, g.kernel, g.stride, g.dilation, transposed=False)


def padded_size(g: Geometry) -> Triple:
    """Return the size of the padded input: enough for all taps of whole blocks of columns, with an even width."""
    d, h = ((g.out[i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 for i in (0, 1))
    blocks = vk.cdiv(g.out[2], MAX_COLUMNS) * MAX_COLUMNS
    w = (blocks - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1
    fits = g.pad == (0, 0, 0) and all(have >= need for have, need in zip(g.size, (d, h, w), strict=True))
    return g.size if fits else (d, h, w + w % 2)


@variant("conv_input_gradient", "cpu")
def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Convolve gy, with zeros inserted for the stride, with the reversed taps at stride 1."""
    reach = tuple((k - 1) * d for k, d in zip(g.kernel, g.dilation, strict=True))
    shift = tuple(r - p for r, p in zip(reach, g.pad, strict=True))
    blocks = vk.cdiv(g.size[2], MAX_COLUMNS) * MAX_COLUMNS
    size = (g.size[0] + reach[0], g.size[1] + reach[1], blocks + reach[2] + reach[2] % 2)
    padded = padded_input(gy, size, shift, g.stride, accumulator_type(gy.dtype))
    _run(padded, w, None, gx, g, g.filters, g.channels, g.kernel, (1, 1, 1), g.dilation, transposed=True)


def _rows_form(size: int, filters: int, columns: int) -> tuple[int, int]:
    """Return (filters, columns) per invocation, so that the accumulators fit into the registers of `group_size` lanes."""
    if columns % (2 * size) == 0:
        return (8 if size >= 16 else 4, 2)
    return (16 if size >= 16 and filters > 8 else 8, 1)
