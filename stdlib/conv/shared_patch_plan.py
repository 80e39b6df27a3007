"""Direct 2D convolution with stride 1 on GPUs: choose the tiling, and launch the kernel of `shared_patch`.

`gpu_plan` first calls `convolve_strips` or `input_gradient_strips`, and falls back to `implicit_gemm` if they return
False. A strip is a block of pixels of the result, 4 wide and one or two rows high. Each invocation computes several
filters for one strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, index_type, is_dense
from .geometry import Geometry
from .shared_patch import convolve_tile

__all__ = ["StripTiling", "convolve_strips", "input_gradient_strips", "tiling_for"]


MIN_GROUPS = 256
"""Number of workgroups that keeps a large GPU busy."""
MAX_TAPS = 25
"""Maximum number of taps of a filter: the loops over them are unrolled."""
THREADS = 256
"""Maximum number of invocations per workgroup."""
MAX_STRIPS, MIN_STRIPS = 128, 32
"""Maximum and minimum number of strips per workgroup, powers of two."""
MAX_FILTER_GROUPS = 8
"""Maximum number of invocations per workgroup that share a strip."""
MAX_DEPTH = 16
"""Maximum number of channels per iteration."""
MAX_WEIGHT_ROWS = 36
"""Maximum number of rows of weights in shared memory, one for each channel of an iteration and each tap."""
STRIP_WIDTH = 4
"""Pixels of a strip along the width: one vec4."""


@dataclass(frozen=True, slots=True)
class StripTiling:
    """Tiling of `convolve_tile`: the values of its parameters WIDE, HIGH, ROWS, FILTERS, FILTER_GROUPS and DEPTH.

    A workgroup computes `wide` strips along the width by `high` along the height. A strip has `rows` rows of pixels. An
    invocation computes `filters` filters of a strip, and `filter_groups` invocations share a strip, each with other
    filters. `depth` is the number of channels per iteration.
    """

    wide: int
    high: int
    rows: int
    filters: int
    filter_groups: int
    depth: int

    @property
    def constants(self) -> tuple[int, ...]:
        """The fields in the order of the kernel's parameters."""
        return self.wide, self.high, self.rows, self.filters, self.filter_groups, self.depth


