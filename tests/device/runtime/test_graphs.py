"""Captured launches: replays behave like the captured block, with replaced arguments, in order with other work."""

from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.table import target_of
from vkjit.runtime.handles import live_counts


@vk.kernel(over="y")
def mix(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"], a: vk.i64):
    i = vk.global_id(0)
    y[i] = (x[i] * 31 + y[i] * 17 + a) % 1000003


@vk.kernel(over="y")
def scaled(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], a: vk.f32):
    y[vk.global_id(0)] = x[vk.global_id(0)] * a


@vk.kernel(over="y")
def grown(y: vk.InOut[vk.f32, "N"]):
    y[vk.global_id(0)] += 1.0


@vk.kernel(over="y")
def limited(y: vk.InOut[vk.f32, "N"], bad: vk.i32):
    assert bad == 0, "bad"
    y[vk.global_id(0)] += 1.0


def mixed(x: Any, y: Any, a: int) -> Any:
    return (x * 31 + y * 17 + a) % 1000003


def test_nothing_runs_before_the_replay(device: Any) -> None:
    x, y = vk.tensor(np.arange(100)), vk.tensor(np.ones(100, np.int64))
    mix(x, y, 1)  # compiles, and runs once outside the capture
    first = mixed(np.arange(100), np.ones(100, np.int64), 1)
    with vk.capture() as graph:
        mix(x, y, 2)
        mix(x, y, 3)
    assert np.array_equal(y.numpy(), first)
    expected = first
    for _ in range(5):
        graph.replay()
        expected = mixed(np.arange(100), mixed(np.arange(100), expected, 2), 3)
    assert np.array_equal(y.numpy(), expected)
    assert "2 steps" in repr(graph)


def test_random_graphs_do_what_their_launches_do(device: Any) -> None:
    random = Random(5)
    for _ in range(6):
        ours = [vk.tensor(np.arange(777) + n) for n in range(4)]
        theirs = [np.arange(777) + n for n in range(4)]
        steps = [(random.randrange(4), random.randrange(4), random.randrange(100)) for _ in range(25)]
        steps = [(x, y, a) for x, y, a in steps if x != y]
        stream = vk.Stream(device)
        with vk.capture() as graph:
            for x, y, a in steps:
                mix(ours[x], ours[y], a)
        for turn in range(4):
            if turn % 2:
                with stream:
                    graph.replay()
            else:
                graph.replay()
            mix(ours[0], ours[1], turn)
            for x, y, a in steps:
                theirs[y] = mixed(theirs[x], theirs[y], a)
            theirs[1] = mixed(theirs[0], theirs[1], turn)
        for mine, expected in zip(ours, theirs, strict=True):
            assert np.array_equal(mine.numpy(), expected)


def test_tensors_made_in_a_capture_belong_to_it(device: Any) -> None:
    x = vk.tensor(np.arange(12, dtype=np.float32))
    (x * 2 + 1).sum()  # compile
    with vk.capture() as graph:
        doubled = x * 2
        total = (doubled + 1).sum()
    gc.collect()
    others = [vk.zeros(12) for _ in range(20)]  # must not reuse the graph's memory
    graph.replay()
    assert total.item() == 2 * 66 + 12
    assert np.array_equal(doubled.numpy(), np.arange(12) * 2)
    assert all(not other.numpy().any() for other in others)
    x.copy_(vk.ones(12))
    graph.replay()
    assert total.item() == 36


def test_arguments_are_replaced_by_name(device: Any) -> None:
    x, y = vk.tensor(np.arange(50)), vk.tensor(np.zeros(50, np.int64))
    with vk.capture(x=x, y=y) as graph:
        mix(x, y, 5)
        mix(x, y, 6)
    assert graph.arguments == ("x", "y", "mix.a")
    other = vk.tensor(np.arange(50) * 3)
    graph.replay(x=other, a=7)
    expected = mixed(np.arange(50) * 3, mixed(np.arange(50) * 3, 0, 7), 7)
    assert np.array_equal(y.numpy(), expected) and np.array_equal(x.numpy(), np.arange(50))
    graph.replay(x=y, y=x, **{"mix.a": 1})  # swap the arguments
    assert np.array_equal(x.numpy(), mixed(expected, mixed(expected, np.arange(50), 1), 1))
    assert np.array_equal(y.numpy(), expected)


