"""Profiling: kernel times on the device; times of launches, compilations, copies and waits on the host.

`profile` measures a block and yields a `Profile`, which gives rows, a table or a trace file. Each launch is timed
individually, so launches don't overlap while a profile is open; otherwise execution is unchanged. Launches replayed
from graphs aren't recorded.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..backends.selection import device as open_device
from ..errors import ArgumentError, DeviceError
from ..launch.cost_model import Cost
from ..runtime import host_spans
from ..runtime.capture import shadowing, uncover
from ..runtime.device import Device
from ..runtime.handles import new_lock
from ..runtime.streams import DeviceEvent

__all__ = ["Cost", "KernelTime", "Profile", "profile"]

MAX_PENDING = 200
"""Maximum number of launches whose timestamps haven't been read; each holds two timestamp queries."""

_WIDTHS = (9, 11, 10, 9, 9, 8, 9)

MAX_LAUNCHES_PER_COST = 64
"""Maximum number of launches per call that share a cost."""

_HOST = {"write": "upload", "read": "download", "synchronize": "wait", "copy": "copy", "fill": "fill"}


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Statistics of all launches of one kernel.

    `seconds` is the total device time, `shortest` and `longest` are those of single launches. `nbytes` and `flops` are
    summed over the launches with a stated cost, and `stated` is the device time of those, in seconds.
    """

    name: str
    launches: int
    seconds: float
    shortest: float
    longest: float
    nbytes: float
    flops: float
    stated: float

    @property
    def gigabytes_per_second(self) -> float | None:
        """Memory throughput in 10^9 bytes per second; None if no cost is stated."""
        return self.nbytes / self.stated / 1e9 if self.nbytes and self.stated else None

    @property
    def gigaflops(self) -> float | None:
        """Floating-point throughput in 10^9 operations per second; None if no cost is stated."""
        return self.flops / self.stated / 1e9 if self.flops and self.stated else None


@dataclass(frozen=True, slots=True)
class _Launch:
    name: str
    begin: int
    nanoseconds: int
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class _Span:
    kind: str
    name: str
    begin: int
    end: int
    thread: int


@dataclass(slots=True)
class _Pending:
    """A launch whose timestamps haven't been read yet."""

    name: str
    before: DeviceEvent
    after: DeviceEvent
    cost: Cost | None = None


