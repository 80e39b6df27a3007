"""Tests of the CPU device's threads: concurrent callers, signals, exit, forks, systems that refuse new threads."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cffi.cparser
import numpy as np
import pytest

import vkjit as vk
from tests.threads import run_in_threads

pytest.importorskip("llvmlite", reason="the CPU device needs llvmlite")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="the crew needs POSIX threads and signals")

from vkjit.backends.cpu.runtime import cancellation, thread_pool, workers  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime.device import CpuDevice  # noqa: E402
from vkjit.backends.cpu.runtime.memory_pool import MemoryPool  # noqa: E402

SIZE = 200_000


@vk.kernel(over="y")
def increase(y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + 1


@vk.kernel(over="y")
def work(rounds: vk.i32, y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    total = y[i]
    for _ in range(rounds):
        total = total * 0.5 + 1
    y[i] = total


@vk.kernel(over="y")
def pick(x: vk.In[vk.i32, "N"], at: vk.In[vk.i32, "M"], y: vk.Out[vk.i32, "M"]):
    i = vk.global_id(0)
    y[i] = x[at[i]]


@pytest.fixture
def processor() -> Iterator[CpuDevice]:
    opened = CpuDevice(0, threads=3)
    with vk.use_device(opened):
        yield opened
    opened.close()


def helpers() -> set[threading.Thread]:
    """Return the helper threads of all devices; those of closed devices end shortly after."""
    return {thread for thread in threading.enumerate() if thread.name == "vkjit-cpu"}


def ended(threads: set[threading.Thread]) -> bool:
    """True if all threads end within five seconds."""
    deadline = time.monotonic() + 5
    for thread in threads:
        thread.join(timeout=max(0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


def run(script: Path, source: str, timeout: int = 120) -> subprocess.CompletedProcess[str]:
    script.write_text(source)
    environment = {**os.environ, "VKJIT_NUM_THREADS": "2"}
    command = [sys.executable, "-W", "ignore", str(script)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=timeout)


# -- concurrent callers


def test_two_hundred_launches_from_eight_threads(processor: CpuDevice) -> None:
    """One caller uses the helper threads, the others run alone; each launch is complete when it returns."""
    before = helpers()
    wrong: list[str] = []

    def call(number: int) -> None:
        y = np.full(SIZE + number, number, np.float32)
        with vk.use_device(processor):
            for count in range(1, 201):
                increase(y)
                if count % 40 == 0 and not (y == number + count).all():
                    wrong.append(f"thread {number} after {count} launches")

    run_in_threads(call, 8)
    assert not wrong
    assert len(helpers() - before) <= 2


def test_reports_of_several_callers_stay_apart(processor: CpuDevice) -> None:
    """Reports of a launch in one thread must not affect launches in other threads."""
    found: list[str] = []
    barrier = threading.Barrier(4)

    def call(number: int) -> None:
        at = np.zeros(20_000, np.int32)
        barrier.wait()
        with vk.use_device(processor):
            for _ in range(10):
                y = pick(np.arange(10, dtype=np.int32), at)
                if y.any():
                    found.append(f"thread {number}")

    run_in_threads(call, 4)
    assert not found


def test_helpers_end_with_the_device() -> None:
    before = helpers()
    opened = CpuDevice(0, threads=4)
    y = np.zeros(2_000_000, np.float32)
    with vk.use_device(opened):
        for _ in range(3):
            work(50, y)
        started = helpers() - before
        assert len(started) == 3
    opened.close()
    assert ended(started)
    opened.close()


def test_helpers_end_with_a_device_that_nobody_closed() -> None:
    before = helpers()
    private = workers.Pool(3)
    private._thread_pool = thread_pool.ThreadPool()
    private._thread_pool.grow(2)
    started = helpers() - before
    assert len(started) == 2
    del private
    gc.collect()
    assert ended(started)


def test_more_threads_than_processors() -> None:
    opened = CpuDevice(0, threads=(os.cpu_count() or 1) * 4 + 3)
    y = np.zeros(SIZE, np.float32)
    with vk.use_device(opened):
        for _ in range(50):
            increase(y)
    opened.close()
    assert (y == 50).all()


def test_a_system_without_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches then run on the calling thread."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    opened = CpuDevice(0, threads=4)
    y = np.zeros(2_000_000, np.float32)
    size = threading.stack_size()
    with vk.use_device(opened), monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(4):
            work(20, y)
        assert opened.pool._thread_pool is not None and opened.pool._thread_pool.helpers == 0
    assert threading.stack_size() == size
    expected = np.zeros(1, np.float32)
    with vk.use_device(opened):
        for _ in range(4):
            work(20, expected)
    opened.close()
    assert (y == expected[0]).all()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    """Covers bits of the results and sums from atomics: floats are summed within workgroups in a fixed order."""
    x = np.random.default_rng(3).standard_normal(64 * 3000).astype(np.float32)
    found = []
    for threads in (1, 2, 7):
        opened = CpuDevice(0, threads=threads)
        with vk.use_device(opened):
            y, counts = np.zeros(3000, np.float32), np.zeros(4, np.int32)
            for _ in range(3):
                counts[:] = 0
                mixed[3000](x, y, counts)
            found.append((y.copy(), counts.tolist()))
        opened.close()
    for y, counts in found[1:]:
        np.testing.assert_array_equal(y.view(np.uint32), found[0][0].view(np.uint32))
        assert counts == found[0][1]


@vk.kernel(local=64)
def mixed(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "G"], counts: vk.InOut[vk.i32, "K"]):
    wg = vk.workgroup()
    i, group = vk.global_id(0), vk.group_id(0)
    total = wg.sum(vk.exp(x[i]))
    y[group] = total
    vk.atomic.add(counts, 0, 1)
    vk.atomic.max(counts, 1, vk.i32(x[i] * 1000))
    vk.atomic.xor(counts, 2, vk.i32(x[i] * 1000))


# -- signals

STOPPED = """
import os, signal, sys, threading, time, numpy as np, vkjit as vk
signal.signal(signal.SIGINT, signal.default_int_handler)

