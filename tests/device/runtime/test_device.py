"""The Vulkan device: transfers, launches, hazards, memory, reports, failures."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.device.runtime import runtime_kernels as kernels
from tests.device.runtime.runtime_kernels import BLOCK, download, groups, upload
from vkjit import errors
from vkjit.backends.vulkan.runtime import enumeration, instance, reports
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.instance import get_instance
from vkjit.backends.vulkan.runtime.memory import transfer
from vkjit.backends.vulkan.runtime.physical_device import physical_devices
from vkjit.backends.vulkan.runtime.queue import queue
from vkjit.runtime import handles
from vkjit.runtime.observers import LaunchRequest

SIZES = [1, 2, 3, 5, 64, 255, 256, 257, 4099, 100_003]


@pytest.fixture(scope="module")
def shared() -> Iterator[Any]:
    error = enumeration.driver_error()
    if error is not None:
        pytest.skip(f"no Vulkan driver: {error}")
    with_driver = [info for info in enumeration.devices() if info.uuid and not info.missing]
    if not with_driver:
        pytest.skip("no Vulkan device has what kernels need")
    opened = VulkanDevice(physical_devices(get_instance())[with_driver[0].index])
    yield opened
    opened.close()


@pytest.fixture(scope="module", autouse=True)
def gc_frozen() -> Iterator[None]:
    """Exclude objects of earlier tests from garbage collection, which this module triggers often."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def vulkan(shared: Any) -> Iterator[Any]:
    """The device; the test must leave it idle, without pending messages or live buffers."""
    before = shared.memory_stats()["count"]
    yield shared
    shared.synchronize()
    gc.collect()
    # The report ring, its mirror and the argument chunk are created on first use and persist.
    assert shared.memory_stats()["count"] <= before + 3
    assert instance.validation_messages() == []


def run_add(device: Any, kernel: Any, a: Any, b: Any, c: Any, n: int) -> None:
    device.launch(LaunchRequest(kernel, groups(n), BLOCK.pack(a.address, b.address, c.address, n), (a, b), (c,)))


def test_caps_are_filled(vulkan: Any) -> None:
    caps = vulkan.caps
    assert {"bool", "i32", "u32", "f32", "i64", "u64"} <= caps.dtypes
    assert {"buffer_device_address", "memory_model", "int64", "subgroup_basic"} <= caps.features
    assert caps.max_invocations >= 128 and caps.push_constant_bytes >= 128
    assert caps.subgroup_size in caps.subgroup_sizes
    assert caps.driver and vulkan.name
    if "llvmpipe" in caps.driver:
        assert caps.loop_cap == 65535 and caps.unified_memory and caps.kind == "cpu"


