"""Profiling: kernel times on the device, and times of launches, compilations, copies and waits on the host.

`profile` measures a block and yields a `Profile`, which gives rows, a table or a trace file. While a profile is open,
an observer times the device's calls, so that an unprofiled launch costs nothing extra. Each launch is enclosed in two
timestamp queries, so launches don't overlap; graphs are replayed launch by launch. Otherwise execution is unchanged.
Launches that are captured don't run, so only their host time is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..backends.selection import device as open_device
from ..errors import ArgumentError, DeviceError
from ..files import write_text
from ..launch.cost_model import Cost
from ..runtime import host_spans
from ..runtime.capture import check_waiting, is_capturing
from ..runtime.device import Device
from ..runtime.handles import new_lock
from ..runtime.observers import LaunchRequest, Observer
from ..runtime.open_blocks import block
from ..runtime.streams import DeviceEvent, ImmediateEvent

__all__ = ["Balance", "Cost", "KernelTime", "Profile", "profile"]

_COMMANDS = 6
"""Upper bound for the commands of a measured launch: two timestamps, a reset of each, and the launch with its barrier."""

MAX_PENDING = 200
"""Maximum number of launches whose timestamps haven't been read; each holds two timestamp queries."""


MAX_LAUNCHES_PER_COST = 64
"""Maximum number of a thread's latest launches to which `Profile.stated` can still attach a cost."""


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Statistics of all launches of one kernel.

    `seconds` is the total device time, `shortest` and `longest` are the times of single launches in seconds. A kernel
    may state its cost in bytes and operations (`@kernel.cost`): `nbytes` and `flops` are the sums over the launches
    with a stated cost, and `stated` is the total device time of these launches in seconds.
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
        """Memory throughput in 10^9 bytes per second, over the launches with a stated cost; None if there are none."""
        return self.nbytes / self.stated / 1e9 if self.nbytes and self.stated else None

    @property
    def gigaflops(self) -> float | None:
        """Throughput in 10^9 operations per second, over the launches with a stated cost; None if there are none."""
        return self.flops / self.stated / 1e9 if self.flops and self.stated else None


@dataclass(frozen=True, slots=True)
class Balance:
    """The work of the device and of the host in a profile, in seconds.

    `device` is the time in which kernels ran, `host` that of launches, compilations and copies on the host, without
    waits and without the profile's own work. `idle` is the total time without a running kernel between the first kernel
    and the last; launches take longer under a profile, so the device is idle longer than in a run without one.
    `longest_gap` is the longest such interval, and `after` the kernel before it.
    """

    device: float
    host: float
    idle: float
    longest_gap: float
    after: str

    @property
    def bound(self) -> str:
        """What determines the program's time: "device" or "host"."""
        return "device" if self.device >= self.host else "host"

    def __str__(self) -> str:
        text = f"device busy {self.device * 1e3:.3f} ms, host busy {self.host * 1e3:.3f} ms: bound by the {self.bound}"
        if not self.longest_gap:
            return text
        gap = f"{self.longest_gap * 1e3:.3f} ms after {self.after}"
        return f"{text}; device idle {self.idle * 1e3:.3f} ms, longest {gap}"


@dataclass(frozen=True, slots=True)
class _Launch:
    """A finished launch. `begin` is in nanoseconds of device time since the profile was opened."""

    name: str
    begin: int
    nanoseconds: int
    cost: Cost | None


@dataclass(frozen=True, slots=True)
class _Span:
    """A piece of host work of a thread. `begin` and `end` are in nanoseconds of `time.perf_counter_ns`."""

    kind: str
    name: str
    begin: int
    end: int
    thread: int


