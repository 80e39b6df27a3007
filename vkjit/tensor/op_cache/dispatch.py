"""Dispatch of cached functions: look the call up, replay it, or run and count it.

Under a profile, calls are counted and recorded, but not replayed: a replay states no costs of its kernels.

A device has one table of keys (`runtime.dispatch_cache`). Its values are the number of calls so far (an int), a `Replay`, or
False for calls that can't be replayed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from vkjit.errors import InternalError
from vkjit.runtime import host_spans, sanitizer_reports
from vkjit.runtime.capture import open_captures
from vkjit.runtime.dispatch_cache import Table, repeating, table_of
from vkjit.runtime.handles import on_fork
from vkjit.stdlib.registry import forced_class

from ..argument_errors import ERRORS, explain, explains
from ..autograd.mode import modes
from ..autograd.tape import Node
from ..tensor import Tensor
from .key import call_key, short_key
from .nodes import ReadNode, ReplayedNode, VjpReads, VjpReplay, handle_first_calls
from .recorder import OpRecorder
from .replay import Replay

__all__ = ["cached", "replay_write", "with_replay"]

F = TypeVar("F", bound=Callable[..., Any])

_CALLS_BEFORE_RECORDING = 2
"""Calls of a key before the one that is recorded."""
_MAX_KEYS = 8192
_changing = threading.RLock()
"""Held while a device's table is changed."""

_labels: dict[str, str] = {}
"""The cached functions, by label."""

_blocks, _listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners


def cached(label: str, *, setting: Callable[[], Any] | None = None) -> Callable[[F], F]:
    """Decorate a public function whose calls may be replayed.

    `label` is unique among cached functions; by convention their name with parentheses, such as "softmax()", while operations that
    `@operation(..., replayable=True)` caches go by their bare name. Raises InternalError for a label that another function has.
    `setting` returns a setting that the function depends on, which becomes part
    of the key.
    """

    def decorate(function: F) -> F:
        name = f"{function.__module__}.{function.__qualname__}"
        if _labels.setdefault(label, name) != name:
            raise InternalError(f"{name} is cached as {label!r}, as {_labels[label]} is: choose another label")

        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            try:
                mode = modes.get()
                special = mode.special
                if (special and mode.observed) or _blocks or "out" in params:
                    return function(*operands, **params)
                found = short_key(label, operands, params) if 0 < len(operands) < 3 and not special else None
                if found is None:
                    found = call_key(label, operands, params)
                if found is None:
                    return function(*operands, **params)
                key, tensors, arrays = found
                if setting is not None:
                    key = (*key, setting())
                table = table_of(tensors[0]._array.buffer.device)
                entry = table.get(key)
                if entry.__class__ is Replay:
                    if _listeners or forced_class() is not None:
                        return function(*operands, **params)
                    if entry.make_result is not None and not open_captures:
                        made = entry.make_result(arrays)
                        if made is not None:
                            return made
                    result = entry.run(tensors)
                    if result is not None:
                        return result
                elif entry is not False and forced_class() is None:
                    return _run_and_note(function, operands, params, key, tensors, table, entry or 0)
                return function(*operands, **params)
            except ERRORS as error:
                explain(error, function, operands, params)
                raise

        return explains(run)  # type: ignore[return-value]  # wraps keeps the signature

    return decorate


def with_replay(label: str, function: F) -> F:
    """Return the function with its calls cached; see `cached`."""
    return cached(label)(function)


def replay_write(write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Run `write(target, *operands, **params)`, which writes target in place; replay it if possible.

    The caller has switched recording off, and counts the write.
    """
    mode = modes.get()
    special = mode.special
    if (special and mode.observed) or _blocks:
        write(target, *operands, **params)
        return
    found = short_key(write, (target, *operands), params) if len(operands) < 2 and not special else None
    if found is None:
        found = call_key(write, (target, *operands), params)
    if found is None or forced_class() is not None:
        write(target, *operands, **params)
        return
    key, tensors, arrays = found
    table = table_of(tensors[0]._array.buffer.device)
    entry = table.get(key)
    if entry.__class__ is Replay and not _listeners:
        if entry.maker is not None and not (entry.writes or open_captures) and entry.maker(*arrays):
            return
        if entry.run(tensors) is not None:
            return
    elif entry.__class__ is not Replay and entry is not False:
        _run_and_note(write, (target, *operands), params, key, tensors, table, entry or 0, in_place=True)
        return
    write(target, *operands, **params)


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
    result, entry = _recorded(functools.partial(function, *operands, **params), tensors, in_place)
    if entry is not None:
        with _changing:
            table[key] = entry
    return result


def _recorded(call: Callable[[], Any], tensors: list[Tensor], in_place: bool = False) -> tuple[Any, Any]:
    """Run `call`, whose operands are `tensors`.

    Returns its result and its `Replay`: False if the call can't be replayed, None if it couldn't be recorded this time.
    """
    device = tensors[0]._array.buffer.device
    if any(tensor._array.buffer.device is not device for tensor in tensors):
        return call(), None
    if device.caps.kind == "interpreter":
        return call(), False
    recorder = OpRecorder(device, tensors)
    try:
        started = recorder.start()
        result = call()
    finally:
        try:
            recorder.stop()
        except BaseException:  # e.g. a KeyboardInterrupt within stop()
            recorder.stop()
            raise
    return result, (recorder.replay(() if in_place else result) or False) if started else None


def _note_vjp(
    node: ReplayedNode,
    gradients: Sequence[Any],
    tensors: list[Tensor],
    key: tuple[Any, ...],
    table: Table,
    reads: VjpReads | None,
) -> Sequence[Any]:
    """Call a node's gradient rule, and note what it reads (the first call of a key) or does (the second).

    `tensors` are the gradients without None, `reads` is what the first call noted.
    """
    results: Sequence[Any]
    entry: Any
    if not repeating() or sanitizer_reports.current_checks():
        return Node.vjp(node, gradients)
    if reads is None:
        reading = ReadNode(node)
        results = Node.vjp(reading, gradients)  # type: ignore[arg-type]  # stands for a node
        entry = reading.reads
    else:
        operands = node.operands(tensors, reads)
        if operands is None:
            return Node.vjp(node, gradients)
        results, replay = _recorded(lambda: Node.vjp(node, gradients), operands)
        if replay is None:
            return results
        entry = replay and _is_pure(replay, len(tensors)) and VjpReplay(replay, reads)
    with _changing:
        table[key] = entry
        _drop_oldest(table)
    return results


handle_first_calls(_note_vjp)


def _is_pure(replay: Replay, count: int) -> bool:
    """True if a gradient rule has written no operand, and returned no kept value: only its first `count` operands, the
    gradients, and new tensors.
    """
    numbers = [number for number in replay.results if number is not None]
    plans: Any = replay.plans  # results have one
    sources = [n if n < replay.count else plans[n - replay.count].source for n in numbers]
    return not replay.writes and not replay.nodes and not any(count <= s < replay.count for s in sources)


def _count(table: Table, key: tuple[Any, ...], count: int) -> None:
    """Count a call, unless another thread has recorded it meanwhile; drop the oldest keys if the table is full."""
    with _changing:
        if table.setdefault(key, count).__class__ is int:
            table[key] = count
        _drop_oldest(table)


def _drop_oldest(table: Table) -> None:
    """Drop the oldest keys of a full table; the caller holds `_changing`."""
    while len(table) > _MAX_KEYS:
        del table[next(iter(table))]


def _in_child() -> None:
    global _changing
    _changing = threading.RLock()  # another thread of the parent may have held the old lock


on_fork(_in_child)