def tiling_for(g: Geometry, channels: int, filters: int, size: tuple[int, int]) -> StripTiling | None:
    """Choose the tiling for a convolution with `channels` channels and `filters` filters per group.

    `size` is (height, width) of the result. Return None if the kernel doesn't support g because of strides, dilations,
    a depth axis, or more than `MAX_TAPS` taps.
    """
    if g.kernel[0] != 1 or g.size[0] != 1 or g.pad[0] or g.stride != (1, 1, 1) or g.dilation != (1, 1, 1):
        return None
    if g.taps > MAX_TAPS:
        return None
    rows = 1 if size[0] == 1 else 2
    filters_per_invocation = 4 if filters <= 4 else 8
    filter_groups = min(MAX_FILTER_GROUPS, vk.cdiv(filters, filters_per_invocation))
    # a power of two: `filter_groups` is rounded up to one
    strips = min(MAX_STRIPS, THREADS // (1 << (filter_groups - 1).bit_length()))
    depth = max(1, min(MAX_WEIGHT_ROWS // g.taps, channels, MAX_DEPTH))
    # Halve the number of strips per workgroup, then that of filter groups, until there are enough workgroups. With the
    # fewest strips, half as many workgroups are enough; with at most two filter groups, any number is accepted.
    while True:
        wide, high = _shape(strips, rows, size)
        tiles = g.batch * vk.cdiv(size[0], high * rows) * vk.cdiv(size[1], wide * STRIP_WIDTH)
        workgroups = tiles * g.groups * vk.cdiv(filters, filters_per_invocation * filter_groups)
        small_enough = strips == MIN_STRIPS and (filter_groups <= 2 or workgroups >= MIN_GROUPS // 2)
        if workgroups >= MIN_GROUPS or small_enough:
            return StripTiling(wide, high, rows, filters_per_invocation, filter_groups, depth)
        if strips > MIN_STRIPS:
            strips //= 2
        else:
            filter_groups = vk.cdiv(filter_groups, 2)


def _shape(strips: int, rows: int, size: tuple[int, int]) -> tuple[int, int]:
    """Arrange `strips` strips of `rows` rows as (wide, high) so that few pixels of the tiles lie outside the image.

    `size` is (height, width) of the image. Arrangements with about 8 strips along the width are slightly preferred.
    """

    def cost(shape: tuple[int, int]) -> float:
        """Return the number of pixels in all tiles, increased by up to 3/8 for other widths than 8 strips."""
        wide, high = shape
        pixels = _round_up(size[0], high * rows) * _round_up(size[1], wide * STRIP_WIDTH)
        return pixels * (1 + abs(wide - 8) / 64)

    return min([(wide, strips // wide) for wide in (2, 4, 8, 16, 32) if wide <= strips], key=cost)


def _round_up(size: int, step: int) -> int:
    """Round `size` up to a multiple of `step`."""
    return vk.cdiv(size, step) * step


def _launch(
    x: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray | None,
    y: DeviceArray,
    g: Geometry,
    plan: StripTiling,
    pad: tuple[int, int],
    transposed: bool,
) -> None:
    """Launch the kernel with the tiling `plan`: convolve x to y.

    `pad` is the number of zeros before the first row and column of x. `transposed`: compute the input gradient, where x
    is the gradient of the output and y receives that of the input. A missing bias is replaced by w, which isn't read.
    """
    # for the kernel, "filters" are the channels of y
    channels, filters = (g.filters, g.channels) if transposed else (g.channels, g.filters)
    (height, width), (out_h, out_w) = x.shape[3:], y.shape[3:]
    tiles = g.batch * vk.cdiv(out_h, plan.high * plan.rows) * vk.cdiv(out_w, plan.wide * STRIP_WIDTH)
    blocks = g.groups * vk.cdiv(filters, plan.filters * plan.filter_groups)
    convolve_tile(
        flattened(x),
        flattened(w),
        flattened(w) if bias is None else bias,
        flattened(y),
        tiles,
        blocks,
        g.groups,
        channels,
        filters,
        height,
        width,
        out_h,
        out_w,
        out_w // STRIP_WIDTH,
        *pad,
        g.kernel[1:],
        transposed,
        *plan.constants,
        out_w % STRIP_WIDTH == 0,
        bias is not None,
        accumulator_type(y.dtype),
        index_type(x, y),
    )


def _supported(*arrays: DeviceArray) -> bool:
    """True if the kernel supports the arrays: all are dense, and none has type f64."""
    return all(is_dense(a) and a.dtype is not vk.f64 for a in arrays)


def convolve_strips(
    x: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray | None,
    y: DeviceArray,
    g: Geometry,
    plan: StripTiling | None = None,
) -> bool:
    """Queue y = x * w + bias with the tiling `plan`, by default that of `tiling_for`.

    Return False, and queue nothing, if the kernel doesn't support the arguments.
    """
    plan = plan or tiling_for(g, g.channels, g.filters, g.out[1:])
    if plan is None or not _supported(x, w, y):
        return False
    _launch(x, w, bias, y, g, plan, g.pad[1:], transposed=False)
    return True


def input_gradient_strips(
    gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry, plan: StripTiling | None = None
) -> bool:
    """Queue the computation of gx, the gradient of the input, from gy, the gradient of the output.

    `plan` is the tiling, by default that of `tiling_for`. Return False, and queue nothing, if the kernel doesn't
    support the arguments.
    """
    plan = plan or tiling_for(g, g.filters, g.channels, g.size[1:])
    if plan is None or not _supported(gy, w, gx):
        return False
    # the padding of the convolution of gy with the reversed taps
    pad = (g.kernel[1] - 1 - g.pad[1], g.kernel[2] - 1 - g.pad[2])
    _launch(gy, w, None, gx, g, plan, pad, transposed=True)
    return True