@pytest.mark.parametrize("nbytes", SIZES)
def test_bytes_come_back(vulkan: Any, nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    assert np.array_equal(download(vulkan, upload(vulkan, data), np.uint8), data)


def test_parts_of_buffers(vulkan: Any) -> None:
    buffer = upload(vulkan, np.zeros(100, np.uint8))
    vulkan.write(buffer, 33, np.arange(11, dtype=np.uint8))
    out = np.empty(13, np.uint8)
    vulkan.read(buffer, 32, out)
    assert out.tolist() == [0, *range(11), 0]
    vulkan.write(buffer, 100, np.empty(0, np.uint8))
    with pytest.raises(errors.ArgumentError, match="write 2 bytes at offset 99: the buffer has 100 bytes"):
        vulkan.write(buffer, 99, np.zeros(2, np.uint8))
    with pytest.raises(errors.ArgumentError, match="read 1 bytes at offset -1"):
        vulkan.read(buffer, -1, np.zeros(1, np.uint8))


def test_an_empty_buffer_is_valid(vulkan: Any) -> None:
    buffer = vulkan.allocate(0)
    assert buffer.nbytes == 0 and buffer.address
    vulkan.read(buffer, 0, np.empty(0, np.uint8))
    with pytest.raises(errors.DeviceError, match="expected zero or more"):
        vulkan.allocate(-1)


@pytest.mark.parametrize("n", SIZES)
def test_addition(vulkan: Any, n: int) -> None:
    a, b = np.arange(n, dtype=np.uint32), np.arange(n, dtype=np.uint32) * 7
    first, second, third = upload(vulkan, a), upload(vulkan, b), vulkan.allocate(4 * n)
    run_add(vulkan, vulkan.load(kernels.add()), first, second, third, n)
    assert np.array_equal(download(vulkan, third), a + b)


def test_indirect_blocks_each_keep_their_own_arguments(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.add(indirect=True))
    ones = upload(vulkan, np.ones(8, np.uint32))
    results = [vulkan.allocate(32) for _ in range(1500)]  # more argument blocks than one chunk holds
    counted = ones
    for result in results:
        run_add(vulkan, kernel, ones, counted, result, 8)
        counted = result
    assert download(vulkan, counted).tolist() == [1501] * 8


def test_arguments_are_in_use_until_the_launch_is_complete_that_waits_for_another_queue(vulkan: Any) -> None:
    """A launch that waits for another queue belongs to a new submission; earlier commands are submitted first."""
    kernel = vulkan.load(kernels.add(indirect=True))
    ones, (mine, theirs, last) = upload(vulkan, np.ones(8, np.uint32)), (vulkan.allocate(32) for _ in range(3))
    usual, other = vulkan.stream, vulkan.open_stream()
    run_add(vulkan, kernel, ones, ones, mine, 8)
    vulkan.stream = other
    try:
        own = upload(vulkan, np.ones(8, np.uint32))
        run_add(vulkan, kernel, own, own, theirs, 8)
        before = other.queue.serial
        run_add(vulkan, kernel, mine, theirs, last, 8)
        assert other.queue.serial == before + 1
        assert vulkan._arguments[other.queue][0].last_use == other.queue.serial
        assert download(vulkan, last).tolist() == [4] * 8
    finally:
        vulkan.stream = usual


def test_a_chain_of_dependent_launches(vulkan: Any) -> None:
    n, steps = 1000, 1000
    kernel = vulkan.load(kernels.shift())
    start = np.arange(n, dtype=np.uint32)
    x, y = upload(vulkan, start), vulkan.allocate(4 * n)
    for _ in range(steps):
        vulkan.launch(LaunchRequest(kernel, groups(n), BLOCK.pack(x.address, 0, y.address, n), (x,), (y,)))
        x, y = y, x
    assert np.array_equal(download(vulkan, x), np.roll(start, -steps) + steps)


def test_writes_and_copies_stay_in_order_with_launches(vulkan: Any) -> None:
    n = 500
    kernel = vulkan.load(kernels.add())
    a, b, c, d = (upload(vulkan, np.full(n, value, np.uint32)) for value in (1, 2, 0, 0))
    run_add(vulkan, kernel, a, b, c, n)  # c = 3
    vulkan.write(a, 0, np.full(n, 10, np.uint32).view(np.uint8))
    vulkan.copy(c, 0, d, 0, 4 * n)  # d = 3
    run_add(vulkan, kernel, a, d, c, n)  # c = 13
    vulkan.fill(a, 0, 4 * n, 100)
    run_add(vulkan, kernel, a, c, d, n)  # d = 113
    vulkan.fill(c, 4, 8, 0xDEADBEEF)
    assert download(vulkan, d).tolist() == [113] * n
    assert download(vulkan, c)[:4].tolist() == [13, 0xDEADBEEF, 0xDEADBEEF, 13]


def test_a_large_write_to_a_busy_buffer_waits_its_turn(vulkan: Any) -> None:
    n = 100_000
    kernel = vulkan.load(kernels.add())
    a, b, c = (upload(vulkan, np.full(n, value, np.uint32)) for value in (1, 2, 0))
    run_add(vulkan, kernel, a, b, c, n)
    vulkan.write(a, 0, np.full(n, 10, np.uint32).view(np.uint8))
    d = vulkan.allocate(4 * n)
    run_add(vulkan, kernel, a, c, d, n)
    assert download(vulkan, c).tolist() == [3] * n
    assert download(vulkan, d).tolist() == [13] * n


def test_staged_transfers_in_pieces(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "STAGED_PIECE", 1000)
    data = np.random.default_rng(1).integers(0, 256, 12_345, np.uint8)
    buffer, out = vulkan.allocate(13_000), np.zeros(12_345, np.uint8)
    vulkan._transfer._staged_write(vulkan._queue, buffer, 77, data)
    vulkan._transfer._staged_read(buffer, 77, out)
    assert np.array_equal(out, data)


def test_overlapping_copies(vulkan: Any) -> None:
    data = np.arange(200, dtype=np.uint8)
    buffer = upload(vulkan, data)
    vulkan.copy(buffer, 0, buffer, 10, 150)
    data[10:160] = data[:150].copy()
    vulkan.copy(buffer, 5, buffer, 5, 100)
    assert np.array_equal(download(vulkan, buffer, np.uint8), data)


@pytest.mark.parametrize(("offset", "nbytes", "pattern"), [(1, 4, 0), (0, 3, 0), (0, 4, -1), (0, 4, 1 << 32)])
def test_fills_are_checked(vulkan: Any, offset: int, nbytes: int, pattern: int) -> None:
    with pytest.raises(errors.ArgumentError, match="expected"):
        vulkan.fill(vulkan.allocate(16), offset, nbytes, pattern)


def test_host_views_share_the_memory(vulkan: Any) -> None:
    buffer = upload(vulkan, np.arange(10, dtype=np.uint8))
    view = vulkan.host_view(buffer)
    if view is None:
        assert not vulkan.caps.unified_memory
        return
    view[3] = 99
    assert download(vulkan, buffer, np.uint8)[3] == 99
    del buffer
    gc.collect()
    other = upload(vulkan, np.zeros(10, np.uint8))  # would reuse the memory if the view didn't keep it alive
    assert view.tolist() == [0, 1, 2, 99, *range(4, 10)]
    assert view.nbytes == 10 and other.nbytes == 10


def test_memory_in_use_is_reused_only_afterwards(vulkan: Any) -> None:
    n = 4096
    kernel = vulkan.load(kernels.shift())
    vulkan.synchronize()
    source, target = upload(vulkan, np.arange(n, dtype=np.uint32)), vulkan.allocate(4 * n)
    vulkan.launch(
        LaunchRequest(kernel, groups(n), BLOCK.pack(source.address, 0, target.address, n), (source,), (target,))
    )
    address = source.address
    del source
    fresh = [vulkan.allocate(4 * n) for _ in range(4)]
    if vulkan._storage._keeps:  # the queue keeps freed memory for reuse in order
        assert fresh[0].address == address
        vulkan.fill(fresh[0], 0, 4 * n, 0xFFFFFFFF)
        assert download(vulkan, target)[0] == 2
        return
    assert address not in [buffer.address for buffer in fresh]
    assert download(vulkan, target)[0] == 2
    fresh += [vulkan.allocate(4 * n)]
    assert address == fresh[-1].address


def test_memory_statistics(vulkan: Any) -> None:
    before = vulkan.memory_stats()
    buffers = [vulkan.allocate(1000) for _ in range(10)]
    during = vulkan.memory_stats()
    assert during["count"] == before["count"] + 10
    assert during["allocated"] == before["allocated"] + 10 * 1024
    assert during["peak"] >= during["allocated"] and during["reserved"] >= during["allocated"]
    for buffer in buffers:
        buffer.close()
        buffer.close()
    after = vulkan.memory_stats()
    assert (after["count"], after["allocated"]) == (before["count"], before["allocated"])


def test_empty_cache_returns_blocks(vulkan: Any) -> None:
    big = vulkan.allocate(48 << 20)
    reserved = vulkan.memory_stats()["reserved"]
    big.close()
    assert vulkan.memory_stats()["reserved"] == reserved
    vulkan.empty_cache()
    assert vulkan.memory_stats()["reserved"] <= reserved - (48 << 20)


def test_out_of_memory_is_an_exception_and_leaves_the_device_usable(vulkan: Any) -> None:
    with pytest.raises(errors.OutOfMemoryError, match=r"no room for \d+ bytes of device memory"):
        vulkan.allocate(1 << 44)
    assert download(vulkan, upload(vulkan, np.arange(4, dtype=np.uint8)), np.uint8).tolist() == [0, 1, 2, 3]


def test_short_lived_buffers_do_not_pile_up(vulkan: Any) -> None:
    n = 1 << 20
    kernel = vulkan.load(kernels.add())
    ones, total = upload(vulkan, np.ones(n, np.uint32)), upload(vulkan, np.zeros(n, np.uint32))
    for _ in range(100):
        result = vulkan.allocate(4 * n)
        run_add(vulkan, kernel, ones, total, result, n)
        total = result
    assert download(vulkan, total)[[0, n - 1]].tolist() == [100, 100]
    assert vulkan.memory_stats()["reserved"] < 350 << 20  # not the 400 MiB of all results
    vulkan.empty_cache()


def test_reports_raise_at_synchronisation(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.report())
    vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 6), (), ()))
    vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 9), (), ()))
    with pytest.raises(errors.BoundsError) as caught:
        vulkan.synchronize()
    assert caught.value.message == "index 5 of 6"
    assert (caught.value.kernel, caught.value.loc.line, caught.value.invocation) == ("report", 7, (5, 0, 0))
    vulkan.synchronize()  # raised only once


