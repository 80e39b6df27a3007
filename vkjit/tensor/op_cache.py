"""Record/replay cache for eager operations, keyed by operand layouts.

A cached function's host work (types, shapes, choice of kernels, argument blocks) must depend only on the layouts of its
tensors, its scalars and its parameters, all of which are in the key. The first two calls of a key run normally, the
third is recorded, and later ones replay its allocations and launches.

Not cached: results that share memory with an operand, calls that read from the device or wait for it, calls under the
profiler or the sanitizer, tensors of other classes, and composed functions whose gradients may be needed.
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
"""Calls of a key before the one that is recorded."""
_MAX_KEYS = 8192
_MAX_STEPS = 64
_changing = threading.RLock()
"""Held while a device's cache is changed."""
_PLAIN: set[type] = {int, bool, str, type(None), DType}
_TENSORS: set[type] = {Tensor}
_FIELDS: weakref.WeakKeyDictionary[type, tuple[str, ...]] = weakref.WeakKeyDictionary()
"""The fields of frozen dataclasses, which become part of the key; () for other classes."""


Run = Callable[[tuple[Tensor, ...]], Any]
"""Return the results for these tensors (() if there are none), or None if this call can't be replayed."""


class _CachedOp:
    """A cached call. `at_once`, for calls of a single launch, is a faster path that takes arrays.

    It returns the resulting array, or True if the call writes into its first array.
    """

    __slots__ = ("at_once", "run")

    def __init__(self, run: Run, at_once: Maker | None = None) -> None:
        self.run, self.at_once = run, at_once


class _PlannedStep(NamedTuple):
    """A step of a replay, with its fast path if the device has one.

    `fresh` and `gone` are the numbers of the buffers to allocate before the step and to release after it.
    """

    fresh: tuple[int, ...]
    fast_path: Repeater | None
    step: Step
    gone: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Steps:
    """The steps of a replayed call and its results, each given by (buffer number, offset, dtype, shape, strides).

    `kind` builds the return value from several results; None for a single one. `sizes` are the bytes of the allocated
    buffers.
    """

    device: Device
    sizes: tuple[int, ...]
    steps: tuple[_PlannedStep, ...]
    results: tuple[tuple[int, int, DType, tuple[int, ...], tuple[int, ...]], ...]
    kind: Callable[[list[Tensor]], Any] | None

    def run(self, tensors: tuple[Tensor, ...]) -> Any:
        """Replay the steps; see `Run`."""
        if (
            sanitizer_reports.OPEN_BLOCKS or host_spans.listeners or shadowing.captured
        ):  # graph capture needs arrays, steps hold addresses
            return None
        device, sizes, count = self.device, self.sizes, len(tensors)
        buffers: list[Any] = []
        places: list[int] = []
        for tensor in tensors:
            array = tensor._array
            if array.buffer.device is not device:
                return None
            buffers.append(array.buffer)
            places.append(array.descriptor[0])
        buffers += sizes  # placeholders until they are allocated
        places += sizes
        for fresh, record, step, gone in self.steps:
            for number in fresh:
                buffers[number] = device.allocate(sizes[number - count])
                places[number] = buffers[number].address
            addresses = tuple(places)
            if record is None or not record(buffers, addresses):
                step.run(device, buffers, addresses)
            for number in gone:
                buffers[number] = None
        made = [Tensor.of(DeviceArray(buffers[n], o, d, shape, steps)) for n, o, d, shape, steps in self.results]
        return made[0] if self.kind is None else self.kind(made)

    def cached_op(self, count: int) -> _CachedOp:
        """Return the cached call for `count` tensors, with a fast path for a single launch if the device offers one."""
        if len(self.steps) != 1 or not isinstance(self.steps[0].step, RecordedLaunch):
            return _CachedOp(self.run)
        launch, maker = self.steps[0].step, None
        if self.kind is None and len(self.sizes) == 1 and not self.results[0][1]:
            _, _, dtype, shape, strides = self.results[0]
            maker = self.device.maker(launch, count, (self.sizes[0], dtype, layout_of(dtype, shape, strides)))
            return _CachedOp(self.run) if maker is None else _CachedOp(_made_by(maker, self.run), maker)
        if not self.results and not self.sizes:
            maker = self.device.maker(launch, count, None)
        return _CachedOp(self.run) if maker is None else _CachedOp(_written_by(maker, self.run), maker)


