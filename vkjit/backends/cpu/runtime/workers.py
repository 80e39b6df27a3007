"""Runs the workgroups of a launch on a few threads.

Enters: the address of a kernel's function, its argument block, the grid. Leaves: all workgroups run, once each, when `run`
returns. Holds: the threads are those of a `crew` where the system has POSIX threads, else Python's. They take chunks of
workgroups from one counter, without the interpreter's lock while they compute; what a launch computes doesn't depend on who
runs which chunk. The calling thread takes part, and looks for signals now and then, between chunks and in long loops
(`watch`); what a handler raises stops all threads. Short launches run on the calling thread alone.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import cffi
import numpy as np

from vkjit.errors import ArgumentError
from vkjit.runtime.handles import on_fork

from . import thread_pool
from .cancellation import CancellationToken, token_of_thread
from .cpu_count import processors
from .thread_pool import ThreadPool

__all__ = ["Pace", "Pool", "function_at", "thread_count"]

_FFI = cffi.FFI()
_KERNEL = _FFI.typeof("void (*)(char *, int64_t, int64_t, int64_t, int64_t, int64_t, char *)")
_POINTER = _FFI.typeof("void *")
_STACK = 16 << 20
"""Bytes of a helper's stack: workgroups keep their arrays there."""
_SHARING_THRESHOLD = 120_000
_THREAD_POOL_THRESHOLD = 25_000
"""Nanoseconds of work from which waking other threads pays: threads of Python's, or those that are awake already."""
_COMPILE_THRESHOLD = 4_000_000
"""Nanoseconds of such work, in all, before the thread pool is compiled, which takes 30 ms: a launch may seem long once."""
_MAX_THREADS = 1024
"""More would take the process's maps of memory, which LLVM needs too."""
_MAX_GROUPS = 2**63 - 1
_CHUNK = 4_000_000
"""Nanoseconds that a chunk should take at most, so that Ctrl-C is prompt and threads end together."""


_work_clock = time.thread_time_ns if os.name == "posix" else time.perf_counter_ns  # Windows counts in ticks of 15 ms
"""Nanoseconds of this thread's own work: the wait for the interpreter's lock after a kernel isn't the kernel's time."""


def function_at(address: int) -> Any:
    """The kernel's function, to be called without the interpreter's lock."""
    return _FFI.cast(_KERNEL, address)


def thread_count() -> int:
    """VKJIT_NUM_THREADS, else the processors that this process may use."""
    text = os.environ.get("VKJIT_NUM_THREADS", "")
    if not text:
        return processors()
    if not text.isdecimal() or not 1 <= int(text) <= _MAX_THREADS:
        raise ArgumentError(f"VKJIT_NUM_THREADS is {text!r}: expected a number from 1 to {_MAX_THREADS}")
    return int(text)


@dataclass(slots=True)
class Pace:
    """Nanoseconds that a workgroup of a kernel took lately; 0 before the first launch."""

    per_group: float = 0.0

    def learn(self, groups: int, nanoseconds: int) -> None:
        fresh = max(nanoseconds, 1) / groups  # a coarse clock may say 0
        self.per_group = fresh if not self.per_group else 0.7 * self.per_group + 0.3 * fresh


class _Job:
    """A launch that several threads of Python's work on. `stop()` makes those inside kernels come back."""

    __slots__ = ("block", "chunks", "function", "grid", "words")

    def __init__(self, function: Any, block: Any, grid: tuple[int, int, int], chunks: deque[tuple[int, int]]) -> None:
        self.function, self.block, self.grid, self.chunks = function, block, grid, chunks
        self.words = np.zeros(4, dtype=np.int64)

    def work(self) -> None:
        """Runs chunks until none is left, under the job's own watch."""
        function, block, (x, y, z), chunks = self.function, self.block, self.grid, self.chunks
        watch = _FFI.from_buffer(self.words)
        while True:
            try:
                begin, end = chunks.popleft()
            except IndexError:
                return
            function(block, begin, end, x, y, z, watch)

    def work_and_look(self, watch: CancellationToken) -> None:
        """As `work`, on the thread that launched: raises what handlers of signals raised."""
        function, block, (x, y, z), chunks = self.function, self.block, self.grid, self.chunks
        while True:
            try:
                begin, end = chunks.popleft()
            except IndexError:
                return
            function(block, begin, end, x, y, z, watch.pointer)
            watch.check()

    def stop(self) -> None:
        self.chunks.clear()
        self.words[0] = 1


class _Worker:
    """A thread that waits for jobs. Who releases `wake` has set `job` before; `done` is released after each job."""

    def __init__(self) -> None:
        self.wake, self.done = threading.Lock(), threading.Lock()
        self.wake.acquire()
        self.done.acquire()
        self.job: _Job | None = None
        before = threading.stack_size(_STACK)
        try:
            threading.Thread(target=self._serve, name="vkjit-cpu", daemon=True).start()
        finally:
            threading.stack_size(before)

    def _serve(self) -> None:
        while True:
            self.wake.acquire()
            job, self.job = self.job, None
            if job is None:
                return
            job.work()
            self.done.release()

    def start(self, job: _Job | None) -> None:
        """Gives the worker a job; None ends it."""
        self.job = job
        self.wake.release()

    def finish(self) -> None:
        """Waits for the job, or takes it back from a worker that hasn't woken up."""
        if self.wake.acquire(blocking=False):
            self.job = None
        else:
            self.done.acquire()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _in_child() -> None:
    for pool in list(_pools):
        pool.forget()


on_fork(_in_child)


