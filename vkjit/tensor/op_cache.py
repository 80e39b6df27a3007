"""Record/replay cache for eager operations, keyed by operand layouts.

The launches of a cached function (kernels, grids, argument blocks) must depend only on the layouts of its tensors, its
scalars and its parameters; these form the key. The first two calls with a key run normally. The third is recorded by a
`LaunchRecorder`. Later calls replay the recorded allocations and launches with their own buffers, without running the
function.

`dispatch.operation` caches forward functions (`with_replay`, `repeated`) and puts a fast lookup before dispatch
(`at_once`); `dispatch.run_in_place` caches writes (`written`); `whole` caches functions composed of several operations.

Not cached: results that share memory with an operand, calls that read from the device or wait for it, calls under the
profiler or the sanitizer, subclasses of Tensor that aren't registered (`only_values`), and composed functions while
autograd records them.

Terms: a buffer's *number* is its position in the sequence of the operands' buffers followed by those that the call
allocates. A device's *table* maps a key to the number of calls so far, to a `_CachedOp` once recorded, or to False if
the call can't be replayed.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from math import copysign
from typing import Any, NamedTuple, TypeVar

from ..backends.vulkan.runtime.fast_path.fast_path import Maker, Repeater
from ..dtypes import DType
from ..runtime import host_spans, sanitizer_reports
from ..runtime.array import DeviceArray, layout_of
from ..runtime.capture import shadowing
from ..runtime.device import Device
from ..runtime.dispatch_cache import Table, repeating, table_of
from ..runtime.handles import on_fork
from ..runtime.launch_recorder import LaunchRecorder, RecordedLaunch, Step
from ..stdlib.registry import forced_class
from .autograd.mode import state
from .autograd.tape import GradMeta
from .tensor import Tensor, Version

__all__ = ["at_once", "only_values", "repeated", "whole", "with_replay", "written"]

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K", bound=type)

_CALLS_BEFORE_RECORDING = 2
"""Number of calls with a key that run before a call is recorded."""
_MAX_KEYS = 8192
"""Maximum number of keys in a device's table; the oldest are evicted."""
_MAX_STEPS = 64
"""Maximum number of launches, fills and copies in a cached call."""
_changing = threading.RLock()
"""Lock for changing the tables."""
_PLAIN: set[type] = {int, bool, str, type(None), DType}
"""Types of operands and parameters that are part of the key as they are."""
_TENSORS: set[type] = {Tensor}
"""Tensor classes whose calls are cached."""
_FIELDS: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""Cache: the field names of a frozen dataclass, whose fields become part of the key; () for other classes."""


Run = Callable[[tuple[Tensor, ...]], Any]
"""A function that replays a call with these tensors.

