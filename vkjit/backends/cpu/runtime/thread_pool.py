"""Native thread pool whose threads run without the GIL: a small program in LLVM IR that uses POSIX threads.

Runs the workgroups of a launch on the calling thread and helper threads. Helpers never take the GIL. After a job they
spin for about 0.2 milliseconds, waiting for the next one, before they sleep. A job is open from its announcement until
its caller finds no workgroups left or is told to stop. Helpers that arrive later ignore it, so the caller waits only
for those already inside, which stop when it does.

The state is a block of 64-bit words. Words that different threads write are on different cache lines::

    0 job number   8 next workgroup   16 helpers inside   24 sleepers
    32 open?   33 function   34 argument block   35 end   36 step   37..39 grid   40 leave?   41 taken?
    48 mutex   64 condition   96 the helpers' cancellation token (see `cancellation`)
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import cffi
import numpy as np

from vkjit.runtime.handles import on_fork

from . import llvm
from .cancellation import poll_call, poll_text
from .stacks import LARGE_STACK, stack_size_of_threads

__all__ = ["ThreadPool", "available", "tick_address"]

_FFI = cffi.FFI()
_WORDS = 104
_WORKER_TOKEN = 96
_LOOK_EVERY = 50_000_000
"""Nanoseconds after which a calling thread checks for signals."""
_TOKEN = 10_000
"""Number of times that a helper checks for a new job before it sleeps: about a fifth of a millisecond."""


def available() -> bool:
    """True if the system has POSIX threads."""
    return os.name == "posix"


def _text(pause: str, clock: int) -> str:
    declared = f"declare void @{pause}()" if pause else ""
    wait = f"call void @{pause}()" if pause else ""
    job = "\n".join(f"  %p{n} = getelementptr i64, ptr %state, i64 {n}" for n in range(33, 40))  # the job's words
    return f"""
{declared}
{poll_text(frozenset())}
declare i32 @clock_gettime(i32, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define void @prepare(ptr %state) {{
  %mutex = getelementptr i64, ptr %state, i64 48
  %condition = getelementptr i64, ptr %state, i64 64
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}}

define internal i64 @now() {{
  %time = alloca [2 x i64]
  %e = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %p1 = getelementptr i64, ptr %time, i64 1
  %seconds = load i64, ptr %time
  %rest = load i64, ptr %p1
  %whole = mul i64 %seconds, 1000000000
  %all = add i64 %whole, %rest
  ret i64 %all
}}

define i64 @tick(ptr %watch) {{
  %p2 = getelementptr i64, ptr %watch, i64 2
  %p3 = getelementptr i64, ptr %watch, i64 3
  %last = load i64, ptr %p2
  %time = call i64 @now()
  %since = sub i64 %time, %last
  %early = icmp ult i64 %since, {_LOOK_EVERY}
  %look = load ptr, ptr %p3
  %blind = icmp eq ptr %look, null
  %no = or i1 %early, %blind
  br i1 %no, label %onward, label %ask
ask:
  %answer = call i64 %look(ptr %watch)
  %after = call i64 @now()
  store i64 %after, ptr %p2
  %raised = icmp ne i64 %answer, 0
  br i1 %raised, label %stop, label %onward
stop:
  store atomic i64 1, ptr %watch monotonic, align 8
  ret i64 1
onward:
  ret i64 0
}}

define internal void @share(ptr %state, ptr %watch) {{
  %next = getelementptr i64, ptr %state, i64 8
{job}
  %function = load ptr, ptr %p33
  %block = load ptr, ptr %p34
  %end = load i64, ptr %p35
  %step = load i64, ptr %p36
  %x = load i64, ptr %p37
  %y = load i64, ptr %p38
  %z = load i64, ptr %p39
  br label %take
take:
  %stopped = {poll_call(frozenset())}
  br i1 %stopped, label %done, label %next_chunk
next_chunk:
  %from = atomicrmw add ptr %next, i64 %step monotonic
  %more = icmp slt i64 %from, %end
  br i1 %more, label %run, label %done
run:
  %far = add i64 %from, %step
  %past = icmp sgt i64 %far, %end
  %to = select i1 %past, i64 %end, i64 %far
  call void %function(ptr %block, i64 %from, i64 %to, i64 %x, i64 %y, i64 %z, ptr %watch)
  br label %take
done:
  ret void
}}

define void @serve(ptr %state) {{
entry:
  %inside = getelementptr i64, ptr %state, i64 16
  %sleepers = getelementptr i64, ptr %state, i64 24
  %open = getelementptr i64, ptr %state, i64 32
  %stop = getelementptr i64, ptr %state, i64 40
  %mutex = getelementptr i64, ptr %state, i64 48
  %condition = getelementptr i64, ptr %state, i64 64
  %own = getelementptr i64, ptr %state, i64 {_WORKER_TOKEN}
  br label %idle
idle:
  %last = phi i64 [ 0, %entry ], [ %number, %out ]
  br label %watch
watch:
  %looks = phi i64 [ 0, %idle ], [ %looked, %again ]
  %seen = load atomic i64, ptr %state acquire, align 8
  %fresh = icmp ne i64 %seen, %last
  br i1 %fresh, label %busy, label %again
again:
  {wait}
  %looked = add i64 %looks, 1
  %tired = icmp ugt i64 %looked, {_TOKEN}
  br i1 %tired, label %sleep, label %watch
sleep:
  %l = call i32 @pthread_mutex_lock(ptr %mutex)
  %s = atomicrmw add ptr %sleepers, i64 1 seq_cst
  br label %check
check:
  %now = load atomic i64, ptr %state seq_cst, align 8
  %same = icmp eq i64 %now, %last
  br i1 %same, label %wait, label %awake
wait:
  %w = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %check
awake:
  %t = atomicrmw sub ptr %sleepers, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %busy
busy:
  %number = load atomic i64, ptr %state acquire, align 8
  %ending = load atomic i64, ptr %stop acquire, align 8
  %ends = icmp ne i64 %ending, 0
  br i1 %ends, label %leave, label %enter
enter:
  %i = atomicrmw add ptr %inside, i64 1 seq_cst
  %isopen = load atomic i64, ptr %open seq_cst, align 8
  %may = icmp ne i64 %isopen, 0
  br i1 %may, label %work, label %out
work:
  call void @share(ptr %state, ptr %own)
  br label %out
out:
  %o = atomicrmw sub ptr %inside, i64 1 seq_cst
  br label %idle
leave:
  ret void
}}

define i64 @run(ptr %state, ptr %function, ptr %block, i64 %begin, i64 %end, i64 %step, i64 %x, i64 %y, i64 %z,
                 ptr %watch) {{
entry:
  %others = getelementptr i64, ptr %state, i64 {_WORKER_TOKEN}
  %taken = getelementptr i64, ptr %state, i64 41
  %claim = cmpxchg ptr %taken, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{ i64, i1 }} %claim, 1
  br i1 %free, label %go, label %refuse
refuse:
  ret i64 1
go:
  %next = getelementptr i64, ptr %state, i64 8
  %inside = getelementptr i64, ptr %state, i64 16
  %sleepers = getelementptr i64, ptr %state, i64 24
  %open = getelementptr i64, ptr %state, i64 32
{job}
  store ptr %function, ptr %p33
  store ptr %block, ptr %p34
  store i64 %end, ptr %p35
  store i64 %step, ptr %p36
  store i64 %x, ptr %p37
  store i64 %y, ptr %p38
  store i64 %z, ptr %p39
  store atomic i64 0, ptr %others monotonic, align 8
  store atomic i64 %begin, ptr %next monotonic, align 8
  store atomic i64 1, ptr %open release, align 8
  call void @announce(ptr %state)
  call void @share(ptr %state, ptr %watch)
  store atomic i64 0, ptr %open seq_cst, align 8
  %halted = load atomic i64, ptr %watch monotonic, align 8
  store atomic i64 %halted, ptr %others monotonic, align 8
  br label %look
look:
  %looks = phi i64 [ 0, %go ], [ %looked, %again ], [ 0, %give ]
  %left = load atomic i64, ptr %inside seq_cst, align 8
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %again
again:
  {wait}
  %looked = add i64 %looks, 1
  %tired = icmp ugt i64 %looked, {_TOKEN}
  br i1 %tired, label %give, label %look
give:
  %g = call i32 @sched_yield()
  br label %look
leave:
  store atomic i64 0, ptr %taken release, align 8
  ret i64 0
}}