def test_reports_raise_at_reads(vulkan: Any) -> None:
    buffer = upload(vulkan, np.zeros(4, np.uint8))
    kernel = vulkan.load(kernels.report(indirect=True))
    vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 8), (), ()))
    with pytest.raises(IndexError, match="index 5 of 8"):
        download(vulkan, buffer)
    assert download(vulkan, buffer, np.uint8).tolist() == [0] * 4


def test_more_launches_than_report_slots(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = vulkan.load(kernels.report())
    vulkan.synchronize()
    for launch in range(reports.SLOTS + 100):
        n = 20 if launch in (700, reports.SLOTS + 50) else 3
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, n + launch % 2), (), ()))
    with pytest.raises(errors.BoundsError, match="index 5 of 20"):
        vulkan.synchronize()
    vulkan.synchronize()


def test_report_slots_through_a_mirror(vulkan: Any) -> None:
    """Test the report mirror, used where the host can't read device memory, on any device."""
    ring = reports.Reports(vulkan._queue, vulkan._storage)
    address = ring.address
    assert address
    pool = vulkan._storage.memory.download
    ring._mirror = vulkan._storage.buffer(None, pool, reports.SLOTS * reports.SLOT_BYTES)
    kernel = vulkan.load(kernels.report())
    queue_ = vulkan._queue
    for n in (5, 8, 4):
        with queue_.lock:
            block = ring.patch(kernel, BLOCK.pack(0, 0, 0, n))
            queue_.dispatch(LaunchRequest(kernel, (1, 1, 1), block, (), ()))
    with pytest.raises(errors.BoundsError, match="index 5 of 8"):
        ring.check()
    assert not ring.outstanding


