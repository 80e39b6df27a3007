"""Direct convolution on devices of class "cpu": choose the blocking, and launch the kernels of `direct` or `cpu_rows`.

Registers the variants of "conv" and "conv_input_gradient", from which `dispatch` chooses. The input is first copied
into a padded buffer, and the weights are packed. The input gradient is a convolution of the output gradient, with zeros
between its elements if the convolution has a stride.

Devices of class "cpu" have three kinds (`device.caps.kind`): "llvm-cpu" is the device "cpu", which compiles kernels
through LLVM, "cpu" a Vulkan driver on the CPU, and "interpreter" the reference interpreter.
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

__all__ = ["MAX_WINDOW_SPAN", "MAX_WINDOW_TAPS", "as_words", "padded_input", "padded_size"]


MAX_COLUMNS = 8
"""Maximum number of columns per invocation; padded rows cover a multiple of it."""
MIN_GROUPS = 256
"""Minimum number of workgroups of `cpu_rows.pad_rows` that keeps all threads busy."""
MIN_WIDTH = 12
"""Minimum output width for `cpu_rows.convolve_rows`: narrower outputs leave too many lanes idle."""
MAX_WINDOW_TAPS = 7
"""Maximum number of taps along the width for which a kernel is unrolled and keeps a row's elements in registers."""
MAX_WINDOW_SPAN = 16
"""Maximum number of elements of a row that an invocation then keeps in registers."""
MAX_PAIRS_SPAN = 24
"""The same limit for `direct.direct` with F32_PAIRS."""
MAX_PAIRS_PRODUCTS = 256
"""Maximum number of unrolled multiply-adds of `direct.direct` with F32_PAIRS."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """Blocking of the kernels `direct.direct` and `cpu_rows.convolve_rows`.

    Each invocation computes `filters` x `columns` results, in workgroups of `group_size` invocations. `window` and
    `f32_pairs` are the WINDOW and F32_PAIRS of `direct.direct`.
    """

    filters: int
    columns: int
    group_size: int
    window: tuple[int, ...]
    f32_pairs: bool


def _choose_blocking(x: DeviceArray, filters: int, columns: int, taps: int, stride: int, dilation: int) -> Blocking:
    """Choose the blocking of `direct.direct` for a padded input x.

    `filters` is the number of filters per group, and `columns` the width of the output. `taps`, `stride` and `dilation`
    are those along the width. Unrolling is limited, because drivers take seconds to compile large loop bodies.
    """
    caps = x.device.caps
    aligned = x.shape[4] % 2 == 0 and x.offset % 8 == 0  # all rows begin at 64-bit words
    f32_pairs = caps.kind == "cpu" and "subgroup_shuffle" in caps.features and x.dtype is vk.f32 and aligned
    # with F32_PAIRS, the largest block of f filters by c columns that is more than half used and not too much code
    for f, c in ((8, 8), (8, 4), (4, 4)) if f32_pairs else ():
        span = (c - 1) * stride + (taps - 1) * dilation + 1  # elements of a row under all taps of c adjacent columns
        more_than_half_used = f // 2 < filters and (c == 4 or columns > 4)
        if more_than_half_used and f * c * taps <= MAX_PAIRS_PRODUCTS and span <= MAX_PAIRS_SPAN:
            return Blocking(f, c, caps.subgroup_size, (taps, stride, dilation), f32_pairs=True)
    span = (COLUMNS - 1) * stride + (taps - 1) * dilation + 1
    # a window of one tap would reuse nothing: () loops over the taps instead
    window = (taps, stride, dilation) if 1 < taps <= MAX_WINDOW_TAPS and span <= MAX_WINDOW_SPAN else ()
    return Blocking(FILTERS, COLUMNS, LOCAL, window, f32_pairs=False)


def as_words(x: DeviceArray) -> DeviceArray:
    """View an array of f32 as a flat array of 64-bit words of two elements."""
    return DeviceArray(x.buffer, x.offset, vk.u64, (math.prod(x.shape) // 2,), (1,))


def padded_input(x: DeviceArray, size: Triple, shift: Triple, step: Triple, dtype: DType) -> DeviceArray:
    """Copy x (N, C, D, H, W) to a dense array (N, C, *size) of type `dtype`, with zeros around and between elements.

    `shift` is the index of the first element of x in the result, and `step` the distance in the result between adjacent
    elements of x. Return x itself if the copy would be identical.
    """
    if shift == (0, 0, 0) and step == (1, 1, 1) and size == x.shape[2:] and x.dtype is dtype and is_dense(x):
        return x
    padded = scratch((*x.shape[:2], *size), dtype, x.device)
    if x.device.caps.kind == "llvm-cpu":
        planes, lanes = math.prod(padded.shape[:-2]), x.device.caps.subgroup_size
        rows_per_group = max(8, vk.cdiv(planes * size[1], MIN_GROUPS))
        cpu_rows.pad_rows(
            x, flattened(padded), planes, min(rows_per_group, size[1]), *size, *shift, *step, lanes, index_type(padded)
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
    """Convolve the padded x, with `channels` channels per group, and store the result to y.

    y has `filters` channels per group, one per filter.

    On the device "cpu", wide rows are computed by `cpu_rows.convolve_rows`; everything else by `direct.direct`. If
    `transposed`, the weights are packed for the input gradient. The channels are split over several launches if one
    invocation would loop too long; the launches add to y, or to scratch memory in the accumulator type.
    """
    device, dtype = y.device, x.dtype
    use_rows = device.caps.kind == "llvm-cpu" and y.shape[4] >= MIN_WIDTH
    if use_rows:
        size = device.caps.subgroup_size
        blocking = Blocking(*_rows_blocking(size, filters, y.shape[4]), size, (), f32_pairs=False)
    else:
        blocking = _choose_blocking(x, filters, y.shape[4], kernel[2], stride[2], dilation[2])
    blocks = vk.cdiv(filters, blocking.filters)
    packed = scratch((g.groups * blocks * channels * math.prod(kernel) * blocking.filters,), dtype, device)
    pack_weights(w, packed, blocks, filters, channels, transposed, blocking.filters)
    # Limit the channels per launch. The loop over the taps along the width is unrolled if there is a window.
    # 4 * MAX_CPU_ITERATIONS is still less than drivers allow.
    tap_loops = kernel[:2] if blocking.window else kernel
    max_channels = max(1, 4 * MAX_CPU_ITERATIONS // _iterations(*tap_loops))
    target = y
    if channels > max_channels and y.dtype is not dtype:  # several launches: sums in y would be rounded by each
        target = scratch(y.shape, dtype, device)
    rows = g.batch * y.shape[2] * y.shape[3]
    tiles = rows * vk.cdiv(y.shape[4], blocking.columns)
    bias_or_placeholder = packed if bias is None else bias
    for first in range(0, channels, max_channels):
        last = min(channels, first + max_channels)
        # BIAS and ADD: the first launch adds the bias, each later one adds to the sums of the previous ones
        flags = (bias is not None and first == 0, first > 0)
        if use_rows:
            cpu_rows.convolve_rows(
                flattened(x), packed, bias_or_placeholder, flattened(target), rows, g.groups * blocks, g.groups,
                filters, channels, first, last, *x.shape[2:], *y.shape[2:], *kernel,
                *stride[:2], *dilation, stride[2], blocking.filters, blocking.columns, blocking.group_size,
                *flags, index_type(x, y),
            )  # fmt: skip
            continue
        direct(
            as_words(x) if blocking.f32_pairs else flattened(x), packed, bias_or_placeholder, flattened(target),
            tiles, g.groups * blocks, g.groups, filters, channels, first, last,
            *x.shape[2:], *y.shape[2:], *kernel, *stride, *dilation,
            blocking.window, blocking.filters, blocking.columns, blocking.group_size, blocking.f32_pairs,
            *flags, index_type(x, y),
        )  # fmt: skip
    if target is not y:  # a sum of one part: only converts to the type of y
        sum_partials(DeviceArray(target.buffer, 0, dtype, (1, math.prod(y.shape)), (math.prod(y.shape), 1)), y)


def _iterations(*nest: int) -> int:
    """Return the total number of loop iterations in one iteration of a loop that contains a loop nest.

    `nest` are the trip counts of the nested loops, outermost first. Drivers count one more iteration of each loop, in
    which it finds its end; in this iteration, each loop inside finds its end at once.
    """
    # counts of the loops visited so far, innermost first: `active` in an iteration of the next loop out, `idle` in the
    # additional iteration of that loop
    active, idle = 0, 0
    for trips in reversed(nest):
        active = trips * (1 + active) + 1 + idle
        idle = 1 + idle
    return 1 + active


@variant("conv", "cpu")
def convolve(x: DeviceArray, w: DeviceArray, bias: DeviceArray | None, y: DeviceArray, g: Geometry) -> None:
    """Queue y = x * w + bias, where * is the convolution described by g."""
    size = padded_size(g)
    padded = padded_input(x, size, g.pad, (1, 1, 1), accumulator_type(x.dtype))
    _run(padded, w, bias, y, g, g.channels, g.filters, g.kernel, g.stride, g.dilation, transposed=False)


def padded_size(g: Geometry) -> Triple:
    """Return the extents of the padded input: enough for all taps of whole blocks of columns, with an even width.

    They are the extents of the input itself if it needs no padding.
    """
    d, h = ((g.out[i] - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 for i in (0, 1))
    columns = vk.cdiv(g.out[2], MAX_COLUMNS) * MAX_COLUMNS  # in whole blocks
    w = (columns - 1) * g.stride[2] + (g.kernel[2] - 1) * g.dilation[2] + 1
    fits = g.pad == (0, 0, 0) and all(have >= need for have, need in zip(g.size, (d, h, w), strict=True))
    return g.size if fits else (d, h, w + w % 2)  # an even width, for F32_PAIRS


@variant("conv_input_gradient", "cpu")
def input_gradient(gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry) -> None:
    """Queue the computation of gx, the gradient of the input.

    gx is the convolution of gy, the gradient of the output, with the reversed taps. A stride is handled by inserting
    zeros between the elements of gy.
    """
    # distance from the first to the last tap along each axis
    reach = tuple((k - 1) * d for k, d in zip(g.kernel, g.dilation, strict=True))
    shift = tuple(r - p for r, p in zip(reach, g.pad, strict=True))
    columns = vk.cdiv(g.size[2], MAX_COLUMNS) * MAX_COLUMNS  # in whole blocks
    # an even width, for F32_PAIRS
    size = (g.size[0] + reach[0], g.size[1] + reach[1], columns + reach[2] + reach[2] % 2)
    padded = padded_input(gy, size, shift, g.stride, accumulator_type(gy.dtype))
    _run(padded, w, None, gx, g, g.filters, g.channels, g.kernel, (1, 1, 1), g.dilation, transposed=True)


def _rows_blocking(size: int, filters: int, columns: int) -> tuple[int, int]:
    """Return (filters, columns) per invocation of `cpu_rows.convolve_rows`, such that accumulators fit into registers.

    `size` is the number of SIMD lanes, `filters` the number of filters per group, `columns` the width of the output.
    """
    # CPUs with 16 lanes have 32 vector registers, others 16: about half of them hold accumulators
    if columns % (2 * size) == 0:
        return (8 if size >= 16 else 4, 2)
    return (16 if size >= 16 and filters > 8 else 8, 1)
