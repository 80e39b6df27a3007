"""Dispatch of cached functions: look the call up, replay it, or run and count it.

A device has one table of keys (`runtime.dispatch_cache`). Its values are the number of calls so far (an int), a `Replay`, or
False for calls that can't be replayed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from math import copysign
from typing import Any, TypeVar

from vkjit.runtime import host_spans, sanitizer_reports
from vkjit.runtime.capture import shadowing
from vkjit.runtime.dispatch_cache import Table, repeating, table_of
from vkjit.runtime.handles import on_fork
from vkjit.stdlib.registry import forced_class

from ..autograd.mode import state
from ..tensor import Tensor
from .key import call_key, simple_key
from .recorder import OpRecorder
from .replay import Replay, tensor_of

__all__ = ["cached", "replay_write", "with_replay"]

F = TypeVar("F", bound=Callable[..., Any])

_CALLS_BEFORE_RECORDING = 2
"""Calls of a key before the one that is recorded."""
_MAX_KEYS = 8192
_changing = threading.RLock()
"""Held while a device's table is changed."""

_blocks, _listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners


def cached(label: str, *, setting: Callable[[], Any] | None = None) -> Callable[[F], F]:
    """Decorate a public function whose calls may be replayed.

    `label` is unique among cached functions. `setting` returns a setting that the function depends on, which becomes part
    of the key.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            if not (params or state.special or _blocks or _listeners or setting is not None) and operands:
                simple = simple_key(label, operands)
                if simple is not None:
                    entry = table_of(simple[1][0].buffer.device).get(simple[0])
                    if entry.__class__ is Replay and not shadowing.captured and forced_class() is None:
                        made = None if entry.make_result is None else entry.make_result(*simple[1])
                        if made:
                            return tensor_of(made)
                        made = entry.run([operand for operand in operands if operand.__class__ is Tensor])
                        if made is not None:
                            return made
            if state.observed or _blocks or _listeners or "out" in params:
                return function(*operands, **params)
            found = call_key(label, operands, params)
            if found is None:
                return function(*operands, **params)
            key, tensors = found
            if setting is not None:
                key = (*key, setting())
            table = table_of(tensors[0]._array.buffer.device)
            entry = table.get(key)
            if entry.__class__ is Replay and forced_class() is None:
                result = entry.run(tensors)
                if result is not None:
                    return result
            elif entry is not False and forced_class() is None:
                return _run_and_note(function, operands, params, key, tensors, table, entry or 0)
            return function(*operands, **params)

        return run  # type: ignore[return-value]  # wraps keeps the signature

    return decorate


def with_replay(label: str, function: F) -> F:
    """Return the function with its calls cached; see `cached`."""
    return cached(label)(function)


def replay_write(write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Run `write(target, *operands, **params)`, which writes target in place; replay it if possible.

    The caller has switched recording off, and counts the write.
    """
    if state.observed or _blocks or _listeners:
        write(target, *operands, **params)
        return
    if _write_simple(write, (target, *operands), params):
        return
    found = call_key(write, (target, *operands), params)
    if found is None or forced_class() is not None:
        write(target, *operands, **params)
        return
    key, tensors = found
    table = table_of(tensors[0]._array.buffer.device)
    entry = table.get(key)
    if entry.__class__ is Replay:
        if entry.run(tensors) is not None:
            return
    elif entry is not False:
        _run_and_note(write, (target, *operands), params, key, tensors, table, entry or 0, in_place=True)
        return
    write(target, *operands, **params)


def _write_simple(write: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Replay a write of one launch on tensors and numbers; return False, and nothing has happened, if that isn't possible."""
    simple = simple_key(write, operands)
    if simple is None or state.autocast_dtype is not None:
        return False
    key, arrays = simple
    for word, value in params.items():
        if value.__class__ is float:
            key += (word, float, value, copysign(1.0, value))
        elif value.__class__ is int:
            key += (word, int, value)
        else:
            return False
    entry = table_of(arrays[0].buffer.device).get(key)
    if entry.__class__ is not Replay or entry.maker is None or shadowing.captured or forced_class() is not None:
        return False
    return bool(entry.maker(*arrays))


def _run_and_note(
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    key: tuple[Any, ...],
    tensors: list[Tensor],
    table: Table,
    calls: int,
    in_place: bool = False,
) -> Any:
    """Run a function that was called `calls` times with this key, and record the call if it is due."""
    if not repeating():
        return function(*operands, **params)
    if calls < _CALLS_BEFORE_RECORDING or sanitizer_reports.current_checks():
        _count(table, key, min(calls + 1, _CALLS_BEFORE_RECORDING))
        return function(*operands, **params)
    device = tensors[0]._array.buffer.device
    if any(tensor._array.buffer.device is not device for tensor in tensors):
        return function(*operands, **params)
    if device.caps.kind == "interpreter":
        with _changing:
            table[key] = False
        return function(*operands, **params)
    recorder = OpRecorder(device, tensors)
    try:
        started = recorder.start()
        result = function(*operands, **params)
    finally:
        try:
            recorder.stop()
        except BaseException:  # e.g. a KeyboardInterrupt within stop()
            recorder.stop()
            raise
    if started:
        replay = recorder.replay(() if in_place else result)
        with _changing:
            table[key] = replay or False
    return result


def _count(table: Table, key: tuple[Any, ...], count: int) -> None:
    """Count a call, unless another thread has recorded it meanwhile; drop the oldest keys if the table is full."""
    with _changing:
        if table.setdefault(key, count).__class__ is int:
            table[key] = count
        while len(table) > _MAX_KEYS:
            del table[next(iter(table))]


def _in_child() -> None:
    global _changing
    _changing = threading.RLock()  # another thread of the parent may have held the old lock


on_fork(_in_child)
