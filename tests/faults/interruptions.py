"""Ctrl-C at any moment: everything used afterwards must work and return correct results.

    python -m tests.faults.interruptions --device llvmpipe --step 1     every moment: a few minutes
    python -m tests.faults.interruptions --device cpu --step 97         a sample

Interrupts short pieces of work on a device and prints the failures. CPython runs signal handlers when a function
begins, after a call, and at the end of a loop iteration, so these are the moments. A trace function raises
KeyboardInterrupt at the n-th of them, for n = 0, step, 2 step...
"""

from __future__ import annotations

import argparse
import dis
import functools
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

import vkjit as vk
from vkjit.runtime import handles, host_spans, observers
from vkjit.runtime.capture import open_captures

_START = np.arange(64, dtype=np.float32)
_N = 300


@vk.kernel(over="y")
def add_one(y: vk.InOut[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = y[vk.global_id(0)] + 1.0


@vk.kernel(over="y")
def add_thousand(y: vk.InOut[vk.f32, "N"]) -> None:
    y[vk.global_id(0)] = y[vk.global_id(0)] + 1000.0


@vk.kernel(over="y")
def add_small(y: vk.InOut[vk.f32, "N"]) -> None:
    i = vk.global_id(0)
    assert y[i] < 100.0, "too much"
    y[i] = y[i] + 1.0


@functools.cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    """Return the exception table of a function: handlers by instructions; empty before Python 3.11."""
    parse = getattr(dis, "_parse_exception_table", None)
    return [] if parse is None else [(entry.start, entry.end, entry.target) for entry in parse(code)]


def _handler(code: CodeType, at: int) -> int | None:
    """Return the handler of exceptions that the instruction raises."""
    return next((target for start, end, target in _handlers(code) if start <= at < end), None)


class Interrupter:
    """Trace function that counts moments and raises KeyboardInterrupt at number `at`.

    A handler runs at the end of a call; a trace function can raise before the next instruction only. Moments at which
    that instruction has another exception handler, such as those before `with` or `try` is left, are left out.
    """

    def __init__(self, at: int) -> None:
        self.at, self.moments = at, 0
        self._checks: dict[FrameType, int] = {}
        """The frames whose last instruction, at this index, runs signal handlers when it ends."""

    def trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            self._checks[frame] = frame.f_lasti
        elif event in ("return", "exception"):  # a generator that is closed or thrown into begins with an exception
            self._checks.pop(frame, None)
        elif event == "opcode":
            code, at = frame.f_code, frame.f_lasti
            before = self._checks.pop(frame, None)
            if dis.opname[code.co_code[at]].startswith(("CALL", "JUMP_BACKWARD")):
                self._checks[frame] = at
            if before is not None and _handler(code, before) == _handler(code, at):
                self._passed()
        return self.trace

    def _passed(self) -> None:
        self.moments += 1
        if self.moments - 1 == self.at:
            raise KeyboardInterrupt

    def watch(self, run: Callable[[], None]) -> None:
        """Run a function until it ends or is interrupted."""
        try:
            sys.settrace(self.trace)
            run()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)


class Counted:
    """Repeated launches: the number that took effect must equal the number of calls that returned, or be one more."""

    def __init__(self, kernel: Any, times: int, use: Callable[[Counted], None] | None = None) -> None:
        self.kernel, self.times, self.use = kernel, times, use

    def begin(self) -> None:
        self.y, self.done = vk.zeros(_N), 0

    def once(self) -> None:
        self.kernel(self.y)
        self.done += 1

    def run(self) -> None:
        if self.use is not None:
            self.use(self)
            return
        for _ in range(self.times):
            self.once()

    def check(self) -> str:
        found = self.y.numpy()
        if (found != found[0]).any() or found[0] - self.done not in (0, 1):
            return f"{self.done} launches came back, the result is {sorted(set(found.tolist()))}"
        return ""


class Turns:
    """Alternating launches of two kernels by keyword: each launch must run its own kernel after any interruption."""

    def begin(self) -> None:
        self.y, self.ones, self.thousands = vk.zeros(_N), 0, 0

    def run(self) -> None:
        for _ in range(2):
            add_one(y=self.y)
            self.ones += 1
            add_thousand(y=self.y)
            self.thousands += 1

    def check(self) -> str:
        add_thousand(y=self.y)  # as a program would continue
        add_one(y=self.y)
        thousands, ones = divmod(int(self.y.numpy()[0]), 1000)
        more = thousands - self.thousands - 1, ones - self.ones - 1
        return "" if more in ((0, 0), (1, 0), (0, 1)) else f"more launches of the two kernels than came back: {more}"


class Made:
    """Tensors made by a function; all that exist after an interruption must be correct."""

    def __init__(self, make: Callable[[], list[tuple[vk.Tensor, Any]]]) -> None:
        self.make = make

    def begin(self) -> None:
        self.made: list[tuple[vk.Tensor, Any]] = []

    def run(self) -> None:
        self.made = self.make()

    def check(self) -> str:
        wrong = [right for tensor, right in self.made if not np.array_equal(tensor.numpy(), right)]
        return f"expected {wrong[0]}" if wrong else ""


def _capturing(work: Counted) -> None:
    with vk.capture(y=work.y) as graph:
        add_one(work.y)
    for _ in range(3):
        graph.replay()
        work.done += 1


def _profiling(work: Counted) -> None:
    with vk.profile():
        work.once()


def _in_streams(work: Counted) -> None:
    for stream in (vk.Stream(), vk.Stream()):
        with stream:
            work.once()
    work.once()
    work.y.numpy()


def _operations() -> list[tuple[vk.Tensor, Any]]:
    x = vk.tensor(_START)
    y = x * 2.0 + x
    return [(y, 3 * _START), (y - 1.0, 3 * _START - 1)]


_sizes = iter(range(100, 1_000_000))


def _new_operations() -> list[tuple[vk.Tensor, Any]]:
    n = next(_sizes)
    x = vk.full((n,), 3.0)
    return [(x * 2.0, np.full(n, 6, np.float32)) for _ in range(4)]


def _memory() -> list[tuple[vk.Tensor, Any]]:
    kept = [vk.zeros(n) for n in (10, 300, 70_000)]
    del kept[1]
    vk.memory_stats()
    vk.empty_cache()
    return [(x, np.zeros(x.shape, np.float32)) for x in (*kept, vk.zeros(300_000))]


WORK: dict[str, Any] = {
    "launches": Counted(add_one, 10),
    "kernels": Turns(),
    "reports": Counted(add_small, 3),
    "captures": Counted(add_one, 0, _capturing),
    "profiles": Counted(add_one, 0, _profiling),
    "streams": Counted(add_one, 0, _in_streams),
    "operations": Made(_operations),
    "new operations": Made(_new_operations),
    "memory": Made(_memory),
}


def taken(device: Any) -> str:
    """Return what was left locked or switched to a temporary mode, or an empty string."""
    locks: dict[str, Any] = {"handles": handles._lock, "observers": observers._lock}
    if hasattr(device, "_group"):
        locks["queues"] = device._group.lock
    found: list[str] = []

    def look() -> None:
        for name, lock in locks.items():
            if lock.acquire(timeout=5):
                lock.release()
            else:
                found.append(f"lock of {name}")

    looking = threading.Thread(target=look)
    looking.start()
    looking.join()
    if "launch" in vars(device) or device.observers or open_captures or host_spans.listeners:
        found.append("device")
    if hasattr(device, "_group") and device._group.observed:
        found.append("short way")
    return " and ".join(found)


def afterwards() -> str:
    """Check that the device still works; return the failure or an empty string."""
    y = (vk.tensor(_START) + 1.0) * 2.0
    add_one(y)
    return "" if np.array_equal(y.numpy(), (_START + 1) * 2 + 1) else "later results are wrong"


def sweep(name: str, device: Any, step: int) -> list[str]:
    """Interrupt a piece of work at every `step`-th moment and return the failures."""
    work, problems = WORK[name], []
    for _ in range(4):  # until everything is compiled and launched from the fast path
        work.begin()
        work.run()
        work.check()
    counter = Interrupter(-1)
    work.begin()
    counter.watch(work.run)
    if counter.moments < 20:
        return [f"{name}: only {counter.moments} moments were seen"]
    for at in range(0, counter.moments, step):
        home = device.stream
        work.begin()
        Interrupter(at).watch(work.run)
        device.stream = home
        held = taken(device)
        wrong = f"{held} left taken" if held else work.check() or afterwards()
        if wrong:
            problems.append(f"{name}, interrupted at {at} of {counter.moments}: {wrong}")
        if held:
            break
    return problems


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("work", nargs="*", default=list(WORK))
    options = parser.parse_args(arguments)
    device = vk.device(options.device)
    vk.set_default_device(device)
    problems = [line for name in options.work or WORK for line in sweep(name, device, options.step)]
    sys.stdout.write("".join(line + "\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
