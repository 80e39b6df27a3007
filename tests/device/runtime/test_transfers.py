"""Transfers without host-visible buffers: staging in pieces, pinned arrays, in-order reuse of memory."""

from __future__ import annotations

import gc
import math
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.staged import open_staged
from tests.device.runtime import runtime_kernels as kernels
from tests.device.runtime.runtime_kernels import BLOCK
from tests.device.tensor.op_cache_fuzz import Chain, in_threads
from vkjit import dtypes
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.memory import transfer
from vkjit.runtime import host_copy
from vkjit.runtime.observers import LaunchRequest


@vk.kernel(over="y")
def step(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"], a: vk.i32):
    i = vk.global_id(0)
    y[i] = x[i] * 3 + a


@pytest.fixture
def staged() -> Iterator[VulkanDevice]:
    device = open_staged()
    with vk.use_device(device):
        yield device
    device.close()


def bytes_of(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def test_the_host_sees_no_buffer(staged: VulkanDevice) -> None:
    assert staged.host_view(staged.allocate(4)) is None
    assert staged._storage.memory.open_pinned() is not None


@pytest.mark.parametrize("pieces", [0.5, 1.0, 2.5, 6.0])
def test_pieces_arrive_in_place(staged: VulkanDevice, monkeypatch: pytest.MonkeyPatch, pieces: float) -> None:
    monkeypatch.setattr(transfer, "STAGED_PIECE", 1 << 20)
    monkeypatch.setattr(transfer, "PINNED_FROM", 1 << 40)
    count = int(pieces * (1 << 20)) + 3
    data, out = bytes_of(count), np.zeros(count, np.uint8)
    buffer = staged.allocate(count + 8)
    staged.write(buffer, 5, data)
    staged.read(buffer, 5, out)
    assert np.array_equal(out, data)


def test_pinned_arrays_go_without_staging(staged: VulkanDevice) -> None:
    count = 1 << 20
    data, out = staged.host_array(count), staged.host_array(count)
    data[:] = bytes_of(count)
    before = staged._storage.memory.upload.peak, staged._storage.memory.download.peak
    buffer = staged.allocate(count)
    staged.write(buffer, 0, data)
    staged.read(buffer, 0, out)
    assert np.array_equal(out, data)
    assert (staged._storage.memory.upload.peak, staged._storage.memory.download.peak) == before
    staged.write(buffer, 0, data[::2].copy())
    part = out[count // 4 : count // 2 + count // 8]
    staged.read(buffer, count // 4, part)
    assert np.array_equal(out[count // 4 : count // 2], data[::2][count // 4 :])


def test_the_device_fetches_large_pinned_arrays_where_the_host_could_write(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_staged(mapped=True)
    try:
        count = 2 * transfer.PINNED_RATHER_THAN_MAPPED
        data, out = device.host_array(count), np.zeros(count, np.uint8)
        data[:] = bytes_of(count)
        buffer = device.allocate(count)
        assert buffer.bytes is not None
        written: list[int] = []

        def noted(target: Any, source: Any) -> None:
            written.append(source.nbytes)
            host_copy.copy_bytes(target, source)

        monkeypatch.setattr(transfer, "copy_bytes", noted)
        device.write(buffer, 0, data)
        assert written == []  # the device did the copy
        device.read(buffer, 0, out)
        assert np.array_equal(out, data)
        written.clear()
        data[:] = bytes_of(count, 1)  # changing the array after the call has no effect
        assert np.array_equal(buffer.bytes, out)
        device.write(buffer, 16, data[:1000])  # a small part, and an array that isn't pinned
        device.write(buffer, 4096, bytes_of(count // 2, 2))
        assert written == [1000, count // 2]
        device.read(buffer, 0, out)
        assert np.array_equal(out[16:1016], data[:1000]) and np.array_equal(
            out[4096 : 4096 + count // 2], bytes_of(count // 2, 2)
        )
    finally:
        device.close()


def test_without_pinned_memory_nothing_is_missing(staged: VulkanDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        return -2  # VK_ERROR_OUT_OF_DEVICE_MEMORY

    monkeypatch.setattr(staged._functions, "vkGetMemoryHostPointerPropertiesEXT", fails, raising=False)
    assert np.array_equal(vk.full((1 << 18,), 3.0).numpy(), np.full(1 << 18, 3.0))
    assert staged._storage.memory.pinned is None


def test_results_are_pinned_and_outlive_the_device(staged: VulkanDevice) -> None:
    expected = np.arange(1 << 18, dtype=np.int32)
    found = vk.tensor(expected).numpy()
    pool = staged._storage.memory.pinned
    assert pool is not None and pool.around(found.ctypes.data, found.nbytes) is not None
    again = vk.tensor(expected).numpy()
    staged.close()
    gc.collect()
    assert np.array_equal(found, expected) and np.array_equal(again, expected)


def test_pinned_memory_comes_back_with_its_array(staged: VulkanDevice) -> None:
    pool = staged._storage.memory.open_pinned()
    assert pool is not None
    for _ in range(50):
        vk.ones(1 << 18).numpy()
    staged.memory_stats()
    assert pool.allocated <= 2 << 20 and pool.reserved <= 16 << 20


def test_pinned_arrays_for_users(staged: VulkanDevice, device: Any) -> None:
    array = vk.pinned_empty((300, 1000), np.float32, staged)
    pool = staged._storage.memory.pinned
    assert pool is not None and pool.around(array.ctypes.data, array.nbytes) is not None
    array[:] = 2.0
    assert vk.tensor(array).sum().item() == 600_000.0
    assert vk.pinned_empty(5, np.int8, device).shape == (5,) and vk.pinned_empty((0, 3), device=device).size == 0
    for wrong in (-1, 4.5, True, (2, "3")):
        with pytest.raises(vk.ArgumentError, match="at least 0"):
            vk.pinned_empty(wrong)  # type: ignore[arg-type]


def test_pinned_arrays_of_all_types(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtype in dtypes.ALL:
        if dtype is not vk.bf16:
            assert vk.pinned_empty((2, 3), dtype).dtype == dtype.storage
    monkeypatch.delitem(sys.modules, "ml_dtypes", raising=False)
    assert vk.pinned_empty(4, vk.bf16).dtype == np.uint16 and vk.pinned_empty(4, vk.f8e4m3).dtype == np.uint8
    loaded = types.SimpleNamespace(bfloat16=np.int16, float8_e5m2=np.int8)
    monkeypatch.setitem(sys.modules, "ml_dtypes", loaded)
    assert vk.pinned_empty(4, vk.bf16).dtype == np.int16 and vk.pinned_empty(4, vk.f8e5m2).dtype == np.int8
    for wrong in (vk.index, vk.Element, object, "f32", vk.Vec[vk.f32, 2]):
        with pytest.raises(vk.DTypeError, match="use one of NumPy's or of"):
            vk.pinned_empty(4, wrong)


@pytest.mark.parametrize("shape", [2**47, (2**40, 2**40)])
def test_no_memory_for_pinned_arrays(device: Any, shape: Any) -> None:
    with pytest.raises(
        vk.OutOfMemoryError, match=f"no memory for {4 * math.prod(np.atleast_1d(shape).tolist())} bytes"
    ):
        vk.pinned_empty(shape, np.float32)


def test_slots_for_reports_are_zero_before_a_launch_gets_one(staged: VulkanDevice) -> None:
    """Launches don't wait for the clearing of their slots, so it must be complete before a slot is used."""
    kernel = staged.load(kernels.report())
    x = staged.allocate(256)
    for _ in range(3):
        assert staged._reports.address and staged._queue._open is None and not staged._queue._in_flight
        staged.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(x.address, x.address, 0, 64), (), ()))
        with pytest.raises(vk.errors.BoundsError):
            staged.synchronize()


def test_only_a_part_of_the_host_is_pinned(staged: VulkanDevice) -> None:
    staged._transfer._most_pinned = 2 << 20
    kept = [staged.host_array(1 << 20) for _ in range(4)]
    pool = staged._storage.memory.pinned  # created by the first array
    assert pool is not None
    assert [pool.around(a.ctypes.data, a.nbytes) is not None for a in kept] == [True, True, False, False]


def test_memory_is_used_again_in_order_without_waiting(staged: VulkanDevice) -> None:
    count = 1 << 18
    x = vk.tensor(np.arange(count, dtype=np.int32))
    expected = np.arange(count, dtype=np.int64)
    blocks = set()
    for i in range(60):  # each result is freed while the next launch still reads it
        y = vk.empty(count, dtype=vk.i32)
        step(x, y, i)
        blocks.add(y.__vkjit_array__.address)
        x = y
        expected = expected * 3 + i
    assert len(blocks) < 30
    assert np.array_equal(x.numpy(), expected.astype(np.int32))


def test_what_the_host_writes_into_used_memory_waits_its_turn(staged: VulkanDevice) -> None:
    count = 1 << 18
    results = []
    for i in range(20):
        x = vk.full((count,), i, dtype=vk.i32)
        y = vk.empty(count, dtype=vk.i32)
        step(x, y, 1)
        z = vk.tensor(np.full(count, -i, np.int32))  # reuses the memory freed in the previous iteration
        step(z, y, 2)
        results.append(y[:4].clone())
        del x, y, z
    assert [r.numpy().tolist() for r in results] == [[-3 * i + 2] * 4 for i in range(20)]


def test_copies_shared_by_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_copy, "_workers", lambda: 3)
    source = bytes_of((5 << 20) + 7)
    target = np.zeros_like(source)
    host_copy.copy_bytes(target, source)
    assert np.array_equal(target, source)


def test_streams_for_copies(device: Any) -> None:
    with vk.use_device(device):
        x = vk.tensor(np.arange(1000, dtype=np.int32))
        y = vk.empty(1000, dtype=vk.i32)
        with vk.Stream(device, copies=True) as stream:
            copied = vk.tensor(np.arange(1000, dtype=np.int32))
        step(copied, y, 1)
        stream.synchronize()
        assert np.array_equal(y.numpy(), np.arange(1000) * 3 + 1)
        assert np.array_equal(x.numpy(), np.arange(1000))


def test_streams_for_copies_run_no_kernels(device: Any) -> None:
    with vk.use_device(device):
        x, y = vk.tensor(np.arange(1000, dtype=np.int32)), vk.zeros(1000, dtype=vk.i32)
        for _ in range(5):  # later calls take the fast path
            step(x, y, 1)
        expected = y.numpy()
        with vk.capture(x=x) as graph:
            step(x, y, 1)
        copies = vk.Stream(device, copies=True)
        for _ in range(2):
            with copies:
                with pytest.raises(vk.ArgumentError, match="kernel step was launched in a stream for copies"):
                    step(x, y, 1)
                with pytest.raises(vk.ArgumentError, match="in a stream for copies"):
                    x + y
                with pytest.raises(vk.ArgumentError, match="kernel step was launched in a stream for copies"):
                    graph.replay()
                assert np.array_equal(y.numpy(), expected)
            step(x, y, 1)
            graph.replay()
            expected = y.numpy()


def test_chains_of_operations_of_chance(staged: VulkanDevice) -> None:
    """A short run of `op_cache_fuzz` on a device that reuses memory immediately."""
    for seed in range(2):
        Chain(staged, seed).run(300)
    assert in_threads(staged, 7, 200) == []
