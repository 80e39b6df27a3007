"""Operations called again with arrays of the same layouts: what they asked of the device the last time is asked again.

Enters: forward functions that look at the layouts of their tensors, at their numbers and parameters, and at nothing else.
Leaves: functions that stand for them. Holds: a repeated call gives what the function would give. What
it does in Python (types, shapes, choice of kernels, argument blocks) hangs on what is in the key alone, so it is done for
two calls of a key; the third is watched, and those after it allocate and launch what that one did.

Whatever can't be seen that way is left to the function: results in memory of the operands, what reads or waits, a profile or
the sanitizer, tensors of classes of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from .. import findings
from ..dtypes import DType
from ..runtime import spans
from ..runtime.array import DeviceArray
from ..runtime.direct import Repeater
from ..runtime.interface import Buffer, Device
from ..runtime.repeat import Launching, Step, Witness
from .tensor import Tensor

__all__ = ["repeats"]

F = TypeVar("F", bound=Callable[..., Any])

_WATCHED = 2
"""The calls of a key before the one that is watched."""
_MOST_KEYS = 8192
_MOST_STEPS = 8
_KINDS = frozenset({"cpu", "llvm-cpu", "discrete", "integrated", "virtual", "other"})
_PLAIN = frozenset({int, bool, float, str, type(None), DType})


@dataclass(frozen=True, slots=True)
class _Way:
    """How a call is repeated: buffers to allocate, by bytes; steps, each with its short way where the device has one; and the
    results: number of the buffer, type, shape, strides. `single`: the result isn't a tuple.
    """

    device: Device
    count: int
    sizes: tuple[int, ...]
    steps: tuple[tuple[Repeater | None, Step], ...]
    results: tuple[tuple[int, DType, tuple[int, ...], tuple[int, ...]], ...]
    single: bool

    def run(self, arrays: tuple[DeviceArray, ...]) -> Any:
        """The results for these arrays; None where this call isn't to be repeated."""
        if findings.OPEN or spans.listeners:
            return None
        device = self.device
        if self.count == 1:
            first = arrays[0]
            buffers: list[Buffer] = [first.buffer]
            addresses: tuple[int, ...] = (first.words[0],)
        else:
            buffers = [array.buffer for array in arrays]
            addresses = tuple([array.words[0] for array in arrays])
            for buffer in buffers:
                if buffer.device is not device:
                    return None
        for nbytes in self.sizes:
            buffer = device.allocate(nbytes)
            buffers.append(buffer)
            addresses += (buffer.address,)
        for record, step in self.steps:
            if record is None or not record(buffers, addresses):
                step.run(device, buffers, addresses)
        if self.single:
            number, dtype, shape, strides = self.results[0]
            return Tensor(DeviceArray(buffers[number], 0, dtype, shape, strides))
        return tuple([Tensor(DeviceArray(buffers[n], 0, d, shape, strides)) for n, d, shape, strides in self.results])


def repeats(name: str, forward: F) -> F:
    """The function of this name, repeated where it can be. Its operands are tensors and numbers; parameters that are neither
    numbers nor types, texts or None make it run as it is.
    """

    @functools.wraps(forward)
    def run(*operands: Any, **params: Any) -> Any:
        found = _key(operands, params)
        if found is None:
            return forward(*operands, **params)
        key, arrays = found
        device = arrays[0].buffer.device
        ways = device.ways
        key = (name, *key)
        way = ways.get(key)
        if way.__class__ is _Way:
            result = way.run(arrays)
            if result is not None:
                return result
        elif way is not False:
            return _noticed(forward, operands, params, ways, key, arrays)
        return forward(*operands, **params)

    return run  # type: ignore[return-value]  # wraps keeps the signature


def _key(operands: tuple[Any, ...], params: dict[str, Any]) -> tuple[tuple[Any, ...], tuple[DeviceArray, ...]] | None:
    """What decides about a call, and its arrays; None for one that isn't repeated."""
    if len(operands) == 2 and not params:
        a, b = operands
        if a.__class__ is Tensor and b.__class__ is Tensor:
            x, y = a._array, b._array
            if x.layout is None or y.layout is None:
                return None
            if x.buffer is not y.buffer:
                return (x.layout, y.layout), (x, y)
            return (x.layout, y.layout, y.words[0] - x.words[0]), (x, y)
    key: list[Any] = []
    arrays: list[DeviceArray] = []
    for operand in operands:
        if operand.__class__ is Tensor:
            array = operand._array
            if array.layout is None:
                return None
            key.append(array.layout)
            arrays.append(array)
        elif not _take(operand, key):
            return None
    for name, value in params.items():
        key.append(name)
        if not _take(value, key):
            return None
    if not arrays:
        return None
    if len(arrays) > 1:
        _add_sharing(arrays, key)
    return tuple(key), tuple(arrays)


def _add_sharing(arrays: list[DeviceArray], key: list[Any]) -> None:
    """Which arrays lie in one buffer, and how far from each other."""
    for i, array in enumerate(arrays[1:], 1):
        for j in range(i):
            if arrays[j].buffer is array.buffer:
                key += ("shared", i, j, array.words[0] - arrays[j].words[0])
                break


def _take(value: Any, key: list[Any]) -> bool:
    """Adds a value to a key by type and value, so that 1, 1.0 and True, 0.0 and -0.0 are told apart; False for others."""
    kind: Any = value.__class__
    if kind is tuple:
        key.append(len(value))
        return all(_take(item, key) for item in value)
    if kind is float and not value:
        return False
    if kind not in _PLAIN and not (isinstance(value, type) and issubclass(value, DType)):
        return False
    key += (kind, value)
    return bool(value == value)  # NaN finds nothing in a dictionary


def _noticed(
    forward: Callable[..., Any],
    operands: tuple[Any, ...],
    params: dict[str, Any],
    ways: dict[Any, Any],
    key: tuple[Any, ...],
    arrays: tuple[DeviceArray, ...],
) -> Any:
    """Runs the function; watches what it asks when the time has come."""
    device = arrays[0].buffer.device
    seen = ways.get(key, 0)
    if seen < _WATCHED or findings.OPEN or spans.listeners or findings.wanted_checks():
        if len(ways) >= _MOST_KEYS:
            ways.clear()
        ways[key] = min(seen + 1, _WATCHED)
        return forward(*operands, **params)
    witness = Witness(device, arrays)
    if device.caps.kind not in _KINDS or not witness.start():
        return forward(*operands, **params)
    try:
        result = forward(*operands, **params)
    finally:
        witness.stop()
    ways[key] = _way(witness, arrays, result) or False
    return result


def _way(witness: Witness, arrays: tuple[DeviceArray, ...], result: Any) -> _Way | None:
    """How to repeat what was watched; None where that can't be."""
    steps = witness.steps()
    made = result if isinstance(result, tuple) else (result,)
    if not steps or len(steps) > _MOST_STEPS or any(tensor.__class__ is not Tensor for tensor in made):
        return None
    numbers = {id(buffer): number for number, buffer in enumerate(witness.allocated, len(arrays))}
    results = []
    for tensor in made:
        array = tensor._array
        number = numbers.pop(id(array.buffer), None)
        if number is None or array.offset or tensor.is_view:
            return None
        results.append((number, array.dtype, array.shape, array.strides))
    device = witness.device
    ready = tuple([(device.repeater(s) if isinstance(s, Launching) else None, s) for s in steps])
    sizes = tuple([buffer.nbytes for buffer in witness.allocated])
    return _Way(device, len(arrays), sizes, ready, tuple(results), not isinstance(result, tuple))
