"""How a running kernel is stopped: it asks now and then whether it should go on.

Enters: a thread that calls kernels. Leaves: a `CancellationToken`, whose address kernels get as their last argument,
and the function that they ask. Holds: the calling thread comes back to Python about every 50 milliseconds, so that
handlers of signals run; what they raise (KeyboardInterrupt) ends the launch on all threads and is raised where the
launch was made.

A watch is a block of 64-bit words: 0 stop?, 1 function to ask (address, may be 0), 2 time of the last look (ns), 3 Python's
function (address).
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import cffi
import numpy as np

__all__ = ["CancellationToken", "callback_address", "poll_call", "poll_text", "token_of_thread"]

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
    """With SSE2 (on all 64-bit x86) the function keeps registers up to 256 bits: loops are compiled as if nobody asked."""
    return "preserve_allcc " if "sse2" in features else ""


def poll_text(features: frozenset[str]) -> str:
    """LLVM's text of the function that asks: true where the kernel has to stop. To kernels it is as if it touched nothing
    of theirs."""
    # LLVM 22 clears the upper halves of AVX's registers after it has restored them, unless it is told not to
    kept = ",".join(f"+{feature}" for feature in sorted(features))
    attributes = f'"target-features"="{kept},-vzeroupper" ' if "avx" in features else ""
    return _POLL.format(convention=_convention(features), attributes=attributes)


def poll_call(features: frozenset[str]) -> str:
    """The instruction that asks the watch `%watch`."""
    return f"call {_convention(features)}i1 @poll(ptr %watch)"


_of_thread = threading.local()
"""`watch`: that of the thread; `error`: what a handler raised."""


def _look(_watch: Any) -> int:
    """Handlers of signals run when Python's code does."""
    return 0


def _keep(_kind: Any, error: BaseException | None, _trace: Any) -> None:
    """Keeps what a handler raised, for the launch to raise, and stops this thread's kernel."""
    _of_thread.error = error
    watch: CancellationToken | None = getattr(_of_thread, "watch", None)
    if watch is not None:
        watch.words[0] = 1


@functools.lru_cache(maxsize=1)
def _callback() -> Any:
    """Python's function for C; None where the system allows no such thing."""
    try:
        return _FFI.callback(_CALLBACK, error=1, onerror=_keep)(_look)
    except (MemoryError, SystemError):
        return None


def callback_address() -> int:
    """The address of a function that runs handlers of signals, and gives 1 where one of them raised; or 0."""
    found = _callback()
    return 0 if found is None else int(_FFI.cast(_ADDRESS, found))


class CancellationToken:
    """The watch of one thread that launches kernels. Asks Python whenever kernels ask, or as `tick_address` of a crew says:
    that needs code of its own, which is made when it is worth it."""

    __slots__ = ("address", "pointer", "words")

    def __init__(self) -> None:
        whole = np.zeros(_WORDS + 8, dtype=np.int64)
        skip = -int(whole.ctypes.data) % 64 // 8
        self.words = whole[skip : skip + _WORDS]
        self.words[1] = self.words[3] = callback_address()
        self.pointer = _FFI.from_buffer(self.words)
        self.address = int(self.words.ctypes.data)

    def ask_through(self, function: int) -> None:
        """Sets the function (address) that kernels ask."""
        self.words[1] = function

    def check(self) -> None:
        """Raises what a handler of a signal raised while a kernel ran."""
        if self.words[0]:
            self.words[0] = 0
            error, _of_thread.error = getattr(_of_thread, "error", None), None
            raise error if error is not None else KeyboardInterrupt


def token_of_thread() -> CancellationToken:
    """This thread's watch."""
    found: CancellationToken | None = getattr(_of_thread, "watch", None)
    if found is None:
        found = _of_thread.watch = CancellationToken()
    return found