@pytest.mark.parametrize("grid", [(0, 1, 1), (5, 0, 2)])
def test_empty_grids_run_nothing(vulkan: Any, grid: tuple[int, int, int]) -> None:
    out = upload(vulkan, np.full(4, 9, np.uint32))
    vulkan.launch(
        LaunchRequest(
            vulkan.load(kernels.add()), grid, BLOCK.pack(out.address, out.address, out.address, 4), (), (out,)
        )
    )
    assert download(vulkan, out).tolist() == [9] * 4


def test_grids_past_the_limit_are_refused(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.add())
    limit = vulkan.caps.max_groups
    for grid in ((1, limit[1] + 1, 1), (1, 1, limit[2] + 1), (-1, 1, 1), (0, 1, limit[2] + 1)):
        with pytest.raises(errors.DeviceError, match="kernel add: a grid of"):
            vulkan.launch(LaunchRequest(kernel, grid, BLOCK.pack(0, 0, 0, 0), (), ()))


def test_blocks_of_the_wrong_size_are_refused(vulkan: Any) -> None:
    with pytest.raises(errors.DeviceError, match="takes 32 bytes of arguments, 31 were given"):
        vulkan.launch(LaunchRequest(vulkan.load(kernels.add()), (1, 1, 1), bytes(31), (), ()))


