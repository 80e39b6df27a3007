"""Run the workgroups of a launch on several threads.

`Pool.run` returns when all workgroups have run, once each. Other threads help: those of a `thread_pool` if the system
has POSIX threads and the kernel is native code, else Python threads. Threads take chunks of workgroups from a shared
queue or counter and compute without the GIL; results don't depend on which thread runs which chunk. The calling thread
takes part and runs signal handlers from time to time, between chunks and in long loops (see `cancellation`). An
exception from a handler stops all threads. Short launches run on the calling thread alone.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections import deque
from queue import SimpleQueue
from typing import Any

import cffi
import numpy as np

from vkjit.errors import ArgumentError
from vkjit.runtime.handles import new_lock, on_fork

from . import thread_pool
from .cancellation import CancellationToken, token_of_thread
from .cpu_count import processors
from .stacks import LARGE_STACK, stack_size_of_threads
from .thread_pool import ThreadPool

__all__ = [
    "MAX_SHORT_NANOSECONDS", "SMALL_STACK", "STACK_MARGIN", "Pace", "Pool", "function_at", "thread_count",
]  # fmt: skip

_FFI = cffi.FFI()
_KERNEL = _FFI.typeof("void (*)(char *, int64_t, int64_t, int64_t, int64_t, int64_t, char *)")
_POINTER = _FFI.typeof("void *")
SMALL_STACK, STACK_MARGIN = 32 << 10, 512 << 10
"""Bytes of arrays that fit any thread's stack; bytes that a stack must have beside larger arrays."""
_SHARING_THRESHOLD = 120_000
_THREAD_POOL_THRESHOLD = 25_000
"""Minimum nanoseconds of remaining work for which other threads are used: Python threads, and the native pool's."""
_COMPILE_THRESHOLD = 4_000_000
"""Total nanoseconds above `_THREAD_POOL_THRESHOLD` before the thread pool is compiled, which takes 30 ms: the estimate
for
a single launch may be too high."""
_MAX_THREADS = 1024
"""More threads would use up the process's memory mappings, which LLVM needs too."""
_MAX_GROUPS = 2**63 - 1
_MAX_SHORT_GROUPS = 2**32 - 1
_CHUNK = 4_000_000
"""Target nanoseconds per chunk, so that Ctrl-C takes effect quickly and threads finish together. A thread that runs
alone takes four times as much.
"""


MAX_SHORT_NANOSECONDS = 10_000
"""Maximum nanoseconds of work for which a launch keeps the GIL. Longer ones gain more from running in parallel with
other threads.
"""

_work_clock = (
    time.thread_time_ns if os.name == "posix" else time.perf_counter_ns
)  # on Windows thread time has a resolution of 15 ms
"""Nanoseconds of this thread's own CPU time: waiting for the GIL after a kernel doesn't count as the kernel's time."""


def function_at(address: int) -> Any:
    """Return the kernel's function, which is called without the GIL."""
    return _FFI.cast(_KERNEL, address)


def thread_count() -> int:
    """Return VKJIT_NUM_THREADS, else the number of CPUs that this process may use."""
    text = os.environ.get("VKJIT_NUM_THREADS", "")
    if not text:
        return processors()
    if not (text.isdecimal() and len(text) < 10 and 1 <= int(text) <= _MAX_THREADS):
        raise ArgumentError(f"VKJIT_NUM_THREADS is {text[:40]!r}: expected a number from 1 to {_MAX_THREADS}")
    return int(text)


class Pace:
    """Moving average of the nanoseconds per workgroup of a kernel; 0 before the first launch.

    `limit` holds the greatest number of workgroups of a short launch, in memory that machine code reads; without
    `may_be_short` it stays 0.
    """

    __slots__ = ("_may_be_short", "limit", "per_group")

    def __init__(self, per_group: float = 0.0, may_be_short: bool = True) -> None:
        self.limit = (ctypes.c_int64 * 1)()
        self._may_be_short = may_be_short
        self.set(per_group)

    def set(self, per_group: float) -> None:
        self.per_group = per_group
        if self._may_be_short:
            self.limit[0] = min(int(MAX_SHORT_NANOSECONDS / per_group), _MAX_SHORT_GROUPS) if per_group else 0

    def learn(self, groups: int, nanoseconds: int) -> None:
        fresh = max(nanoseconds, 1) / groups  # a coarse clock may say 0
        self.set(fresh if not self.per_group else 0.7 * self.per_group + 0.3 * fresh)

    def learn_short(self, groups: int, nanoseconds: int) -> None:
        """Update the pace with a short launch's wall-clock time, which is the cheapest to measure.

        The system may have preempted the launch. So the time is capped: two long launches in a row make the next one
        count as not short, and that one is measured with the thread's clock.
        """
        self.learn(groups, min(nanoseconds, 2 * MAX_SHORT_NANOSECONDS))


