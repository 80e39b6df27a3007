# mypy: disable-error-code="index, no-untyped-call, no-untyped-def"
"""`vk.check` compiles without a device; errors in generic kernels name the types they are compiled for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.func
def halved(v):
    return v >> 1


@vk.kernel(over="y")
def shifts(x: vk.In[T, "N"], y: vk.Out[T, "N"], by: vk.Const[int]):
    i = vk.global_id(0)
    y[i] = halved(x[i]) << by


@vk.kernel(groups=1, local=8)
def divergent(x: vk.InOut[vk.f32, "N"]):
    if x[vk.local_id(0)] > 0:
        vk.barrier()


@vk.struct
class Point:
    x: vk.f32
    y: vk.f32


@vk.kernel(over="p")
def points(p: vk.InOut[Point, "N"], by):
    p[vk.global_id(0)].x += by


def test_what_compiles() -> None:
    vk.check(shifts, T=vk.i32, by=3)
    vk.check(shifts, {"T": vk.u8, "by": 1})
    vk.check(points, by=vk.f32)
    with pytest.raises(vk.CompileError, match="expected a number"):
        vk.check(points, by=(vk.f32, 2))


def test_what_does_not() -> None:
    with pytest.raises(vk.CompileError, match="shifts are for integers, found vk.f16") as caught:
        vk.check(shifts, T=vk.f16, by=3)
    texts = [note.text for note in caught.value.notes]
    assert texts == ["in halved, called from here", "shifts is compiled here for T = vk.f16, by = 3"]
    with pytest.raises(vk.CompileError, match="shift of vk.i32 by 40"):
        vk.check(shifts, T=vk.i32, by=40)
    with pytest.raises(vk.CompileError, match="a barrier"):
        vk.check(divergent)
    with pytest.raises(vk.ArgumentError, match="has no 'U': it has T, by"):
        vk.check(shifts, U=vk.i32, by=1)
    with pytest.raises(vk.ArgumentError, match="by"):
        vk.check(shifts, T=vk.i32)
    with pytest.raises(vk.ArgumentError, match="takes a kernel"):
        vk.check(halved)


def test_launches_name_the_signature_too(device: Any) -> None:
    with pytest.raises(vk.CompileError, match="shifts is compiled here for T = vk.f32, by = 1"):
        shifts(np.zeros(3, np.float32), by=1)


def test_no_driver_is_loaded() -> None:
    code = (
        "import sys, vkjit as vk\nfrom tests.device.language.test_check import shifts\n"
        "vk.check(shifts, T=vk.i32, by=1)\nassert 'vulkan' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@vk.kernel(groups=1, local=64)
def product_of_tiles(a: vk.In[vk.f32, "16 16"], b: vk.In[vk.f32, "16 16"], c: vk.Out[vk.f32, "16 16"]):
    wg = vk.workgroup()
    acc = wg.mma(a[0:16, 0:16], b[0:16, 0:16], wg.zeros((16, 16), vk.f32))
    wg.store(c[0:16, 0:16], acc)


def test_products_of_tiles_are_not_accused_of_their_roundings() -> None:
    """Tile products may round in the device's order and use cooperative matrices through shared memory."""
    inputs: dict[str, Any] = {
        "elements": {"a": (-2.0, 2.0), "b": (-2.0, 2.0)},
        "devices": "interpreter",
        "max_examples": 12,
    }
    vk.testing.check_kernel(product_of_tiles, lambda a, b: a @ b, seed=1, **inputs)
    with pytest.raises(vk.testing.CheckFailure):
        vk.testing.check_kernel(product_of_tiles, lambda a, b: a @ (b + 1e-4), seed=1, **inputs)
