"""Properties of tiled convolutions and of reduced-precision f32 products."""

from __future__ import annotations

from typing import Any

import vkjit as vk
from tests.stdlib_properties.operations import Operation
from vkjit.stdlib.conv import tile_plan
from vkjit.stdlib.conv.geometry import Geometry
from vkjit.stdlib.conv.tile_plan import ConvPlan

__all__ = ["TILE_PRODUCTS"]

_PLAN = ConvPlan(16, 32, 16, 64)


def _geometry(x: Any, w: Any) -> Geometry:
    """Return the geometry of a convolution with a padding of 1."""
    size, taps = tuple(x.shape[2:]), tuple(w.shape[2:])
    out = tuple(s + 3 - t for s, t in zip(size, taps, strict=True))
    lifted = [(1, *size), (1, *taps), (1, *out), (1, 1, 1), (0, 1, 1), (1, 1, 1)]
    return Geometry(x.shape[0], 1, x.shape[1], w.shape[0], *lifted)


def _lifted(x: Any) -> Any:
    return x.reshape(*x.shape[:2], 1, *x.shape[2:])._array


def _forward(F: Any, xp: Any, x: Any, w: Any) -> Any:
    if xp is not vk:
        return F.conv2d(x, w, padding=1)
    g = _geometry(x, w)
    y = vk.empty((x.shape[0], w.shape[0], *g.out))
    tile_plan.convolve_by_tiles(_lifted(x), _lifted(w), None, y._array, g, _PLAN)
    return y.reshape(*y.shape[:2], *g.out[1:])


def _input(F: Any, xp: Any, x: Any, w: Any, gy: Any) -> Any:
    if xp is not vk:
        return F.conv_transpose2d(gy, w, padding=1)
    gx = vk.empty((*x.shape[:2], 1, *x.shape[2:]))
    tile_plan.input_gradient_by_tiles(_lifted(gy), _lifted(w), gx._array, _geometry(x, w), _PLAN)
    return gx.reshape(*x.shape)


def _weights(F: Any, xp: Any, x: Any, w: Any, gy: Any) -> Any:
    if xp is not vk:
        return F.conv2d(x.transpose(0, 1), gy.transpose(0, 1), padding=1).transpose(0, 1)
    gw = vk.empty((*w.shape[:2], 1, *w.shape[2:]))
    tile_plan.weight_gradient_by_tiles(_lifted(x), _lifted(gy), gw._array, _geometry(x, w), _PLAN)
    return gw.reshape(*w.shape)


def _reduced(precision: str) -> Any:
    def call(_: Any, xp: Any, x: Any, y: Any) -> Any:
        if xp is not vk:
            return x @ y
        vk.set_matmul_precision(precision)
        try:
            return x @ y
        finally:
            vk.set_matmul_precision("highest")

    return call


def _wholes(most: int) -> Any:
    return lambda rng, shape: rng.integers(-most, most + 1, shape).astype("float32")


_SMALL = {"matmul.precision.MIN_MULTIPLY_ADDS": 1}

TILE_PRODUCTS: tuple[Operation, ...] = (
    Operation("conv2d in tiles", _forward, [[(2, 3, 5, 6), (4, 3, 3, 3)], [(1, 2, 4, 7), (17, 2, 2, 3)]], gradients=False),
    Operation("conv2d in tiles, gradient of its input", _input, [[(2, 3, 5, 6), (4, 3, 3, 3), (2, 4, 5, 6)]], gradients=False),
    Operation("conv2d in tiles, gradient of its weights", _weights, [[(2, 3, 5, 6), (4, 3, 3, 3), (2, 4, 5, 6)]],
              gradients=False),
    # integers that are sums of two bf16 numbers, or one: results are exact
    Operation("large products, high", _reduced("high"), [[(1, 9, 20), (1, 20, 12)]], ("gpu",), exact=True, gradients=False,
              fixed={0: _wholes(2000), 1: _wholes(8)}, limits=_SMALL),
    Operation("large products, high, turned", _reduced("high"), [[(1, 9, 20), (1, 20, 12)]], ("gpu",), exact=True,
              gradients=False, fixed={0: _wholes(8), 1: _wholes(2000)}, limits=_SMALL),
    Operation("large products, medium", _reduced("medium"), [[(1, 9, 20), (1, 20, 12)]], ("gpu",), exact=True,
              gradients=False, fixed={0: _wholes(100), 1: _wholes(100)}, limits=_SMALL),
)  # fmt: skip
