"""Observers of a device: how they stack, and each pair of captures, profiles, recorders and checks of launches."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.table import target_of
from vkjit.errors import DeviceError
from vkjit.runtime import observers
from vkjit.runtime.capture import is_capturing, open_captures
from vkjit.runtime.observers import LaunchRequest, Observer
from vkjit.runtime.threads import this_thread
from vkjit.tensor.op_cache import with_replay
from vkjit.testing.fuzz.watch import Watcher

CALLS = 4
"""Calls of an operation after which it is replayed."""
START = np.arange(16, dtype=np.float32)


@vk.kernel(over="y")
def grown(y: vk.InOut[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = y[vk.global_id(0)] + 1.0


@grown.cost
def cost_of_grown(y: Any) -> vk.Cost:
    return vk.Cost(nbytes=2 * y.nbytes, flops=y.size)


@vk.kernel(over="y")
def doubled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = x[vk.global_id(0)] * 2.0


@doubled.cost
def cost_of_doubled(x: Any) -> vk.Cost:
    return vk.Cost(nbytes=x.nbytes)


@vk.kernel(local=4, debug=False)
def shifted(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], by: vk.i32) -> None:
    i = vk.global_id(0)
    y[i] = x[i + by]  # out of bounds unless `by` is 0


class CallLog(Observer):
    """Notes the calls that it sees."""

    def __init__(self, seen: list[str], name: str, thread: object = None) -> None:
        self.seen, self.name, self.thread = seen, name, thread

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        self.seen.append(f"{self.name} {request.kernel.artifact.name}")
        proceed(request)
        self.seen.append(f"{self.name} done")


@pytest.fixture(autouse=True)
def unobserved(device: Any) -> Iterator[None]:
    """Check that nothing stays, and that the device still works."""
    device.dispatch_cache.clear()
    yield
    left = [*device.observers, *open_captures]
    for observer in device.observers[:]:
        device.remove_observer(observer)
    assert not left
    assert not set(observers._METHODS) & set(vars(device))
    for _ in range(CALLS):
        assert (vk.tensor(START) + 1.0).numpy().tolist() == (START + 1).tolist()


def needs_spirv(device: Any) -> None:
    if not target_of(device.caps).spirv:
        pytest.skip("the device runs no SPIR-V")


def repeats(device: Any) -> bool:
    """True if operations are replayed on this device."""
    return bool(device.caps.kind != "interpreter")


def replays(device: Any, name: str = "add") -> int:
    """Return the number of an operation's replays."""
    return sum(key[0] == name and not isinstance(entry, int) for key, entry in device.dispatch_cache.items())


def launches(measured: Any) -> dict[str, int]:
    return {row.name: row.launches for row in measured.kernels()}


def captured(y: Any) -> Any:
    """Return a graph that adds 1 to y."""
    with vk.capture() as graph:
        grown(y)
    return graph


@contextlib.contextmanager
def traced() -> Iterator[None]:
    vk.trace_memory()
    try:
        yield
    finally:
        vk.trace_memory(False)


def made_here(x: Any) -> bool:
    """True if the memory of `x` has this file as the place where it was made."""
    array = f"{x._array.dtype.name} {x._array.shape}"
    return any(array in row.arrays and __file__ in row.made for row in vk.live_buffers(x.device))


# -- the protocol


def test_the_last_one_sees_calls_first_and_only_what_it_overrides(device: Any) -> None:
    seen: list[str] = []
    first, second, y = CallLog(seen, "first"), CallLog(seen, "second"), vk.zeros(4)
    device.add_observer(first)
    device.add_observer(second)
    assert "launch" in vars(device) and "fill" not in vars(device)
    grown(y)
    assert seen == ["second grown", "first grown", "first done", "second done"]
    device.remove_observer(first)  # in any order, any number of times
    device.remove_observer(first)
    grown(y)
    assert seen[4:] == ["second grown", "second done"]
    device.remove_observer(second)
    grown(y)
    assert len(seen) == 6 and y.numpy()[0] == 3


