"""Stress test of the runtime.

    python tests/faults/stress.py [--exits 200 --jobs 8] [--threads 8 --rounds 10000] [--device NAME]

Exits: processes drop their objects in every order and end in every way, also by exceptions and signals; each must end
with the expected status and without output. Threads: launches, allocations, reads and streams from many threads at
once, each of which checks its own results. Prints a summary; exits with 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np

import vkjit as vk
from tests.threads import run_in_threads
from vkjit.runtime.device import Device

ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import gc, os, sys, threading
import numpy as np, vkjit as vk
device = vk.device({device!r})
vk.set_default_device(device)
x = vk.tensor(np.arange(1000.0, dtype=np.float32))
y = x * 2 + 1
stream = vk.Stream(device)
with stream:
    z = y + x
with vk.capture() as graph:
    w = z * x
event = vk.Event(timing=True)
event.record(stream)
graph.replay()
"""

DROPS = ("del x, y", "del z, w", "graph.close()", "del stream, event", "device.close()", "gc.collect()")

ENDS = {
    "": 0,
    "sys.exit(3)": 3,
    "os._exit(4)": 4,
    "raise SystemExit(5)": 5,
    "threading.Thread(target=lambda: graph.replay() if not device.closed else None).start()": 0,
    "import atexit; atexit.register(vk.synchronize) if not device.closed else None": 0,
    "import atexit; atexit.register(lambda: device.closed or y.numpy())": 0,
    "import vkjit.dtypes; vkjit.dtypes.kept = None if device.closed else vk.ones(3000) * 2": 0,
}


def programs(device: str) -> Iterator[tuple[str, int]]:
    """Yield, endlessly, programs and their expected exit status: all orders of dropping objects, every way to end."""
    orders = [order for count in (0, 2, 3, 6) for order in itertools.permutations(DROPS, count)]
    Random(1).shuffle(orders)
    for number, order in enumerate(itertools.cycle(orders)):
        end, status = list(ENDS.items())[number % len(ENDS)]
        kept = [drop for i, drop in enumerate(order) if not (drop == "graph.close()" and "device.close()" in order[:i])]
        closes = "graph.close()" in kept or "del stream, event" in kept
        if "graph.replay" in end and closes:
            end, status = "", 0
        if "del x, y" in kept and "y.numpy" in end:
            end, status = "", 0
        yield HEAD.format(device=device) + "\n".join([*kept, end]), status


def environment() -> dict[str, str]:
    """Return this process's environment with the checkout first in PYTHONPATH."""
    behind = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), behind)))}


def run_program(code: str, status: int, seconds: list[float] | None = None) -> str | None:
    """Run a program; return what is wrong with its end, or None. Its duration is appended to `seconds`."""
    begun = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment(), check=False
        )
    except subprocess.TimeoutExpired:
        return f"hangs:\n{code}"
    finally:
        if seconds is not None:
            seconds.append(time.perf_counter() - begun)
    if (done.returncode, done.stdout, done.stderr) == (status, "", ""):
        return None
    return f"ended with {done.returncode}, expected {status}:\n{code}\n{done.stdout}{done.stderr}"


def exits(device: str, count: int, jobs: int) -> list[str]:
    """Return the failures of `count` processes, run `jobs` at a time."""
    seconds: list[float] = []
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda p: run_program(p[0], p[1], seconds), itertools.islice(programs(device), count)))
    if seconds:
        print(
            f"{device}: a process took {statistics.median(seconds):.1f} s, the longest {max(seconds):.1f} s", flush=True
        )
    return [complaint for complaint in found if complaint is not None]


@vk.kernel(over="y")
def mix(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"], a: vk.i64):
    i = vk.global_id(0)
    y[i] = (x[i] * 31 + y[i] * 17 + a) % 1000003


def one_thread(device: Device, seed: int, rounds: int, shared: vk.Tensor) -> str | None:
    """Run launches and allocations in one thread and check them against NumPy; `shared` is only read."""
    random = Random(seed)
    with vk.use_device(device), vk.Stream(device):
        values = np.arange(64) + seed
        y = vk.tensor(values)
        source = np.arange(64)
        for step in range(rounds):
            a = random.randrange(100)
            choice = random.random()
            if choice < 0.6:
                mix(shared, y, a)
                values = (source * 31 + values * 17 + a) % 1000003
            elif choice < 0.8:
                copy = y.clone()
                mix(copy, y, a)
                values = (values * 31 + values * 17 + a) % 1000003
            elif choice < 0.98:
                y = y + a
                values = values + a
            elif not np.array_equal(y.numpy(), values):
                return f"thread {seed}: wrong at step {step}"
        return None if np.array_equal(y.numpy(), values) else f"thread {seed}: wrong at the end"


def threads(name: str, count: int, rounds: int) -> list[str]:
    """Return the failures of `count` threads with `rounds` launches or allocations each."""
    device = vk.device(name)
    with vk.use_device(device):
        shared = vk.tensor(np.arange(64))
        mix(shared, vk.tensor(np.arange(64)), 1)
    found: list[str | None] = [None] * count

    def work(number: int) -> None:
        try:
            found[number] = one_thread(device, number, rounds, shared)
        except Exception as error:  # noqa: BLE001  # any error is reported
            found[number] = f"thread {number}: {type(error).__name__}: {error}"

    run_in_threads(work, count)
    return [complaint for complaint in found if complaint is not None]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default=None, help="number, or part of the name (default: every device)")
    parser.add_argument("--exits", type=int, default=200)
    half = max(2, (os.cpu_count() or 2) // 2)
    parser.add_argument("--jobs", type=int, default=half, help="processes at a time (default: half of the processors)")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10_000)
    options = parser.parse_args()
    names = [options.device] if options.device else [info.name for info in vk.devices() if not info.missing]
    wrong: list[str] = []
    for name in names:
        begun = time.perf_counter()
        wrong += threads(name, options.threads, options.rounds)
        took = time.perf_counter() - begun
        print(
            f"{name}: {options.threads} threads x {options.rounds} rounds in {took:.0f} s, {len(wrong)} complaints so far",
            flush=True,
        )
        begun = time.perf_counter()
        wrong += exits(name, options.exits, options.jobs)
        took = time.perf_counter() - begun
        print(f"{name}: {options.exits} exits in {took:.0f} s, {len(wrong)} complaints so far", flush=True)
    for complaint in wrong[:5]:
        print(complaint)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
