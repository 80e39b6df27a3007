"""Multi-tensor optimizer steps: on a GPU up to eight tensors are updated per launch, with their states concatenated.

The parameters of a launch have gradients and the same `UpdatePlan`. The first time tensors are updated together, their states
are moved into one allocation per kind of state; they remain separate tensors, views into it. The launch arguments of a
set of tensors are cached and validated by identity at the next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError
from ..runtime.capture import is_capturing
from ..runtime.device import DeviceArray, contiguous_strides
from ..stdlib.optim import optimizers
from ..stdlib.partial_sums import flattened, is_dense
from ..tensor.ops import creation
from ..tensor.ops.copies import contiguous
from ..tensor.tensor import Tensor

__all__ = ["BatchCache", "UpdatePlan"]

MAX_ELEMENTS = 2**31 - 2**10
"""Maximum total number of elements of the tensors in one launch: indices are i32."""

States = Mapping[Tensor, dict[str, Any]]


class UpdatePlan(NamedTuple):
    """An update: the rule of `stdlib.optim.rules`, the names of the states it changes, its hyperparameters and
    flags.
    """

    rule: Any
    states: tuple[str, ...]
    hyperparameters: tuple[float, ...]
    flags: tuple[bool, ...] = ()


@dataclass(slots=True)
class _Batch:
    """The tensors of one launch, with their arrays and states at the time the batch was created."""

    arrays: list[DeviceArray]
    states: list[Tensor]
    ready: optimizers.TensorBatch

    def fits(self, parameters: Sequence[Tensor], states: list[Tensor]) -> bool:
        """True if no array or state has been replaced since."""
        return all(p._array is a for p, a in zip(parameters, self.arrays, strict=True)) and all(
            one is other for one, other in zip(states, self.states, strict=True)
        )


class BatchCache:
    """Cache of an optimizer's batches, keyed by parameters."""

    def __init__(self) -> None:
        self._known: dict[Any, _Batch] = {}

    def __deepcopy__(self, _: Any) -> BatchCache:
        return BatchCache()

    def run(self, group: int, plan: UpdatePlan, parameters: Sequence[Tensor], state: States, negate: bool) -> None:
        """Update all parameters. Each has a gradient and the states named by the plan."""
        if len(parameters) == 1 or not optimizers.prefers_multi_tensor(parameters[0].device):
            for parameter in parameters:
                _step_one(plan, parameter, state[parameter], negate)
            return
        alike: dict[Any, list[Tensor]] = {}
        for parameter in parameters:
            gradient = parameter.meta.grad
            assert gradient is not None
            array = parameter._array
            if not is_dense(array) or array.device is not gradient.device:
                _step_one(plan, parameter, state[parameter], negate)
            elif 0 not in array.shape:
                kinds = tuple(state[parameter][name].dtype for name in plan.states)
                key = (array.device, array.dtype, gradient.dtype, kinds)
                alike.setdefault(key, []).append(parameter)
        for tensors in alike.values():
            for first in range(0, len(tensors), optimizers.MAX_TENSORS):
                some = tensors[first : first + optimizers.MAX_TENSORS]
                if sum(p.numel() for p in some) <= MAX_ELEMENTS:
                    self._together(group, plan, some, state, negate)
                    continue
                for parameter in some:
                    _step_one(plan, parameter, state[parameter], negate)

    def _together(self, group: int, plan: UpdatePlan, parameters: list[Tensor], state: States, negate: bool) -> None:
        first: Any = parameters[0].meta.grad
        key = (group, plan.states, first.dtype, *map(id, parameters))
        states = [state[p][name] for p in parameters for name in plan.states]
        batch = self._known.get(key)
        if batch is None or not batch.fits(parameters, states):
            if len(self._known) > 1000:  # bounds the cache if sets of tensors keep changing
                self._known.clear()
            batch = self._known[key] = _make_batch(plan, parameters, state, first.dtype)
        gradients = []
        for parameter in parameters:
            gradient: Any = parameter.meta.grad
            array = gradient._array
            gradients.append(flattened(array if is_dense(array) else contiguous(gradient)._array))
        optimizers.step_tensors(plan.rule, batch.ready, gradients, plan.hyperparameters, plan.flags, negate=negate)