@vk.kernel(over="y")
def forever(y: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    n = 0
    while y[i] >= 0:
        n = (n + 1) % 1000
    y[i] = n

@vk.kernel(over="y")
def counted(n: vk.i64, y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    total = vk.f32(i)
    for k in range(n):
        total = total * 0.5 + 1
    y[i] = total

@vk.kernel(over="y")
def nested(n: vk.i32, y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    total = vk.f32(i)
    for j in range(n):
        for k in range(n):
            total = total * 0.5 + 1
    y[i] = total

@vk.kernel(local=64)
def barriers(n: vk.i32, y: vk.InOut[vk.f32, "N"]):
    memory = vk.shared(vk.f32, 64)
    i, place = vk.global_id(0), vk.local_id(0)
    for k in range(n):
        memory[place] = y[i] + 1
        vk.barrier()
        y[i] = memory[(place + 1) % 64]
        vk.barrier()

vk.set_default_device("cpu")
launches = {
    "forever": lambda size: forever(np.zeros(size, np.int32)),
    "counted": lambda size: counted(1 << 60, np.zeros(size, np.float32)),
    "nested": lambda size: nested(1 << 30, np.zeros(size, np.float32)),
    "barriers": lambda size: barriers[size // 64](1 << 30, np.zeros(size, np.float32)),
}
forever(np.full(4, -1, np.int32))
counted(1, np.zeros(4, np.float32))
nested(1, np.zeros(4, np.float32))
barriers[1](1, np.zeros(64, np.float32))
for name, launch in launches.items():
    for size in (64, 128_000):  # on the calling thread alone, and on helpers too
        threading.Timer(0.15, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.perf_counter()
        try:
            launch(size)
            print(name, size, "ended")
        except KeyboardInterrupt:
            pass
        if time.perf_counter() - start > 5:
            print(name, size, "was late")
        y = np.full(2_000_000, -1, np.int32)
        forever(y)  # all is well afterwards
        assert (y == 0).all()
print("done")
"""


def test_ctrl_c_ends_kernels_inside_of_workgroups(tmp_path: Path) -> None:
    done = run(tmp_path / "stopped.py", STOPPED)
    assert done.stdout.strip() == "done", done.stderr


HANDLED = """
import signal, numpy as np, vkjit as vk
vk.set_default_device("cpu")

@vk.kernel(over="y")
def work(rounds: vk.i32, y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    total = y[i]
    for k in range(rounds):
        total = total * 0.5 + 1
    y[i] = total

inner = []
def handler(number, frame):
    y = np.zeros(300_000, np.float32)
    work(3, y)  # a launch inside of a launch
    inner.append(bool((y == 1.75).all()))
    if len(inner) < 3:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
signal.signal(signal.SIGALRM, handler)
small = np.zeros(8, np.float32)
work(300_000, small)
signal.setitimer(signal.ITIMER_REAL, 0.1)
y = np.zeros(4096, np.float32)
while len(inner) < 3:
    y[:] = 0
    work(300_000, y)
    assert (y == small[0]).all()
print(all(inner))
"""


def test_a_handler_that_returns_lets_the_launch_go_on(tmp_path: Path) -> None:
    """The handler runs during the kernel and may itself launch kernels."""
    done = run(tmp_path / "handled.py", HANDLED)
    assert done.stdout.strip() == "True", done.stderr


def test_launches_parse_no_types(processor: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """cffi parses under a lock: a handler that launches would wait for the launch that it interrupted."""
    made: list[Any] = []

    def refuse(*_: Any) -> Any:
        raise AssertionError("a type is parsed")

    monkeypatch.setattr(cffi.cparser.Parser, "parse_type", refuse)
    made.append(thread_pool._make())
    thread = threading.Thread(target=lambda: made.append(cancellation.CancellationToken()))
    thread.start()
    thread.join()
    y = np.zeros(2_000_000, np.float32)
    for _ in range(3):
        work(3, y)
    assert (y == 2 - 2**-8).all()
    assert len(made) == 2


def test_an_exception_of_a_handler_is_raised_where_the_launch_was_made(processor: CpuDevice) -> None:
    class Enough(Exception):
        pass

    def handler(_number: int, _frame: Any) -> None:
        raise Enough("of that")

    y = np.zeros(64, np.float32)
    work(1, y)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(Enough, match="of that"):
            work(2**31 - 1, y)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    y[:] = 0
    work(1, y)
    assert (y == 1).all()


# -- exit and forks

EXITS = {
    "helpers awake": "work(50, y)",
    "helpers asleep": "work(50, y)\ntime.sleep(0.1)",
    "a launch on a daemon thread": (
        "threading.Thread(target=lambda: work(2**31 - 1, y), daemon=True).start()\ntime.sleep(0.2)"
    ),
    "a short kernel that runs long on a daemon thread": (
        "z = np.zeros(8, np.float32)\nfor _ in range(3): work(1, z)\n"
        "threading.Thread(target=lambda: work(2**31 - 1, z), daemon=True).start()\ntime.sleep(0.2)"
    ),
    "a launch at exit": "work(50, y)\natexit.register(lambda: work(50, y))",
    "a closed device": "work(50, y)\nvk.device('cpu').close()",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_process_ends(how: str, tmp_path: Path) -> None:
    source = (
        "import atexit, threading, time, numpy as np, vkjit as vk\n"
        "@vk.kernel(over='y')\n"
        "def work(rounds: vk.i32, y: vk.InOut[vk.f32, 'N']):\n"
        "    i = vk.global_id(0)\n"
        "    total = y[i]\n"
        "    for k in range(rounds):\n"
        "        total = total * 0.5 + 1\n"
        "    y[i] = total\n"
        "vk.set_default_device('cpu')\n"
        "y = np.zeros(2_000_000, np.float32)\n"
        "work(50, y)\n"
        f"{EXITS[how]}\n"
        "print('last line')\n"
    )
    done = run(tmp_path / "ends.py", source, timeout=60)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "last line", "")


FORKED = """
import os, threading, numpy as np, vkjit as vk
vk.set_default_device("cpu")

@vk.kernel(over="y")
def increase(y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + 1

@vk.kernel(over="y")
def unknown(y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + 2

increase(np.zeros(100_000, np.float32))
ending = threading.Event()
def busy():
    y = np.zeros(100_000, np.float32)
    while not ending.is_set():
        increase(y)

threads = [threading.Thread(target=busy) for _ in range(2)]
for thread in threads:
    thread.start()
statuses = []
for _ in range(5):
    child = os.fork()
    if child == 0:
        y = np.zeros(3_000_000, np.float32)
        for _ in range(3):
            increase(y)
        unknown(y)  # compiled in the child
        os._exit(7 if (y == 5).all() else 1)
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ending.set()
for thread in threads:
    thread.join()
print(statuses)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forks_in_the_middle_of_launches(tmp_path: Path) -> None:
    """The child process has no helper threads, and all its locks are free."""
    done = run(tmp_path / "forked.py", FORKED)
    assert done.stdout.strip() == "[7, 7, 7, 7, 7]", done.stderr


# -- memory freed during other operations


def test_memory_may_come_back_while_memory_is_taken() -> None:
    """The garbage collector may free buffers anywhere, also inside the allocator's own functions."""
    blocks = MemoryPool(1 << 22)
    kept, _ = blocks.take(1 << 17)

    def give_back() -> None:
        nonlocal kept
        with blocks._lock:
            kept = np.zeros(1, np.uint8)

    thread = threading.Thread(target=give_back, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive()
    assert blocks.held == 1 << 17


def test_small_memory_is_reused_unless_it_is_viewed(processor: CpuDevice) -> None:
    addresses = set()
    for _ in range(5):
        addresses.add(processor.allocate(192).address)
    assert len(addresses) == 1
    buffer = processor.allocate(192)
    view = processor.host_view(buffer)
    assert view is not None
    view[:] = 7
    del buffer
    others = [processor.allocate(192) for _ in range(5)]
    for other in others:
        processor.fill(other, 0, 192, 0)
    assert (view == 7).all()


# -- NumPy arrays used in place


@vk.kernel(over="y")
def plus(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + 1


@pytest.fixture
def adopted(processor: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the addresses of NumPy arrays that the device uses in place."""
    found: list[int] = []
    adopt = processor.adopt

    def noted(address: int, nbytes: int, owner: object) -> Any:
        found.append(address)
        return adopt(address, nbytes, owner)

    monkeypatch.setattr(processor, "adopt", noted)
    return found


def test_ordinary_arrays_are_used_in_place(adopted: list[int]) -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    plus(x, y)
    assert (y == x + 1).all()
    assert {x.ctypes.data, y.ctypes.data} <= set(adopted)


@pytest.mark.parametrize("reverse", [False, True])
def test_arrays_that_overlap_are_seen_to_overlap(processor: CpuDevice, reverse: bool) -> None:
    """Overlapping arrays must not use the kernel for non-overlapping ones; results equal those of a sequential loop."""
    memory = np.arange(20, dtype=np.float32)
    x, y = (memory[::2], memory[1::2]) if not reverse else (memory[1::2], memory[::2])
    expected = x + 1
    plus(x, y)
    np.testing.assert_array_equal(y, expected)
    same = np.arange(1000, dtype=np.float32)
    plus(same, same)
    np.testing.assert_array_equal(same, np.arange(1000) + 1)


def test_read_only_arrays_are_read_and_never_written(adopted: list[int]) -> None:
    x, y = np.arange(9, dtype=np.float32), np.zeros(9, np.float32)
    x.flags.writeable = False
    plus(x, y)
    assert (y == x + 1).all() and (x == np.arange(9)).all()
    y.flags.writeable = False
    with pytest.raises(vk.ArgumentError, match="read-only"):
        plus(x, y)
    assert (y == x + 1).all()


def test_foreign_byte_order_is_refused(processor: CpuDevice) -> None:
    x = np.arange(9, dtype=np.float32)
    foreign = x.astype(x.dtype.newbyteorder())
    for arguments in ((foreign, np.zeros(9, np.float32)), (x, foreign.copy())):
        with pytest.raises(vk.ArgumentError, match="byte order"):
            plus(*arguments)


def test_what_is_not_aligned_is_copied(adopted: list[int]) -> None:
    records = np.zeros(9, dtype=[("flag", "u1"), ("value", "f4")])
    plus(np.arange(9, dtype=np.float32), records["value"])
    np.testing.assert_array_equal(records["value"], np.arange(9) + 1)
    assert not records["flag"].any()
    assert records["value"].ctypes.data not in adopted


def test_one_element_for_all_is_read_but_not_written(processor: CpuDevice) -> None:
    y = np.zeros(9, np.float32)
    plus(np.broadcast_to(np.float32(3), (9,)), y)
    assert (y == 4).all()
    one = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (9,), (0,))
    with pytest.raises(vk.ArgumentError, match="several elements in one place"):
        plus(y, one)


def test_memory_of_pytorch_is_shared(processor: CpuDevice) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
    x, y = torch.arange(9, dtype=torch.float32), torch.zeros(9)
    plus(vk.from_dlpack(x), vk.from_dlpack(y))
    assert torch.equal(y, x + 1)
