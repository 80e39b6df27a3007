"""Direct 2D convolution with stride 1 on GPUs: choose the tiling, and launch the kernel of `shared_patch`."""

from __future__ import annotations

from dataclasses import dataclass

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened, index_type, is_dense
from .geometry import Geometry
from .shared_patch import convolve_tile

__all__ = ["StripTiling", "convolve_strips", "input_gradient_strips", "tiling_for"]


MIN_GROUPS = 256
"""Workgroups that keep a large GPU busy."""
MAX_TAPS = 25
"""Maximum number of taps per filter and channel: the loops over them are unrolled."""
THREADS = 256


@dataclass(frozen=True, slots=True)
class StripTiling:
    """Tiling of `convolve_tile`: strips per workgroup along width and height, rows per strip, filters per invocation, sets of
    filters per workgroup, and channels per iteration (`depth`).
    """

    wide: int
    high: int
    rows: int
    filters: int
    filter_groups: int
    depth: int

    @property
    def constants(self) -> tuple[int, ...]:
        return self.wide, self.high, self.rows, self.filters, self.filter_groups, self.depth


def tiling_for(g: Geometry, channels: int, filters: int, size: tuple[int, int]) -> StripTiling | None:
    """Choose the tiling for `channels` and `filters` per group and a result of `size` (height, width).

    Return None for what the kernel doesn't support: strides, dilations, a depth axis, or more than `MAX_TAPS` taps.
    """
    if g.kernel[0] != 1 or g.size[0] != 1 or g.pad[0] or g.stride != (1, 1, 1) or g.dilation != (1, 1, 1):
        return None
    if g.taps > MAX_TAPS:
        return None
    rows, each = (1 if size[0] == 1 else 2), (4 if filters <= 4 else 8)
    sets = min(8, vk.cdiv(filters, each))
    lanes = min(128, THREADS // (1 << (sets - 1).bit_length()))
    depth = max(1, min(36 // g.taps, channels, 16))
    while True:
        wide, high = _shape(lanes, rows, size)
        tiles = g.batch * vk.cdiv(size[0], high * rows) * vk.cdiv(size[1], wide * 4)
        count = tiles * g.groups * vk.cdiv(filters, each * sets)
        if count >= MIN_GROUPS or (lanes == 32 and (sets <= 2 or count >= MIN_GROUPS // 2)):
            return StripTiling(wide, high, rows, each, sets, depth)
        lanes, sets = (lanes // 2, sets) if lanes > 32 else (lanes, vk.cdiv(sets, 2))


def _shape(lanes: int, rows: int, size: tuple[int, int]) -> tuple[int, int]:
    """Arrange `lanes` strips as (wide, high) so that few pixels of the tiles lie outside the image."""
    shapes = [(wide, lanes // wide) for wide in (2, 4, 8, 16, 32) if wide <= lanes]
    return min(
        shapes, key=lambda s: _round_up(size[0], s[1] * rows) * _round_up(size[1], s[0] * 4) * (1 + abs(s[0] - 8) / 64)
    )


def _round_up(size: int, step: int) -> int:
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
    channels, filters = (g.filters, g.channels) if transposed else (g.channels, g.filters)
    (height, width), (out_h, out_w) = x.shape[3:], y.shape[3:]
    tiles = g.batch * vk.cdiv(out_h, plan.high * plan.rows) * vk.cdiv(out_w, plan.wide * 4)
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
        out_w // 4,
        *pad,
        g.kernel[1:],
        transposed,
        *plan.constants,
        out_w % 4 == 0,
        bias is not None,
        accumulator_type(y.dtype),
        index_type(x, y),
    )


def _usable(*arrays: DeviceArray) -> bool:
    return all(is_dense(a) and a.dtype is not vk.f64 for a in arrays)


def convolve_strips(
    x: DeviceArray,
    w: DeviceArray,
    bias: DeviceArray | None,
    y: DeviceArray,
    g: Geometry,
    plan: StripTiling | None = None,
) -> bool:
    """Queue y = x * w + bias, tiled by `plan` or `tiling_for`; return False if this kernel doesn't support the arguments."""
    plan = plan or tiling_for(g, g.channels, g.filters, g.out[1:])
    if plan is None or not _usable(x, w, y):
        return False
    _launch(x, w, bias, y, g, plan, g.pad[1:], transposed=False)
    return True


def input_gradient_strips(
    gy: DeviceArray, w: DeviceArray, gx: DeviceArray, g: Geometry, plan: StripTiling | None = None
) -> bool:
    """Queue the gradient of the input, gx, from that of the output; return False if this kernel doesn't support it."""
    plan = plan or tiling_for(g, g.filters, g.channels, g.size[1:])
    if plan is None or not _usable(gy, w, gx):
        return False
    pad = (g.kernel[1] - 1 - g.pad[1], g.kernel[2] - 1 - g.pad[2])
    _launch(gy, w, None, gx, g, plan, pad, transposed=True)
    return True
