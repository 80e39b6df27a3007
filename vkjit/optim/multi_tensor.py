"""Multi-tensor optimizer steps: on a GPU up to eight tensors are updated per launch, with their states concatenated.

`Optimizer.step` calls `BatchCache.run` with the parameters that have gradients and the same `UpdatePlan`. A state is a
per-parameter tensor of the optimizer; its name, such as Adam's "exp_avg", is also called its kind. The first time that
parameters are updated together, their states are moved into one allocation per kind, of which they become views. The
launch arguments of a set of parameters (`_Batch`) are cached, and reused at the next step if the parameters' arrays and
the states are still the same objects.
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
"""Maximum total number of elements of the tensors in one launch: indices are i32, and the last workgroup's go higher."""

_MAX_BATCHES = 1000
"""Number of cached batches above which the cache is cleared."""

States = Mapping[Tensor, dict[str, Any]]


class UpdatePlan(NamedTuple):
    """The way in which one step updates a parameter. Parameters with equal plans can be updated in one launch.

    rule: a function of `stdlib.optim.rules`; states: the names of the states that the rule changes; hyperparameters and
    flags: those of the rule, in the order of its docstring.
    """

    rule: Any
    states: tuple[str, ...]
    hyperparameters: tuple[float, ...]
    flags: tuple[bool, ...] = ()


@dataclass(slots=True)
class _Batch:
    """The parameters of one launch: their arrays and states, and the launch arguments that refer to both."""

    arrays: list[DeviceArray]
    states: list[Tensor]
    launch_arguments: optimizers.TensorBatch

    def fits(self, parameters: Sequence[Tensor], states: list[Tensor]) -> bool:
        """True if no parameter's array and no state has been replaced since the batch was created."""
        return all(p._array is a for p, a in zip(parameters, self.arrays, strict=True)) and all(
            current is cached for current, cached in zip(states, self.states, strict=True)
        )


class BatchCache:
    """Cache of an optimizer's batches, keyed by parameter group, state names, gradient type and parameters."""

    def __init__(self) -> None:
        self._batches: dict[Any, _Batch] = {}

    def __deepcopy__(self, _: Any) -> BatchCache:
        return BatchCache()

    def run(self, group: int, plan: UpdatePlan, parameters: Sequence[Tensor], state: States, negate: bool) -> None:
        """Update parameters by a plan. Each has a gradient and the states that the plan names.

        group: the index of the parameter group; state: the optimizer's states by parameter, then name; negate: maximize
        instead of minimizing.
        """
        elements = sum([parameter.numel() for parameter in parameters])
        if len(parameters) == 1 or not optimizers.prefers_multi_tensor(parameters[0].device, elements):
            for parameter in parameters:
                _step_one(plan, parameter, state[parameter], negate)
            return
        # a launch takes dense parameters of one device and type, whose gradients and states have one type each
        by_type: dict[Any, list[Tensor]] = {}
        for parameter in parameters:
            gradient = parameter.meta.grad
            assert gradient is not None
            array = parameter._array
            if not is_dense(array) or array.device is not gradient.device:
                _step_one(plan, parameter, state[parameter], negate)
            elif 0 not in array.shape:  # empty parameters need no update
                state_types = tuple(state[parameter][name].dtype for name in plan.states)
                key = (array.device, array.dtype, gradient.dtype, state_types)
                by_type.setdefault(key, []).append(parameter)
        for tensors in by_type.values():
            for start in range(0, len(tensors), optimizers.MAX_TENSORS):
                chunk = tensors[start : start + optimizers.MAX_TENSORS]
                if sum(p.numel() for p in chunk) <= MAX_ELEMENTS:
                    self._update_together(group, plan, chunk, state, negate)
                    continue
                for parameter in chunk:
                    _step_one(plan, parameter, state[parameter], negate)

    def _update_together(
        self, group: int, plan: UpdatePlan, parameters: list[Tensor], state: States, negate: bool
    ) -> None:
        """Update parameters in one launch, with the cached batch if it still fits."""
        first_gradient: Any = parameters[0].meta.grad
        key = (group, plan.states, first_gradient.dtype, *map(id, parameters))
        states = [state[p][name] for p in parameters for name in plan.states]
        batch = self._batches.get(key)
        if batch is None or not batch.fits(parameters, states):
            if len(self._batches) > _MAX_BATCHES:  # limits memory if the sets of parameters keep changing
                self._batches.clear()
            batch = self._batches[key] = _make_batch(plan, parameters, state, first_gradient.dtype)
        gradients = []
        for parameter in parameters:
            gradient: Any = parameter.meta.grad
            array = gradient._array
            gradients.append(flattened(array if is_dense(array) else contiguous(gradient)._array))
        optimizers.step_tensors(
            plan.rule, batch.launch_arguments, gradients, plan.hyperparameters, plan.flags, negate=negate
        )