def _made_by(maker: Maker, usual: Run) -> Run:
    """Wrap `usual` with the device's fast path for a single launch with one result."""
    blocks, listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners

    def run(tensors: tuple[Tensor, ...]) -> Any:
        if blocks or listeners:
            return None
        array = maker(*[tensor._array for tensor in tensors])
        return usual(tensors) if array is None else Tensor.of(array)

    return run


def _written_by(maker: Maker, usual: Run) -> Run:
    """Wrap `usual` with the device's fast path for a single launch that writes into the first tensor."""
    blocks, listeners = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners

    def run(tensors: tuple[Tensor, ...]) -> Any:
        if blocks or listeners:
            return None
        return () if maker(*[tensor._array for tensor in tensors]) else usual(tensors)

    return run


def only_values(kind: K) -> K:
    """Register a class for use in cached calls.

    Tensor subclasses must behave as plain tensors; other classes must be values that are equal only if they request the
    same work.
    """
    (_TENSORS if issubclass(kind, Tensor) else _PLAIN).add(kind)
    return kind


def with_replay(name: str, forward: F) -> F:
    """Wrap an operation's forward function with the replay cache."""

    @functools.wraps(forward)
    def run(*operands: Any, **params: Any) -> Any:
        return repeated(name, forward, operands, params)

    return run  # type: ignore[return-value]  # wraps keeps the signature


def at_once(name: str, usual: F) -> F:
    """Add a fast cache lookup to a public function, for scalar operands and plain tensors in distinct buffers.

    The keys equal those of `_key`, so both find the same entries. Calls that autograd would record, and stale views, go
    to `usual`.
    """
    blocks, listeners, new = sanitizer_reports.OPEN_BLOCKS, host_spans.listeners, object.__new__

    @functools.wraps(usual)
    def run(*operands: Any, **params: Any) -> Any:
        x: Any = operands[0] if operands else None
        if params or x.__class__ is not Tensor or state.intercepts or blocks or listeners:
            return usual(*operands, **params)
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
                    return usual(*operands)
                key: tuple[Any, ...] = (name, a.layout, arrays[1].layout)
            elif state.enabled and (x.meta.requires_grad or x._history != x._version.recorded):
                return usual(*operands)
            elif y.__class__ is float:
                arrays, key = (a,), (name, a.layout, float, y, copysign(1.0, y))
            elif y.__class__ is int:
                arrays, key = (a,), (name, a.layout, int, y)
            else:
                return usual(*operands)
        elif len(operands) == 1:
            if state.enabled and (x.meta.requires_grad or x._history != x._version.recorded):
                return usual(*operands)
            arrays, key = (a,), (name, a.layout)
        else:
            found = _plain(name, operands)
            if found is None:
                return usual(*operands)
            arrays, key = found
        device = a.buffer.device
        way: Any = table_of(device).get(key)
        if way.__class__ is not _CachedOp or forced_class() is not None:
            return usual(*operands)
        if way.at_once is None:
            result = way.run(tuple([y for y in operands if y.__class__ is Tensor]))
            return usual(*operands) if result is None else result
        array = way.at_once(*arrays)
        if array is None:
            return usual(*operands)
        made, version = new(Tensor), new(Version)  # as `Tensor.of`
        version.value = version.recorded = 0
        made._array, made._is_view, made._version = array, False, version
        made._history, made._root = 0, None
        made.meta = GradMeta(array.shape, array.dtype, device)
        return made

    return run  # type: ignore[return-value]  # wraps keeps the signature