def test_every_method_is_observed(device: Any) -> None:
    seen: Counter[str] = Counter()

    def noting(name: str) -> Any:
        def method(self: Observer, proceed: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            seen[name] += 1
            return getattr(Observer, name)(self, proceed, *args, **kwargs)

        return method

    observer = type("All", (Observer,), {name: noting(name) for name in observers._METHODS})()
    device.add_observer(observer)
    a, b, data, out = device.allocate(64), device.allocate(64), np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)
    device.write(a, 0, data)
    device.copy(a, 0, b, 0, nbytes=64)
    device.fill(b, 0, 4, 0)
    device.read(b, 0, out)
    device.host_view(a)
    device.adopt(data.ctypes.data, 64, data)
    device.synchronize()
    grown(vk.zeros(4))
    device.remove_observer(observer)
    assert out.tolist() == [0] * 4 + data.tolist()[4:]
    assert all(seen[name] for name in observers._METHODS)


def test_an_observer_of_a_thread_sees_only_that_thread(device: Any) -> None:
    seen: list[str] = []
    observer, y = CallLog(seen, "here", this_thread.token), vk.zeros(4)

    def work() -> None:
        with vk.use_device(device):
            grown(y)

    device.add_observer(observer)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [] and device.observers_here() == [observer]
    grown(y)
    device.remove_observer(observer)
    assert len(seen) == 2 and y.numpy()[0] == 2
    with pytest.raises(vk.ArgumentError, match="idents are reused by later threads"):
        device.add_observer(CallLog(seen, "here", threading.get_ident()))