def _step_one(plan: UpdatePlan, parameter: Tensor, state: dict[str, Any], negate: bool) -> None:
    gradient = parameter.meta.grad
    assert gradient is not None
    arrays = [state[name]._array for name in plan.states]
    optimizers.step(
        plan.rule, parameter._array, gradient._array, arrays, plan.hyperparameters, plan.flags, negate=negate
    )


def _make_batch(plan: UpdatePlan, parameters: list[Tensor], state: States, gradient: DType) -> _Batch:
    """Return a batch whose states of each kind share one allocation."""
    sizes = [p.numel() for p in parameters]
    places: list[int] | None = None
    combined = []
    for name in plan.states:
        own = [state[p][name] for p in parameters]
        offsets = _shared_offsets(own)
        if offsets is None or (places is not None and offsets != places):
            return _make_batch_moving_states(plan, parameters, state, sizes, gradient)
        places = offsets
        array = own[0]._array
        size = max(at + n for at, n in zip(offsets, sizes, strict=True))
        combined.append(DeviceArray(array.buffer, 0, array.dtype, (size,), (1,)))
    return _batch(plan, parameters, state, sizes, places or [0] * len(sizes), combined, gradient)


def _shared_offsets(states: Sequence[Tensor]) -> list[int] | None:
    """Return the offset of each state in their shared allocation, in elements; None if they don't share one."""
    first = states[0]._array
    if any(s._array.buffer is not first.buffer or not is_dense(s._array) for s in states):
        return None
    return [s._array.offset // s._array.dtype.itemsize for s in states]


def _make_batch_moving_states(
    plan: UpdatePlan, parameters: list[Tensor], state: States, sizes: list[int], gradient: DType
) -> _Batch:
    """Return a batch after moving the states into new allocations."""
    if is_capturing(parameters[0].device):
        raise ArgumentError(
            "this step would move the optimiser's state inside the captured graph, where each replay takes the old one again: "
            "take an ordinary step with the same parameters before the captured one"
        )
    starts = _start_offsets(sizes)
    combined = []
    for name in plan.states:
        own = [state[p][name] for p in parameters]
        whole = creation.empty(sum(sizes), dtype=own[0].dtype, device=own[0].device)._array
        combined.append(whole)
        for parameter, old, start in zip(parameters, own, starts, strict=True):
            shape = parameter.shape
            place = start * whole.dtype.itemsize
            view = Tensor(DeviceArray(whole.buffer, place, whole.dtype, shape, contiguous_strides(shape)))
            view.copy_(old)
            state[parameter][name] = view
    return _batch(plan, parameters, state, sizes, starts, combined, gradient)


def _start_offsets(sizes: Sequence[int]) -> list[int]:
    return [0, *(int(n) for n in np.cumsum(sizes[:-1]))]


def _batch(
    plan: UpdatePlan,
    parameters: list[Tensor],
    state: States,
    sizes: list[int],
    places: list[int],
    combined: list[DeviceArray],
    gradient: DType,
) -> _Batch:
    table = np.zeros((2, optimizers.MAX_TENSORS), np.int32)
    table[0, : len(sizes)], table[1, : len(sizes)] = _start_offsets(sizes), places
    on = creation.upload(table, dtypes.i32, parameters[0].device)._array
    arrays = tuple(flattened(p._array) for p in parameters)
    unused = optimizers.placeholder_arrays(arrays, gradient, combined)
    ready = optimizers.TensorBatch(arrays, tuple(combined), on, sum(sizes), unused)
    states = [state[p][name] for p in parameters for name in plan.states]
    return _Batch([p._array for p in parameters], states, ready)
