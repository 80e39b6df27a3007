"""CPU-only kernels compared with the interpreter: weight gradients of convolutions, gradients of max pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.nn import functional as F


@pytest.fixture(scope="module")
def processor() -> Any:
    found = [d for d in vk.devices() if d.kind == "llvm-cpu"]
    if not found:
        pytest.skip("the device \"cpu\" isn't there: llvmlite isn't installed")
    return vk.device("cpu")


def gradients(device: Any, loss_of: Any, *arrays: Any) -> list[Any]:
    """Return the gradients of a weighted sum of the result, on a device."""
    with vk.use_device(device):
        tensors = [vk.tensor(a, requires_grad=True) for a in arrays]
        result = loss_of(*tensors)
        weights = np.random.default_rng(5).standard_normal(result.shape).astype(arrays[0].dtype)
        result.backward(vk.tensor(weights))
        return [t.grad.numpy() for t in tensors if t.grad is not None]


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5, 33), (9, 3, 3, 3), {"padding": 1}),  # full vectors and a tail, several blocks of filters
    ((3, 4, 6, 16), (5, 4, 2, 1), {}),  # no tail; one tap along the width
    ((2, 6, 7, 21), (8, 3, 3, 3), {"groups": 2, "stride": (1, 2), "padding": (0, 2)}),
    ((1, 5, 9, 30), (30, 5, 2, 5), {"dilation": (2, 3), "stride": 2}),
    ((1, 2, 3, 40), (3, 2, 1, 25), {}),  # more taps than accumulators: falls back to the other kernel
    ((2, 4, 6, 5), (4, 4, 3, 3), {}),  # a narrow row: falls back to the other kernel
]


@pytest.mark.parametrize(
    ("shape", "weight", "options", "dtype"),
    [(*case, np.float32) for case in CONVOLUTIONS] + [(*CONVOLUTIONS[0], t) for t in (np.float64, np.float16)],
)
def test_gradients_of_weights_are_the_interpreters(
    processor: Any, shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], dtype: Any
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(dtype) for s in (shape, weight))
    found = gradients(processor, lambda x, w: F.conv2d(x, w, **options), x, w)
    expected = gradients("interpreter", lambda x, w: F.conv2d(x, w, **options), x, w)
    terms = shape[0] * shape[2] * shape[3]
    for one, other in zip(found, expected, strict=True):
        eps = float(np.finfo(dtype).eps) + terms * 2.0 ** (-53 if dtype is np.float64 else -24)
        np.testing.assert_allclose(one, other, rtol=0, atol=eps * (1 + np.abs(other).max()) * 4)


def test_what_a_convolution_does_not_look_at_does_not_count(processor: Any) -> None:
    x = np.ones((1, 1, 3, 21), np.float32)
    x[..., 20] = np.inf  # past the last window
    w = np.ones((2, 1, 3, 2), np.float32)
    _, gradient = gradients(processor, lambda x, w: F.conv2d(x, w, stride=3), x, w)
    assert np.isfinite(gradient).all()


POOLS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 8, 8), {"kernel_size": 2}),
    ((1, 2, 9, 11), {"kernel_size": 2}),  # a tail that no window covers
    ((1, 2, 9, 11), {"kernel_size": 3, "padding": 1, "ceil_mode": True}),
    ((1, 3, 10, 10), {"kernel_size": 2, "stride": 3}),  # gaps
    ((1, 1, 9, 9), {"kernel_size": 2, "dilation": 2, "stride": 3}),
    ((1, 2, 8, 8), {"kernel_size": 3, "stride": 2}),  # overlapping windows
]


@pytest.mark.parametrize(("shape", "options"), POOLS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_gradients_of_max_pooling_are_the_interpreters(
    processor: Any, shape: tuple[int, ...], options: dict[str, Any], dtype: Any
) -> None:
    x = np.random.default_rng(0).integers(-3, 3, shape).astype(dtype)  # contains equal elements
    found = gradients(processor, lambda x: F.max_pool2d(x, **options), x)
    expected = gradients("interpreter", lambda x: F.max_pool2d(x, **options), x)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("size", [2, 3, 6])
def test_adaptive_max_pooling_as_well(processor: Any, size: int) -> None:
    x = np.random.default_rng(0).standard_normal((2, 2, 6, 6)).astype(np.float32)
    found = gradients(processor, lambda x: F.adaptive_max_pool2d(x, size), x)
    np.testing.assert_array_equal(found[0], gradients("interpreter", lambda x: F.adaptive_max_pool2d(x, size), x)[0])


def test_wide_offsets_give_the_same(processor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of 2^31 or more elements use 64-bit offsets."""
    from vkjit.stdlib.conv import direct_plan, wgrad_plan
    from vkjit.stdlib.pool import pool

    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 5, 18), (4, 3, 3, 3)))

    def run() -> list[Any]:
        found = gradients(processor, lambda x, w: F.conv2d(x, w, padding=1), x, w)
        return found + gradients(processor, lambda x: F.max_pool2d(x, 2), x)

    expected = run()
    for module in (direct_plan, wgrad_plan, pool):
        monkeypatch.setattr(module, "index_type", lambda *_: vk.i64)
    for one, other in zip(run(), expected, strict=True):
        np.testing.assert_array_equal(one, other)
