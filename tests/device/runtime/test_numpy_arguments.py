"""NumPy arguments of kernels: how they are copied to a device and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.launch import host_arrays


@vk.kernel(over="y")
def mixed(
    x: vk.In[vk.f32, "N"],
    flags: vk.In[vk.boolean, "N"],
    y: vk.InOut[vk.f32, "N"],
    half: vk.In[vk.f16, "N"],
    counts: vk.Out[vk.i8, "N"],
    one: vk.In[vk.i32, ""],
):
    i = vk.global_id(0)
    y[i] = y[i] + x[i] + vk.f32(half[i])
    counts[i] = vk.i8(one[()]) if flags[i] else vk.i8(7)


@vk.kernel(over="out")
def doubled(x: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = 2.0 * x[i]


def count_calls(monkeypatch: pytest.MonkeyPatch, device: Any) -> list[str]:
    """Return a list to which the names of the device's methods are appended as they are called."""
    calls: list[str] = []

    def counted(name: str) -> Any:
        method = getattr(device, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return method(*args)

        return call

    for name in ("allocate", "write", "read"):
        monkeypatch.setattr(device, name, counted(name))
    return calls


@pytest.mark.parametrize("count", [0, 1, 5, 257, host_arrays.MAX_PACKED_BYTES // 12, host_arrays.MAX_PACKED_BYTES])
def test_arrays_of_several_types_and_sizes(device: Any, count: int) -> None:
    x, y = np.arange(count, dtype=np.float32), np.ones(count, np.float32)
    flags, half = np.arange(count) % 3 == 0, np.full(count, 0.5, np.float16)
    surroundings = np.full(3 * count + 2, -1, np.int8)
    counts = surroundings[1 : 3 * count + 1 : 3]
    for times in (1, 2):
        mixed(x, flags, y, half, counts, np.array(3, np.int32))
        np.testing.assert_array_equal(y, 1 + times * (x + 0.5))
        np.testing.assert_array_equal(counts, np.where(flags, 3, 7))
        assert np.count_nonzero(surroundings == -1) == 2 * count + 2


def test_small_arrays_are_copied_together(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = np.ones(100, np.float32), np.zeros(100, np.float32)
    doubled(x, out)
    calls = count_calls(monkeypatch, device)
    doubled(x, out)
    assert calls == ([] if device.caps.kind == "llvm-cpu" else ["allocate", "write", "read"])
    calls.clear()
    doubled(np.ones(host_arrays.MAX_PACKED_BYTES, np.float32), np.zeros(host_arrays.MAX_PACKED_BYTES, np.float32))
    assert calls.count("write") == (0 if device.caps.kind == "llvm-cpu" else 2)


def test_the_interpreter_finds_accesses_that_would_reach_another_argument() -> None:

    @vk.kernel(groups=1, local=1, debug=False)
    def outside(x: vk.InOut[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
        x[64] = y[0]  # 256 bytes behind x[0]

    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with vk.use_device("interpreter"), pytest.raises(vk.KernelError):
        outside(x, y)
    assert not x.any() and not y.any()


def test_what_a_kernel_writes_before_an_error_stays(device: Any) -> None:
    """In NumPy arrays as in tensors; the first workgroup has run before the second one fails, on every device."""

    @vk.kernel(groups=2, local=4, debug=True)
    def second_group_fails(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N"], z: vk.InOut[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i]
        z[i] = 5.0
        vk.barrier()
        if i >= 4:
            y[i + x[i]] = 9

    for _ in range(3):  # also with cached launches
        x = np.arange(1, 9, dtype=np.int32)
        y, z = np.zeros(8, np.int32), np.zeros(8, np.float32)
        with pytest.raises(vk.BoundsError):
            second_group_fails(x, y, z)
        tensors = [vk.tensor(x), vk.zeros(8, dtype=vk.i32), vk.zeros(8)]
        second_group_fails(*tensors)
        with pytest.raises(vk.BoundsError):
            vk.synchronize()
        assert y.tolist() == tensors[1].tolist() == list(range(1, 9)) and z.tolist() == tensors[2].tolist() == [5.0] * 8
        second_group_fails(np.zeros_like(x), y, z)  # the error was raised once
        assert y.tolist() == [0] * 4 + [9] * 4


def test_overlaps_are_noticed_after_launches_without_any(device: Any) -> None:
    memory = np.arange(64, dtype=np.float32)
    out = np.zeros(32, np.float32)
    for _ in range(2):
        doubled(memory[:32], out)
        np.testing.assert_array_equal(out, 2 * memory[:32])
        same = memory[32:].copy()
        doubled(same, same)
        np.testing.assert_array_equal(same, 2 * memory[32:])
        part = memory.copy()
        doubled(part[:32], part[32:])
        np.testing.assert_array_equal(part[32:], 2 * memory[:32])
        np.testing.assert_array_equal(part[:32], memory[:32])


def test_parameters_that_are_arrays_in_one_call_and_numbers_in_another(device: Any) -> None:
    @vk.kernel(over="out")
    def ones(a, b, out: vk.Out[vk.i32, "N"]):
        out[vk.global_id(0)] = 1

    x, out = np.arange(5, dtype=np.int32), np.zeros(5, np.int32)
    for first, second in ((x, np.int32(7)), (np.int32(7), x)):
        ones(first, second, out)
    kinds = [[type(argument).__name__ for argument in code.signature.args[:2]] for code in ones._plans.values()]
    assert kinds == [["ArrayArg", "ScalarArg"], ["ScalarArg", "ArrayArg"]]


def test_settings_are_read_at_each_launch(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @vk.kernel(groups=1, local=1)
    def divided(x: vk.InOut[vk.i32, "N"], by: vk.i32):
        x[0] = x[0] // by

    x = np.array([6], np.int32)
    divided(x, 2)
    assert x[0] == 3
    monkeypatch.setenv("VKJIT_DEBUG", "1")
    with pytest.raises(vk.KernelError, match="zero"):
        divided(x, 0)
    monkeypatch.setenv("VKJIT_DEBUG", "2")
    with pytest.raises(vk.ArgumentError, match="VKJIT_DEBUG is '2': expected 0 or 1"):
        divided(x, 1)


def test_a_read_only_array_is_refused_after_a_launch_with_another(device: Any) -> None:
    x, out = np.ones(4, np.float32), np.zeros(4, np.float32)
    doubled(x, out)
    out.flags.writeable = False
    with pytest.raises(vk.ArgumentError, match="argument out is written but read-only"):
        doubled(x, out)
    doubled(out, x)
    np.testing.assert_array_equal(x, 2 * out)


def test_strided_and_overlapping_arrays_are_copied_with_the_others(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    @vk.kernel(over="out")
    def combined(
        x: vk.In[vk.f32, "N"], y: vk.In[vk.f32, "N"], z: vk.In[vk.f32, "N"], empty: vk.In[vk.f32, "M"],
        out: vk.InOut[vk.f32, "N"],
    ):  # fmt: skip
        i = vk.global_id(0)
        out[i] = out[i] + x[i] + 10.0 * y[i] + 100.0 * z[i] + vk.f32(empty.shape[0])

    memory = np.arange(400, dtype=np.float32)
    x, y, z = memory[:200:2], np.arange(100, dtype=np.float32)[::-1], np.arange(1000, dtype=np.float32)[::10]
    out = memory[1:200:2]  # interleaved with x
    expected, kept = out + x + 10 * y + 100 * z, memory.copy()
    combined(x, y, z, memory[30:30], out)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(memory[200:], kept[200:])
    np.testing.assert_array_equal(memory[:200:2], kept[:200:2])
    calls = count_calls(monkeypatch, device)
    combined(x, y, z, memory[30:30], out)
    assert calls == ([] if device.caps.kind == "llvm-cpu" else ["allocate", "write", "read"])


def test_results_without_axes_keep_their_shape(device: Any) -> None:
    @vk.kernel(groups=1, local=1)
    def next_number(x: vk.In[vk.f32, ""], y: vk.Out[vk.f32, ""]):
        y[()] = x[()] + 1.0

    result = next_number(np.array(3, np.float32))
    assert result.shape == () and result == 4