class Profile:
    """The measurements of a `profile` block; complete when the block has ended."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._launches: list[_Launch] = []
        self._spans: list[_Span] = []
        self._pending: list[_Pending] = []
        self._shadows: list[str] = []
        self._zero: DeviceEvent | None = None
        self._begun = self._ended = 0
        self._lock = new_lock()
        self._latest = threading.local()

    @property
    def seconds(self) -> float:
        """Duration of the block on the host so far."""
        return ((self._ended or time.perf_counter_ns()) - self._begun) / 1e9 if self._begun else 0.0

    def kernels(self) -> list[KernelTime]:
        """Return device times by kernel, longest total first."""
        groups: dict[str, list[_Launch]] = defaultdict(list)
        for launch in self._launches:
            groups[launch.name].append(launch)
        rows = [_kernel_time(name, launches) for name, launches in groups.items()]
        return sorted(rows, key=lambda row: -row.seconds)

    def host(self) -> dict[str, tuple[int, float]]:
        """Return (count, total seconds) by kind of host work: "launch", "compile", "upload", "download", "wait",
        "copy", "fill".
        """
        totals: dict[str, tuple[int, float]] = {}
        for item in self._spans:
            count, seconds = totals.get(item.kind, (0, 0.0))
            totals[item.kind] = count + 1, seconds + (item.end - item.begin) / 1e9
        return dict(sorted(totals.items(), key=lambda entry: -entry[1][1]))

    def table(self) -> str:
        """Return kernel and host times as a text table."""
        lines = [f"{self.device.name}: {self.seconds * 1e3:.3f} ms"]
        lines.append(
            f"{'kernel':<32}{'launches':>9}{'total ms':>11}{'mean us':>10}{'min us':>9}{'max us':>9}{'GB/s':>8}{'GFLOP/s':>9}"
        )
        for row in self.kernels():
            mean = row.seconds / row.launches
            lines.append(
                f"{row.name[:31]:<32}{row.launches:>9}{row.seconds * 1e3:>11.3f}{mean * 1e6:>10.1f}{row.shortest * 1e6:>9.1f}"
                f"{row.longest * 1e6:>9.1f}{_number(row.gigabytes_per_second):>8}{_number(row.gigaflops):>9}"
            )
        lines.append(f"{'on the host':<32}{'calls':>9}{'total ms':>11}{'mean us':>10}")
        for kind, (count, seconds) in self.host().items():
            lines.append(f"{kind:<32}{count:>9}{seconds * 1e3:>11.3f}{seconds / count * 1e6:>10.1f}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def show(self) -> None:
        """Print the tables, with rich if it is installed."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError:
            sys.stdout.write(self.table() + "\n")
            return
        table = Table(title=f"{self.device.name}: {self.seconds * 1e3:.3f} ms")
        for heading in ("kernel", "launches", "total ms", "mean us", "min us", "max us", "GB/s", "GFLOP/s"):
            table.add_column(heading, justify="left" if heading == "kernel" else "right")
        for row in self.kernels():
            times = (row.seconds * 1e3, row.seconds / row.launches * 1e6, row.shortest * 1e6, row.longest * 1e6)
            rates = (_number(row.gigabytes_per_second), _number(row.gigaflops))
            table.add_row(row.name, str(row.launches), *(f"{time:.3f}" for time in times), *rates)
        for kind, (count, seconds) in self.host().items():
            table.add_row(f"({kind})", str(count), f"{seconds * 1e3:.3f}", f"{seconds / count * 1e6:.3f}", style="dim")
        Console().print(table)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON trace for Perfetto (ui.perfetto.dev) or chrome://tracing, with one track for the device and one
        per thread.
        """
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": self.device.name}},
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "host"}},
        ]
        for launch in self._launches:
            arguments = {} if launch.cost is None else {"bytes": launch.cost.nbytes, "flops": launch.cost.flops}
            events.append(
                _event(0, 0, launch.name, "kernel", launch.begin / 1e3, launch.nanoseconds / 1e3) | {"args": arguments}
            )
        for item in self._spans:
            begin, length = (item.begin - self._begun) / 1e3, (item.end - item.begin) / 1e3
            events.append(_event(1, item.thread, item.name or item.kind, item.kind, begin, length))
        Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")

    # -- measurement

    def _open(self) -> None:
        with shadowing.lock:
            shadowing.settle(self.device)
            if "launch" in vars(self.device):
                raise DeviceError(f"{self.device.name} is being captured or profiled already: one after the other")
            self._zero = self._mark()
            self.device.watch(self, True)
            for name in ("launch", *_HOST):
                self._shadows.append(name)
                original = getattr(self.device, name)
                wrapper = self._launched if name == "launch" else functools.partial(self._called, _HOST[name])
                setattr(self.device, name, functools.partial(wrapper, original))
        host_spans.listeners.append(self)
        self._begun = time.perf_counter_ns()

    def _close(self) -> None:
        self._ended = time.perf_counter_ns()
        self._end()
        with self._lock:
            self._fetch()

    def _end(self) -> None:
        """Stop listening. May be called repeatedly, and after `_open` failed at any point."""
        with contextlib.suppress(ValueError):  # already removed
            host_spans.listeners.remove(self)
        with shadowing.lock:
            uncover(self.device, self._shadows)
            self.device.watch(self, False)

    def _mark(self) -> DeviceEvent:
        event = self.device.open_event(timing=True)
        event.record(self.device.stream)
        return event

    def _launched(self, usual: Callable[..., None], kernel: Any, groups: Any, block: bytes, *rest: Any) -> None:
        with self._lock:
            before = self._mark()
            begin = time.perf_counter_ns()
            usual(kernel, groups, block, *rest)
            end = time.perf_counter_ns()
            after = self._mark()
            if len(self._pending) >= MAX_PENDING:
                self._fetch()
            launch = _Pending(kernel.artifact.name, before, after)
            self._pending.append(launch)
            self._latest.launches = [*getattr(self._latest, "launches", ())[-MAX_LAUNCHES_PER_COST:], launch]
        self.heard("launch", launch.name, begin, end, threading.get_ident())

    def _called(self, kind: str, usual: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter_ns()
        try:
            return usual(*args, **kwargs)
        finally:
            self.heard(kind, "", begin, time.perf_counter_ns(), threading.get_ident())

    def heard(self, kind: str, name: str, begin: int, end: int, thread: int) -> None:
        """See `Listener`."""
        self._spans.append(_Span(kind, name, begin, end, thread))

    def stated(self, kernel: str, cost: Any) -> None:
        """See `Listener`. A large grid may take several launches, which share the cost."""
        if not isinstance(cost, Cost):
            raise ArgumentError(f"the cost of kernel {kernel} is a vk.Cost, found {type(cost).__name__}")
        for launch in reversed(getattr(self._latest, "launches", ())):
            if launch.name != kernel or launch.cost is not None:
                break
            launch.cost, cost = cost, Cost()

    def _fetch(self) -> None:
        """Read the pending timestamps."""
        pending, self._pending = self._pending, []
        for one in pending:
            nanoseconds = max(one.after.nanoseconds_since(one.before), 0)
            begin = 0 if self._zero is None else one.before.nanoseconds_since(self._zero)
            self._launches.append(_Launch(one.name, begin, nanoseconds, one.cost))


@contextmanager
def profile(device: int | str | Device | None = None) -> Iterator[Profile]:
    """Context manager that measures the block's work on a device (the default one) and on the host.

    `with vk.profile() as p: ...`, then `p.show()`, `p.kernels()`, `p.save("trace.json")`. Raises FeatureError for
    devices without timestamps, DeviceError while a capture or another profile of the device is open.
    """
    target = open_device(device)
    result = Profile(target)
    try:
        result._open()
        yield result
    finally:
        try:
            result._close()
        except BaseException:  # including an interrupt
            result._end()
            raise


def _kernel_time(name: str, launches: list[_Launch]) -> KernelTime:
    times = [launch.nanoseconds / 1e9 for launch in launches]
    stated = [launch for launch in launches if launch.cost is not None]
    return KernelTime(
        name=name,
        launches=len(launches),
        seconds=sum(times),
        shortest=min(times),
        longest=max(times),
        nbytes=sum(launch.cost.nbytes for launch in stated if launch.cost is not None),
        flops=sum(launch.cost.flops for launch in stated if launch.cost is not None),
        stated=sum(launch.nanoseconds / 1e9 for launch in stated),
    )


def _event(process: int, thread: int, name: str, kind: str, begin: float, length: float) -> dict[str, Any]:
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind, "ts": begin, "dur": length}


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