def _plain(name: str, operands: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]] | None:
    """Return the arrays and the key for `at_once`, or None if the call isn't eligible."""
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
    """Return forward(*operands, **params), replayed from the cache if possible."""
    found = _key(name, operands, params)
    if found is None:
        return forward(*operands, **params)
    key, tensors = found
    ways = (
        table_of(tensors[0]._array.buffer.device) if forced_class() is None else {}
    )  # a forced class is per thread, the table is not
    way: Any = ways.get(key)
    if way.__class__ is _CachedOp:
        result = way.run(tensors)
        if result is not None:
            return result
    elif way is not False:
        return _noticed(forward, operands, params, key, tensors, ways, way or 0)
    return forward(*operands, **params)


def whole(name: str, *, also: Callable[[], Any] | None = None) -> Callable[[F], F]:
    """Cache a function composed of operations as a whole while autograd doesn't record it.

    `also` returns a setting that the function depends on; it becomes part of the key.
    """
    label = f"{name}()"  # distinct from an operation of the same name

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*operands: Any, **params: Any) -> Any:
            if state.intercepts:
                return function(*operands, **params)
            found = _key(label, operands, params)
            if found is None:
                return function(*operands, **params)
            key, tensors = found
            if state.enabled:
                for tensor in tensors:
                    if tensor.meta.requires_grad or tensor._history != tensor._version.recorded:
                        return function(*operands, **params)
            if also is not None:
                key = (*key, also())
            return _again(function, operands, params, key, tensors)

        whole_run: F = run  # type: ignore[assignment]  # wraps keeps the signature
        return whole_run if also is not None else at_once(label, whole_run)

    return decorate


def written(write: Callable[..., Any], target: Tensor, operands: tuple[Any, ...], params: dict[str, Any]) -> None:
    """Run `write(target, *operands, **params)`, which writes target in place, replayed from the cache if possible."""
    if len(operands) == 1 and target.__class__ is Tensor and _at_once(write, target, operands[0], params):
        return
    found = _key(write, (target, *operands), params)
    if found is None:
        write(target, *operands, **params)
    else:
        _again(write, (target, *operands), params, *found, writes=True)


def _at_once(write: Callable[..., Any], target: Tensor, operand: Any, params: dict[str, Any]) -> bool:
    """Try the fast path for a write into the first tensor, keyed as by `_key`; return True if it was taken."""
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
    way: Any = table_of(a.buffer.device).get(key)
    return way.__class__ is _CachedOp and way.at_once is not None and bool(way.at_once(*arrays))


def _again(
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    key: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    writes: bool = False,
) -> Any:
    ways = (
        table_of(tensors[0]._array.buffer.device) if forced_class() is None else {}
    )  # a forced class is per thread, the table is not
    way: Any = ways.get(key)
    if way.__class__ is _CachedOp:
        result = way.run(tensors)
        if result is not None:
            return result
    elif way is not False:
        return _noticed(function, operands, params, key, tensors, ways, way or 0, writes)
    return function(*operands, **params)


_Found = tuple[tuple[Any, ...], tuple[Tensor, ...]]


def _key(name: Any, operands: tuple[Any, ...], params: dict[str, Any]) -> _Found | None:
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
        if not _take(operand, key, tensors):
            return None
    for word, value in params.items():
        key.append(word)
        if not _take(value, key, tensors):
            return None
    if not tensors:
        return None
    if len(tensors) > 1:
        _add_sharing(tensors, key)
    return tuple(key), tuple(tensors)


def _add_sharing(tensors: list[Tensor], key: list[Any]) -> None:
    """Add to the key which tensors share a buffer, and their relative offsets."""
    for i, tensor in enumerate(tensors):
        for j in range(i):
            if tensors[j]._array.buffer is tensor._array.buffer:
                key += ("shared", i, j, tensor._array.descriptor[0] - tensors[j]._array.descriptor[0])
                break


