"""Cached dispatch of repeated operations with the same layouts gives the same results in all special cases."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.api.profiling import Profile
from vkjit.backends.cpu.runtime.device import CpuDevice
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.reports import SLOTS
from vkjit.errors import InternalError
from vkjit.runtime import dispatch_cache as tables
from vkjit.runtime.device import Device
from vkjit.runtime.dispatch_cache import set_repeating
from vkjit.stdlib.matmul import tuning_lookup
from vkjit.stdlib.registry import forcing_class
from vkjit.tensor.op_cache import cached, with_replay
from vkjit.testing.fuzz.watch import Watcher
from vkjit.testing.masks import masked

CALLS = 6


def numbers(count: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


def cached_dispatches(device: Device, name: str) -> int:
    """Return the number of cached dispatches of an operation."""
    return sum(key[0] == name and bool(way) and not isinstance(way, int) for key, way in device.dispatch_cache.items())


@pytest.fixture(autouse=True)
def fresh(device: Device) -> Iterator[None]:
    device.dispatch_cache.clear()
    with vk.use_device(device):
        yield


@pytest.fixture
def on(device: Device) -> Any:
    def tensor(values: Any) -> vk.Tensor:
        return vk.tensor(values, device=device)

    return tensor


def repeats_here(device: Device) -> bool:
    return device.caps.kind != "interpreter"


@pytest.mark.parametrize("count", [5, 3000])
def test_other_values_give_other_results(device: Device, on: Any, count: int) -> None:
    for seed in range(CALLS):
        a, b = numbers(count, seed), numbers(count, seed + 100)
        x, y = on(a), on(b)
        np.testing.assert_array_equal((x + y).numpy(), a + b)
        np.testing.assert_array_equal((x * 1.5).numpy(), a * np.float32(1.5))
        np.testing.assert_array_equal(vk.where(x > y, x, 0.5).numpy(), np.where(a > b, a, np.float32(0.5)))
    for name in ("add", "mul", "gt", "where"):
        assert cached_dispatches(device, name) == repeats_here(device), name


def test_products_are_repeated_until_tuning_has_found_something(device: Device, on: Any) -> None:
    for seed in range(CALLS):
        a, b = numbers(240, seed).reshape(12, 20), numbers(300, seed + 100).reshape(20, 15)
        np.testing.assert_allclose((on(a) @ on(b)).numpy(), a @ b, rtol=1e-5, atol=1e-5)
    assert cached_dispatches(device, "matmul") == repeats_here(device)
    tuning_lookup.invalidate(device)
    assert cached_dispatches(device, "matmul") == 0


def test_writes_are_told_apart_by_their_numbers(on: Any) -> None:
    x, y = on(np.zeros(300, np.float32)), on(np.ones(300, np.float32))
    for round_ in range(1, CALLS + 1):
        x.add_(y)
        x.add_(y, alpha=2)
        x.add_(y, alpha=0.5)
        x.sub_(1)
        x.mul_(1.0)
        x.mul_(-1.0).mul_(-1)
        assert (x.numpy() == 2.5 * round_).all()
    before = x._version.value
    x.add_(1.0)
    assert x._version.value == before + 1


def test_numbers_are_told_apart_by_type_and_sign(on: Any) -> None:
    x, k = on(np.array([1, -2, 0, 3], np.float32)), on(np.array([1, -2, 0, 3], np.int32))
    for _ in range(CALLS):
        assert np.signbit((x * 0.0).numpy()).tolist() == [False, True, False, False]
        assert np.signbit((x * -0.0).numpy()).tolist() == [True, False, True, True]
        assert (k + 1).dtype is vk.i32 and (k + 1.0).dtype is vk.f32 and (k + True).dtype is vk.i32
        assert np.isnan((x + float("nan")).numpy()).all()
        assert [(x**n).numpy()[1] for n in (1, 2, 3)] == [-2, 4, -8]


def test_operands_that_share_memory(on: Any) -> None:
    for seed in range(CALLS):
        values = numbers(4096, seed)
        x = on(values)
        near, far = x[:1024], x[1024 * (1 + seed % 3) : 1024 * (2 + seed % 3)]
        start = 1024 * (1 + seed % 3)
        np.testing.assert_array_equal((x + x).numpy(), values + values)
        np.testing.assert_array_equal((near - far).numpy(), values[:1024] - values[start : start + 1024])
        np.testing.assert_array_equal((far - near).numpy(), values[start : start + 1024] - values[:1024])


def test_views_at_odd_places(on: Any) -> None:
    for seed in range(2 * CALLS):
        values = numbers(4200, seed)
        x, start = on(values), seed % 5
        np.testing.assert_array_equal((-x[start : start + 4096]).numpy(), -values[start : start + 4096])


def test_steps_in_one_buffer_after_another(on: Any) -> None:
    """The memory of a result is reused immediately for the next result."""
    x = on(np.ones(70_000, np.float32))
    for _ in range(50):
        y = x
        for _ in range(20):
            y = y + 1.0
        assert y.numpy()[[0, 35_000, -1]].tolist() == [21, 21, 21]


def test_more_launches_than_report_slots(on: Any) -> None:
    """Reusing a report slot may require a wait, which submits the recorded launches."""
    values = np.arange(256, dtype=np.float32)
    x, index = on(values), on(np.arange(64))
    kept = [x[index] for _ in range(SLOTS + CALLS)]
    wrong = [number for number, y in enumerate(kept) if not np.array_equal(y.numpy(), values[:64])]
    assert not wrong


def aligned(count: int) -> np.ndarray[Any, Any]:
    raw = np.empty(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32)


@pytest.mark.parametrize("second", [0, 64])
def test_two_buffers_of_one_memory(device: Device, second: int) -> None:
    """Facts learned from operands that overlap in memory aren't applied to others, and vice versa."""
    if device.host_view(device.allocate(4)) is None:
        pytest.skip("takes copies of host memory")
    both, a, b = aligned(512), aligned(256), aligned(256)
    both[:], a[:], b[:] = np.arange(512), 5, 3
    x, y = (vk.from_dlpack(both[n : n + 256], device=device) for n in (0, second))
    p, q = vk.from_dlpack(a, device=device), vk.from_dlpack(b, device=device)
    own, other = vk.tensor(a, device=device), vk.tensor(b, device=device)
    for _ in range(CALLS):
        assert (x - y).numpy().tolist() == [-second] * 256
        assert (p - q).numpy().tolist() == (own - other).numpy().tolist() == [2] * 256


