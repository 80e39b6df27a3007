# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, no-untyped-call, valid-type, operator"
"""`assume_uniform` is checked in debug kernels, on every executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk


@vk.kernel(groups=2, local=16, debug=True)
def promised(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    for _ in range(2):
        y[i] += vk.assume_uniform(x[i] + y[i])


def test_promises_that_hold(device: Any) -> None:
    y = np.zeros(32, np.float32)
    promised(np.repeat(np.array([1, np.nan], np.float32), 16), y)
    assert y[:16].tolist() == [3] * 16


def test_a_broken_promise_is_reported_with_its_line(device: Any) -> None:
    x = np.ones(32, np.float32)
    x[30] = 2
    with pytest.raises(vk.KernelError, match="assume_uniform: the value differs within the workgroup") as caught:
        promised(x, np.zeros(32, np.float32))
    assert caught.value.loc.line == promised.__wrapped__.__code__.co_firstlineno + 4
    assert caught.value.invocation == (30, 0, 0)


@vk.func
def leader(v):
    return vk.assume_uniform(v)


@vk.kernel(groups=1, local=(4, 4), debug=True)
def promised_elsewhere(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.local_id(1) * 4 + vk.local_id(0)
    if leader(x[i] > 0):
        vk.barrier()
    v = vk.assume_uniform(vk.vec(vk.i32, 2)(x[i], 1))
    y[i] = v.x + v.y


def test_promises_in_functions_and_of_vectors(device: Any) -> None:
    assert promised_elsewhere(np.full(16, 3, np.int32)).tolist() == [4] * 16
    x = np.full(16, 3, np.int32)
    x[5] = 4
    with pytest.raises(vk.KernelError, match="assume_uniform"):
        promised_elsewhere(x)
