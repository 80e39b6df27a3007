"""Tests of removed bounds checks: indices at constant offsets from compared ones, axes of a stated length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import frontend
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.compiler import driver
from vkjit.errors import BoundsError
from vkjit.launch.kernel import Kernel
from vkjit.passes.transforms.bounds_checks import Bounds


@vk.kernel(over="y")
def guarded(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i > 0 and i < x.shape[0] - 1:
        y[i] = x[i - 1] + x[i + 1]


@vk.kernel(over="y")
def far(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i >= 2 and i + 2 < x.shape[0]:
        y[i] = x[i - 2] + x[i + 2]


@vk.kernel(over="y")
def in_a_loop(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "M"]):
    i = vk.global_id(0)
    for k in range(1, x.shape[0]):
        y[i] += x[k] - x[k - 1]


@vk.kernel(over="y")
def stated(x: vk.In[vk.f32, "3 N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[0, i] + x[2, i]


@vk.kernel(over="y")
def too_far(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i > 0 and i < x.shape[0] - 1:
        y[i] = x[i - 2]


@vk.kernel(over="y")
def too_long(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i > 0 and i < x.shape[0] - 1:
        y[i] = x[i + 2]


def reports(kernel: Kernel, arrays: list[Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the number of reports that the pass inserts into the kernel as compiled for these arrays."""
    signatures: list[Any] = []

    def compile_kernel(spec: Any, signature: Any, caps: Any, **options: Any) -> Any:
        signatures.append(signature)
        return original(spec, signature, caps, **options)

    original = driver.compile_kernel
    monkeypatch.setattr(driver, "compile_kernel", compile_kernel)
    with vk.use_device(InterpreterDevice()):
        kernel(*arrays)
    module = Bounds().run(frontend.lower_kernel(kernel.spec, signatures[0]))
    return sum(op.name == "report" for op in module.kernel.body.walk())


@pytest.mark.parametrize(
    ("kernel", "shapes"),
    [(guarded, [(9,), (9,)]), (far, [(9,), (9,)]), (in_a_loop, [(9,), (4,)]), (stated, [(3, 9), (9,)])],
)
def test_checks_that_the_program_made_already(
    kernel: Kernel, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    assert reports(kernel, arrays, monkeypatch) == 0


@pytest.mark.parametrize("kernel", [too_far, too_long])
def test_checks_that_are_needed_stay(kernel: Kernel) -> None:
    with vk.use_device(InterpreterDevice()), pytest.raises(BoundsError):
        kernel(np.ones(9, np.float32), np.ones(9, np.float32))
