"""Tiled convolutions on every executor, compared with float64 and with the library's other kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.device import Device
from vkjit.stdlib.conv import dispatch
from vkjit.stdlib.conv.geometry import Geometry
from vkjit.stdlib.conv.tile_plan import ConvPlan, convolve_by_tiles, input_gradient_by_tiles, weight_gradient_by_tiles
from vkjit.stdlib.registry import choose, forcing_class

Floats = npt.NDArray[np.float64]
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11}


def geometry(
    batch: int, groups: int, channels: int, filters: int, size: tuple[int, int], kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1), pad: tuple[int, int] = (0, 0), dilation: tuple[int, int] = (1, 1),
) -> Geometry:  # fmt: skip
    out = tuple((size[i] + 2 * pad[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in range(2))
    lifted = [(1, *size), (1, *kernel), (1, *out), (1, *stride), (0, *pad), (1, *dilation)]
    return Geometry(batch, groups, channels, filters, *lifted)  # type: ignore[arg-type]  # two elements each


CASES = [
    geometry(2, 1, 3, 5, (7, 6), (3, 3), pad=(1, 1)),
    geometry(1, 2, 3, 2, (9, 11), (2, 3), (2, 3), (2, 1), (2, 1)),
    geometry(3, 1, 17, 33, (4, 5), (1, 1), (2, 1)),
]


class Exact:
    """Reference: each tap multiplies a shifted view of the padded input. On magnitudes, it gives the error scale."""

    def __init__(self, g: Geometry, x: Floats, w: Floats, gy: Floats) -> None:
        (ph, pw), (H, W) = g.pad[1:], g.size[1:]
        wide = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
        n, k = g.batch, g.groups
        wide = wide.reshape(n, k, g.channels, *wide.shape[2:])
        weights, rise = w.reshape(k, g.filters, g.channels, *g.kernel[1:]), gy.reshape(n, k, g.filters, *g.out[1:])
        self.y, self.gw, spread = np.zeros_like(rise), np.zeros_like(weights), np.zeros_like(wide)
        for r in range(g.kernel[1]):
            for s in range(g.kernel[2]):
                rows, columns = (
                    slice(t * g.dilation[a], t * g.dilation[a] + (g.out[a] - 1) * g.stride[a] + 1, g.stride[a])
                    for t, a in ((r, 1), (s, 2))
                )
                seen, tap = wide[..., rows, columns], weights[..., r, s]
                self.y += np.einsum("nkcpq,kfc->nkfpq", seen, tap)
                self.gw[..., r, s] = np.einsum("nkcpq,nkfpq->kfc", seen, rise)
                spread[..., rows, columns] += np.einsum("kfc,nkfpq->nkcpq", tap, rise)
        self.gx = spread[..., ph : ph + H, pw : pw + W]


def tensors(g: Geometry, kind: Any) -> list[vk.Tensor]:
    random = np.random.default_rng(g.channels)
    shapes = [
        (g.batch, g.groups * g.channels, *g.size), (g.groups * g.filters, g.channels, *g.kernel),
        (g.batch, g.groups * g.filters, *g.out), (g.groups * g.filters,),
    ]  # fmt: skip
    return [vk.tensor(random.normal(size=shape).astype(np.float32), dtype=kind) for shape in shapes]


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("g", CASES, ids=["padded", "strided groups", "pointwise"])
def test_convolutions(g: Geometry, kind: str, device: Device) -> None:
    if kind == "f16" and g.groups == 2:
        pytest.skip("one geometry of f16 with several taps is enough")
    dtype = getattr(vk, kind)
    with vk.use_device(device):
        x, w, gy, bias = tensors(g, dtype)
        y, gx, gw = (
            vk.full(gy.shape, 7, dtype=dtype),
            vk.full(x.shape, 7, dtype=dtype),
            vk.full(w.shape, 7, dtype=dtype),
        )
        plan = ConvPlan(16, 32, 16, 64)
        ahead = dataclasses.replace(plan, pipelined=kind == "f16" or g.groups == 2)
        convolve_by_tiles(x._array, w._array, bias._array, y._array, g, ahead)
        input_gradient_by_tiles(gy._array, w._array, gx._array, g, plan)
        weight_gradient_by_tiles(x._array, gy._array, gw._array, g, plan)
        before = vk.empty(gy.shape, dtype=dtype)
        dispatch.convolve(x._array, w._array, bias._array, before._array, g)
        wide = [t.to(vk.f64).numpy().squeeze(2) for t in (x, w, gy)]
        exact, scale = Exact(g, *wide), Exact(g, *map(np.abs, wide))
        added = bias.to(vk.f64).numpy().reshape(g.groups, g.filters, 1, 1)
        for found, wanted, most, count in (
            (y, exact.y + added, scale.y + np.abs(added), g.channels * g.taps + 1),
            (before, exact.y + added, scale.y + np.abs(added), g.channels * g.taps + 1),
            (gx, exact.gx, scale.gx, g.filters * g.taps),
            (gw, exact.gw, scale.gw, g.pixels + 1),
        ):
            allowed = UNIT[kind] * np.abs(wanted) + 2 * (count + 1) * UNIT["f32"] * most
            assert (np.abs(found.to(vk.f64).numpy().reshape(wanted.shape) - wanted) <= allowed).all()


def test_views_and_chosen_plans(device: Device) -> None:
    """Channels-last inputs and strided outputs are accessed in place."""
    g = geometry(1, 1, 4, 3, (5, 6), (3, 3), pad=(1, 1))
    with vk.use_device(device):
        x, w, gy, _ = tensors(g, vk.f32)
        last = x.permute(0, 2, 3, 4, 1).contiguous().permute(0, 4, 1, 2, 3)
        assert not last.is_contiguous()
        y = vk.zeros((*gy.shape[:4], 2 * gy.shape[4]))[..., ::2]
        convolve_by_tiles(last._array, w._array, None, y._array, g)
        wide = [t.to(vk.f64).numpy().squeeze(2) for t in (x, w, gy)]
        wanted, most = Exact(g, *wide).y, Exact(g, *map(np.abs, wide)).y
        assert (np.abs(y.numpy().reshape(wanted.shape) - wanted) <= 2 * 40 * UNIT["f32"] * most).all()


@pytest.mark.parametrize(
    ("filters", "side", "numbers"),
    [
        (256, 56, (256, 128, 32, 256)),
        (100, 56, (128, 128, 32, 128)),
        (64, 56, (64, 128, 32, 256)),
        (256, 4, (64, 128, 32, 256)),
    ],
)
def test_tiles_are_as_high_as_there_are_filters_for(
    filters: int, side: int, numbers: tuple[int, int, int, int]
) -> None:
    with vk.use_device("interpreter"), forcing_class("gpu"):
        y = vk.zeros(1, dtype=vk.f16)._array
        plan = choose("conv tiles", y.device)(y, filters, 32 * side**2)
        assert plan.kernel_arguments == numbers
        assert plan.pipelined == (numbers[0] == 128)


def test_what_they_do_not_take() -> None:
    g = CASES[0]
    with vk.use_device("interpreter"):
        x, w, gy, _ = tensors(g, vk.f32)
        deep = dataclasses.replace(g, size=(2, *g.size[1:]), out=(2, *g.out[1:]))
        with pytest.raises(ArgumentError, match="convolve over two axes, found a depth of 2"):
            convolve_by_tiles(x._array, w._array, None, gy._array, deep)
        with pytest.raises(ArgumentError, match="weights have to lie in C order"):
            convolve_by_tiles(x._array, w.transpose(3, 4)._array, None, gy._array, g)