def _step_one(plan: UpdatePlan, parameter: Tensor, state: dict[str, Any], negate: bool) -> None:
    """Update one parameter in its own launch."""
    gradient = parameter.meta.grad
    assert gradient is not None
    arrays = [state[name]._array for name in plan.states]
    optimizers.step(
        plan.rule, parameter._array, gradient._array, arrays, plan.hyperparameters, plan.flags, negate=negate
    )


def _make_batch(plan: UpdatePlan, parameters: list[Tensor], state: States, gradient_dtype: DType) -> _Batch:
    """Return a batch of parameters. Moves the states of each kind into one allocation, unless they share one already.

    The launch has one offset per parameter, so its states must also be at the same offset in each kind's allocation.
    """
    sizes = [p.numel() for p in parameters]
    common_offsets: list[int] | None = None
    combined = []
    for name in plan.states:
        kind_states = [state[p][name] for p in parameters]
        offsets = _shared_offsets(kind_states)
        if offsets is None or (common_offsets is not None and offsets != common_offsets):
            return _make_batch_moving_states(plan, parameters, state, sizes, gradient_dtype)
        common_offsets = offsets
        array = kind_states[0]._array
        # the allocation as one array, up to the last of these states
        size = max(offset + count for offset, count in zip(offsets, sizes, strict=True))
        combined.append(DeviceArray(array.buffer, 0, array.dtype, (size,), (1,)))
    return _build_batch(plan, parameters, state, sizes, common_offsets or [0] * len(sizes), combined, gradient_dtype)


def _shared_offsets(states: Sequence[Tensor]) -> list[int] | None:
    """Return the offset of each state in their shared allocation, in elements; None if they don't share one."""
    first = states[0]._array
    if any(s._array.buffer is not first.buffer or not is_dense(s._array) for s in states):
        return None
    return [s._array.offset // s._array.dtype.itemsize for s in states]


def _make_batch_moving_states(
    plan: UpdatePlan, parameters: list[Tensor], state: States, sizes: list[int], gradient_dtype: DType
) -> _Batch:
    """Return a batch of parameters after moving the states of each kind into a new allocation."""
    if is_capturing(parameters[0].device):
        raise ArgumentError(
            "this step would move the optimiser's state inside the captured graph, where each replay takes the old one again: "
            "take an ordinary step with the same parameters before the captured one"
        )
    starts = _start_offsets(sizes)
    combined = []
    for name in plan.states:
        kind_states = [state[p][name] for p in parameters]
        allocation = creation.empty(sum(sizes), dtype=kind_states[0].dtype, device=kind_states[0].device)._array
        combined.append(allocation)
        for parameter, state_tensor, start in zip(parameters, kind_states, starts, strict=True):
            shape = parameter.shape
            byte_offset = start * allocation.dtype.itemsize
            view = Tensor(
                DeviceArray(allocation.buffer, byte_offset, allocation.dtype, shape, contiguous_strides(shape))
            )
            view.copy_(state_tensor)
            state[parameter][name] = view
    return _build_batch(plan, parameters, state, sizes, starts, combined, gradient_dtype)


def _start_offsets(sizes: Sequence[int]) -> list[int]:
    """Return the index of each tensor's first element in the concatenation of tensors with these element counts."""
    return [0, *(int(n) for n in np.cumsum(sizes[:-1]))]


def _build_batch(
    plan: UpdatePlan,
    parameters: list[Tensor],
    state: States,
    sizes: list[int],
    state_offsets: list[int],
    combined: list[DeviceArray],
    gradient_dtype: DType,
) -> _Batch:
    """Return a batch with the launch arguments of `step_tensors`.

    sizes: element counts of the parameters; state_offsets: offset of each parameter's states in their allocations, in
    elements; combined: the allocation of each kind of state, as an array; gradient_dtype: type of the gradients.
    """
    # see `TensorBatch`: the number of elements before each parameter, and the offset of its states
    table = np.zeros((2, optimizers.MAX_TENSORS), np.int32)
    table[0, : len(sizes)] = _start_offsets(sizes)
    table[1, : len(sizes)] = state_offsets
    device_table = creation.constant(table, dtypes.i32, parameters[0].device)
    arrays = tuple(flattened(p._array) for p in parameters)
    placeholders = optimizers.placeholder_arrays(arrays, gradient_dtype, combined)
    launch_arguments = optimizers.TensorBatch(arrays, tuple(combined), device_table, sum(sizes), placeholders)
    states = [state[p][name] for p in parameters for name in plan.states]
    return _Batch([p._array for p in parameters], states, launch_arguments)