def test_another_thread_finds_the_way_first(device: Device, on: Any) -> None:
    x, y = on(numbers(64, 1)), on(numbers(64, 2))
    for _ in range(CALLS):
        x + y
    found = dict(device.dispatch_cache)

    class Changing(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            seen = super().get(key, default)
            self.update(found)
            return seen

    device.renew_dispatch_cache(Changing())
    try:
        np.testing.assert_array_equal((x + y).numpy(), numbers(64, 1) + numbers(64, 2))
        assert dict(device.dispatch_cache) == found
    finally:
        device.renew_dispatch_cache()


def test_the_oldest_keys_make_room(device: Device, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vkjit.tensor.op_cache.dispatch._MAX_KEYS", 10)
    x = on(numbers(64, 1))
    for n in range(30):
        x + (n + 0.5)
    assert [key[3] for key in device.dispatch_cache] == [n + 0.5 for n in range(20, 30)]


def test_gradients(on: Any) -> None:
    for seed in range(CALLS):
        a, b = numbers(300, seed), numbers(300, seed + 50)
        x, y = on(a).requires_grad_(), on(b).requires_grad_()
        (x * y + x).sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), b + 1, rtol=1e-6)
        np.testing.assert_allclose(y.grad.numpy(), a, rtol=1e-6)


def test_results_are_tensors_of_their_own(on: Any) -> None:
    x = on(numbers(64, 0))
    kept = [x + 1.0 for _ in range(CALLS)]
    kept[-1].add_(5.0)
    assert all(np.array_equal(y.numpy(), kept[0].numpy()) for y in kept[:-1])
    assert not kept[-1].is_view and kept[-1].version == 1 and kept[-2].version == 0


