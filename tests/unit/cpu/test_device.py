"""Tests of the CPU device: memory, launches on one and several threads, reports, prints, cached code."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.faults.interruptions import Interrupter
from vkjit import errors
from vkjit.backends.cpu import available
from vkjit.compiler import cache, driver as compiler

pytest.importorskip("llvmlite", reason="the CPU device needs llvmlite")

from vkjit.backends.cpu.runtime import llvm, workers  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime.device import CpuDevice, cpu_caps  # noqa: E402
from vkjit.backends.cpu.runtime.workers import Pace, Pool, thread_count  # noqa: E402


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] * 2


@vk.kernel(local=64)
def group_sums(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "G"]):
    wg = vk.workgroup()
    y[vk.group_id(0)] = wg.sum(x.get(vk.global_id(0), pad=0))


@vk.kernel(over="y")
def pick(x: vk.In[vk.i32, "N"], at: vk.In[vk.i32, "M"], y: vk.Out[vk.i32, "M"]):
    i = vk.global_id(0)
    y[i] = x[at[i]]


@vk.kernel(over="x")
def tell(x: vk.In[vk.i32, "N"]):
    i = vk.global_id(0)
    if x[i] > 2:
        print("at", i, x[i])


@pytest.fixture
def processor() -> Iterator[CpuDevice]:
    opened = CpuDevice(0, threads=2)
    with vk.use_device(opened):
        yield opened
    opened.close()


def test_it_is_listed() -> None:
    assert available()
    (info,) = [d for d in vk.devices() if d.kind == "llvm-cpu"]
    assert info.name == "cpu"
    assert isinstance(vk.device("cpu"), CpuDevice)


def test_addresses_and_views_are_memory_itself(processor: CpuDevice) -> None:
    buffer = processor.allocate(256)
    view = processor.host_view(buffer)
    assert view is not None
    assert buffer.address == view.ctypes.data and buffer.address % 64 == 0
    processor.write(buffer, 4, np.arange(8, dtype=np.uint8))
    assert view[4:12].tolist() == list(range(8))
    processor.fill(buffer, 0, 8, 0x01020304)
    out = np.empty(8, np.uint8)
    processor.read(buffer, 0, out)
    assert out.tolist() == [4, 3, 2, 1] * 2
    with pytest.raises(errors.ArgumentError, match="lie outside"):
        processor.read(buffer, 250, out)
    buffer.close()
    with pytest.raises(errors.DeviceError, match="was closed"):
        processor.write(buffer, 0, out)


def test_a_closed_device_says_so() -> None:
    processor = CpuDevice(0, threads=1)
    processor.close()
    processor.close()
    with pytest.raises(errors.DeviceError, match="was closed"):
        processor.allocate(4)


def test_results_do_not_depend_on_threads() -> None:
    x = np.random.default_rng(5).standard_normal(64 * 5000).astype(np.float32)
    results = []
    for threads in (1, 2, 5):
        opened = CpuDevice(0, threads=threads)
        with vk.use_device(opened):
            for _ in range(2):  # the first launch measures the kernel's pace
                results.append(group_sums[5000](x, np.zeros(5000, np.float32).copy()))
                y = np.zeros(5000, np.float32)
                group_sums[5000](x, y)
                results[-1] = y
        opened.close()
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_launches_from_several_threads(processor: CpuDevice) -> None:
    x = np.arange(300_000, dtype=np.float32)
    found: list[Any] = []

    def work() -> None:
        with vk.use_device(processor):
            found.append(double(x))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for y in found:
        np.testing.assert_array_equal(y, x * 2)


class Grid:
    """Fake kernel function that counts the runs of each workgroup."""

    def __init__(self, groups: int) -> None:
        self.counts = np.zeros(groups, np.int32)
        self.lock = threading.Lock()

    def __call__(self, block: Any, begin: int, end: int, x: int, y: int, z: int, watch: Any) -> None:
        with self.lock:
            self.counts[begin:end] += 1


@pytest.mark.parametrize("per_group", [0.0, 1.0, 1e3, 1e6, 1e8])
@pytest.mark.parametrize("groups", [1, 2, 3, 17, 1000])
def test_each_workgroup_runs_once(per_group: float, groups: int) -> None:
    pool = Pool(3)
    grid = Grid(groups)
    pool.run(grid, b"\0" * 8, (groups, 1, 1), Pace(per_group))
    assert (grid.counts == 1).all()
    pool.close()


def test_an_error_between_chunks_stops_the_launch() -> None:
    pool = Pool(2)
    ran: list[int] = []
    main = threading.get_ident()

    def function(block: Any, begin: int, end: int, *others: Any) -> None:
        ran.append(begin)
        if threading.get_ident() == main:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(function, b"\0" * 8, (1000, 1, 1), Pace(1e7))
    assert len(ran) < 1000
    grid = Grid(100)
    pool.run(grid, b"\0" * 8, (100, 1, 1), Pace(1e6))  # the pool still works
    assert (grid.counts == 1).all()
    pool.close()


class InterrupterHere(Interrupter):
    """Interrupts this module and that of the pool: `threading` itself raises RuntimeError if it is interrupted."""

    def trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        return (
            super().trace(frame, event, argument) if frame.f_code.co_filename in (__file__, workers.__file__) else None
        )


class SlowGrid(Grid):
    """Fake kernel function whose helpers are still at work when the launching thread is done."""

    def __call__(self, *arguments: Any) -> None:
        super().__call__(*arguments)
        if threading.current_thread().name == "vkjit-cpu":
            time.sleep(5e-4)
            super().__call__(*arguments)


@pytest.mark.parametrize("method", ["run", "run_apart"])
def test_no_helper_is_at_work_after_an_interruption_at_any_moment(method: str) -> None:
    pool = Pool(3)

    def run(grid: Grid) -> None:
        if method == "run":
            pool.run(grid, b"\0" * 8, (12, 1, 1), Pace(1e6))
        else:
            pool.run_apart(grid, b"\0" * 8, (12, 1, 1))

    def interrupt_each() -> None:
        run(Grid(12))
        for at in itertools.count():
            grid, interrupter = SlowGrid(12), InterrupterHere(at)
            interrupter.watch(functools.partial(run, grid))
            interrupted.append((grid.counts.copy(), grid))
            if interrupter.moments <= at:
                break
        time.sleep(0.01)
        run(whole)
        pool.close()

    interrupted: list[tuple[Any, Grid]] = []
    whole = Grid(12)
    thread = threading.Thread(target=interrupt_each, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and len(interrupted) > 20
    assert all((counts == grid.counts).all() for counts, grid in interrupted)
    assert (whole.counts == 1).all()


@pytest.mark.parametrize("text", ["0", "two", "-1", "1.5", "9" * 5000])
def test_number_of_threads_has_to_be_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_NUM_THREADS", text)
    with pytest.raises(errors.ArgumentError, match="VKJIT_NUM_THREADS"):
        thread_count()
    monkeypatch.setenv("VKJIT_NUM_THREADS", "3")
    assert thread_count() == 3


def test_an_index_out_of_bounds_is_reported(processor: CpuDevice) -> None:
    at = np.zeros(100, np.int32)
    at[37] = 12
    with pytest.raises(errors.BoundsError, match=r"12.*\(10,\)") as caught:
        pick(np.arange(10, dtype=np.int32), at)
    assert caught.value.kernel == "pick" and caught.value.invocation == (37, 0, 0)
    assert pick(np.arange(10, dtype=np.int32), at % 10)[37] == 2  # later launches work


def test_prints_come_in_the_order_of_invocations(processor: CpuDevice, capsys: pytest.CaptureFixture[str]) -> None:
    tell(np.arange(100, dtype=np.int32) % 4)
    vk.synchronize(processor)
    assert capsys.readouterr().out == "".join(f"at {i} 3\n" for i in range(3, 100, 4))


def test_prints_without_room_are_announced(processor: CpuDevice, capsys: pytest.CaptureFixture[str]) -> None:
    tell(np.full(100_000, 5, np.int32))
    vk.synchronize(processor)
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"[kernel tell: {len(lines) - 1} prints shown, {100_001 - len(lines)} had no room]"
    assert 1000 < len(lines) < 100_000


def test_code_comes_back_from_the_disk(processor: CpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_CACHE_DIR", str(tmp_path))
    x = np.arange(10, dtype=np.float32)
    expected = double(x)
    before = compiler.TIMES.cached
    double._plans.clear()
    np.testing.assert_array_equal(double(x), expected)
    if compiler.TIMES.cached == before:  # an earlier test may have compiled it with another cache folder
        double._plans.clear()
        np.testing.assert_array_equal(double(x), expected)
    assert compiler.TIMES.cached == before + 1
    assert cache.statistics()["entries"] == 1


def test_the_key_names_the_processor() -> None:
    host = llvm.host()
    driver = cpu_caps().driver
    assert host.name in driver and "+" in host.flags and host.flags in driver


def test_features_can_be_taken_away(tmp_path: Path) -> None:
    """Results without AVX-512 are the same, with shorter vectors."""
    program = (
        "import numpy as np, vkjit as vk\n"
        "from vkjit.backends.cpu.runtime import llvm as machine\n"
        f"exec(open({str(tmp_path / 'k.py')!r}).read())\n"
        "print(machine.host().lanes)\n"
    )
    (tmp_path / "k.py").write_text("assert vk.device('cpu').caps.subgroup_size == machine.host().lanes\n")
    off = ",".join(f"-{name}" for name in sorted(llvm.host().features) if name.startswith("avx512"))
    environment = {**os.environ, "VKJIT_CPU_FEATURES": off or "-avx512f"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("4", "8")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_has_threads_of_its_own() -> None:
    program = (
        "import os, numpy as np\n"
        "from tests.unit.cpu.test_device import Grid\n"
        "from vkjit.backends.cpu.runtime.workers import Pace, Pool\n"
        "pool = Pool(2)\n"
        "def check():\n"
        "    grid = Grid(50)\n"
        "    pool.run(grid, b'12345678', (50, 1, 1), Pace(1e6))\n"
        "    assert (grid.counts == 1).all()\n"
        "check()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    check()\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "7"


@pytest.mark.skipif(os.name != "posix", reason="sends itself a signal")
def test_ctrl_c_ends_a_long_launch(tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text(
        "import os, signal, threading, time, numpy as np, vkjit as vk\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # background jobs ignore it
        "@vk.kernel(over='y')\n"
        "def spin(y: vk.InOut[vk.f32, 'N']):\n"
        "    i = vk.global_id(0)\n"
        "    total = vk.f32(0)\n"
        "    for k in range(20000):\n"
        "        total = total * 0.5 + vk.f32(k)\n"
        "    y[i] = total\n"
        "vk.set_default_device('cpu')\n"
        "spin(np.zeros(64, np.float32))\n"
        "threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "start = time.perf_counter()\n"
        "try:\n"
        "    spin(np.zeros(10_000_000, np.float32))\n"
        "    print('ended')\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped' if time.perf_counter() - start < 5 else 'late')\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "stopped", done.stderr


@vk.kernel(over="y")
def shift(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + 1


def test_numpy_arrays_are_used_where_they_lie(processor: CpuDevice) -> None:
    """Arrays with any strides are used without a copy; arrays not aligned to their elements are copied."""
    memory = np.zeros(40, np.float32)
    target = memory[::-2]
    shift(np.arange(20, dtype=np.float32), target)
    np.testing.assert_array_equal(memory[1::2][::-1], np.arange(20) + 1)
    assert not memory[::2].any()
    odd = np.frombuffer(bytearray(81), np.uint8)[1:].view(np.float32)
    shift(np.arange(20, dtype=np.float32), odd)
    np.testing.assert_array_equal(odd, np.arange(20) + 1)


def test_an_allocated_result_outlives_its_buffer(processor: CpuDevice) -> None:
    results = [double(np.full(1000, value, np.float32)) for value in range(5)]
    for value, result in enumerate(results):
        assert (result == 2 * value).all() and result.flags.writeable


def test_an_error_surfaces_after_work_in_place(processor: CpuDevice) -> None:
    y = np.zeros(3, np.int32)
    with pytest.raises(errors.BoundsError):
        pick(np.arange(4, dtype=np.int32), np.array([0, 9, 1], np.int32), y)
    pick(np.arange(4, dtype=np.int32), np.array([0, 3, 1], np.int32), y)
    assert y.tolist() == [0, 3, 1]


@vk.kernel(local=1024)
def hoards(y: vk.Out[vk.f32, "N"]):
    table = vk.local(vk.f32, 4000)
    i = vk.global_id(0)
    for k in range(4000):
        table[k] = vk.f32(k)
    y[i] = table[0]
    vk.barrier()
    y[i] = table[i] + y[0]


def test_a_workgroup_has_to_fit_on_a_stack(processor: CpuDevice) -> None:
    with pytest.raises(errors.FeatureError, match="use a smaller workgroup"):
        hoards[1](np.zeros(1024, np.float32))


@vk.kernel(over="y", fast_math=True)
def quick(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.exp(x[i]) + vk.sin(x[i]) + vk.log(x[i] + 1) + vk.max(x[i], 0.5)


def test_fast_math_uses_formulas_here(processor: CpuDevice) -> None:
    x = np.linspace(0, 4, 100).astype(np.float32)
    expected = np.exp(x) + np.sin(x) + np.log(x + 1) + np.maximum(x, 0.5)
    np.testing.assert_allclose(quick(x), expected, rtol=1e-5)


def test_memory_statistics(processor: CpuDevice) -> None:
    before = processor.memory_stats()
    buffers = [processor.allocate(1 << 20) for _ in range(4)]
    during = processor.memory_stats()
    assert during["count"] == before["count"] + 4
    assert during["allocated"] == before["allocated"] + (4 << 20) and during["peak"] >= during["allocated"]
    addresses = {buffer.address for buffer in buffers}
    buffers.clear()
    after = processor.memory_stats()
    assert after["allocated"] == before["allocated"] and after["count"] == before["count"]
    assert after["reserved"] >= before["reserved"] + (4 << 20)
    assert processor.allocate(1 << 20).address in addresses  # freed memory is reused
    processor.empty_cache()
    assert processor.memory_stats()["reserved"] < after["reserved"]


class Interrupted(deque[int]):
    """A signal handler raises right after the first size is noted."""

    def append(self, nbytes: int, /) -> None:
        super().append(nbytes)
        if len(self) == 1:
            raise KeyboardInterrupt


def test_an_interrupted_allocation_does_not_count(processor: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    before = processor.memory_stats()
    monkeypatch.setattr(processor.usage, "changes", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        processor.allocate(192)
    after = processor.memory_stats()
    assert (after["count"], after["allocated"]) == (before["count"], before["allocated"])


def test_memory_stays_while_an_array_looks_at_it(processor: CpuDevice) -> None:
    buffer = processor.allocate(1 << 20)
    view = processor.host_view(buffer)
    assert view is not None
    view[:] = 7
    buffer.close()
    other = processor.host_view(processor.allocate(1 << 20))
    assert other is not None
    other[:] = 1
    assert (view == 7).all()


@pytest.mark.skipif(os.name != "posix", reason="the crew needs POSIX threads")
@pytest.mark.parametrize("threads", [2, 4])
def test_a_thread_pool_runs_each_workgroup_once(threads: int) -> None:
    """Runs of short and long launches, with helper threads awake or asleep."""
    opened = CpuDevice(0, threads=threads)
    with vk.use_device(opened):
        for size in (1, 700, 5_000, 300_000, 2_000_000):
            y = vk.from_numpy(np.zeros(size, np.float32))
            x = vk.from_numpy(np.zeros(size, np.float32))
            for _ in range(20):
                shift(y, y)
            np.testing.assert_array_equal(y.numpy(), np.full(size, 20, np.float32))
            double(x, x)
    opened.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_of_a_fork_shares_its_own_launches(tmp_path: Path) -> None:
    script = tmp_path / "forked.py"
    script.write_text(
        "import os, numpy as np, vkjit as vk\n"
        "@vk.kernel(over='y')\n"
        "def triple(x: vk.In[vk.f32, 'N'], y: vk.Out[vk.f32, 'N']):\n"
        "    i = vk.global_id(0)\n"
        "    y[i] = x[i] * 3\n"
        "vk.set_default_device('cpu')\n"
        "x = np.ones(3_000_000, np.float32)\n"
        "def check():\n"
        "    for _ in range(3):\n"
        "        assert (triple(x) == 3).all()\n"
        "check()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    check()\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "check()\n"
    )
    environment = {**os.environ, "VKJIT_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.strip() == "7", done.stderr


@vk.kernel(local=64)
def conditions(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "M"]):
    i = vk.local_id(0)
    inside = i < 40
    chosen = inside & (y[0] > 0)
    y[i + 1] = x[i]
    vk.barrier()
    if inside:
        y[i + 1] += 1
    if chosen:
        y[i + 1] += 10


@pytest.mark.parametrize("first", [0, 1])
def test_a_condition_of_parts_from_before_a_barrier(processor: CpuDevice, first: int) -> None:
    """The condition's operands are computed before the barrier, in another barrier region than the test."""
    y = np.zeros(65, np.int32)
    y[0] = first
    conditions[1](np.arange(64, dtype=np.int32), y)
    expected = np.arange(64) + np.where(np.arange(64) < 40, 1 + 10 * first, 0)
    assert y[1:].tolist() == expected.tolist()