def _take(value: Any, key: list[Any], tensors: list[Tensor]) -> bool:
    """Add a value to the key; return False if it can't be part of one.

    Tensors add their layout; other values add type and value, so 1, 1.0 and True, and 0.0 and -0.0 differ.
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
        return all(_take(item, key, tensors) for item in value)
    names = _FIELDS.get(kind)
    if names is None:
        frozen = is_dataclass(kind) and getattr(kind, "__dataclass_params__").frozen  # noqa: B009  # unknown to its stubs
        names = _FIELDS[kind] = tuple([f.name for f in fields(kind)]) if frozen else ()
    key.append(kind)
    return bool(names) and all(_take(getattr(value, name), key, tensors) for name in names)


def _noticed(
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    key: tuple[Any, ...],
    tensors: tuple[Tensor, ...],
    ways: Table,
    seen: int,
    writes: bool = False,
) -> Any:
    """Run a function that was called `seen` times with this key, and record it if it is due."""
    arrays = tuple([tensor._array for tensor in tensors])
    device = arrays[0].buffer.device
    if not repeating():
        return function(*operands, **params)
    if (
        seen < _CALLS_BEFORE_RECORDING
        or sanitizer_reports.OPEN_BLOCKS
        or host_spans.listeners
        or sanitizer_reports.current_checks()
    ):
        _counted(ways, key, min(seen + 1, _CALLS_BEFORE_RECORDING))
        return function(*operands, **params)
    if device.caps.kind == "interpreter" or any(array.buffer.device is not device for array in arrays):
        with _changing:
            ways[key] = False
        return function(*operands, **params)
    witness = LaunchRecorder(device, arrays)
    try:
        watched = witness.start()
        result = function(*operands, **params)
    finally:
        try:
            witness.stop()
        except BaseException:  # e.g. a KeyboardInterrupt within stop()
            witness.stop()
            raise
    if not watched:
        return result
    way = _cached_op(witness, arrays, result, writes) or False
    with _changing:
        ways[key] = way
    return result


def _counted(ways: Table, key: tuple[Any, ...], count: int) -> None:
    """Count a call, unless another thread has cached it meanwhile; evict the oldest keys if the table is full."""
    with _changing:
        if ways.setdefault(key, count).__class__ is int:
            ways[key] = count
        while len(ways) > _MAX_KEYS:
            del ways[next(iter(ways))]


def _cached_op(witness: LaunchRecorder, arrays: tuple[DeviceArray, ...], result: Any, writes: bool) -> _CachedOp | None:
    """Build the cached call from a recording, or return None if it can't be replayed."""
    steps = witness.steps()
    several = isinstance(result, tuple)
    made = () if writes else result if several else (result,)
    if not steps or len(steps) > _MAX_STEPS or any(tensor.__class__ is not Tensor for tensor in made):
        return None
    results = []
    for tensor in made:
        array = tensor._array
        number = witness.number_of(array.buffer)
        if number is None or number < len(arrays) or tensor.is_view or tensor.requires_grad:
            return None
        results.append((number, array.offset, array.dtype, array.shape, array.strides))
    numbers = [result[0] for result in results]
    if len(set(numbers)) < len(numbers):
        return None
    planned, sizes = _planned(witness.device, steps, len(arrays), numbers), tuple(witness.sizes)
    kind: Any = tuple if writes else getattr(type(result), "_make", type(result)) if several else None
    return _Steps(witness.device, sizes, planned, tuple(results), kind).cached_op(len(arrays))


def _planned(device: Device, steps: list[Step], count: int, results: list[int]) -> tuple[_PlannedStep, ...]:
    """Attach to each step the buffers to allocate before it and to release after it.

    Buffers numbered from `count` on live from the first step that uses them to the last; results live to the end.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, step in enumerate(steps):
        for number in step.used:
            if number >= count:
                first.setdefault(number, place)
                last[number] = place
    for number in results:
        first.setdefault(number, 0)
        last.pop(number, None)
    return tuple(
        [
            _PlannedStep(
                tuple(sorted(n for n, at in first.items() if at == place)),
                device.repeater(step) if isinstance(step, RecordedLaunch) else None,
                step,
                tuple(sorted(n for n, at in last.items() if at == place)),
            )
            for place, step in enumerate(steps)
        ]
    )


def _in_child() -> None:
    global _changing
    _changing = threading.RLock()  # another thread of the parent may have held the old lock


on_fork(_in_child)