def test_captured(device: Device, on: Any) -> None:
    x = on(numbers(256, 1))
    for _ in range(CALLS):
        vk.exp(x) * 2.0
    with vk.capture(device) as graph:
        y = vk.exp(x) * 2.0
    x.copy_(on(numbers(256, 2)))
    graph.replay()
    np.testing.assert_allclose(y.numpy(), np.exp(numbers(256, 2)) * 2, rtol=1e-6)


def test_a_profile_sees_each_launch(device: Device, on: Any) -> None:
    x = on(numbers(256, 1))
    for _ in range(CALLS):
        x + x
    with vk.profile(device) as profile:
        for _ in range(3):
            x + x
    assert sum(row.launches for row in profile.kernels()) == 3


def test_the_sanitizer_sees_each_launch(on: Any) -> None:
    x = on(numbers(64, 1))
    for _ in range(CALLS):
        x + x
    with vk.testing.sanitized():
        np.testing.assert_array_equal((x + x).numpy(), 2 * numbers(64, 1))


def test_operands_of_two_devices(device: Device, on: Any) -> None:
    x = on(numbers(64, 1))
    other = vk.tensor(numbers(64, 2), device="cpu" if "interpreter" in device.name else "interpreter")
    for _ in range(CALLS):
        x + x
        with pytest.raises(vk.ArgumentError, match="lie on"):
            x + other


def test_an_own_stream(device: Device, on: Any) -> None:
    x = on(numbers(5000, 3))
    for _ in range(CALLS):
        first = x + x
    with vk.Stream(device):
        second = x + x
        third = first + second
    np.testing.assert_array_equal(third.numpy(), 4 * numbers(5000, 3))