define void @announce(ptr %state) {{
entry:
  %sleepers = getelementptr i64, ptr %state, i64 24
  %mutex = getelementptr i64, ptr %state, i64 48
  %condition = getelementptr i64, ptr %state, i64 64
  %n = atomicrmw add ptr %state, i64 1 seq_cst
  %asleep = load atomic i64, ptr %sleepers seq_cst, align 8
  %some = icmp ne i64 %asleep, 0
  br i1 %some, label %wake, label %leave
wake:
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  br label %leave
leave:
  ret void
}}
"""


_STATE_FUNCTION = _FFI.typeof("void (*)(char *)")
_SIGNATURES = {
    "prepare": _STATE_FUNCTION,
    "serve": _STATE_FUNCTION,
    "announce": _STATE_FUNCTION,
    "run": _FFI.typeof(
        "int64_t (*)(char *, void *, char *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, char *)"
    ),
    "tick": _FFI.typeof("int64_t (*)(char *)"),
}
"""Parsed at import and not on first use: cffi's parser takes a lock, and a signal handler may launch kernels, too."""
_PAUSES = {"x86_64": "llvm.x86.sse2.pause"}


def _make() -> tuple[llvm.Linked, dict[str, Any]]:
    code = llvm.compile_text(_text(_PAUSES.get(llvm.host().family, ""), time.CLOCK_MONOTONIC), 1)
    linked = llvm.link(code, *_SIGNATURES)
    return linked, {n: _FFI.cast(kind, linked.addresses[n]) for n, kind in _SIGNATURES.items()}


