"""Ctrl-C inside blocks that switch modes: no mode may stay on, and no lock taken.

    python -m tests.faults.interrupted_modes --device cpu                   2,000 signals of a timer
    python -m tests.faults.interrupted_modes --device llvmpipe --by thread  2,000 signals that a thread sends
    python -m tests.faults.interrupted_modes --count 0 --step 1             every moment of every piece of work

Repeats short pieces of work until a signal interrupts them at a random moment, and compares the modes with those before.
With `--step`, also raises KeyboardInterrupt at every `step`-th moment at which CPython may run signal handlers (see
`tests.faults.interruptions`). Prints which modes were left on and how often; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import contextvars
import gc
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import vkjit as vk
from tests.faults.interruptions import Interrupter, add_one
from vkjit.nn.flow import flow
from vkjit.runtime import host_spans, sanitizer_reports
from vkjit.runtime.capture import open_captures
from vkjit.tensor.autograd import tape
from vkjit.tensor.autograd.mode import accumulating, modes, recording

_MAX_DELAY = 1e-3
"""Seconds from the beginning of the work to the signal."""
_LOCKS = type(threading.Lock()), type(threading.RLock())


class Works:
    """Pieces of work on the default device, as methods without parameters."""

    def __init__(self) -> None:
        self.x = vk.ones(16, requires_grad=True)
        self.y = vk.zeros(16)
        self.model = vk.nn.Linear(4, 4)
        self.inputs = vk.ones(2, 4)
        self.optimizer = vk.optim.SGD(self.model.parameters(), lr=1e-3)
        self.average = vk.optim.EMA(self.model.parameters())
        self.stream, self.block, self.off = vk.Stream(), vk.use_device(vk.default_device()), vk.no_grad()

    def no_grad(self) -> None:
        for _ in range(20):
            with vk.no_grad(), self.off:
                with vk.enable_grad():
                    pass

    def decorated(self) -> None:
        @vk.no_grad()
        def generate() -> Iterator[int]:
            yield from range(3)

        for _ in generate():
            vk.no_grad()(len)("ab")

    def other_modes(self) -> None:
        for _ in range(5):
            with vk.autocast(vk.bf16), self.block:
                with vk.use_device("meta"), vk.autograd.detect_anomaly(forward=True):
                    pass
                with sanitizer_reports.sanitized(), vk.autograd.detect_anomaly():
                    pass

    def streams(self) -> None:
        for _ in range(5):
            with self.stream, vk.Stream():
                with self.stream:
                    pass

    def operations(self) -> None:
        (self.x * 2.0 + self.x).sum()
        self.y.add_(1.0)

    def gradients(self) -> None:
        vk.autograd.checkpoint(lambda x: (x * 2.0).exp(), self.x).sum().backward()
        vk.autograd.grad((self.x * self.x).sum(), [self.x], create_graph=True)

    def training(self) -> None:
        self.optimizer.zero_grad()
        self.model(self.inputs).sum().backward()
        self.optimizer.step()
        self.average.update()

    def evaluation(self) -> None:
        with self.average.averaged():
            flow(self.model, self.inputs)

    def captures(self) -> None:
        with vk.capture(y=self.y) as graph:
            add_one(self.y)
        graph.replay()

    def profiles(self) -> None:
        with vk.profile():
            add_one(self.y)

    def compilations(self) -> None:
        from vkjit.compiler import driver

        for _ in range(5):
            with driver._gc_paused():
                pass


def state_of(device: Any) -> dict[str, Any]:
    """Return the modes of this context and of the process by name."""
    now = modes.get()
    return {
        "recording": recording.get(), "autocast": now.autocast, "anomaly": now.anomaly, "interceptor": now.interceptor,
        "recorder": now.recorder, "accumulating": accumulating.get(), "traced nodes": tape.NodeClass.__name__,
        "default device": vk.device(), "stream": device.stream, "captures": len(open_captures),
        "listeners": len(host_spans.listeners), "observers": len(device.observers),
        "launch": "launch" in vars(device), "sanitizer": sanitizer_reports.current_checks(),
        "sanitizer's blocks": len(sanitizer_reports.OPEN_BLOCKS), "garbage collection": gc.isenabled(),
        "size of stacks": threading.stack_size(),
    }  # fmt: skip


def locks() -> dict[str, Any]:
    """Return the locks of vkjit's modules and objects by name."""
    found: dict[str, Any] = {}
    owners = [value for name, value in [*sys.modules.items()] if name.startswith("vkjit")]
    owners += [value for value in gc.get_objects() if str(type(value).__module__).startswith("vkjit")]
    for owner in owners:
        for name, value in vars(owner).items() if hasattr(owner, "__dict__") else ():
            if type(value) in _LOCKS:
                found[f"lock {getattr(owner, '__name__', type(owner).__name__)}.{name}"] = value
    return found