def test_closed_and_foreign_things_are_refused(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.add())
    buffer = vulkan.allocate(16)
    buffer.close()
    with pytest.raises(errors.DeviceError, match="after it was closed"):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 0), (buffer,), ()))
    with pytest.raises(errors.DeviceError, match="after it was closed"):
        vulkan.write(buffer, 0, np.zeros(1, np.uint8))
    kernel.close()
    kernel.close()
    with pytest.raises(errors.DeviceError, match="kernel add was closed"):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 0), (), ()))


def test_two_devices_keep_apart_and_leave_nothing(vulkan: Any) -> None:
    warm = vulkan.allocate(64)  # objects that a device creates on first use persist
    run_add(vulkan, vulkan.load(kernels.add()), warm, warm, warm, 4)
    vulkan.synchronize()
    before = handles.live_counts()
    other = VulkanDevice(vulkan._physical)
    buffer, kernel = other.allocate(64), other.load(kernels.add())
    with pytest.raises(errors.DeviceError, match="another device"):
        vulkan.launch(LaunchRequest(vulkan.load(kernels.add()), (1, 1, 1), BLOCK.pack(0, 0, 0, 0), (buffer,), ()))
    with pytest.raises(errors.DeviceError, match="another device"):
        vulkan.write(buffer, 0, np.zeros(1, np.uint8))
    with pytest.raises(errors.DeviceError, match="loaded on another device"):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 0), (), ()))
    other.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(*[buffer.address] * 3, 4), (buffer,), (buffer,)))
    other.close()
    other.close()
    vulkan.synchronize()
    gc.collect()
    vulkan._queue.reclaim()
    after = handles.live_counts()
    assert {kind: count for kind, count in after.items() if count > before.get(kind, 0)}.keys() <= {"pipeline", "fence"}
    for act in (other.synchronize, other.flush, lambda: other.allocate(1), lambda: other.load(kernels.add())):
        with pytest.raises(errors.DeviceError, match="was closed: open it again"):
            act()
    with pytest.raises(errors.DeviceError, match="was closed: open it again"):
        other.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(0, 0, 0, 0), (), ()))


def test_a_lost_device_says_so_from_then_on(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = VulkanDevice(vulkan._physical)
    kernel, buffer = other.load(kernels.add()), other.allocate(64)
    lost = other._vulkan.constant("VK_ERROR_DEVICE_LOST")
    monkeypatch.setattr(other._queue.functions, "vkQueueSubmit", lambda *_: lost)
    other.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(*[buffer.address] * 3, 4), (buffer,), (buffer,)))
    for act in (other.synchronize, other.synchronize, lambda: other.write(buffer, 0, np.zeros(1, np.uint8))):
        with pytest.raises(errors.DeviceLostError, match="gave the device up"):
            act()
    assert other.closed
    other.close()