class _Job:
    """A launch that helpers share: its chunks of workgroups, and the helpers' cancellation token.

    A helper notes that it enters before it takes a chunk, and that it has left. Once there are no chunks, those that
    enter do nothing, so nobody works on the job once `_entered` and `_left` have equal lengths. That stays true if a
    signal handler raises anywhere in the launching thread.
    """

    __slots__ = ("_done", "_entered", "_left", "block", "chunks", "function", "grid", "words")

    def __init__(self, function: Any, block: Any, grid: tuple[int, int, int], chunks: deque[tuple[int, int]]) -> None:
        self.function, self.block, self.grid, self.chunks = function, block, grid, chunks
        self.words = np.zeros(4, dtype=np.int64)
        self._entered: deque[None] = deque()
        self._left: deque[None] = deque()
        self._done: SimpleQueue[None] = SimpleQueue()

    def work(self) -> None:
        """Run chunks until none is left, with the job's own cancellation token."""
        function, block, (x, y, z), chunks = self.function, self.block, self.grid, self.chunks
        watch = _FFI.from_buffer(self.words)
        self._entered.append(None)
        try:
            while True:
                try:
                    begin, end = chunks.popleft()
                except IndexError:
                    return
                function(block, begin, end, x, y, z, watch)
        finally:
            self._left.append(None)
            self._done.put(None)

    def work_and_look(self, watch: CancellationToken) -> None:
        """Like `work`, on the launching thread: raises the exceptions of signal handlers."""
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

    def wait(self) -> None:
        """Wait until no helper works on the job. If a signal handler raises meanwhile, stop the job, wait, and raise
        that."""
        try:
            while len(self._left) != len(self._entered):  # `_left` first: those that enter afterwards find no chunk
                self._done.get()
        except BaseException:
            self.stop()
            self.wait()
            raise


def _serve(jobs: SimpleQueue[_Job | None]) -> None:
    """Work on jobs until None comes."""
    for job in iter(jobs.get, None):
        job.work()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _in_child() -> None:
    for pool in list(_pools):
        pool.forget()


on_fork(_in_child)


class Pool:
    """A pool of `threads` threads including the calling one; the others start with the first launch that is worth it.

    Concurrent launches of several threads don't share helpers: one gets them, the others run on their own thread.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._workers: list[SimpleQueue[_Job | None]] = []
        self._thread_pool: ThreadPool | None = None
        self._busy = new_lock()
        self._launching = False
        self._shareable = 0.0
        _pools.add(self)

    def forget(self) -> None:
        """Forget the threads in a forked child, where they don't exist."""
        self._workers = []
        self._thread_pool = None
        self._launching = False

    def run(self, function: Any, block: bytes | bytearray, grid: tuple[int, int, int], pace: Pace) -> None:
        """Run all workgroups of the grid. Raises the exceptions of signal handlers."""
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

    def run_apart(self, function: Any, block: bytes | bytearray, grid: tuple[int, int, int]) -> None:
        """Like `run`, on new threads alone, for a kernel whose arrays don't fit the calling thread's stack."""
        total = grid[0] * grid[1] * grid[2]
        count = min(self.threads, total)
        step = max(1, total // (4 * count))
        chunks = deque((at, min(at + step, total)) for at in range(0, total, step))
        job = _Job(function, _FFI.from_buffer(block), grid, chunks)
        threads = [threading.Thread(target=job.work, name="vkjit-cpu", daemon=True) for _ in range(count)]
        try:
            with stack_size_of_threads(LARGE_STACK):
                for thread in threads:
                    thread.start()
            for thread in threads:
                thread.join()  # signal handlers run meanwhile
        except BaseException:
            job.stop()
            raise
        finally:
            job.wait()

    def _first(
        self, function: Any, data: Any, grid: tuple[int, int, int], total: int, pace: Pace, watch: CancellationToken
    ) -> int:
        """Run a few workgroups of a kernel that has never run, to learn its pace. Returns their number."""
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
        """Run the workgroups on the native thread pool. Returns False, with none run, if another thread has the
        helpers.
        """
        found = self._thread_pool
        if found is None:
            found = self._thread_pool = (
                ThreadPool()
            )  # a pool that another thread creates at the same time ends with its launch
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
        """Like `_by_thread_pool`, with Python threads."""
        if self._launching:
            return False
        with self._busy:
            try:
                self._launching = True
                self._shared(function, data, grid, begin, total, pace, watch)
            finally:
                self._launching = False
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
            jobs: SimpleQueue[_Job | None] = SimpleQueue()
            with stack_size_of_threads(LARGE_STACK):
                threading.Thread(target=_serve, args=(jobs,), name="vkjit-cpu", daemon=True).start()
            self._workers.append(jobs)
        job = _Job(function, data, grid, chunks)
        start = time.perf_counter_ns()
        try:
            for jobs in self._workers[:helpers]:
                jobs.put(job)
            job.work_and_look(watch)
        except BaseException:
            job.stop()
            raise
        finally:
            job.wait()
        pace.learn(groups, (time.perf_counter_ns() - start) * (helpers + 1))

    def close(self) -> None:
        """End the threads; a later launch starts new ones.

        Does nothing if called from a signal handler that interrupted this thread's own launch on Python threads.
        """
        if self._busy._is_owned():  # private, but the standard library's conditions use it too
            return
        with self._busy:
            workers, self._workers = self._workers, []
            found, self._thread_pool = self._thread_pool, None
        if found is not None:
            found.close()
        for jobs in workers:
            jobs.put(None)
