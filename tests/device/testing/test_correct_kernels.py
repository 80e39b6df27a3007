"""Property tests report nothing for correct kernels: examples, collectives, sums in any order, strict kernels."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SETTINGS: dict[str, Any] = {"max_examples": 15, "seed": 4}


def kernel_of(example: str, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(example, EXAMPLES / f"{example}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.mark.parametrize(
    ("example", "name", "settings"),
    [
        ("black_scholes", "black_scholes", {}),
        ("game_of_life", "generation", {}),
        ("histogram", "histogram", {}),
        ("image_filters", "blur_rows", {"dims": {"H": (0, 3)}}),
        ("image_filters", "sobel", {}),
        ("nbody", "accelerate", {"dims": {"N": (0, 40)}}),
        ("reduction", "sum_all", {}),
        ("tiled_matmul", "matmul", {"groups": lambda c: (vk.cdiv(c.shape[1], 16), vk.cdiv(c.shape[0], 16)), "dims": {
            "M": (0, 40), "N": (0, 40), "K": (0, 40)}, "dtypes": [vk.f32, vk.f16]}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_kernels_of_the_examples(device: Any, example: str, name: str, settings: dict[str, Any]) -> None:
    kernel = kernel_of(example, name)
    result = vk.testing.check_kernel(kernel, devices=["interpreter", device], **{**SETTINGS, **settings})
    assert result.examples >= SETTINGS["max_examples"]


@vk.kernel(groups=lambda x: x.shape[0], local=64)
def softmax(x: vk.In[T, "R C"], y: vk.Out[T, "R C"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    row = vk.f32(x[r, :])
    m = wg.max(row)
    e = vk.exp(row - m)
    wg.store(y[r, :], e / wg.sum(e))


def test_collectives_of_any_subgroup_size(device: Any) -> None:
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True)) if x.size else x
        return e / e.sum(axis=1, keepdims=True)

    vk.testing.check_kernel(
        softmax, reference, devices=["interpreter", device], dims={"C": (0, 140)}, dtypes=[vk.f32, vk.f16], **SETTINGS
    )


@vk.kernel(over="y")
def cancelling(x: vk.In[T, "M K"], z: vk.In[T, "M K"], y: vk.Out[T, "M"]):
    i = vk.global_id(0)
    acc = x.dtype(0)
    for k in range(x.shape[1]):
        acc += x[i, k] * z[i, k]
    y[i] = acc


def test_sums_that_cancel_are_not_taken_for_mistakes(device: Any) -> None:
    vk.testing.check_kernel(
        cancelling, lambda x, z: (x * z).sum(axis=1), devices=["interpreter", device],
        dtypes=[vk.f32, vk.f16, vk.i16], max_examples=40, seed=4,
    )  # fmt: skip


@vk.kernel(over="y", strict=True)
def strict(x: vk.In[vk.f32, "N"], z: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.sqrt(vk.abs(x[i] * z[i] + x[i])) / (z[i] * 3.0 - x[i])


def test_strict_kernels_agree_bit_for_bit(device: Any) -> None:
    vk.testing.check_kernel(strict, devices=["interpreter", device], max_examples=30, seed=4)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 32), local=32)
def total(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "1"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        vk.atomic.add(y, 0, x[i])


def test_atomic_sums_in_any_order(device: Any) -> None:
    vk.testing.check_kernel(total, lambda x, y: y + x.sum(), devices=["interpreter", device], max_examples=30, seed=4)


@vk.kernel(over="y")
def special(x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = vk.max(x[i], x.dtype(0)) + vk.min(x[i], x.dtype(1))


def test_special_values(device: Any) -> None:
    def reference(x: Any) -> Any:
        return np.maximum(x, 0) + np.minimum(x, 1)

    vk.testing.check_kernel(
        special, reference, devices=["interpreter", device], special=("nan", "inf", "negative_zero", "extreme"),
        dtypes=[vk.f32, vk.f16, vk.i32], max_examples=40, seed=4,
    )  # fmt: skip
