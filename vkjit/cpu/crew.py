"""Threads that share launches without Python: a small program in LLVM's text, with POSIX threads' locks.

Enters: kernels' functions, grids. Leaves: workgroups run by all threads. Holds: helpers never take the interpreter's lock.
After a job they watch for the next one for some microseconds before they sleep. A job is open from when it is announced
until its caller finds no workgroups left; helpers that come later leave it alone, so the caller waits only for those
inside.

The state is a block of 64-bit words, those that threads write apart from each other by a cache line::

    0 number of the job   8 next workgroup   16 helpers inside   24 sleepers
    32 open?   33 function   34 argument block   35 end   36 step   37..39 grid   40 stop?
    48 mutex   64 condition
"""

from __future__ import annotations

import functools
import os
import platform
import threading
from typing import Any

import cffi
import numpy as np

from . import machine

__all__ = ["Crew", "available"]

_FFI = cffi.FFI()
_WORDS = 96
_WATCH = 10_000
"""Looks at the job's number before a helper sleeps: about a fifth of a millisecond."""
_STACK = 16 << 20
"""Bytes of a helper's stack: workgroups keep their arrays there."""


def available() -> bool:
    """Whether the system has POSIX threads."""
    return os.name == "posix"


def _text(pause: str) -> str:
    declared = f"declare void @{pause}()" if pause else ""
    wait = f"call void @{pause}()" if pause else ""
    return f"""
{declared}
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

define internal void @share(ptr %state) {{
  %next = getelementptr i64, ptr %state, i64 8
  %p33 = getelementptr i64, ptr %state, i64 33
  %p34 = getelementptr i64, ptr %state, i64 34
  %p35 = getelementptr i64, ptr %state, i64 35
  %p36 = getelementptr i64, ptr %state, i64 36
  %p37 = getelementptr i64, ptr %state, i64 37
  %p38 = getelementptr i64, ptr %state, i64 38
  %p39 = getelementptr i64, ptr %state, i64 39
  %function = load ptr, ptr %p33
  %block = load ptr, ptr %p34
  %end = load i64, ptr %p35
  %step = load i64, ptr %p36
  %x = load i64, ptr %p37
  %y = load i64, ptr %p38
  %z = load i64, ptr %p39
  br label %take
take:
  %from = atomicrmw add ptr %next, i64 %step monotonic
  %more = icmp slt i64 %from, %end
  br i1 %more, label %run, label %done
run:
  %far = add i64 %from, %step
  %past = icmp sgt i64 %far, %end
  %to = select i1 %past, i64 %end, i64 %far
  call void %function(ptr %block, i64 %from, i64 %to, i64 %x, i64 %y, i64 %z)
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
  %tired = icmp ugt i64 %looked, {_WATCH}
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
  call void @share(ptr %state)
  br label %out
out:
  %o = atomicrmw sub ptr %inside, i64 1 seq_cst
  br label %idle
leave:
  ret void
}}

define void @run(ptr %state, ptr %function, ptr %block, i64 %begin, i64 %end, i64 %step, i64 %x, i64 %y, i64 %z) {{
entry:
  %next = getelementptr i64, ptr %state, i64 8
  %inside = getelementptr i64, ptr %state, i64 16
  %sleepers = getelementptr i64, ptr %state, i64 24
  %open = getelementptr i64, ptr %state, i64 32
  %p33 = getelementptr i64, ptr %state, i64 33
  %p34 = getelementptr i64, ptr %state, i64 34
  %p35 = getelementptr i64, ptr %state, i64 35
  %p36 = getelementptr i64, ptr %state, i64 36
  %p37 = getelementptr i64, ptr %state, i64 37
  %p38 = getelementptr i64, ptr %state, i64 38
  %p39 = getelementptr i64, ptr %state, i64 39
  store ptr %function, ptr %p33
  store ptr %block, ptr %p34
  store i64 %end, ptr %p35
  store i64 %step, ptr %p36
  store i64 %x, ptr %p37
  store i64 %y, ptr %p38
  store i64 %z, ptr %p39
  store atomic i64 %begin, ptr %next monotonic, align 8
  store atomic i64 1, ptr %open release, align 8
  call void @announce(ptr %state)
  call void @share(ptr %state)
  store atomic i64 0, ptr %open seq_cst, align 8
  br label %look
look:
  %looks = phi i64 [ 0, %entry ], [ %looked, %again ], [ 0, %give ]
  %left = load atomic i64, ptr %inside seq_cst, align 8
  %none = icmp eq i64 %left, 0
  br i1 %none, label %leave, label %again
again:
  {wait}
  %looked = add i64 %looks, 1
  %tired = icmp ugt i64 %looked, {_WATCH}
  br i1 %tired, label %give, label %look
give:
  %g = call i32 @sched_yield()
  br label %look
leave:
  ret void
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


_SIGNATURES = {
    "prepare": "void (*)(char *)",
    "serve": "void (*)(char *)",
    "announce": "void (*)(char *)",
    "run": "void (*)(char *, void *, char *, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t)",
}


@functools.lru_cache(maxsize=1)
def _program() -> tuple[machine.Linked, dict[str, Any]]:
    """The compiled functions, by name."""
    x86 = platform.machine().lower() in ("x86_64", "amd64", "i686")
    code = machine.compile_text(_text("llvm.x86.sse2.pause" if x86 else ""), 1)
    linked = machine.link(code, *_SIGNATURES)
    return linked, {n: _FFI.cast(kind, linked.addresses[n]) for n, kind in _SIGNATURES.items()}


class Crew:
    """Helpers that share one caller's jobs at a time."""

    def __init__(self) -> None:
        self._linked, functions = _program()
        self._serve, self._announce, self._run = (functions[name] for name in ("serve", "announce", "run"))
        self._words = np.zeros(_WORDS + 8, dtype=np.int64)
        skip = -int(self._words.ctypes.data) % 64 // 8
        self._state = _FFI.from_buffer(self._words[skip : skip + _WORDS])
        self._stop = skip + 40
        self.helpers = 0
        functions["prepare"](self._state)

    def grow(self, helpers: int) -> None:
        """Starts threads until there are that many."""
        while self.helpers < helpers:
            before = threading.stack_size(_STACK)
            try:
                threading.Thread(target=self._serve, args=(self._state,), name="vkjit-cpu", daemon=True).start()
            finally:
                threading.stack_size(before)
            self.helpers += 1

    def run(self, function: Any, block: Any, begin: int, end: int, step: int, grid: tuple[int, int, int]) -> None:
        """Runs the workgroups `begin` to `end`, `step` at a time, on the calling thread and the helpers."""
        self._run(self._state, function, block, begin, end, step, *grid)

    def close(self) -> None:
        """Ends the helpers."""
        self._words[self._stop] = 1
        self._announce(self._state)