def test_scalars_of_several_kernels(device: Any) -> None:
    f, g = vk.tensor(np.ones(5, np.float32)), vk.zeros(5)
    x, y = vk.tensor(np.arange(5)), vk.tensor(np.zeros(5, np.int64))
    with vk.capture() as graph:
        scaled(f, g, 2.0)
        mix(x, y, 1)
    graph.replay(**{"scaled.a": 2.5})
    assert g.numpy().tolist() == [2.5] * 5 and np.array_equal(y.numpy(), mixed(np.arange(5), 0, 1))
    with pytest.raises(vk.ArgumentError, match=r"replay\(\): a could be scaled.a or mix.a"):
        graph.replay(a=3)
    with pytest.raises(vk.ArgumentError, match="wrong is none of its arguments; this graph has scaled.a, mix.a"):
        graph.replay(wrong=3)
    with pytest.raises(vk.VkjitError, match="a"):
        graph.replay(**{"mix.a": 2.5})


def test_many_replays_in_flight(device: Any) -> None:
    x, y = vk.tensor(np.arange(3000)), vk.tensor(np.zeros(3000, np.int64))
    with vk.capture() as graph:
        mix(x, y, 5)
    expected = np.zeros(3000, np.int64)
    for step in range(40):
        graph.replay(a=step)
        expected = mixed(np.arange(3000), expected, step)
    graph.close()
    assert np.array_equal(y.numpy(), expected)


def test_copies_and_fills_are_captured(device: Any) -> None:
    x, y = vk.tensor(np.arange(8)), vk.zeros(8, dtype=vk.i64)
    device.synchronize()
    source, target = x.__vkjit_array__.buffer, y.__vkjit_array__.buffer
    with vk.capture(x=x, y=y) as graph:
        device.copy(source, 0, target, 0, 64)
        device.fill(target, 56, 8, 1)
    assert not y.numpy().any()
    graph.replay()
    assert y.numpy().tolist() == [0, 1, 2, 3, 4, 5, 6, (1 << 32) + 1]
    other = vk.zeros(8, dtype=vk.i64)
    graph.replay(y=other)
    assert other.numpy().tolist() == y.numpy().tolist()


def test_scalars_that_decide_how_long_loops_run(device: Any) -> None:
    @vk.kernel(over="y")
    def counted(y: vk.InOut[vk.i64, "N"], rounds: vk.i32):
        for _ in range(rounds):
            y[vk.global_id(0)] += 1

    y = vk.zeros(3, dtype=vk.i64)
    with vk.capture() as graph:
        counted(y, 10)
    if device.caps.loop_cap is None:
        graph.replay(rounds=70_000)
        assert y.numpy().tolist() == [70_000] * 3
    else:
        with pytest.raises(vk.ArgumentError, match="rounds decides how often loops run"):
            graph.replay(rounds=70_000)


def test_reports_of_replays_surface(device: Any) -> None:
    @vk.kernel(over="y", debug=True)
    def checked(y: vk.InOut[vk.i64, "N"]):
        assert y[vk.global_id(0)] < 3, "too large"
        y[vk.global_id(0)] += 1

    y = vk.tensor(np.zeros(4, np.int64))
    with vk.capture() as graph:
        checked(y)
    for _ in range(3):
        graph.replay()
    device.synchronize()
    graph.replay()
    with pytest.raises(vk.KernelAssertionError, match="too large"):
        device.synchronize()
    device.synchronize()