It returns the results, () for a write in place, or None if this call can't be replayed.
"""


class _CachedOp:
    """A recorded call. `run` replays it.

    `at_once` is a faster path for a call with a single launch, else None. It takes the arrays of the tensors and
    returns the resulting array, True for a write into the first array, or None or False if it can't replay this call.
    """

    __slots__ = ("at_once", "run")

    def __init__(self, run: Run, at_once: Maker | None = None) -> None:
        self.run, self.at_once = run, at_once


class _PlannedStep(NamedTuple):
    """A recorded launch, fill or copy, with its fast path if the device has one.

    `fresh` and `gone` are the numbers of the buffers to allocate before the step and to release after it.
    """

    fresh: tuple[int, ...]
    fast_path: Repeater | None
    step: Step
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Steps:
    """A recorded call: its steps, and its results, each as (buffer number, offset, dtype, shape, strides).

    `sizes` are the sizes in bytes of the buffers that the call allocates. `kind` builds the return value from the list
    of results (tuple, or a named tuple's constructor); it is None if the call returns a single tensor.
    """

    device: Device
    sizes: tuple[int, ...]
    steps: tuple[_PlannedStep, ...]
    results: tuple[tuple[int, int, DType, tuple[int, ...], tuple[int, ...]], ...]
    kind: Callable[[list[Tensor]], Any] | None

    def run(self, tensors: tuple[Tensor, ...]) -> Any:
        """Replay the steps; see `Run`."""
        # graph capture (`shadowing.captured`) records arrays, but the steps only know addresses
        if sanitizer_reports.OPEN_BLOCKS or host_spans.listeners or shadowing.captured:
            return None
        device, sizes, count = self.device, self.sizes, len(tensors)
        buffers: list[Any] = []
        addresses_by_number: list[int] = []
        for tensor in tensors:
            array = tensor._array
            if array.buffer.device is not device:
                return None
            buffers.append(array.buffer)
            addresses_by_number.append(array.descriptor[0])
        buffers += sizes  # placeholders for the buffers that the steps allocate
        addresses_by_number += sizes
        for allocated, fast_path, step, released in self.steps:
            for number in allocated:
                buffers[number] = device.allocate(sizes[number - count])
                addresses_by_number[number] = buffers[number].address
            addresses = tuple(addresses_by_number)
            if fast_path is None or not fast_path(buffers, addresses):
                step.run(device, buffers, addresses)
            for number in released:
                buffers[number] = None
        made = [Tensor.of(DeviceArray(buffers[n], o, d, shape, strides)) for n, o, d, shape, strides in self.results]
        return made[0] if self.kind is None else self.kind(made)

    def cached_op(self, count: int) -> _CachedOp:
        """Return the table entry for this call of `count` tensors, with a fast path if there is a single launch.

        The device's `maker` returns that fast path, or None if it has none.
        """
        if len(self.steps) != 1 or not isinstance(self.steps[0].step, RecordedLaunch):
            return _CachedOp(self.run)
        launch, maker = self.steps[0].step, None
        if self.kind is None and len(self.sizes) == 1 and not self.results[0][1]:  # a single result, at offset 0
            _, _, dtype, shape, strides = self.results[0]
            maker = self.device.maker(launch, count, (self.sizes[0], dtype, layout_of(dtype, shape, strides)))
            return _CachedOp(self.run) if maker is None else _CachedOp(_made_by(maker, self.run), maker)
        if not self.results and not self.sizes:  # a write in place
            maker = self.device.maker(launch, count, None)
        return _CachedOp(self.run) if maker is None else _CachedOp(_written_by(maker, self.run), maker)


def _made_by(maker: Maker, fallback: Run) -> Run:
    """Return a function that tries the device's fast path `maker`, for a single launch with one result.

    If that can't replay the call, `fallback` does.
    """
    blocks, listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners

    def run(tensors: tuple[Tensor, ...]) -> Any:
        if blocks or listeners:
            return None
        array = maker(*[tensor._array for tensor in tensors])
        return fallback(tensors) if array is None else Tensor.of(array)

    return run


def _written_by(maker: Maker, fallback: Run) -> Run:
    """Return a function that tries the fast path `maker`, for a launch that writes into the first tensor.

    If that can't replay the call, `fallback` does.
    """
    blocks, listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners

    def run(tensors: tuple[Tensor, ...]) -> Any:
        if blocks or listeners:
            return None
        return () if maker(*[tensor._array for tensor in tensors]) else fallback(tensors)

    return run


def only_values(kind: K) -> K:
    """Decorate a class to register it for operands and parameters of cached calls.

    A subclass of Tensor must behave as Tensor does. Instances of other classes become part of the key, so they must be
    equal only if calls with them launch the same work.
    """
    (_TENSORS if issubclass(kind, Tensor) else _PLAIN).add(kind)
    return kind


def with_replay(name: str, forward: F) -> F:
    """Return an operation's forward function with its calls replayed from the cache."""

    @functools.wraps(forward)
    def run(*operands: Any, **params: Any) -> Any:
        return repeated(name, forward, operands, params)

    return run  # type: ignore[return-value]  # wraps keeps the signature


def at_once(name: str, fallback: F) -> F:
    """Put a fast cache lookup before a public function `fallback`, for plain tensors in distinct buffers and scalars.

    The keys are the same as those of `_key`, so this function finds the entries that `fallback` has recorded. Other
    calls go to `fallback`, also those that autograd records and those with stale views. One and two operands, the most
    frequent cases, are written out for speed.
    """
    # both lists are nonempty only while the sanitizer or the profiler needs to see each launch
    blocks, listeners, new = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners, object.__new__

    @functools.wraps(fallback)
    def run(*operands: Any, **params: Any) -> Any:
        x: Any = operands[0] if operands else None
        if params or x.__class__ is not Tensor or state.intercepts or blocks or listeners:
            return fallback(*operands, **params)
        a: Any = x._array
        if len(operands) == 2:
            y = operands[1]
            if y.__class__ is Tensor:
                arrays: tuple[Any, ...] = (a, y._array)
                if arrays[1].buffer is a.buffer or (
                    state.enabled
                    and (
                        x.meta.requires_grad
                        or y.meta.requires_grad
                        or x._history != x._version.recorded
                        or y._history != y._version.recorded
                    )
                ):
                    return fallback(*operands)
                key: tuple[Any, ...] = (name, a.layout, arrays[1].layout)
            elif state.enabled and (x.meta.requires_grad or x._history != x._version.recorded):
                return fallback(*operands)
            elif y.__class__ is float:
                arrays, key = (a,), (name, a.layout, float, y, copysign(1.0, y))
            elif y.__class__ is int:
                arrays, key = (a,), (name, a.layout, int, y)
            else:
                return fallback(*operands)
        elif len(operands) == 1:
            if state.enabled and (x.meta.requires_grad or x._history != x._version.recorded):
                return fallback(*operands)
            arrays, key = (a,), (name, a.layout)
        else:
            eligible = _fast_key(name, operands)
            if eligible is None:
                return fallback(*operands)
            arrays, key = eligible
        device = a.buffer.device
        entry: Any = table_of(device).get(key)
        if entry.__class__ is not _CachedOp or forced_class() is not None:
            return fallback(*operands)
        if entry.at_once is None:
            result = entry.run(tuple([y for y in operands if y.__class__ is Tensor]))
            return fallback(*operands) if result is None else result
        array = entry.at_once(*arrays)
        if array is None:
            return fallback(*operands)
        result_tensor, version = new(Tensor), new(Version)  # `Tensor.of`, inlined
        version.value = version.recorded = 0
        result_tensor._array, result_tensor._is_view, result_tensor._version = array, False, version
        result_tensor._history, result_tensor._root = 0, None
        result_tensor.meta = GradMeta(array.shape, array.dtype, device)
        return result_tensor

    return run  # type: ignore[return-value]  # wraps keeps the signature


def _fast_key(name: str, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the arrays and the key of a call with three or more operands, or None if `at_once` can't serve it."""
    arrays: tuple[Any, ...] = ()
    key: tuple[Any, ...] = (name,)
    for y in operands:
        if y.__class__ is Tensor:
            if state.enabled and (y.meta.requires_grad or y._history != y._version.recorded):
                return None
            buffer = y._array.buffer
            for array in arrays:
                if array.buffer is buffer:
                    return None
            arrays += (y._array,)
            key += (y._array.layout,)
        elif y.__class__ is float:
            key += (float, y, copysign(1.0, y))
        elif y.__class__ is int:
            key += (int, y)
        else:
            return None
    return arrays, key


def repeated(name: str, forward: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Return forward(*operands, **params) for operation `name`, replayed from the cache if possible."""
    keyed = _key(name, operands, params)
    if keyed is None:
        return forward(*operands, **params)
    key, tensors = keyed
    # a device class forced by `registry.forcing_class` applies to this thread only, but the table is shared
    table = table_of(tensors[0]._array.buffer.device) if forced_class() is None else {}
    entry: Any = table.get(key)
    if entry.__class__ is _CachedOp:
        result = entry.run(tensors)
        if result is not None:
            return result
    elif entry is not False:
        return _run_and_note(forward, operands, params, key, tensors, table, entry or 0)
    return forward(*operands, **params)


def whole(name: str, *, also: Callable[[], Any] | None = None) -> Callable[[F], F]:
    """Decorate a function composed of several operations to replay it as one cached call, unless autograd records it.

    `also` returns a setting that the function depends on, which becomes part of the key.
    """
    label = f"{name}()"  # distinct from an operation of the same name

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            if state.intercepts:
                return function(*operands, **params)
            keyed = _key(label, operands, params)
            if keyed is None:
                return function(*operands, **params)
            key, tensors = keyed
            if state.enabled:
                for tensor in tensors:
                    if tensor.meta.requires_grad or tensor._history != tensor._version.recorded:
                        return function(*operands, **params)
            if also is not None:
                key = (*key, also())
            return _replay_or_run(function, operands, params, key, tensors)

        whole_run: F = run  # type: ignore[assignment]  # wraps keeps the signature
        return whole_run if also is not None else at_once(label, whole_run)

    return decorate


def written(write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Run `write(target, *operands, **params)`, which writes target in place, replayed from the cache if possible."""
    if len(operands) == 1 and target.__class__ is Tensor and _write_at_once(write, target, operands[0], params):
        return
    keyed = _key(write, (target, *operands), params)
    if keyed is None:
        write(target, *operands, **params)
    else:
        _replay_or_run(write, (target, *operands), params, *keyed, writes=True)


def _write_at_once(write: Callable[..., Any], target: Tensor, operand: Any, params: dict[str, Any]) -> bool:
    """Try the fast path for a write into `target` with one more operand; return True if it was taken.

    Builds the same key as `_key`.
    """
    if sanitizer_reports.OPEN_BLOCKS or host_spans.listeners or forced_class() is not None:
        return False
    a: Any = target._array
    if operand.__class__ is Tensor:
        arrays: tuple[Any, ...] = (a, operand._array)
        if arrays[1].buffer is a.buffer:
            return False
        key: tuple[Any, ...] = (write, a.layout, arrays[1].layout)
    elif operand.__class__ is float:
        arrays, key = (a,), (write, a.layout, float, operand, copysign(1.0, operand))
    elif operand.__class__ is int:
        arrays, key = (a,), (write, a.layout, int, operand)
    else:
        return False
    for word, value in params.items():
        if value.__class__ is int:
            key += (word, int, value)
        elif value.__class__ is float:
            key += (word, float, value, copysign(1.0, value))
        else:
            return False
    entry: Any = table_of(a.buffer.device).get(key)
    return entry.__class__ is _CachedOp and entry.at_once is not None and bool(entry.at_once(*arrays))


def _replay_or_run(
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    key: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    writes: bool = False,
) -> Any:
    """Replay a call with this key if it is recorded, else run the function and count the call.

    `writes` is True for a function that writes into its first operand in place and returns nothing.
    """
    # a device class forced by `registry.forcing_class` applies to this thread only, but the table is shared
    table = table_of(tensors[0]._array.buffer.device) if forced_class() is None else {}
    entry: Any = table.get(key)
    if entry.__class__ is _CachedOp:
        result = entry.run(tensors)
        if result is not None:
            return result
    elif entry is not False:
        return _run_and_note(function, operands, params, key, tensors, table, entry or 0, writes)
    return function(*operands, **params)


_Keyed = tuple[tuple[Any, ...], tuple[Tensor, ...]]


def _key(name: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> _Keyed | None:
    """Return the cache key of a call and its tensors, or None if it can't be cached."""
    if not params:
        count = len(operands)
        if count == 1 and operands[0].__class__ is Tensor:
            layout = operands[0]._array.layout
            return None if layout is None else ((name, layout), operands)
        if count == 2 and operands[0].__class__ is Tensor and operands[1].__class__ is Tensor:
            x, y = operands[0]._array, operands[1]._array
            if x.layout is None or y.layout is None:
                return None
            if x.buffer is not y.buffer:
                return (name, x.layout, y.layout), operands
    key: list[Any] = [name]
    tensors: list[Tensor] = []
    for operand in operands:
        if not _add_to_key(operand, key, tensors):
            return None
    for word, value in params.items():
        key.append(word)
        if not _add_to_key(value, key, tensors):
            return None
    if not tensors:
        return None
    if len(tensors) > 1:
        _add_sharing(tensors, key)
    return tuple(key), tuple(tensors)


def _add_sharing(tensors: list[Tensor], key: list[Any]) -> None:
    """Add to the key which tensors share a buffer, and the distance of their addresses in bytes."""
    for i, tensor in enumerate(tensors):
        for j in range(i):
            if tensors[j]._array.buffer is tensor._array.buffer:
                key += ("shared", i, j, tensor._array.descriptor[0] - tensors[j]._array.descriptor[0])
                break


def _add_to_key(value: Any, key: list[Any], tensors: list[Tensor]) -> bool:
    """Add an operand or parameter to the key, and a tensor to `tensors` too; return False if the call can't be cached.

    A tensor adds its layout. Another value adds its type and value, and a float its sign, since 1, 1.0 and True are
    equal in Python, and so are 0.0 and -0.0.
    """
    kind: Any = value.__class__
    if kind in _TENSORS:
        layout = value._array.layout
        key.append(layout)
        tensors.append(value)
        return layout is not None
    if kind is float:
        key += (kind, value, copysign(1.0, value))
        return bool(value == value)  # NaN never matches as a dictionary key
    if kind in _PLAIN:
        key += (kind, value)
        return True
    if kind is tuple or kind is list:
        key += (kind, len(value))
        return all(_add_to_key(item, key, tensors) for item in value)
    names = _FIELDS.get(kind)
    if names is None:
        frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009  # unknown to its stubs
        names = _FIELDS[kind] = tuple([f.name for f in fields(kind)]) if frozen else ()
    key.append(kind)
    return bool(names) and all(_add_to_key(getattr(value, name), key, tensors) for name in names)


def _run_and_note(
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    key: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    table: Table,
    calls_so_far: int,
    writes: bool = False,
) -> Any:
    """Run a function that has run `calls_so_far` times with this key, and count or record the call in `table`."""
    arrays = tuple([tensor._array for tensor in tensors])
    device = arrays[0].buffer.device
    if not repeating():
        return function(*operands, **params)
    if (
        calls_so_far < _CALLS_BEFORE_RECORDING
        or sanitizer_reports.OPEN_BLOCKS
        or host_spans.listeners
        or sanitizer_reports.current_checks()
    ):
        _store_count(table, key, min(calls_so_far + 1, _CALLS_BEFORE_RECORDING))
        return function(*operands, **params)
    if device.caps.kind == "interpreter" or any(array.buffer.device is not device for array in arrays):
        with _changing:
            table[key] = False  # never replayed
        return function(*operands, **params)
    recorder = LaunchRecorder(device, arrays)
    try:
        started = recorder.start()
        result = function(*operands, **params)
    finally:
        try:
            recorder.stop()
        except BaseException:  # e.g. a KeyboardInterrupt within stop()
            recorder.stop()
            raise
    if not started:  # someone else is recording the device's launches; try again at the next call
        return result
    entry = _cached_op(recorder, arrays, result, writes) or False
    with _changing:
        table[key] = entry
    return result


def _store_count(table: Table, key: tuple[Any, ...], count: int) -> None:
    """Store the number of calls with a key, unless another thread has stored a recorded call; evict the oldest keys."""
    with _changing:
        if table.setdefault(key, count).__class__ is int:
            table[key] = count
        while len(table) > _MAX_KEYS:
            del table[next(iter(table))]


def _cached_op(
    recorder: LaunchRecorder, arrays: tuple[DeviceArray, ...], result: Any, writes: bool
) -> _CachedOp | None:
    """Return the table entry for a recorded call, or None if it can't be replayed.

    `arrays` are those of its operands, `result` is what it returned.
    """
    steps = recorder.steps()
    several = isinstance(result, tuple)
    result_tensors = () if writes else result if several else (result,)
    if not steps or len(steps) > _MAX_STEPS or any(tensor.__class__ is not Tensor for tensor in result_tensors):
        return None
    results = []
    for tensor in result_tensors:
        array = tensor._array
        number = recorder.number_of(array.buffer)
        # a result must be in a buffer that the call allocated, not in an operand's or an unknown one
        if number is None or number < len(arrays) or tensor.is_view or tensor.requires_grad:
            return None
        results.append((number, array.offset, array.dtype, array.shape, array.strides))
    numbers = [result[0] for result in results]
    if len(set(numbers)) < len(numbers):  # results that share memory
        return None
    planned, sizes = _with_lifetimes(recorder.device, steps, len(arrays), numbers), tuple(recorder.sizes)
    kind: Any = tuple if writes else getattr(type(result), "_make", type(result)) if several else None
    return _Steps(recorder.device, sizes, planned, tuple(results), kind).cached_op(len(arrays))


def _with_lifetimes(device: Device, steps: list[Step], count: int, results: list[int]) -> tuple[_PlannedStep, ...]:
    """Attach to each step the buffers to allocate before it and to release after it.

    The buffers numbered from `count` on are those that the call allocates. Each lives from the first step that uses it
    to the last; those in `results` live to the end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        for number in step.used:
            if number >= count:
                first.setdefault(number, position)
                last[number] = position
    for number in results:
        first.setdefault(number, 0)
        last.pop(number, None)
    return tuple(
        [
            _PlannedStep(
                tuple(sorted(n for n, step_index in first.items() if step_index == position)),
                device.repeater(step) if isinstance(step, RecordedLaunch) else None,
                step,
                tuple(sorted(n for n, step_index in last.items() if step_index == position)),
            )
            for position, step in enumerate(steps)
        ]
    )


def _replace_lock() -> None:
    """Replace the lock in a forked child process."""
    global _changing
    _changing = threading.RLock()  # another thread of the parent may have held the old lock


on_fork(_replace_lock)
