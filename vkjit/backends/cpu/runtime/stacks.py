"""Stacks of threads: their sizes, threads with larger ones, and calls that need more than the calling thread has."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from vkjit.runtime.handles import new_lock
from vkjit.runtime.open_blocks import block

__all__ = ["LARGE_STACK", "on_large_stack", "stack_of_thread", "stack_size_of_threads"]

F = TypeVar("F", bound=Callable[..., Any])

LARGE_STACK = 16 << 20
"""Bytes of the stacks of threads that are started for work that needs much."""
_MIN_STACK = 4 << 20
"""Bytes of a stack on which LLVM runs. Its passes recurse, and rely on the 8 MiB that are usual."""
_SMALL_THREAD = 512 << 10
"""The assumed size of a stack whose size is unknown: that of the smallest usual one."""

_starting = new_lock()
"""Guards the stack size of new threads, which is a setting of the whole process."""
_of_thread = threading.local()


@block
def stack_size_of_threads(nbytes: int) -> Iterator[None]:
    """Give the threads that are started inside stacks of this size."""
    with _starting:
        before = threading.stack_size()
        try:
            threading.stack_size(nbytes)
            yield
        finally:
            threading.stack_size(before)


def stack_of_thread() -> int:
    """Return the size of this thread's stack in bytes; that of the smallest usual one if the system doesn't tell."""
    found: int | None = getattr(_of_thread, "stack_bytes", None)
    if found is None:
        found = _of_thread.stack_bytes = _stack_of_thread() or _SMALL_THREAD
    return found


def _stack_of_thread() -> int:
    """Return the size of this thread's stack in bytes; 0 if it is unknown."""
    try:
        c = ctypes.CDLL(None)
        if hasattr(c, "pthread_get_stacksize_np"):  # macOS
            c.pthread_get_stacksize_np.restype = ctypes.c_size_t
            return int(c.pthread_get_stacksize_np(ctypes.c_void_p(threading.get_ident())))
        attributes = (ctypes.c_uint64 * 32)()
        if c.pthread_getattr_np(ctypes.c_ulong(threading.get_ident()), attributes):
            return 0
        size = ctypes.c_size_t()
        result = c.pthread_attr_getstacksize(attributes, ctypes.byref(size))
        c.pthread_attr_destroy(attributes)
        return 0 if result else size.value
    except (AttributeError, OSError, TypeError):  # Windows
        return 0


def on_large_stack(function: F) -> F:
    """Decorator: calls from threads with stacks below `_MIN_STACK` run on a new thread with a large one."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if stack_of_thread() >= _MIN_STACK:
            return function(*args, **kwargs)
        results: list[Any] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001  # raised by the caller
                errors.append(error)

        thread = threading.Thread(target=work, name="vkjit-cpu", daemon=True)
        with stack_size_of_threads(LARGE_STACK):
            thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    return cast("F", call)