def test_kernels_that_print(device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @vk.kernel(groups=1, local=1)
    def speaks(y: vk.InOut[vk.i64, "N"]):
        print("y is", y[0])

    y = vk.zeros(3, dtype=vk.i64)
    if not target_of(device.caps).spirv:
        with vk.capture() as graph:
            speaks(y)
        graph.replay()
        device.synchronize()
        assert "y is 0" in capsys.readouterr().out
    else:
        with pytest.raises(vk.FeatureError, match="kernel speaks prints"), vk.capture():
            speaks(y)


def test_other_threads_run_while_one_captures(device: Any) -> None:
    results: list[Any] = []

    def work() -> None:
        with vk.use_device(device):
            y = vk.tensor(np.zeros(10, np.int64))
            mix(vk.tensor(np.arange(10)), y, 1)
            results.append(y.numpy())

    x, y = vk.tensor(np.arange(10)), vk.tensor(np.zeros(10, np.int64))
    with vk.capture() as graph:
        mix(x, y, 1)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert np.array_equal(results[0], mixed(np.arange(10), 0, 1))
    assert not y.numpy().any()
    graph.replay()
    assert np.array_equal(y.numpy(), results[0])


def test_a_replay_in_a_capture_is_captured(device: Any) -> None:
    x, y = vk.ones(64), vk.zeros(64)
    with vk.capture(x=x) as inner:
        scaled(x, y, 4.0)
    with vk.capture(y=y) as outer:
        inner.replay()
        grown(y)
    assert y.numpy()[0] == 0
    inner.replay(x=vk.full((64,), 2.0))  # the outer graph has its own copy of the steps
    outer.replay()
    assert y.numpy()[0] == 5
    inner.close()
    outer.replay(y=(other := vk.zeros(64)))
    assert other.numpy()[0] == 5


def test_waiting_in_a_capture_is_told(device: Any) -> None:
    x, stream, start, end = vk.ones(64), vk.Stream(), vk.Event(timing=True), vk.Event(timing=True)
    start.record()
    end.record()
    for wait in (stream.synchronize, vk.current_stream().synchronize, end.synchronize, lambda: start.elapsed_time(end)):
        with vk.capture():
            grown(x)
            with pytest.raises(vk.ArgumentError, match="waits for results while it is captured"):
                wait()
    stream.synchronize()
    end.synchronize()


@vk.kernel(over="y")
def weighed(
    y: vk.InOut[vk.i64, "N"],
    a0: vk.i64, a1: vk.i64, a2: vk.i64, a3: vk.i64, a4: vk.i64, a5: vk.i64, a6: vk.i64, a7: vk.i64, a8: vk.i64, a9: vk.i64,
    b0: vk.i64, b1: vk.i64, b2: vk.i64, b3: vk.i64, b4: vk.i64, b5: vk.i64, b6: vk.i64, b7: vk.i64, b8: vk.i64, b9: vk.i64,
    c0: vk.i64, c1: vk.i64, c2: vk.i64, c3: vk.i64, c4: vk.i64, c5: vk.i64, c6: vk.i64, c7: vk.i64, c8: vk.i64, c9: vk.i64,
    d0: vk.i64, d1: vk.i64, d2: vk.i64, d3: vk.i64, d4: vk.i64, d5: vk.i64, d6: vk.i64, d7: vk.i64, d8: vk.i64, d9: vk.i64,
):  # fmt: skip
    i = vk.global_id(0)
    first = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9
    second = b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7 + b8 + b9
    third = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9
    y[i] = y[i] * 3 + first + second + third + d0 + d1 + d2 + d3 + d4 + d5 + d6 + d7 + d8 + d9


@vk.kernel(over="y")
def busy(y: vk.InOut[vk.i64, "N"], rounds: vk.i32):
    value = y[vk.global_id(0)]
    for _ in range(rounds):
        value = (value * 1103515245 + 12345) % 2147483648
    y[vk.global_id(0)] = value


def many(value: int) -> tuple[int, ...]:
    """Arguments of `weighed`: more than fit in push constants."""
    return (value,) * 40


def test_arguments_in_memory_belong_to_one_recording(device: Any) -> None:
    """Argument memory isn't shared between recordings: one per stream, and new ones for other arguments."""
    y, z, slow = vk.zeros(64, dtype=vk.i64), vk.zeros(64, dtype=vk.i64), vk.ones(4000, dtype=vk.i64)
    with vk.capture() as first:
        weighed(y, *many(1))
    with vk.capture() as second:
        weighed(z, *many(7))
    first.replay()
    device.synchronize()
    with vk.Stream():
        first.replay()
    device.synchronize()
    second.replay()
    first.replay()
    assert (y.numpy()[0], z.numpy()[0]) == (520, 280)

    with vk.capture() as waiting:
        busy(slow, 3000)
        weighed(y, *many(1))
    y[:] = 0
    expected = 0
    for step in range(1, 6):
        waiting.replay(a0=1000 * step)
        expected = 3 * expected + 39 + 1000 * step
    assert y.numpy().tolist() == [expected] * 64
    waiting.replay(a0=1)
    waiting.close()
    with vk.capture() as other:
        weighed(z, *many(2))
    other.replay()
    assert y.numpy()[0] == 3 * expected + 40 and z.numpy()[0] == 3 * 280 + 80


def test_replacements_lie_as_the_kernels_that_use_them_need(device: Any) -> None:
    x, y = vk.arange(16, dtype=vk.f32), vk.zeros(16)
    with vk.capture(x=x, y=y) as graph:
        scaled(x, y, 2.0)
    numbers = vk.arange(40, dtype=vk.f32)
    graph.replay(x=numbers[4:20])
    assert y.numpy().tolist() == [2 * n for n in range(4, 20)]
    if device.caps.kind in ("llvm-cpu", "interpreter"):  # kernels on these devices don't require alignment
        graph.replay(x=numbers[1:17])
        assert y.numpy().tolist() == [2 * n for n in range(1, 17)]
        return
    with pytest.raises(vk.ArgumentError) as caught:
        graph.replay(x=numbers[1:17])
    assert "x begins 4 bytes past a multiple of 16 bytes; the captured array began at one" in str(caught.value)
    assert "pass a copy such as x.clone()" in str(caught.value)
    graph.replay(x=numbers[1:17].clone())
    assert y.numpy().tolist() == [2 * n for n in range(1, 17)]


def test_replacements_of_arrays_that_lie_anyhow(device: Any) -> None:
    numbers, y = vk.arange(40, dtype=vk.f32), vk.zeros(16)
    x = numbers[1:17]
    with vk.capture(x=x) as graph:
        scaled(x, y, 2.0)
    for start in (2, 7, 8):
        graph.replay(x=vk.arange(40, dtype=vk.f32)[start : start + 16])
        assert y.numpy().tolist() == [2 * n for n in range(start, start + 16)]


def test_what_is_filled_lies_at_whole_words(device: Any) -> None:
    y = vk.zeros(16, dtype=vk.u8)
    array = y.__vkjit_array__
    with vk.capture(y=y) as graph:
        device.fill(array.buffer, array.offset, 16, 0x01010101)
    other = vk.zeros(24, dtype=vk.u8)
    graph.replay(y=other[4:20])
    assert other.numpy().tolist() == [0] * 4 + [1] * 16 + [0] * 4
    with pytest.raises(vk.ArgumentError, match="y begins 3 bytes past a multiple of 4 bytes"):
        graph.replay(y=other[3:19])


def test_a_named_part_of_memory_that_is_used_beyond_it_is_refused(device: Any) -> None:
    """Replaying with another array would write past its end."""
    base, other = vk.zeros(1024), vk.ones(1024)
    part = base[:16]
    uses: tuple[Callable[[], Any], ...] = (
        lambda: grown(base),
        lambda: base.fill_(1.0),
        lambda: base.copy_(other),
        lambda: other.copy_(base),
        lambda: base.mul_(2.0),
        lambda: grown(base[8:32]),
        lambda: scaled(base[4:40:4], other[:9], 2.0),
    )
    for use in (*uses, *uses):  # the second pass takes the fast paths
        with pytest.raises(vk.ArgumentError, match="part shares its buffer with other data of the graph"):
            with vk.capture(part=part):
                use()
    with vk.capture(part=part):
        part * 1.0


def test_a_named_part_of_memory_is_replaced(device: Any) -> None:
    """A view is replaced for all kinds of captured operations."""
    base = vk.tensor(np.arange(1024, dtype=np.float32))
    for _ in range(5):
        part, result = base[16:32], vk.zeros(16)
        with vk.capture(part=part) as graph:
            scaled(part, result, 2.0)
            result += part
            result.mul_(part)
            grown(part[3:9])
        for begin in (32, 500):
            other = base[begin : begin + 16]
            x = other.numpy().copy()
            graph.replay(part=other)
            np.testing.assert_array_equal(result.numpy(), 3 * x * x)
            x[3:9] += 1
            np.testing.assert_array_equal(other.numpy(), x)
        bytes_ = vk.tensor(np.arange(7, dtype=np.uint8))
        with vk.capture(bytes_=bytes_) as graph:
            bytes_.fill_(3)
        other_bytes = vk.tensor(np.arange(7, dtype=np.uint8))
        graph.replay(bytes_=other_bytes)
        assert other_bytes.numpy().tolist() == [3] * 7 and bytes_.numpy().tolist() == list(range(7))


def test_a_graph_replayed_in_a_capture_keeps_what_it_knows_of_its_arrays(device: Any) -> None:
    base, out = vk.tensor(np.arange(64, dtype=np.float32)), vk.zeros(16)
    with vk.capture() as inner:
        scaled(base[:16], out, 2.0)
    part = base[:16]
    with vk.capture(part=part) as outer:
        inner.replay()
    outer.replay(part=base[16:32])
    np.testing.assert_array_equal(out.numpy(), 2 * np.arange(16, 32))
    part = base[:8]
    with pytest.raises(vk.ArgumentError, match="part shares its buffer"), vk.capture(part=part):
        inner.replay()


def test_graphs_that_are_dropped_leave_nothing(device: Any) -> None:
    x = vk.ones(8)

    def counts() -> dict[str, int]:
        for _ in range(20):
            with vk.capture() as graph:
                y = x * 2.0
            graph.replay()
        del graph
        np.testing.assert_array_equal(y.numpy(), np.full(8, 2))
        gc.collect()
        vk.synchronize()
        x.mul_(1.0)
        vk.synchronize()
        return live_counts()

    # The device decides when the last graphs are freed, and a slow one creates more submissions once: a leak of
    # graphs adds 20 objects in each round.
    rounds = [counts() for _ in range(4)]
    for kind in rounds[-1]:
        growth = [after.get(kind, 0) - before.get(kind, 0) for before, after in itertools.pairwise(rounds)]
        assert min(growth) < 10, (kind, growth)


def test_failures_of_replays_are_told_while_others_replay(device: Any) -> None:
    """Each waiting thread gets the failures of its own replays, unless another thread got them first."""
    y, failures = vk.zeros(64), []

    with vk.capture(y=y) as graph:
        limited(y, 0)
    graph.replay()
    vk.synchronize()
    stop = threading.Event()

    def others() -> None:
        with vk.use_device(device):
            while not stop.is_set():
                graph.replay(bad=0)

    threads = [threading.Thread(target=others) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(25):
            graph.replay(bad=1)
            with pytest.raises(vk.KernelError):
                vk.synchronize()
            failures.append(1)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(failures) == 25


def test_arguments_go_by_name(device: Any) -> None:
    x, y = vk.tensor(np.arange(10)), vk.tensor(np.zeros(10, np.int64))
    for given in ((x,), (np.arange(10),), (device, x), (x, y)):
        with pytest.raises(vk.ArgumentError, match=r"capture\(\) takes arrays by name"), vk.capture(*given):
            pass
    with vk.capture(x=x) as graph:
        mix(x, y, 1)
    with pytest.raises(vk.ArgumentError, match=r"replay\(\) takes arguments by name.*this graph has x, mix.a"):
        graph.replay(y)  # type: ignore[arg-type]
    assert not y.numpy().any()
    with pytest.raises(vk.ArgumentError, match=r"capture\(\): arguments x and again have memory in common"):
        with vk.capture(x=x, again=x):
            mix(x, y, 1)


def test_misuse_is_told(device: Any) -> None:
    x, y = vk.tensor(np.arange(10)), vk.tensor(np.zeros(10, np.int64))
    with pytest.raises(vk.ArgumentError, match="reads results while it is captured"), vk.capture():
        y.numpy()
    with pytest.raises(vk.ArgumentError, match="while it is captured, when nothing runs"), vk.capture():
        mix(np.arange(10), y, 1)
    with pytest.raises(ZeroDivisionError), vk.capture() as broken:
        mix(x, y, 1 // 0)
    with pytest.raises(vk.DeviceError, match="its capture ended by an exception"):
        broken.replay()
    with vk.capture(x=x, y=y) as graph:
        mix(x, y, 1)
        with pytest.raises(vk.DeviceError, match="its capture hasn't ended"):
            graph.replay()
    assert not y.numpy().any()
    with pytest.raises(vk.ArgumentError, match=r"argument x has shape \(9,\), captured was \(10,\)"):
        graph.replay(x=vk.tensor(np.arange(9)))
    with pytest.raises(vk.ArgumentError, match="argument x has type vk.f32, captured was vk.i64"):
        graph.replay(x=vk.zeros(10))
    with pytest.raises(vk.ArgumentError, match="expected a tensor on a device, found ndarray"):
        graph.replay(x=np.arange(10))
    with pytest.raises(vk.ArgumentError, match="arguments x and y have memory in common"):
        graph.replay(x=y)
    with (
        pytest.raises(vk.ArgumentError, match="unused isn't used by what was captured"),
        vk.capture(unused=vk.zeros(3)),
    ):
        mix(x, y, 1)
    whole = vk.tensor(np.arange(32))
    half, rest = whole[:16], whole[16:]
    long = vk.zeros(16, dtype=vk.i64)
    with (
        pytest.raises(vk.ArgumentError, match="half shares its buffer with other data"),
        vk.capture(half=half),
    ):
        mix(half, long, 1), mix(rest, long, 1)
    graph.close()
    graph.close()
    with pytest.raises(vk.DeviceError, match="it was closed"):
        graph.replay()
    device.synchronize()
    assert not y.numpy().any()