@dataclass(slots=True)
class _Pending:
    """A launch whose timestamps haven't been read yet, with the events recorded before and after it."""

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
        self._timer: _CallTimer | None = _CallTimer(self)
        """The observer of the device; None after the block."""
        self._zero: DeviceEvent | None = None
        """The event recorded when the profile was opened."""
        self._begun = self._ended = 0
        """When the block began and ended, in nanoseconds of `time.perf_counter_ns`; 0 if it hasn't."""
        self._lock = new_lock()
        self._latest = threading.local()
        """Per-thread state. Its attribute `launches` has the latest launches, to which `stated` attaches costs."""

    @property
    def seconds(self) -> float:
        """Duration of the block on the host, until now or until its end."""
        return ((self._ended or time.perf_counter_ns()) - self._begun) / 1e9 if self._begun else 0.0

    def kernels(self) -> list[KernelTime]:
        """Return device times by kernel, longest total first."""
        self._fetch_rest()
        groups: dict[str, list[_Launch]] = defaultdict(list)
        for launch in self._launches:
            groups[launch.name].append(launch)
        rows = [_kernel_time(name, launches) for name, launches in groups.items()]
        return sorted(rows, key=lambda row: -row.seconds)

    def host(self) -> dict[str, tuple[int, float]]:
        """Return (count, total seconds) by kind of host work, largest total first.

        The kinds are "launch", "compile", "upload", "download", "wait", "copy" and "fill".
        """
        totals: dict[str, tuple[int, float]] = {}
        for span in self._spans:
            count, seconds = totals.get(span.kind, (0, 0.0))
            totals[span.kind] = count + 1, seconds + (span.end - span.begin) / 1e9
        return dict(sorted(totals.items(), key=lambda entry: -entry[1][1]))

    def balance(self) -> Balance:
        """Return how long the device and the host worked, and how long the device was idle between kernels."""
        self._fetch_rest()
        busy = idle = longest = 0
        after, last, end = "", "", None
        for launch in sorted(self._launches, key=lambda launch: launch.begin):
            stop = launch.begin + launch.nanoseconds
            gap = 0 if end is None else max(launch.begin - end, 0)
            busy += launch.nanoseconds if end is None else max(stop - max(launch.begin, end), 0)
            idle += gap
            if gap > longest:
                longest, after = gap, last
            if end is None or stop > end:
                end, last = stop, launch.name
        host = sum(seconds for kind, (_, seconds) in self.host().items() if kind != "wait")
        if isinstance(self._zero, ImmediateEvent):  # kernels run inside the launch call
            host = max(host - busy / 1e9, 0.0)
        return Balance(busy / 1e9, host, idle / 1e9, longest / 1e9, after)

    def table(self) -> str:
        """Return kernel and host times as a text table, and what bounds the program."""
        lines = [f"{self.device.name}: {self.seconds * 1e3:.3f} ms"]
        # the columns of the rows below have the widths of these headings
        lines.append(
            f"{'kernel':<32}{'launches':>9}{'total ms':>11}{'mean us':>10}{'min us':>9}{'max us':>9}{'GB/s':>8}{'GFLOP/s':>9}"
        )
        for row in self.kernels():
            mean, name = row.seconds / row.launches, _printable(row.name)[:31]
            lines.append(
                f"{name:<32}{row.launches:>9}{row.seconds * 1e3:>11.3f}{mean * 1e6:>10.1f}{row.shortest * 1e6:>9.1f}"
                f"{row.longest * 1e6:>9.1f}{_number(row.gigabytes_per_second):>8}{_number(row.gigaflops):>9}"
            )
        lines.append(f"{'on the host':<32}{'calls':>9}{'total ms':>11}{'mean us':>10}")
        for kind, (count, seconds) in self.host().items():
            lines.append(f"{kind:<32}{count:>9}{seconds * 1e3:>11.3f}{seconds / count * 1e6:>10.1f}")
        lines.append(str(self.balance()))
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def show(self) -> None:
        """Print the tables, with rich if it is installed."""
        try:
            from rich.console import Console
            from rich.markup import escape
            from rich.table import Table
        except ImportError:
            sys.stdout.write(self.table() + "\n")
            return
        table = Table(title=f"{self.device.name}: {self.seconds * 1e3:.3f} ms", caption=str(self.balance()))
        for heading in ("kernel", "launches", "total ms", "mean us", "min us", "max us", "GB/s", "GFLOP/s"):
            table.add_column(heading, justify="left" if heading == "kernel" else "right")
        for row in self.kernels():
            times = (row.seconds * 1e3, row.seconds / row.launches * 1e6, row.shortest * 1e6, row.longest * 1e6)
            rates = (_number(row.gigabytes_per_second), _number(row.gigaflops))
            table.add_row(escape(_printable(row.name)), str(row.launches), *(f"{time:.3f}" for time in times), *rates)
        for kind, (count, seconds) in self.host().items():
            table.add_row(f"({kind})", str(count), f"{seconds * 1e3:.3f}", f"{seconds / count * 1e6:.3f}", style="dim")
        Console().print(table)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON trace for Perfetto (ui.perfetto.dev) or chrome://tracing.

        It has one track for the device and one per host thread.
        """
        self._fetch_rest()
        # process 0 is the device, process 1 the host
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": self.device.name}},
            {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "host"}},
        ]
        for launch in self._launches:
            arguments = {} if launch.cost is None else {"bytes": launch.cost.nbytes, "flops": launch.cost.flops}
            events.append(
                _event(0, 0, launch.name, "kernel", launch.begin / 1e3, launch.nanoseconds / 1e3) | {"args": arguments}
            )
        for span in self._spans:
            begin, length = (span.begin - self._begun) / 1e3, (span.end - span.begin) / 1e3
            events.append(_event(1, span.thread, span.name or span.kind, span.kind, begin, length))
        write_text(path, json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))

    # -- measurement

    def _open(self) -> None:
        """Start measuring. Raises DeviceError if the device is being profiled."""
        self._zero = self._mark()
        if self._timer is not None:
            self.device.add_observer(self._timer)
        host_spans.listeners.append(self)
        self._begun = time.perf_counter_ns()

    def _close(self) -> None:
        """Stop measuring and wait for the pending timestamps."""
        self._ended = time.perf_counter_ns()
        self._end()
        if not is_capturing(self.device):  # a capture can't wait: other threads' launches are read later
            self._fetch()

    def _end(self) -> None:
        """Remove the observer and the listener. May be called repeatedly, and after `_open` failed at any point."""
        with contextlib.suppress(ValueError):  # already removed
            host_spans.listeners.remove(self)
        if self._timer is not None:
            self.device.remove_observer(self._timer)
            self._timer = None  # a reference cycle

    def _mark(self, *, barrier: bool = True) -> DeviceEvent:
        """Record a timing event in the current stream. With `barrier`, later work waits for it."""
        event = self.device.open_event(timing=True)
        event.record(self.device.stream, barrier=barrier)
        return event

    def _launched(self, proceed: Callable[[LaunchRequest], None], request: LaunchRequest) -> None:
        """Time a launch on the device and on the host; only on the host if it is captured, and so doesn't run."""
        if is_capturing(self.device):
            self._called("launch", request.kernel.artifact.name, proceed, request)
            return
        with self._lock:
            self.device.keep_together(_COMMANDS)  # a submission between the marks would count as kernel time
            before = self._mark()
            begin = time.perf_counter_ns()
            proceed(request)
            end = time.perf_counter_ns()
            after = self._mark(barrier=False)
            if len(self._pending) >= MAX_PENDING:
                self._fetch()
            launch = _Pending(request.kernel.artifact.name, before, after)
            self._pending.append(launch)
            # a new list without the oldest launches
            self._latest.launches = [*getattr(self._latest, "launches", ())[1 - MAX_LAUNCHES_PER_COST :], launch]
        self.heard("launch", launch.name, begin, end, threading.get_ident())

    def _called(self, kind: str, name: str, proceed: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Time a call of the device on the host, as work of the given kind and name."""
        begin = time.perf_counter_ns()
        try:
            proceed(*args, **kwargs)
        finally:
            self.heard(kind, name, begin, time.perf_counter_ns(), threading.get_ident())

    def heard(self, kind: str, name: str, begin: int, end: int, thread: int) -> None:
        """Record a finished piece of host work. Implements `host_spans.Listener.heard`."""
        self._spans.append(_Span(kind, name, begin, end, thread))

    def stated(self, kernel: str, cost: Any) -> None:
        """Attach a cost to the launches that this thread has just made of a kernel. Implements `Listener.stated`.

        A large grid is split into several launches. The last one gets the cost of the call, the others a cost of 0, so
        sums and rates over all launches are right. A captured launch isn't among those measured.
        """
        if not isinstance(cost, Cost):
            raise ArgumentError(f"the cost of kernel {kernel} is a vk.Cost, found {type(cost).__name__}")
        launches = () if is_capturing(self.device) else getattr(self._latest, "launches", ())
        for launch in reversed(launches):
            if launch.name != kernel or launch.cost is not None:  # older ones belong to earlier calls
                break
            launch.cost, cost = cost, Cost()  # Cost() is a cost of 0

    def replayed(self) -> None:
        """Forget the launches of a graph, for which no cost is stated. Implements `host_spans.Listener.replayed`."""
        self._latest.launches = []

    def _fetch(self) -> None:
        """Wait for the pending launches and read their timestamps."""
        with self._lock:
            pending, self._pending = self._pending, []
            for launch in pending:
                nanoseconds = max(launch.after.nanoseconds_since(launch.before), 0)
                begin = 0 if self._zero is None else launch.before.nanoseconds_since(self._zero)
                self._launches.append(_Launch(launch.name, begin, nanoseconds, launch.cost))

    def _fetch_rest(self) -> None:
        """Read the timestamps that `_close` left unread. Raises ArgumentError if there are some, and a capture is
        open."""
        if self._ended and self._pending:
            check_waiting(self.device)
            self._fetch()


class _CallTimer(Observer):
    """Passes the device's calls to a profile, which times them."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile

    def check(self, device: Device) -> None:
        """Raise DeviceError if another profile is open: it would measure the timestamps of this one."""
        if any(isinstance(observer, _CallTimer) for observer in device.observers):
            raise DeviceError(f"{device.name} is already being profiled: end that profile first")

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        self._profile._launched(proceed, request)

    def write(self, *args: Any, **kwargs: Any) -> None:
        self._profile._called("upload", "", *args, **kwargs)

    def read(self, *args: Any, **kwargs: Any) -> None:
        self._profile._called("download", "", *args, **kwargs)

    def synchronize(self, proceed: Callable[..., None]) -> None:
        self._profile._called("wait", "", proceed)

    def copy(self, *args: Any, **kwargs: Any) -> None:
        self._profile._called("copy", "", *args, **kwargs)

    def fill(self, *args: Any, **kwargs: Any) -> None:
        self._profile._called("fill", "", *args, **kwargs)


@block
def profile(device: int | str | Device | None = None) -> Iterator[Profile]:
    """Context manager that measures the work of its block on a device (default: the default device) and on the host.

    Use it as `with vk.profile() as p: ...`, then `p.show()`, `p.kernels()` or `p.save("trace.json")`. Raises
    FeatureError for devices without timestamps, DeviceError while another profile of the device is open.
    """
    target = open_device(device)
    result = Profile(target)
    try:
        result._open()
        yield result
    except GeneratorExit:  # how `block` ends a generator, always; see there
        pass  # so that errors that `_close` raises don't have it as their `__context__`
    finally:
        try:
            result._close()
        except BaseException:  # including an interrupt
            result._end()
            raise


def _printable(name: str) -> str:
    """Return a name with unprintable characters, such as escape codes of terminals, replaced by Python's escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _kernel_time(name: str, launches: list[_Launch]) -> KernelTime:
    """Summarize all launches of one kernel."""
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
    """Return a complete event of the trace format; times in microseconds."""
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": kind, "ts": begin, "dur": length}


def _number(value: float | None) -> str:
    """Format a table cell; "-" for None."""
    return "-" if value is None else f"{value:.3g}"