def test_an_observer_added_while_the_methods_change_isn_t_lost(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal handler might, in the same thread."""
    seen: list[str] = []
    outer, inner, link = CallLog(seen, "outer"), CallLog(seen, "inner"), observers._link

    def interrupted(*args: Any) -> Any:
        monkeypatch.setattr(observers, "_link", link)
        device.add_observer(inner)
        return link(*args)

    monkeypatch.setattr(observers, "_link", interrupted)
    device.add_observer(outer)
    grown(vk.zeros(4))
    assert sorted(seen) == ["inner done", "inner grown", "outer done", "outer grown"]
    device.remove_observer(outer)
    device.remove_observer(inner)


def test_an_error_of_an_observer_is_raised_and_nothing_runs(device: Any) -> None:
    class Broken(Observer):
        def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
            raise ZeroDivisionError

    broken, y = Broken(), vk.zeros(4)
    device.add_observer(broken)
    with pytest.raises(ZeroDivisionError):
        grown(y)
    device.remove_observer(broken)
    assert y.numpy()[0] == 0


@pytest.mark.parametrize("what", [None, 3, Observer])
def test_only_observers_are_added(device: Any, what: Any) -> None:
    with pytest.raises(vk.ArgumentError, match=r"add_observer\(\) takes a vkjit.runtime.observers.Observer, found"):
        device.add_observer(what)
    assert what not in device.observers


# -- captures


def test_captures_nest(device: Any) -> None:
    x, y = vk.zeros(4), vk.zeros(4)
    with vk.capture(y=y) as outer:
        with vk.capture(x=x) as inner:
            grown(x)
            x.fill_(5.0)
        assert is_capturing(device)
        grown(y)
        inner.replay()  # as in a function that captures when it is called first
        inner.replay(x=y)
    assert not is_capturing(device)
    outer.replay()
    assert x.numpy().tolist() == [5] * 4 and y.numpy().tolist() == [5] * 4
    outer.replay(y=(other := vk.zeros(4)))
    assert other.numpy().tolist() == [5] * 4
    inner.replay(x=(again := vk.zeros(4)))
    assert again.numpy().tolist() == [5] * 4


def test_the_outer_graph_leaves_out_what_the_inner_one_records(device: Any) -> None:
    x = vk.zeros(4)
    with vk.capture() as outer, vk.capture() as inner:
        grown(x)
    outer.replay()
    assert x.numpy()[0] == 0
    inner.replay()
    assert x.numpy()[0] == 1


def test_an_error_in_an_inner_capture_leaves_the_outer_one_as_it_is(device: Any) -> None:
    x = vk.zeros(4)
    with vk.capture() as outer:
        grown(x)
        with pytest.raises(vk.ArgumentError, match="reads results while it is captured"), vk.capture():
            x.numpy()
        grown(x)
    outer.replay()
    assert x.numpy()[0] == 2


def test_two_threads_capture_at_once(device: Any) -> None:
    x, y, started, graphs = vk.zeros(4), vk.zeros(4), threading.Barrier(2, timeout=60), []

    def work(z: Any, count: int) -> None:
        with vk.use_device(device), vk.capture() as graph:
            started.wait()
            for _ in range(count):
                grown(z)
            started.wait()
        graphs.append(graph)

    threads = [threading.Thread(target=work, args=pair) for pair in ((x, 1), (y, 3))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.numpy()[0] == y.numpy()[0] == 0 and len(graphs) == 2
    for graph in graphs:
        graph.replay()
    assert (x.numpy()[0], y.numpy()[0]) == (1, 3)


# -- captures and profiles


def test_a_profile_in_a_capture_measures_the_host_only(device: Any) -> None:
    y = vk.zeros(4)
    with vk.capture() as graph:
        with vk.profile() as measured:
            grown(y)
            grown(y)
        grown(y)
    assert launches(measured) == {} and measured.host()["launch"][0] == 2
    graph.replay()
    assert y.numpy()[0] == 3


def test_a_profile_in_a_capture_measures_other_threads(device: Any) -> None:
    y, z = vk.zeros(4), vk.zeros(4)

    def work() -> None:
        with vk.use_device(device):
            grown(z)

    with vk.capture() as graph:
        with vk.profile() as measured:
            grown(y)
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        with pytest.raises(vk.ArgumentError, match="waits for results while it is captured"):
            measured.kernels()
    assert launches(measured) == {"grown": 1} and z.numpy()[0] == 1
    graph.replay()
    assert y.numpy()[0] == 1


def test_a_profile_measures_each_launch_of_a_replay(device: Any) -> None:
    y = vk.zeros(4)
    graph = captured(y)
    with vk.profile() as measured:
        graph.replay()
        grown(y)  # states its cost, the replay doesn't
        graph.replay()
        inner = captured(y)
        inner.replay()
    (row,) = measured.kernels()
    assert row.launches == 4 and row.nbytes == 2 * y.nbytes
    assert [launch.cost is not None for launch in measured._launches] == [False, True, False, False]
    assert y.numpy()[0] == 4
    graph.replay()
    assert y.numpy()[0] == 5


def test_the_cost_of_a_captured_launch_is_no_other_launch_s(device: Any) -> None:
    @vk.kernel(over="y")
    def fresh(y: vk.InOut[vk.f32, "N"]) -> None:
        y[vk.global_id(0)] = 1.0

    y = vk.zeros(4)
    with vk.profile() as measured:
        fresh(y)
        fresh.cost(lambda y: vk.Cost(nbytes=y.nbytes))
        with vk.capture():
            fresh(y)
    assert [(row.launches, row.nbytes) for row in measured.kernels()] == [(1, 0)]


def test_calls_with_keywords_are_profiled(device: Any) -> None:
    buffer, out = device.allocate(64), np.zeros(8, np.uint8)
    with vk.profile() as measured:
        device.fill(buffer, offset=0, nbytes=64, pattern=0x01010101)
        device.copy(buffer, 0, buffer, target_offset=32, nbytes=16)
        device.write(buffer, offset=0, data=np.full(4, 7, np.uint8))
        device.read(buffer, offset=0, out=out)
    assert out.tolist() == [7] * 4 + [1] * 4
    assert {kind: count for kind, (count, _) in measured.host().items()} == {
        "fill": 1, "copy": 1, "upload": 1, "download": 1
    }  # fmt: skip


def test_profiles_of_a_device_don_t_nest(device: Any) -> None:
    y = vk.zeros(4)
    with vk.profile() as outer:
        with pytest.raises(DeviceError, match="already being profiled"), vk.profile():
            pass
        grown(y)
    assert launches(outer) == {"grown": 1}


# -- recorded operations


def test_operations_in_a_capture_are_recorded(device: Any) -> None:
    x = vk.tensor(START)
    with vk.capture() as graph:
        results = [x + 1.0 for _ in range(CALLS)]
    assert replays(device) == repeats(device)
    x.fill_(3.0)
    graph.replay()
    assert all(y.numpy().tolist() == [4] * 16 for y in results)
    assert (x + 1.0).numpy().tolist() == [4] * 16  # a replay of the op cache, outside of the capture
    results[0].fill_(0.0)
    assert results[1].numpy()[0] == 4


def test_operations_in_a_profile_are_recorded(device: Any) -> None:
    x = vk.tensor(START)
    w = vk.tensor(START, requires_grad=True)
    with vk.profile() as measured:
        for _ in range(CALLS):
            assert (x + 1.0).numpy().tolist() == (START + 1).tolist()
            (w * x).sum().backward()
            x.add_(1.0)
            x.sub_(1.0)
    assert sum(launches(measured).values()) == measured.host()["launch"][0]
    assert bool(replays(device)) is repeats(device)
    assert w.grad is not None and w.grad.numpy().tolist() == (CALLS * START).tolist()
    assert (x + 1.0).numpy().tolist() == (START + 1).tolist()


def test_the_costs_of_kernels_in_recorded_operations_are_stated(device: Any) -> None:
    run: Any = with_replay(f"doubled on {device.name}", lambda x: doubled(x))
    x = vk.tensor(START)
    for _ in range(CALLS):
        run(x)
    with vk.profile() as measured:
        assert run(x).numpy().tolist() == (2 * START).tolist()
    assert [row.nbytes for row in measured.kernels()] == [x.nbytes]


def test_a_profile_of_another_thread_opens_while_an_operation_is_recorded(device: Any) -> None:
    x, calls = vk.tensor(START), []

    def work() -> None:
        with vk.profile(device):
            pass

    def forward(x: vk.Tensor) -> Any:
        calls.append(x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        return vk.exp(x)

    run: Any = with_replay(f"observed on {device.name}", forward)
    for _ in range(CALLS):
        np.testing.assert_allclose(run(x).numpy(), np.exp(START), rtol=1e-5)
    assert len(calls) == (3 if repeats(device) else CALLS)


def test_operations_that_are_watched_are_recorded_later(device: Any) -> None:
    needs_spirv(device)
    x = vk.tensor(START)
    with Watcher(device) as watcher:
        for _ in range(CALLS):
            assert (x + 1.0).numpy().tolist() == (START + 1).tolist()
    assert watcher.launches == CALLS and not watcher.lines and replays(device) == 0
    x + 1.0
    assert replays(device) == 1 and (x + 1.0).numpy().tolist() == (START + 1).tolist()


def test_sanitized_operations_are_recorded_later(device: Any) -> None:
    x = vk.tensor(START)
    with vk.testing.sanitized():
        for _ in range(CALLS):
            assert (x + 1.0).numpy().tolist() == (START + 1).tolist()
    assert replays(device) == 0
    for _ in range(CALLS):
        assert (x + 1.0).numpy().tolist() == (START + 1).tolist()
    assert replays(device) == repeats(device)


# -- the sanitizer


def test_sanitized_launches_aren_t_captured(device: Any) -> None:
    x, y = vk.tensor(START), vk.zeros(16)
    with vk.capture() as graph:
        grown(x)
        with (
            vk.testing.sanitized(),
            pytest.raises(vk.ArgumentError, match="shifted is launched with the sanitizer in a"),
        ):
            shifted[4](x, y, 1)
    with vk.testing.sanitized():
        graph.replay()
        assert x.numpy()[0] == 1
        with pytest.raises(vk.ArgumentError, match="capture it without the sanitizer"), vk.capture():
            shifted[4](x, y, 0)
    graph.replay()
    assert x.numpy()[0] == 2


def test_sanitized_launches_are_profiled(device: Any) -> None:
    x, y = vk.tensor(START), vk.zeros(16)
    with vk.profile() as measured, vk.testing.sanitized():
        shifted[4](x, y, 0)
        with pytest.raises(vk.SanitizerError, match="out of"):
            shifted[4](x, y, 1)
    assert launches(measured)["shifted"] == 2
    assert y.numpy().tolist()[:15] == START.tolist()[1:]


def test_sanitized_launches_are_watched(device: Any) -> None:
    needs_spirv(device)
    x, y = vk.tensor(START), vk.zeros(16)
    with Watcher(device) as watcher, vk.testing.sanitized():
        with pytest.raises(vk.SanitizerError, match="out of"):
            shifted[4](x, y, 1)
        shifted[4](x, y, 0)
    assert watcher.launches == 2 and not watcher.lines  # the sanitizer leaves the invalid access out
    assert y.numpy().tolist() == START.tolist()


# -- watched launches


def test_a_watcher_in_a_capture_is_told(device: Any) -> None:
    needs_spirv(device)
    y = vk.zeros(4)
    with vk.capture() as graph:
        grown(y)
        with Watcher(device) as watcher, pytest.raises(vk.ArgumentError, match="so that its accesses can't be checked"):
            grown(y)
    assert watcher.launches == 0
    graph.replay()
    assert y.numpy()[0] == 1


def test_replays_are_watched(device: Any) -> None:
    needs_spirv(device)
    x, y = vk.tensor(START), vk.zeros(16)
    with Watcher(device) as watcher:
        with vk.capture() as graph:
            shifted[4](x, y, 1 << 20)
        assert watcher.launches == 0
        graph.replay(by=1 << 18)
        assert watcher.launches == 1 and "outside" in watcher.lines[0]
    assert graph.arguments


@pytest.mark.parametrize("inner", ["profile", "watcher"])
def test_watched_launches_are_profiled(device: Any, inner: str) -> None:
    needs_spirv(device)
    x, y, watcher = vk.tensor(START), vk.zeros(16), Watcher(device)
    with contextlib.ExitStack() as stack:
        measured: Any = None
        for kind in ("watcher", "profile") if inner == "profile" else ("profile", "watcher"):
            if kind == "profile":
                measured = stack.enter_context(vk.profile())
            else:
                stack.enter_context(watcher)
        shifted[4](x, y, 0)
        shifted[4](x, y, 1 << 20)
    assert launches(measured) == {"shifted": 2} and watcher.launches == 2 and "outside" in watcher.lines[0]


def test_watchers_don_t_nest(device: Any) -> None:
    needs_spirv(device)
    with Watcher(device) as watcher, pytest.raises(DeviceError, match="watched already"), Watcher(device):
        pass
    with watcher:
        grown(vk.zeros(4))
    assert watcher.launches == 1


# -- the memory trace


@pytest.mark.parametrize("kind", ["capture", "profile", "operations", "sanitized", "watched"])
def test_memory_is_traced_beside_observers(device: Any, kind: str) -> None:
    if kind == "watched":
        needs_spirv(device)
    block: dict[str, Callable[[], Any]] = {
        "capture": vk.capture, "profile": vk.profile, "operations": contextlib.nullcontext,
        "sanitized": vk.testing.sanitized, "watched": lambda: Watcher(device),
    }  # fmt: skip
    x = vk.tensor(np.ones(61, np.float32))
    with traced(), block[kind]():
        for _ in range(CALLS):
            y = x.reshape(61, 1) + 1.0
    with block[kind](), traced():
        z = vk.zeros(67)
    assert made_here(y) and made_here(z) and not made_here(x)