def test_streams_and_events_of_a_lost_device_say_so(vulkan: Any) -> None:
    other = VulkanDevice(vulkan._physical)
    kernel, buffer = other.load(kernels.add()), other.allocate(64)
    complete, event = other.open_event(), other.open_event()
    streams = [other.open_stream() for _ in range(2)]
    other.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(*[buffer.address] * 3, 4), (buffer,), (buffer,)))
    complete.record(other.stream)
    other.synchronize()
    other.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(*[buffer.address] * 3, 4), (buffer,), (buffer,)))
    event.record(other.stream)
    other._group.fail(errors.DeviceLostError("the driver gave the device up"))
    for closed in (False, True):
        if closed:
            other.close()
        for act in (lambda: streams[0].wait_event(event), event.query, event.synchronize, streams[1].query):
            with pytest.raises(errors.DeviceLostError, match="gave the device up"):
                act()
        assert complete.query()


def test_a_kernel_that_the_driver_refuses_is_named(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = VulkanDevice(vulkan._physical)
    failed = other._vulkan.constant("VK_ERROR_INITIALIZATION_FAILED")
    monkeypatch.setattr(other._functions, "vkCreateComputePipelines", lambda *_: failed)
    with pytest.raises(errors.DeviceError, match="INITIALIZATION_FAILED .kernel add."):
        other.load(kernels.add())
    other.close()


def test_features_that_are_missing_are_named(vulkan: Any) -> None:
    with pytest.raises(errors.FeatureError, match="kernel add needs what this device lacks: telepathy"):
        vulkan.load(replace(kernels.add(), features=frozenset({"telepathy", "int64"})))


def test_required_subgroup_size(vulkan: Any) -> None:
    size = vulkan.caps.subgroup_sizes[0]
    kernel = vulkan.load(replace(kernels.add(), subgroup_size=size))
    a, c = upload(vulkan, np.arange(64, dtype=np.uint32)), vulkan.allocate(256)
    run_add(vulkan, kernel, a, a, c, 64)
    assert download(vulkan, c).tolist() == list(range(0, 128, 2))


def test_device_time(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.add())
    a = upload(vulkan, np.zeros(1000, np.uint32))
    with pytest.raises(errors.DeviceError, match=r"without time_begin"):
        VulkanDevice.time_end(vulkan)
    vulkan.time_begin()
    for _ in range(200):
        run_add(vulkan, kernel, a, a, a, 1000)
    assert 0 < vulkan.time_end() < 10**10


def test_pipeline_cache_can_be_given_back(vulkan: Any) -> None:
    vulkan.load(kernels.add())
    data = vulkan.pipeline_cache_data()
    other = VulkanDevice(vulkan._physical)
    other.restore_pipeline_cache(data)
    assert other.load(kernels.add()).artifact.name == "add"
    other.close()


def test_statistics_of_a_kernel(vulkan: Any) -> None:
    found = vulkan.kernel_statistics(kernels.add())
    assert bool(found) == ("pipeline_executable_properties" in vulkan.caps.features)
    assert all(isinstance(value, int | float) for value in found.values())


def test_threads_share_a_device(vulkan: Any) -> None:
    kernel = vulkan.load(kernels.add())
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            data = np.full(300, seed, np.uint32)
            a, total = upload(vulkan, data), upload(vulkan, np.zeros(300, np.uint32))
            for _ in range(60):
                result = vulkan.allocate(1200)
                run_add(vulkan, kernel, a, total, result, 300)
                total = result
            assert np.array_equal(download(vulkan, total), data * 60)
        except Exception as error:  # noqa: BLE001  # checked in the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_number_of_submissions_in_flight_is_bounded(vulkan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "BUDGET", 1)
    monkeypatch.setattr(queue, "FIRST_BUDGET", 1)
    vulkan.synchronize()
    kernel = vulkan.load(kernels.shift())
    x, y = upload(vulkan, np.zeros(64, np.uint32)), vulkan.allocate(256)
    for _ in range(200):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(x.address, 0, y.address, 64), (x,), (y,)))
        x, y = y, x
        assert len(vulkan._queue._in_flight) <= queue.MAX_IN_FLIGHT
    assert download(vulkan, x).tolist() == [200] * 64