class Pool:
    """`threads` threads, the calling one among them; the others start with the first launch that is worth it.

    Launches from several threads at once share nothing: one gets the helpers, the others run on their own thread.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._workers: list[_Worker] = []
        self._thread_pool: ThreadPool | None = None
        self._busy = threading.Lock()
        self._launching = 0
        self._shareable = 0.0
        _pools.add(self)

    def forget(self) -> None:
        """In a child of a fork the threads are gone."""
        self._workers = []
        self._thread_pool = None
        self._busy = threading.Lock()

    def run(self, function: Any, block: bytes | bytearray, grid: tuple[int, int, int], pace: Pace) -> None:
        """Runs all workgroups of the grid. Raises what handlers of signals raise."""
        total = grid[0] * grid[1] * grid[2]
        if total > _MAX_GROUPS:
            raise ArgumentError(
                f"a grid of {grid} workgroups: the device numbers at most 2^63 - 1 of them, launch fewer"
            )
        data = _FFI.from_buffer(block)
        watch = token_of_thread()
        begin = 0
        if not pace.per_group:
            begin = self._first(function, data, grid, total, pace, watch)
        left = (total - begin) * pace.per_group
        native = thread_pool.available() and isinstance(function, _FFI.CData)
        if native and left > _THREAD_POOL_THRESHOLD:
            self._shareable += left
            if self._shareable < _COMPILE_THRESHOLD:
                self._alone(function, data, grid, begin, total, pace, watch)
                return
            watch.ask_through(thread_pool.tick_address())
        if self.threads > 1 and total - begin > 1 and left > (_THREAD_POOL_THRESHOLD if native else _SHARING_THRESHOLD):
            share = self._by_thread_pool if native else self._by_workers
            if share(function, data, grid, begin, total, pace, watch):
                return
        self._alone(function, data, grid, begin, total, pace, watch)

    def _first(
        self, function: Any, data: Any, grid: tuple[int, int, int], total: int, pace: Pace, watch: CancellationToken
    ) -> int:
        """Runs a few workgroups of a kernel that has never run, to learn its pace; gives how many."""
        begin, size = 0, 1
        while begin < total:
            end = min(total, begin + size)
            start = _work_clock()
            function(data, begin, end, *grid, watch.pointer)
            taken = _work_clock() - start
            watch.check()
            groups, begin = end - begin, end
            if taken > 20_000 or begin == total:
                pace.learn(groups, taken)
                return begin
            size *= 4
        return begin

    def _alone(
        self,
        function: Any,
        data: Any,
        grid: tuple[int, int, int],
        begin: int,
        total: int,
        pace: Pace,
        watch: CancellationToken,
    ) -> None:
        step = max(1, int(_CHUNK * 4 / max(pace.per_group, 1e-3)))
        while begin < total:
            end = min(total, begin + step)
            start = _work_clock()
            function(data, begin, end, *grid, watch.pointer)
            pace.learn(end - begin, _work_clock() - start)
            watch.check()
            begin = end

    def _by_thread_pool(
        self,
        function: Any,
        data: Any,
        grid: tuple[int, int, int],
        begin: int,
        total: int,
        pace: Pace,
        watch: CancellationToken,
    ) -> bool:
        """False, and nothing has run, where another thread has the helpers."""
        found = self._thread_pool
        if found is None:
            found = self._thread_pool = (
                ThreadPool()
            )  # one that another thread made at the same time ends with its launch
        found.grow(self.threads - 1)
        pause = max(pace.per_group, 1e-3)
        step = max(-(-(total - begin) // (self.threads * 8)), int(4_000 / pause), 1)
        step = min(step, max(1, int(_CHUNK / pause)))
        start = _work_clock()
        if not found.run(_FFI.cast(_POINTER, function), data, begin, total, step, grid, watch.pointer):
            return False
        watch.check()
        pace.learn(total - begin, (_work_clock() - start) * self.threads)
        return True

    def _by_workers(
        self,
        function: Any,
        data: Any,
        grid: tuple[int, int, int],
        begin: int,
        total: int,
        pace: Pace,
        watch: CancellationToken,
    ) -> bool:
        """As `_by_thread_pool`, with threads of Python's."""
        if not self._busy.acquire(blocking=False):
            return False
        try:
            self._launching = threading.get_ident()
            self._shared(function, data, grid, begin, total, pace, watch)
        finally:
            self._launching = 0
            self._busy.release()
        return True

    def _shared(
        self,
        function: Any,
        data: Any,
        grid: tuple[int, int, int],
        begin: int,
        total: int,
        pace: Pace,
        watch: CancellationToken,
    ) -> None:
        groups = total - begin
        step = min(-(-groups // (self.threads * 4)), int(_CHUNK / max(pace.per_group, 1e-3)))
        step = max(step, 1, int(30_000 / max(pace.per_group, 1e-3)))
        chunks = deque((at, min(at + step, total)) for at in range(begin, total, step))
        helpers = min(self.threads, len(chunks)) - 1
        while len(self._workers) < helpers:
            self._workers.append(_Worker())
        job = _Job(function, data, grid, chunks)
        workers = self._workers[:helpers]
        start = time.perf_counter_ns()
        for worker in workers:
            worker.start(job)
        try:
            job.work_and_look(watch)
        except BaseException:
            job.stop()
            raise
        finally:
            for worker in workers:
                worker.finish()
        pace.learn(groups, (time.perf_counter_ns() - start) * (helpers + 1))

    def close(self) -> None:
        """Ends the threads; a later launch starts new ones. From a handler of a signal that interrupts this thread's own
        launch, leaves them to it."""
        if self._launching == threading.get_ident():
            return
        with self._busy:
            workers, self._workers = self._workers, []
            found, self._thread_pool = self._thread_pool, None
        if found is not None:
            found.close()
        for worker in workers:
            worker.start(None)
