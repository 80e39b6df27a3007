"""GPU convolution kernels on every executor, compared with float64: results, gradients, repeated calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.tiles.test_conv import Exact, geometry
from vkjit.nn import functional as F
from vkjit.runtime.device import Device
from vkjit.stdlib import partial_sums
from vkjit.stdlib.conv import gpu_plan, shared_patch_plan
from vkjit.stdlib.conv.geometry import Geometry
from vkjit.stdlib.registry import forcing_class

UNIT = 2.0**-24


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


STRIPS = [
    geometry(2, 1, 3, 5, (7, 9), (3, 3), pad=(1, 1)),
    geometry(1, 2, 3, 2, (4, 8), (3, 3), pad=(1, 1)),
    geometry(1, 1, 17, 9, (5, 5), (1, 1)),
    geometry(2, 1, 2, 5, (1, 19), (1, 7), pad=(0, 3)),
    geometry(1, 1, 5, 12, (9, 20), (2, 5), pad=(0, 1)),
]


SMALL = geometry(2, 1, 3, 5, (5, 6), (2, 2), pad=(1, 0))


@pytest.mark.parametrize("g", [SMALL, *STRIPS], ids=lambda g: f"{g.groups}x{g.channels}-{g.filters}-{g.kernel[1:]}")
def test_strips(device: Device, g: Geometry) -> None:
    """The result and the gradient of the input match float64, with and without bias."""
    plan = shared_patch_plan.StripTiling(4, 2, 1, 4, 2, 2) if g is SMALL else None
    if plan is None and device.caps.kind in ("cpu", "llvm-cpu"):
        pytest.skip("processors take seconds to compile kernels of this size; the small one is enough")
    shapes = (g.batch, g.groups * g.channels, 1, *g.size[1:]), (g.groups * g.filters, g.channels, 1, *g.kernel[1:])
    x, w = numbers(shapes[0], 1), numbers(shapes[1], 2)
    gy, bias = numbers((g.batch, g.groups * g.filters, 1, *g.out[1:]), 3), numbers((g.groups * g.filters,), 4)
    exact = Exact(g, *(a[:, :, 0].astype(np.float64) for a in (x, w, gy)))
    scale = Exact(g, *(abs(a[:, :, 0]).astype(np.float64) for a in (x, w, gy)))
    terms = max(g.channels, g.filters) * g.taps + 2
    with vk.use_device(device):
        arrays = [vk.tensor(a)._array for a in (x, w, gy, bias)]
        y, gx = vk.empty(gy.shape), vk.empty(x.shape)
        assert shared_patch_plan.convolve_strips(arrays[0], arrays[1], arrays[3], y._array, g, plan)
        assert shared_patch_plan.input_gradient_strips(arrays[2], arrays[1], gx._array, g, plan)
        found = y.numpy()[:, :, 0] - bias[:, None, None]
        close(found, exact.y.reshape(found.shape), terms * (scale.y.reshape(found.shape) + 2 * abs(bias).max()))
        got = gx.numpy()[:, :, 0]
        close(got, exact.gx.reshape(got.shape), terms * scale.gx.reshape(got.shape))


def close(found: Any, exact: Any, magnitude: Any) -> None:
    assert (abs(found - exact) <= 2 * UNIT * magnitude).all(), abs(found - exact).max()


@pytest.mark.parametrize(
    "g",
    [
        geometry(1, 1, 1, 1, (5, 5), (3, 3), stride=(2, 1)),
        geometry(1, 1, 1, 1, (9, 9), (3, 3), dilation=(1, 2)),
        geometry(1, 1, 1, 1, (9, 9), (5, 6)),
    ],
    ids=["stride", "dilation", "taps"],
)
def test_other_convolutions_are_no_strips(g: Geometry) -> None:
    assert shared_patch_plan.tiling_for(g, g.channels, g.filters, g.out[1:]) is None


def test_strips_suit_the_size() -> None:
    """Few strips lie outside an image, and small problems are split into enough workgroups."""
    large = shared_patch_plan.tiling_for(geometry(32, 1, 64, 64, (56, 56), (3, 3), pad=(1, 1)), 64, 64, (56, 56))
    assert large is not None and large.filters * large.filter_groups == 64
    small = shared_patch_plan.tiling_for(geometry(8, 1, 16, 32, (14, 14), (3, 3), pad=(1, 1)), 16, 32, (14, 14))
    assert small is not None and small.filters * small.filter_groups < 32
    line = shared_patch_plan.tiling_for(geometry(1, 1, 1, 4, (1, 99), (1, 3), pad=(0, 1)), 1, 4, (1, 99))
    assert line is not None and (line.rows, line.filters) == (1, 4)


@pytest.mark.parametrize(
    ("shape", "filters", "groups", "stride"),
    [((2, 1, 9, 9), 16, 1, 1), ((3, 4, 6, 7), 6, 2, 1), ((2, 3, 9, 9), 4, 1, 2), ((1, 32, 4, 4), 3, 1, 1)],
    ids=str,
)
def test_gradients_of_weights_and_bias(
    device: Device, shape: tuple[int, ...], filters: int, groups: int, stride: int
) -> None:
    """Joint and separate computation of the two gradients agree up to rounding."""
    if device.caps.kind == "llvm-cpu" or (device.caps.kind == "cpu" and shape[0] != 1):
        pytest.skip("others show it; kernels of this size take seconds to compile here")
    x, w = numbers(shape, 1), numbers((filters, shape[1] // groups, 3, 3), 2)
    with vk.use_device(device), forcing_class("gpu"):
        one, two, three = vk.tensor(x), vk.tensor(w), vk.tensor(numbers((filters,), 3))
        for leaf in (two, three):
            leaf.requires_grad = True
        y = F.conv2d(one, two, three, stride, 1, 1, groups)
        slopes = vk.tensor(numbers(y.shape, 4))
        at_once = vk.autograd.grad(y, [two, three], slopes, retain_graph=True)
        alone = [vk.autograd.grad(y, [leaf], slopes, retain_graph=True)[0] for leaf in (two, three)]
        count = y.numel() // filters
        scale = float(abs(x).max() * abs(slopes.numpy()).max()) * count
        for a, b in zip(at_once, alone, strict=True):
            assert abs(a.numpy() - b.numpy()).max() <= 2 * UNIT * count * max(scale, 1)


def noting(kernel: Any, launched: list[str]) -> Any:
    def run(*args: Any) -> None:
        launched.append(kernel.name)
        kernel(*args)

    return run


def test_gradients_at_once_take_no_sums_of_their_own(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The joint gradients take one product launch and one launch that sums its parts."""
    if device.caps.kind == "llvm-cpu":
        pytest.skip("others show it; kernels of this size take seconds to compile here")
    launched: list[str] = []
    for module, name in (
        (gpu_plan, "implicit_gemm"),
        (partial_sums, "_sum_parts_of_two"),
        (partial_sums, "_sum_parts"),
    ):
        monkeypatch.setattr(module, name, noting(getattr(module, name), launched))
    with vk.use_device(device), forcing_class("gpu"):
        w: Any = vk.tensor(numbers((2, 1, 3, 3), 1))
        b: Any = vk.tensor(numbers((2,), 2))
        w.requires_grad = b.requires_grad = True
        F.conv2d(vk.tensor(numbers((1, 1, 4, 4), 3)), w, b, padding=1).sum().backward()
        np.testing.assert_allclose(b.grad.numpy(), 16)
    assert launched == ["implicit_gemm", "_sum_parts_of_two"]