@pytest.mark.parametrize(
    ("idle", "patience", "most"),
    [(True, 10**12, queue.LONG_BUDGET), (True, 0, 16), (False, 10**12, queue.BUDGET)],
    ids=["idle", "idle and launches come slowly", "busy"],
)
def test_submissions_grow_longest_where_the_device_waits_for_the_host(
    vulkan: Any, idle: bool, patience: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`patience` is the time in nanoseconds that an idle device may be kept waiting."""
    launches = 3 * queue.LONG_BUDGET if idle and patience else 2600
    monkeypatch.setattr(queue, "_LONG_NS", patience)
    sizes: list[int] = []
    current, ready = vulkan._queue, vulkan._functions.vkGetFenceStatus

    def depart(self: Any, *arguments: Any, **options: Any) -> None:
        sizes.append(self.recorded)
        usual(self, *arguments, **options)

    def status(device: Any, fence: Any) -> int:  # signaled when polled (idle), or only after a wait
        if not idle:
            return 1  # VK_NOT_READY
        fences = vulkan._vulkan.array("VkFence", [fence])
        vulkan._functions.vkWaitForFences(device, 1, fences, 1, 10**10)
        return int(ready(device, fence))

    usual = queue.Queue._depart
    vulkan.synchronize()
    kernel = vulkan.load(kernels.shift())
    x, y = upload(vulkan, np.zeros(64, np.uint32)), vulkan.allocate(256)
    vulkan.synchronize()
    monkeypatch.setattr(queue.Queue, "_depart", depart)
    monkeypatch.setattr(vulkan._functions, "vkGetFenceStatus", status)
    monkeypatch.setattr(current, "_spin_ns", 0)
    for _ in range(launches):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(x.address, 0, y.address, 64), (x,), (y,)))
        x, y = y, x
    vulkan.synchronize()
    monkeypatch.undo()
    assert sum(sizes) == launches and sizes[:3] == [8, 32, 128], sizes
    assert max(sizes[3:]) == most, sizes
    assert download(vulkan, x).tolist() == [launches] * 64


def test_launches_that_come_more_slowly_than_before_are_not_kept_back(
    vulkan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "_LONG_NS", 10**12)
    monkeypatch.setattr(queue.Queue, "poll", lambda self: self._drain())  # all earlier work has completed
    vulkan.synchronize()
    kernel = vulkan.load(kernels.shift())
    x, y = upload(vulkan, np.zeros(64, np.uint32)), vulkan.allocate(256)
    vulkan.synchronize()
    first = vulkan._queue.serial
    for launch in range(8 + 32 + 128 + 2500):
        vulkan.launch(LaunchRequest(kernel, (1, 1, 1), BLOCK.pack(x.address, 0, y.address, 64), (x,), (y,)))
        x, y = y, x
        if launch == 8 + 32 + 128 + 1000:  # launches count as slow from here on
            assert vulkan._queue.recorded > 3 * queue.BUDGET
            monkeypatch.setattr(queue, "_LONG_NS", 0)
    assert vulkan._queue.serial > first + 3 and vulkan._queue.recorded < queue.BUDGET
    monkeypatch.undo()
    assert download(vulkan, x).tolist() == [8 + 32 + 128 + 2500] * 64


@pytest.mark.parametrize("call", ["vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory"])
def test_a_block_that_fails_half_way_leaves_nothing(vulkan: Any, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if call == "vkMapMemory" and not vulkan._storage.memory.main.kind.mapped:
        pytest.skip("this device's memory isn't mapped")
    monkeypatch.setattr(vulkan._functions, call, lambda *_: vulkan._vulkan.constant("VK_ERROR_OUT_OF_DEVICE_MEMORY"))
    vulkan.empty_cache()
    before = handles.live_counts()
    with pytest.raises(errors.OutOfMemoryError, match=f"{call} failed with VK_ERROR_OUT_OF_DEVICE_MEMORY"):
        vulkan.allocate(300 << 20)
    after = handles.live_counts()
    assert after.get("memory", 0) <= before.get("memory", 0)
    assert after.get("block buffer", 0) <= before.get("block buffer", 0)