def test_threads(on: Any) -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        values = numbers(1000, seed)
        x = on(values)
        for n in range(40):
            y = x * 2.0 + x
            if n % 8 == 0 and not np.allclose(y.numpy(), values * 3, rtol=1e-6):
                failures.append(f"thread {seed}, round {n}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_classes_of_their_own_and_no_elements(on: Any) -> None:
    parameter = vk.nn.Parameter(on(numbers(32, 1)))
    empty = on(np.zeros((0, 3), np.float32))
    for _ in range(CALLS):
        np.testing.assert_array_equal((parameter + 1.0).detach().numpy(), numbers(32, 1) + 1)
        assert (empty + 1.0).shape == (0, 3)


def counting_operation(on: Any) -> tuple[Any, vk.Tensor, list[int]]:
    """Return an operation with cached dispatch, its operand, and a list that grows each time its function runs."""
    asked: list[int] = []

    def forward(x: vk.Tensor) -> Any:
        asked.append(1)
        return vk.exp(x)

    return with_replay("asking", forward), on(numbers(64, 1)), asked


def switched(name: str, device: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a context manager that changes a setting."""

    @contextlib.contextmanager
    def block() -> Iterator[None]:
        if name == "precision":
            vk.set_matmul_precision("medium")
        elif name == "order":
            vk.use_deterministic_algorithms(True)
        elif name == "switch":
            set_repeating(False)
        else:
            monkeypatch.setenv(name, "1")
        try:
            yield
        finally:
            vk.set_matmul_precision("highest")
            vk.use_deterministic_algorithms(False)
            set_repeating(None)
            monkeypatch.delenv(name, raising=False)

    if name == "mask":
        return masked("invocations=128", device)
    return forcing_class("gpu") if name == "class" else block()


@pytest.mark.parametrize(
    "name", ["VKJIT_DEBUG", "VKJIT_OPT", "VKJIT_SANITIZE", "precision", "order", "mask", "class", "switch"]
)
def test_settings_that_change(device: Device, on: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if not repeats_here(device):
        pytest.skip("nothing is repeated here")
    run, x, asked = counting_operation(on)
    for _ in range(CALLS):
        run(x)
    assert len(asked) == 3
    with switched(name, device, monkeypatch):
        run(x)
        assert len(asked) == 4
    run(x)
    assert len(asked) == (4 if name == "class" else 5)  # a class is thread-local: the other entries stay valid


def test_tables_that_were_renewed_first_are_renewed_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(device, "dispatch_cache", raising=False)
    monkeypatch.setattr(tables, "_devices", weakref.WeakSet())  # as in a process without cached dispatches
    tables.renew(device)
    before = device.dispatch_cache
    tables.renew()
    assert device.dispatch_cache is not before


def test_the_switch_of_the_environment(device: Device, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, x, asked = counting_operation(on)
    try:
        monkeypatch.setenv("VKJIT_REPEAT", "0")
        set_repeating(None)
        for _ in range(CALLS):
            run(x)
        assert len(asked) == CALLS and not device.dispatch_cache
        monkeypatch.setenv("VKJIT_REPEAT", "maybe")
        set_repeating(None)
        with pytest.raises(vk.ArgumentError, match="VKJIT_REPEAT is 'maybe': expected 0 or 1"):
            run(x)
    finally:
        monkeypatch.delenv("VKJIT_REPEAT")
        set_repeating(None)


def test_a_mask_changes_the_kernels(device: Device, on: Any) -> None:
    if device.caps.kind != "cpu":
        pytest.skip("only software drivers are taken for GPUs")
    x = on(numbers(64 * 512, 1).reshape(64, 512))

    def launched() -> list[str]:
        with vk.profile(device) as profile:
            x.sum()
        return sorted(row.name for row in profile.kernels())

    with masked("kind=discrete", device):
        expected = launched()
    for _ in range(CALLS):
        x.sum()
    usual = launched()
    with masked("kind=discrete", device):
        assert launched() == expected != usual
    assert launched() == usual


def run_in_thread(work: Any) -> tuple[threading.Thread, list[BaseException]]:
    """Run work in another thread; return the thread and its errors."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # checked by the test
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("kind", ["capture", "profile"])
def test_a_call_is_watched_while_another_thread_opens_a_block(device: Device, on: Any, kind: str) -> None:
    x, seen, opened = on(numbers(64, 1)), [], threading.Event()

    def block() -> None:
        with vk.use_device(device), getattr(vk, kind)(device):
            opened.set()
            seen.append(vk.exp(x))

    others: list[tuple[threading.Thread, list[BaseException]]] = []

    def forward(x: vk.Tensor) -> Any:
        if len(seen) == 2:
            others.append(run_in_thread(block))
            assert opened.wait(60)  # while this call is being recorded
        seen.append(vk.exp(x))
        return seen[-1]

    run = with_replay("beside", forward)
    for _ in range(3):
        np.testing.assert_allclose(run(x).numpy(), np.exp(numbers(64, 1)), rtol=1e-6)
        for thread, errors in others:
            thread.join()
            assert not errors
    assert opened.is_set() and "launch" not in vars(device)


def test_a_call_is_to_be_watched_while_a_profile_opens(
    device: Device, on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, mark = on(numbers(64, 1)), Profile._mark
    others: list[Any] = []

    def call() -> None:
        with vk.use_device(device):
            for _ in range(CALLS):
                x + x

    def slow(self: Profile, **options: Any) -> Any:
        if not others:
            others.append(run_in_thread(call))
            others[0][0].join(0.2)
        return mark(self, **options)

    monkeypatch.setattr(Profile, "_mark", slow)
    with vk.profile(device) as profile:
        (thread, errors), *_ = others
        thread.join()
        x * 3.0
    assert not errors and "launch" not in vars(device)
    assert sum(row.launches for row in profile.kernels()) >= 1
    np.testing.assert_array_equal((x * 4.0).numpy(), numbers(64, 1) * 4)


def test_a_watcher_sees_each_launch(device: Device, on: Any) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("the device runs no SPIR-V")
    x = on(numbers(64, 1))
    for _ in range(CALLS):
        x + x
    with Watcher(device) as watcher:
        for _ in range(3):
            x + x
    assert watcher.launches == 3


def test_what_is_forgotten_leaves_nothing(device: Device, on: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vkjit.tensor.op_cache.dispatch._MAX_KEYS", 10)
    x, counts = on(numbers(64, 1)), []
    for step in range(2):
        for n in range(30):
            for _ in range(CALLS):
                x * (step + n / 64)
        records = (len(k.records) for k in device._group.kernels) if isinstance(device, VulkanDevice) else ()
        counts.append(sum(records))
    assert counts[0] == counts[1]


def test_classes_of_parameters_may_go(on: Any) -> None:
    @dataclass(frozen=True)
    class Mode:
        anything: object

    run: Any = with_replay("moded", lambda x, mode: vk.exp(x))
    x = on(numbers(64, 1))
    for _ in range(CALLS):
        run(x, mode=Mode(object()))
    gone = weakref.ref(Mode)
    del Mode
    gc.collect()
    assert gone() is None


def test_buffers_go_after_their_last_use(device: Device, on: Any) -> None:
    def forward(x: vk.Tensor) -> Any:
        for _ in range(8):
            x = x + 1.0
        return x

    run, x = with_replay("chain", forward), on(np.ones(1 << 20, np.float32))

    def peak(function: Any) -> int:
        device.synchronize()
        gc.collect()
        device.reset_peak_memory()
        before = device.memory_stats()["peak"]
        function(x)
        device.synchronize()
        return device.memory_stats()["peak"] - before

    for _ in range(CALLS):
        np.testing.assert_array_equal(run(x).numpy()[:3], 9)
    assert cached_dispatches(device, "chain") == repeats_here(device)
    once = peak(forward)
    device.dispatch_cache.clear()
    assert [peak(run) for _ in range(CALLS)] == [once] * CALLS


def test_a_device_that_was_closed() -> None:
    opened = CpuDevice()
    x = vk.tensor(numbers(64, 1), device=opened)
    for _ in range(CALLS):
        x + x
        x.add_(1.0)
    opened.close()
    calls: tuple[Any, ...] = (lambda: x + x, lambda: x.add_(1.0), lambda: x.sum())
    for call in calls:
        with pytest.raises(vk.DeviceError, match="closed"):
            call()


def test_a_buffer_that_was_closed(device: Device, on: Any) -> None:
    calls: tuple[Any, ...] = (lambda x: x + x, lambda x: x * 2.0, lambda x: x.add_(1.0))
    for call in calls:
        x = on(numbers(64, 1))
        for _ in range(CALLS):
            call(x)
        x._array.buffer.close()
        with pytest.raises(vk.DeviceError, match="closed|lies in no buffer"):
            call(x)


def test_under_a_time_budget(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("only Vulkan devices have one")
    values = np.arange(70_000, dtype=np.float32)
    before = vk.tensor(values, device=device)
    np.testing.assert_array_equal(
        (before + before).numpy(), 2 * values
    )  # the driver's cache knows the kernel without a budget
    monkeypatch.setenv("VKJIT_TIME_BUDGET", "0.001")
    opened = VulkanDevice(device._physical)
    try:
        x, index = vk.tensor(values, device=opened), vk.tensor(np.arange(64), device=opened)
        for _ in range(CALLS):
            np.testing.assert_array_equal((x + x).numpy(), 2 * values)
            np.testing.assert_array_equal(x[index].numpy(), values[:64])
    finally:
        opened.close()


def test_random_numbers_are_never_repeated(on: Any) -> None:
    x = on(np.ones(4096, np.float32))

    def draws() -> list[bytes]:
        vk.manual_seed(3)
        return [
            drawn.numpy().tobytes()
            for _ in range(CALLS)
            for drawn in (vk.nn.functional.dropout(x), vk.rand(4096), vk.bernoulli(x * 0.5))
        ]

    first = draws()
    assert len(set(first)) == len(first) and draws() == first


def test_autocast_in_between(on: Any) -> None:
    a, b = numbers(64 * 32, 1).reshape(64, 32), numbers(32 * 16, 2).reshape(32, 16)
    x, y = on(a), on(b)
    for _ in range(CALLS):
        assert (x @ y).dtype is vk.f32 and x.softmax(-1).dtype is vk.f32
        with vk.autograd.autocast(vk.f16):
            assert (x @ y).dtype is vk.f16 and (x.to(vk.f16) + 1.0).dtype is vk.f16
            assert (x.to(vk.f16)).softmax(-1).dtype is vk.f32
        assert x.to(vk.f16).softmax(-1).dtype is vk.f16


def test_labels_are_unique() -> None:
    @cached("a label of this test()")
    def one(x: Any) -> Any:
        return x

    with pytest.raises(InternalError, match=r"another label"):

        @cached("a label of this test()")
        def two(x: Any) -> Any:
            return x
