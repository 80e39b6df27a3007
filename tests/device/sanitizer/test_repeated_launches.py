"""Repeated launches under the sanitizer: cached state of the first launch must not hide faults of later ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

N = 64


@vk.kernel(over="y")
def divides(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] / x[i]


@vk.kernel(over="y")
def moves(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]


@vk.kernel(over="y", sanitize="nan")
def divides_checked(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] / x[i]


def ones(device: Any) -> tuple[Any, Any]:
    """Return an array of ones to divide, and a copy with one zero."""
    right = np.ones(N, np.float32)
    wrong = right.copy()
    wrong[5] = 0
    return vk.from_numpy(right, device=device), vk.from_numpy(wrong, device=device)


def finds(kernel: Any, *args: Any) -> bool:
    """True if a launch is reported."""
    try:
        kernel(*args)
    except vk.SanitizerError as error:
        return error.reports[0].file == __file__
    return False


def test_a_fault_of_a_later_launch_is_found(device: Any) -> None:
    right, wrong = ones(device)
    y = vk.zeros(N, device=device)
    with vk.testing.sanitized("nan"):
        assert [finds(divides, x, y) for x in (right, right, wrong, right, wrong)] == [False, False, True, False, True]
        with vk.testing.sanitized(False):
            assert not finds(divides, wrong, y)
        with vk.testing.sanitized("division"):
            assert not finds(divides, wrong, y)
        assert finds(divides, wrong, y)
    assert not finds(divides, wrong, y)
    with vk.testing.sanitized("nan"):
        assert finds(divides, wrong, y)


def test_outputs_made_by_launches(device: Any) -> None:
    right, wrong = ones(device)
    with vk.testing.sanitized("nan"):
        for _ in range(3):
            assert divides(right).numpy().tolist() == [1] * N
        with pytest.raises(vk.SanitizerError, match="NaN"):
            divides(wrong)


def test_kernels_that_ask_by_themselves(device: Any) -> None:
    right, wrong = ones(device)
    y = vk.zeros(N, device=device)
    for _ in range(3):
        assert not finds(divides_checked, right, y) and finds(divides_checked, wrong, y)
        with vk.testing.sanitized("division"):
            assert finds(divides_checked, wrong, y)


def test_the_environment_may_change(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = divides.variant()
    right, wrong = ones(device)
    y = vk.zeros(N, device=device)
    monkeypatch.setenv("VKJIT_SANITIZE", "nan")
    assert [finds(kernel, x, y) for x in (right, right, wrong)] == [False, False, True]
    monkeypatch.setenv("VKJIT_SANITIZE", "division")
    assert [finds(kernel, x, y) for x in (right, wrong, wrong)] == [False, False, False]
    monkeypatch.setenv("VKJIT_SANITIZE", "nan")
    assert finds(kernel, wrong, y)
    monkeypatch.delenv("VKJIT_SANITIZE")
    assert not finds(kernel, wrong, y)


def test_overlaps_may_change(device: Any) -> None:
    if not device.caps.kind == "interpreter" and "int64_atomics" not in device.caps.features:
        pytest.skip("races need 64-bit atomics")
    memory = vk.zeros(4 * N, device=device)
    low, next_one, far = memory[:N], memory[1 : N + 1], memory[2 * N : 3 * N]
    with vk.testing.sanitized("races"):
        for _ in range(3):
            assert finds(moves, low, next_one)
            assert not finds(moves, low, low)
            assert not finds(moves, low, far)
