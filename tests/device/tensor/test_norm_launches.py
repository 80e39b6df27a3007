"""Norms of small operands: the number of launches, statistics with and without recording, replayed running statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.nn import functional as F
from vkjit.runtime.device import Device
from vkjit.runtime.observers import LaunchRequest, Observer
from vkjit.stdlib.registry import forcing_class, row_kernel_class


@pytest.fixture(autouse=True)
def on(device: Device) -> Iterator[None]:
    with vk.use_device(device):
        yield


def floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) + np.float32(3)


def launches(device: Device, call: Callable[[], Any]) -> int:
    """Return the number of launches of a call."""
    count = 0

    class Counter(Observer):
        def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
            nonlocal count
            count += 1
            proceed(request)

    call()  # uploads and compiles
    counter = Counter()
    device.add_observer(counter)
    try:
        call()
    finally:
        device.remove_observer(counter)
    return count


@pytest.mark.parametrize("recorded", [True, False])
def test_small_norms_take_one_launch(device: Device, recorded: bool) -> None:
    x, w = vk.tensor(floats(1, 4, 16), requires_grad=recorded), vk.tensor(floats(2, 16))
    mean, variance = vk.zeros(16), vk.ones(16)
    device.dispatch_cache.clear()
    assert launches(device, lambda: F.layer_norm(x, (16,), w, w)) == 1
    assert launches(device, lambda: F.rms_norm(x, (16,), w)) == 1
    if row_kernel_class(device) == "gpu":
        assert launches(device, lambda: F.batch_norm(x, mean, variance, w, w, True)) == 1


@pytest.mark.parametrize("length", [5, 256, 257, 3000])
def test_results_are_the_same_without_recording(length: int) -> None:
    values, weight = floats(3, 3, length), floats(4, length)
    norms: tuple[Callable[[Any, Any], Any], ...] = (
        lambda x, w: F.layer_norm(x, (length,), w, None),
        lambda x, w: F.layer_norm(x, (length,), None, w),
        lambda x, w: F.rms_norm(x, (length,), w),
        lambda x, w: F.batch_norm(x, None, None, w, None, True),
    )
    for norm in norms:
        found = norm(vk.tensor(values), vk.tensor(weight))
        recorded = norm(vk.tensor(values, requires_grad=True), vk.tensor(weight))
        np.testing.assert_array_equal(found.numpy(), recorded.detach().numpy())


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 700), (600, 3, 2), (3, 3, 2000), (4100, 2)])
@pytest.mark.parametrize("given", ["both", "mean", "variance", "none"])
def test_batch_norm_updates_what_it_is_given(device: Device, kind: str, shape: tuple[int, ...], given: str) -> None:
    if device.caps.kind == "interpreter" and np.prod(shape) > 2000:
        pytest.skip("slow")
    channels, axes = shape[1], (0, *range(2, len(shape)))
    wide = (1, channels, *[1] * (len(shape) - 2))
    mean = vk.zeros(channels) if given in ("both", "mean") else None
    variance = vk.ones(channels) if given in ("both", "variance") else None
    weight, bias = floats(5, channels), floats(6, channels)
    old_mean, old_variance = np.zeros(channels), np.ones(channels)
    for seed in range(4):
        values = floats(seed, *shape)
        with forcing_class(kind):
            x: Any = vk.tensor(values, requires_grad=True)
            y = F.batch_norm(x, mean, variance, vk.tensor(weight), vk.tensor(bias), True, 0.3)
            y.sum().backward()
        exact = values.astype(np.float64)
        expected = (exact - exact.mean(axes, keepdims=True)) / np.sqrt(exact.var(axes, keepdims=True) + 1e-5)
        expected = expected * weight.reshape(wide) + bias.reshape(wide)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(x.grad.numpy(), np.zeros(shape), atol=2e-3)
        old_mean = 0.7 * old_mean + 0.3 * exact.mean(axes)
        old_variance = 0.7 * old_variance + 0.3 * exact.var(axes, ddof=1)
        for tensor, wanted in ((mean, old_mean), (variance, old_variance)):
            if tensor is not None:
                np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-5)
                assert tensor.version == seed + 1


def test_replays_update_running_statistics() -> None:
    layer: Any = vk.nn.BatchNorm1d(6)
    expected, version = np.zeros(6), layer.running_mean.version
    for seed in range(6):
        values = floats(seed, 5, 6)
        x: Any = vk.tensor(values, requires_grad=True)
        (layer(x) * vk.tensor(floats(9, 5, 6))).sum().backward()
        assert x.grad is not None and np.isfinite(x.grad.numpy()).all()
        expected = 0.9 * expected + 0.1 * values.astype(np.float64).mean(0)
        np.testing.assert_allclose(layer.running_mean.numpy(), expected, rtol=1e-5)
    assert layer.running_mean.version == version + 6


def test_backward_after_a_second_forward_pass() -> None:
    layer: Any = vk.nn.BatchNorm1d(6)
    for _ in range(5):
        x = vk.tensor(floats(1, 5, 6), requires_grad=True)
        first, _ = layer(x).sum(), layer(x)  # the second call writes the running statistics again
        first.backward()