def held(named: dict[str, Any]) -> set[str]:
    """Return the names of the locks that are taken; of reentrant ones, by this thread."""
    return {name for name, lock in named.items() if (lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked())}


class Check:
    """Compares the modes and locks with those at its creation."""

    def __init__(self, device: Any) -> None:
        self.device, self.before = device, state_of(device)
        self.locks = locks()
        self.held = held(self.locks)

    def left(self) -> list[str]:
        """Return the names of the modes that differ, and of the locks that are taken."""
        now = state_of(self.device)
        return [name for name, value in self.before.items() if now[name] != value] + sorted(
            held(self.locks) - self.held
        )


def interrupted(work: Callable[[], None], check: Check, send: Callable[[float], None]) -> list[str]:
    """Repeat work until a signal interrupts it, in a context of its own; return what was left."""
    delay = random.random() * _MAX_DELAY

    def run() -> list[str]:
        hidden = sys.unraisablehook
        sys.unraisablehook = lambda _: send(delay)  # a finalizer got the signal: send another one
        try:
            send(delay)
            while True:
                work()
        except KeyboardInterrupt:
            return check.left()
        finally:
            sys.unraisablehook = hidden

    return contextvars.copy_context().run(run)


def interrupted_at(work: Callable[[], None], moment: int, check: Check) -> list[str]:
    """Interrupt work at a moment; return what was left."""
    Interrupter(moment).watch(work)
    return check.left()


def by_timer(delay: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))


def by_thread(delay: float) -> None:
    def send() -> None:
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=2000, help="signals")
    parser.add_argument("--by", choices=["timer", "thread"], default="timer")
    parser.add_argument("--step", type=int, default=0, help="also interrupt at every STEP-th moment")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("work", nargs="*")
    options = parser.parse_args(arguments)
    random.seed(options.seed)
    device = vk.device(options.device)
    vk.set_default_device(device)
    works = Works()
    names = options.work or [name for name in vars(Works) if not name.startswith("_")]
    for _ in range(4):  # until everything is compiled, and replayed from caches
        for name in names:
            getattr(works, name)()
    for number in signal.SIGINT, signal.SIGALRM:
        signal.signal(number, signal.default_int_handler)  # background jobs ignore SIGINT
    problems: Counter[str] = Counter()
    check = Check(device)
    send = by_timer if options.by == "timer" else by_thread
    for n in range(options.count):
        name = names[n % len(names)]
        check = Check(device) if n % 100 == 0 else check
        left = interrupted(getattr(works, name), check, send)
        problems.update(f"{name}: {mode}" for mode in left)
        check = Check(device) if left else check
    for name in names if options.step else ():
        work = getattr(works, name)
        counter = Interrupter(-1)
        counter.watch(work)
        check = Check(device)
        for at in range(0, counter.moments, options.step):
            left = contextvars.copy_context().run(interrupted_at, work, at, check)
            problems.update(f"{name}, at chosen moments: {mode}" for mode in left)
            check = Check(device) if left else check
    sys.stdout.write("".join(f"{count:5} times left on: {what}\n" for what, count in sorted(problems.items())))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