_making = threading.RLock()


def _forget_locks() -> None:
    global _making
    _making = threading.RLock()  # another thread of the parent may have held it


on_fork(_forget_locks)


_programs: list[tuple[llvm.Linked, dict[str, Any]]] = []
"""The compiled program, shared by all pools. A signal handler that interrupted its creation may have added another.
They are never freed, because threads run inside them.
"""


def _program() -> tuple[llvm.Linked, dict[str, Any]]:
    """Return the compiled functions, by name."""
    if not _programs:
        with _making:
            if not _programs:
                _programs.append(_make())
    return _programs[0]


def tick_address() -> int:
    """Return the address of the poll function that calls Python at most every 50 milliseconds."""
    return _program()[0].addresses["tick"]


class ThreadPool:
    """Helper threads that share one caller's job at a time. They end with the pool."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self.helpers = 0
        self._linked, functions = _program()
        self._serve, self._announce, self._run = (functions[name] for name in ("serve", "announce", "run"))
        self._words = np.zeros(_WORDS + 8, dtype=np.int64)
        skip = -int(self._words.ctypes.data) % 64 // 8
        self._state = _FFI.from_buffer(self._words[skip : skip + _WORDS])
        self._leave = skip + 40
        functions["prepare"](self._state)

    def grow(self, helpers: int) -> None:
        """Start helpers until there are `helpers` of them, or as many as the system allows."""
        if self.helpers >= helpers:
            return
        with contextlib.suppress(RuntimeError), stack_size_of_threads(LARGE_STACK):
            while self.helpers < helpers:
                threading.Thread(target=self._serve, args=(self._state,), name="vkjit-cpu", daemon=True).start()
                self.helpers += 1

    def run(
        self, function: Any, block: Any, begin: int, end: int, step: int, grid: tuple[int, int, int], watch: Any
    ) -> bool:
        """Run the workgroups from `begin` to `end`, `step` at a time, on the calling thread and the helpers.

        The token can stop them early. Returns False, without running any, if another caller's job is in progress.
        """
        return not self._run(self._state, function, block, begin, end, step, *grid, watch)

    def close(self) -> None:
        """End the helpers."""
        if (
            self.helpers and self._process == os.getpid()
        ):  # a forked child has no helpers, and the locks may be in any state
            self._words[self._leave] = 1
            self._announce(self._state)
        self.helpers = 0

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # late in interpreter shutdown this module's globals are gone
        if not _finalizing():  # sleeping helpers do no harm then; awake, they would ask for the GIL
            self.close()