@pytest.mark.parametrize(("parts", "length"), [(16, 1), (17, 33), (130, 300), (3, 5)])
def test_sums_of_many_parts(device: Device, parts: int, length: int) -> None:
    x = numbers((parts, length), 5)
    with vk.use_device(device), forcing_class("gpu"):
        y, head, tail = vk.empty(length), vk.empty(length), vk.empty(1)
        array = vk.tensor(x)._array
        partial_sums.sum_partials(array, y._array)
        wide = vk.tensor(np.concatenate([x, x[:, :1]], 1))._array
        partial_sums.sum_partials_into_two(wide, head._array, tail._array)
        exact, magnitude = x.astype(np.float64).sum(0), parts * abs(x).astype(np.float64).sum(0)
        close(y.numpy(), exact, magnitude)
        close(head.numpy(), exact, magnitude)
        close(tail.numpy(), exact[:1], magnitude[:1])


def test_repeated_layers_see_new_values(device: Device) -> None:
    """Cached dispatches of convolution, its gradients and pooling use the new values, weights and max indices."""
    with vk.use_device(device):
        layer: Any = vk.nn.Conv2d(1, 2, 3, padding=1)
        for seed in range(5):
            x = vk.tensor(np.random.default_rng(seed).integers(-8, 9, (1, 1, 4, 4)).astype(np.float32))
            with vk.no_grad():
                weights = np.random.default_rng(-seed % 99).integers(-8, 9, (2, 1, 3, 3))
                layer.weight.copy_(vk.tensor(weights.astype(np.float32)))
                layer.bias.copy_(vk.tensor(np.array([seed, -seed], np.float32)))
            layer.zero_grad()
            y = layer(x)
            top = F.max_pool2d(y, 2)
            top.sum().backward()
            wide = np.pad(x.numpy()[0, 0], 1)
            seen = np.lib.stride_tricks.sliding_window_view(wide, (3, 3))
            weight, bias = layer.weight.detach().numpy()[:, 0], layer.bias.detach().numpy()
            exact = np.einsum("pqrs,frs->fpq", seen, weight) + bias[:, None, None]
            np.testing.assert_array_equal(y.detach().numpy()[0], exact)
            blocks = exact.reshape(2, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(2, 4, 4)
            np.testing.assert_array_equal(top.detach().numpy()[0].reshape(2, 4), blocks.max(2))
            np.testing.assert_array_equal(layer.bias.grad.numpy(), [4, 4])
            places = blocks.argmax(2)
            rows, columns = np.arange(4) // 2 * 2 + places // 2, np.arange(4) % 2 * 2 + places % 2
            expected = np.stack([seen[rows[f], columns[f]].sum(0) for f in range(2)])
            np.testing.assert_array_equal(layer.weight.grad.numpy()[:, 0], expected)
