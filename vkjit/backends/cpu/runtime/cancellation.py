"""Cancellation of running kernels, which poll a token at safepoints.

Each thread that launches kernels has a `CancellationToken`. Kernels get its address as their last argument and pass it
to the poll function. The launching thread calls into Python about every 50 milliseconds, so that signal handlers run.
An exception from a handler (KeyboardInterrupt) stops the launch on all threads and is raised by the launch.

A token is a block of 64-bit words: 0 stop flag, 1 poll function (address, may be 0), 2 time of the last call into
Python (ns), 3 Python callback (address).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import cffi
import numpy as np

__all__ = ["TOKEN_KEY", "CancellationToken", "callback_address", "poll_call", "poll_text", "token_of_thread"]

TOKEN_KEY = "vkjit cancellation token"
"""The key of the token's address in the thread's state dictionary, where machine code finds it."""

_FFI = cffi.FFI()
_CALLBACK, _ADDRESS = _FFI.typeof("int64_t (*)(char *)"), _FFI.typeof("uintptr_t")
_WORDS = 8

_POLL = """
define internal {convention}i1 @poll(ptr %watch) noinline nounwind memory(argmem: read, inaccessiblemem: readwrite) {attributes}{{
  %stop = load atomic i64, ptr %watch monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %yes, label %ask
ask:
  %place = getelementptr i64, ptr %watch, i64 1
  %function = load ptr, ptr %place, align 8
  %nobody = icmp eq ptr %function, null
  br i1 %nobody, label %no, label %call
call:
  %answer = call i64 %function(ptr %watch)
  %ends = icmp ne i64 %answer, 0
  br i1 %ends, label %yes, label %no
yes:
  ret i1 true
no:
  ret i1 false
}}"""


def _convention(features: frozenset[str]) -> str:
    """Return the poll function's calling convention.

    With SSE2 (all 64-bit x86 CPUs) it preserves registers up to 256 bits, so loops are compiled as if they didn't poll.
    """
    return "preserve_allcc " if "sse2" in features else ""


def poll_text(features: frozenset[str]) -> str:
    """Return the LLVM IR of the poll function, which returns true if the kernel must stop.

    For the optimizer it accesses none of the kernel's memory.
    """
    # LLVM 22 clears the upper halves of AVX registers after restoring them, unless vzeroupper is disabled
    kept = ",".join(f"+{feature}" for feature in sorted(features))
    attributes = f'"target-features"="{kept},-vzeroupper" ' if "avx" in features else ""
    return _POLL.format(convention=_convention(features), attributes=attributes)


def poll_call(features: frozenset[str]) -> str:
    """Return the LLVM instruction that polls the token `%watch`."""
    return f"call {_convention(features)}i1 @poll(ptr %watch)"


_of_thread = threading.local()
"""`watch`: the thread's token; `error`: the exception that a signal handler raised."""


def _look(_watch: Any) -> int:
    """Callback for kernels: returning to Python code is enough for signal handlers to run."""
    return 0


def _keep(_kind: Any, error: BaseException | None, _trace: Any) -> None:
    """Store the exception that a handler raised, for the launch to raise, and stop this thread's kernel."""
    _of_thread.error = error
    watch: CancellationToken | None = getattr(_of_thread, "watch", None)
    if watch is not None:
        watch.words[0] = 1


@functools.lru_cache(maxsize=1)
def _callback() -> Any:
    """Return the Python callback as a C function; None if the system doesn't allow callbacks."""
    try:
        return _FFI.callback(_CALLBACK, error=1, onerror=_keep)(_look)
    except (MemoryError, SystemError):
        return None


def callback_address() -> int:
    """Return the address of a function that runs signal handlers and returns 1 if one raised; 0 if there are no
    callbacks.
    """
    found = _callback()
    return 0 if found is None else int(_FFI.cast(_ADDRESS, found))


class CancellationToken:
    """The cancellation token of one thread that launches kernels.

    At first, each poll calls Python. `ask_through` replaces that by `thread_pool.tick_address`, which limits how often
    Python is called but needs compiled code, so it is used only when the work pays for it.
    """

    __slots__ = ("address", "pointer", "words")

    def __init__(self) -> None:
        whole = np.zeros(_WORDS + 8, dtype=np.int64)
        skip = -int(whole.ctypes.data) % 64 // 8
        self.words = whole[skip : skip + _WORDS]
        self.words[1] = self.words[3] = callback_address()
        self.pointer = _FFI.from_buffer(self.words)
        self.address = int(self.words.ctypes.data)

    def ask_through(self, function: int) -> None:
        """Set the function (address) that kernels call when they poll."""
        self.words[1] = function

    def check(self) -> None:
        """Raise the exception that a signal handler raised while a kernel ran."""
        if self.words[0]:
            self.words[0] = 0
            error, _of_thread.error = getattr(_of_thread, "error", None), None
            raise error if error is not None else KeyboardInterrupt


def token_of_thread() -> CancellationToken:
    """Return this thread's token."""
    found: CancellationToken | None = getattr(_of_thread, "watch", None)
    if found is None:
        found = _of_thread.watch = CancellationToken()
        get_dictionary = ctypes.pythonapi.PyThreadState_GetDict
        get_dictionary.restype = ctypes.c_void_p  # a borrowed reference
        ctypes.cast(get_dictionary(), ctypes.py_object).value[TOKEN_KEY] = found.address
    return found
