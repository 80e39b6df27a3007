"""Stress of one device by several threads for a given time: values and memory.

    python -m tests.faults.thread_stress [--device NAME] [--threads 8] [--seconds 120] [--seed 1]

Each thread draws actions: launches, eager operations, gradients, captures and replays, streams, events, copies, memory
queries, dropped references, and, now and then, closing a device of its own. It compares every value with NumPy's. At
the end the process's resident memory may be at most 5 % above that at a third of the time. Prints what is wrong; exits
with 1 if anything is.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.runtime.memory_ledger import live_buffers

MAX_GROWTH = 1.05
_SIZES = (1, 7, 64, 1000, 20_000)
_MODULUS = 1_000_003


@vk.kernel(over="y")
def mix(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"], a: vk.i64):
    i = vk.global_id(0)
    y[i] = (x[i] * 31 + y[i] * 17 + a) % 1000003


@vk.kernel(over="y")
def scale(x: vk.In[vk.i64, "N"], y: vk.Out[vk.i64, "N"], a: vk.i64):
    y[vk.global_id(0)] = x[vk.global_id(0)] * a


class Player:
    """One thread's tensors, the values that they must have, and its actions."""

    def __init__(self, device: Any, shared: vk.Tensor, seed: int) -> None:
        self.device, self.shared, self.random = device, shared, Random(seed)
        self.kept: list[tuple[vk.Tensor, Any]] = []
        self.streams: list[vk.Stream] = []

    def act(self) -> None:
        """Do one random action. Raises AssertionError for wrong values."""
        actions: list[Callable[[], None]] = [
            self.launch, self.launch, self.launch, self.eager, self.eager, self.numpy_launch, self.capture, self.gradient,
            self.stream, self.event, self.check, self.drop, self.query,
        ]  # fmt: skip
        self.random.choice(actions)()
        if len(self.kept) > 12:
            self.drop()

    def new(self) -> tuple[vk.Tensor, Any]:
        values = np.arange(self.random.choice(_SIZES), dtype=np.int64) + self.random.randrange(1000)
        return vk.tensor(values), values

    def any(self) -> tuple[vk.Tensor, Any]:
        return self.random.choice(self.kept) if self.kept else self.new()

    def launch(self) -> None:
        (x, values), a = self.any(), self.random.randrange(100)
        y = x.clone()
        mix(x, y, a)
        self.kept.append((y, (values * 48 + a) % _MODULUS))

    def eager(self) -> None:
        (x, values), a = self.any(), self.random.randrange(1, 5)
        self.kept.append(((x + a) * 3 - self.shared[0], (values + a) * 3))
        total, expected = (x % 100).sum().item(), int((values % 100).sum())
        assert total == expected, f"a sum is {total}, expected {expected}"

    def numpy_launch(self) -> None:
        values, out = np.arange(100) + self.random.randrange(50), np.zeros(100, np.int64)
        scale(values, out, 3)
        assert (out == values * 3).all(), "wrong values of NumPy arrays"

    def capture(self) -> None:
        x, values = self.new()
        with vk.capture(x=x) as graph:
            y = x * 2
            scale(y, y, 5)
        for n in range(self.random.randrange(3)):
            graph.replay(x=x + n)
            assert (y.numpy() == (values + n) * 10).all(), "wrong values of a graph"
        if self.random.random() < 0.5:
            graph.close()

    def gradient(self) -> None:
        x = vk.full((self.random.choice(_SIZES[:4]),), float(self.random.randrange(9)), requires_grad=True)
        (x * x * 2).sum().backward()
        assert x.grad is not None and (x.grad.numpy() == 4 * x.detach().numpy()).all(), "a wrong gradient"
        with vk.no_grad():
            assert not (x * 2).requires_grad, "recorded in no_grad"

    def stream(self) -> None:
        if len(self.streams) < 4:
            self.streams.append(vk.Stream(self.device, priority=self.random.randrange(-1, 2)))
        stream = self.random.choice(self.streams)
        with stream:
            self.launch()
            self.eager()
        if self.random.random() < 0.5:
            self.streams.remove(stream)

    def event(self) -> None:
        start, end = vk.Event(timing=True), vk.Event(timing=True)
        start.record()
        self.launch()
        end.record()
        assert start.elapsed_time(end) >= 0, "time runs backwards"

    def check(self) -> None:
        x, values = self.any()
        assert (x.numpy() == values).all(), "wrong values"

    def drop(self) -> None:
        if self.kept:
            x, values = self.kept.pop(self.random.randrange(len(self.kept)))
            if self.random.random() < 0.3:
                assert (x.numpy() == values).all(), "wrong values"

    def query(self) -> None:
        choice = self.random.random()
        if choice < 0.02:
            live_buffers(self.device)
        elif choice < 0.1:
            vk.empty_cache(self.device)
        else:
            assert vk.memory_stats(self.device)["allocated"] >= 0, "less than no memory"


def close_and_reopen(name: str, random: Random) -> None:
    """Open another device of this kind, use it in two threads, and close it meanwhile."""
    own = another_device(name)
    if own is None:
        return
    with vk.use_device(own):
        x = vk.tensor(np.arange(5000))

    def read() -> None:
        try:
            for _ in range(200):
                assert (x.numpy() == np.arange(5000)).all(), "wrong values of a device that is being closed"
        except vk.DeviceError:
            pass

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(random.random() * 0.01)
    own.close()
    reading.join()


def another_device(name: str) -> Any:
    """Return a new device of its own, which `vk.device` doesn't return, or None."""
    from vkjit.backends.selection import Devices
    from vkjit.backends.table import BACKENDS

    return None if name == "meta" else Devices(BACKENDS).open(name)


def resident() -> int:
    """Return the bytes of this process's resident memory, 0 if the system doesn't tell."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def stress(name: str, threads: int, seconds: float, seed: int = 1, max_growth: float = MAX_GROWTH) -> list[str]:
    """Return what went wrong."""
    device, wrong, counts = vk.device(name), list[str](), [0] * threads
    begun = time.monotonic()
    with vk.use_device(device):
        shared = vk.zeros(8, dtype=vk.i64)

    def work(number: int) -> None:
        player = Player(device, shared, seed * 1000 + number)
        try:
            with vk.use_device(device):
                while time.monotonic() - begun < seconds and not wrong:
                    player.act()
                    counts[number] += 1
                    if number == 0 and counts[0] % 300 == 0:
                        close_and_reopen(name, player.random)
        except Exception as error:  # noqa: BLE001  # any error is reported
            wrong.append(f"thread {number}, seed {seed}, action {counts[number]}: {type(error).__name__}: {error}")

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    time.sleep(seconds / 3)
    third = resident()
    for thread in running:
        thread.join()
    end = resident()
    print(f"{name}: {sum(counts)} actions, {third >> 20} MiB at a third, {end >> 20} MiB at the end", flush=True)
    if end > third * max_growth:
        wrong.append(f"resident memory grew from {third} bytes at a third of the time to {end} at the end")
    return wrong


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    wrong = stress(options.device, options.threads, options.seconds, options.seed)
    sys.stdout.write("".join(line + "\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
