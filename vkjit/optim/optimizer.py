"""Base class of optimizers: parameter groups, per-parameter state, steps, saving and loading.

`step` updates parameters in place; on a GPU it updates as many tensors as possible in one launch, elsewhere one per
launch (`multi_tensor`). Step counts are kept on the host, so nothing waits for the device. In the formulas of
subclasses, p is a parameter and g its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..runtime.capture import is_capturing
from ..tensor import api as _api  # noqa: F401  # puts the methods on Tensor
from ..tensor.autograd.mode import enable_grad, no_grad
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .multi_tensor import BatchCache, UpdatePlan

__all__ = ["Group", "Optimizer"]

Group = dict[str, Any]
_EXTRA_KEYS = ("name", "initial_lr")
"""Keys that a group may have besides the options: a name, and the initial learning rate, set by schedulers."""


class Optimizer:
    """Base class of optimizers. Subclasses implement `_plan(parameter, state, group)`, which returns the update of one
    tensor.

    params contains tensors, (name, tensor) pairs, or parameter groups: dictionaries {"params": tensors, option:
    value...} with their own options. `defaults` has the options of tensors outside of groups, and those that a group
    lacks. `param_groups` is the list of groups; their options, such as `lr`, may be changed between steps. Set
    `capturable` to take a step inside `vk.capture`; see `advance`.
    """

    capturable = False

    def __init__(self, params: Iterable[Any], defaults: Mapping[str, Any]) -> None:
        if isinstance(params, Tensor):
            raise ArgumentError("an optimiser takes an iterable of tensors, found one tensor: pass [tensor]")
        if not isinstance(params, Iterable):
            advice = ": pass its parameters()" if hasattr(params, "parameters") else ""
            raise ArgumentError(f"an optimiser takes an iterable of tensors, found a {type(params).__name__}{advice}")
        self.defaults = dict(defaults)
        self.param_groups: list[Group] = []
        self.state: dict[Tensor, dict[str, Any]] = {}
        self._batches = BatchCache()
        self._captured: tuple[UpdatePlan, list[tuple[Tensor, Group]]] | None = None
        """The plan of the captured step, and each updated parameter with its group."""
        self._uncounted: dict[Tensor, dict[str, Any]] | None = None
        """Host values (step counts) of the states before a captured step, until the first `advance`.

        The capture has counted a step that hasn't run; `advance` restores these values and counts again.
        """
        entries = list(params)
        if not entries:
            raise ArgumentError("an optimiser needs at least one parameter, found none")
        for group in entries if isinstance(entries[0], dict) else [{"params": entries}]:
            self.add_param_group(group)

    def add_param_group(self, group: Group) -> None:
        """Add a group of parameters with its own options. Missing options are the optimizer's defaults."""
        if not isinstance(group, Mapping):
            raise ArgumentError(f'a group of parameters is a mapping with "params", found a {type(group).__name__}')
        params = group.get("params")
        tensors = [params] if isinstance(params, Tensor) else list(params or ())
        # of (name, tensor) pairs, only the tensors are used
        tensors = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in tensors]
        known_ids = {id(p) for g in self.param_groups for p in g["params"]}
        for position, tensor in enumerate(tensors):
            if not isinstance(tensor, Tensor):
                raise ArgumentError(f"parameter {position} is a {type(tensor).__name__}, expected a tensor")
            if not tensor.is_leaf:
                raise ArgumentError(
                    f"parameter {position} (shape {tensor.shape}) is the result of an operation, expected a leaf"
                )
            if id(tensor) in known_ids:
                raise ArgumentError(f"parameter {position} (shape {tensor.shape}) appears more than once")
            known_ids.add(id(tensor))
        unknown = sorted(set(group) - set(self.defaults) - {"params", *_EXTRA_KEYS})
        if unknown:
            raise ArgumentError(
                f"{type(self).__name__} has no option {unknown[0]!r}; there are: {', '.join((*self.defaults, *_EXTRA_KEYS))}"
            )
        options = {**self.defaults, **group, "params": tensors}
        self._check(options)
        self.param_groups.append(options)

    def _check(self, group: Group) -> None:
        """Raise ArgumentError for options out of range. Subclasses extend it for options of their own."""
        for name, value in group.items():
            if name not in ("lr", "eps", "weight_decay", "momentum"):
                continue
            if isinstance(value, str):
                raise ArgumentError(f"{type(self).__name__}: {name} is a number, found the string {value!r}")
            if not isinstance(value, int | float | np.number | np.bool_ | Tensor):
                raise ArgumentError(f"{type(self).__name__}: {name} is a number, found a {type(value).__name__}")
            if not value >= 0:
                raise ArgumentError(f"{type(self).__name__}: {name} is at least 0, found {value!r}")
        for beta in group.get("betas", ()):
            if not 0 <= beta < 1:
                raise ArgumentError(f"{type(self).__name__}: betas lie in [0, 1), found {group['betas']}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients or, with set_to_none=False, fill them with zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.meta.grad = None
                elif parameter.meta.grad is not None:
                    parameter.meta.grad = creation.zeros_like(parameter)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        `closure`, if given, is called first to compute the loss and the gradients; its result is returned. Inside
        `vk.capture`, raises ArgumentError unless `capturable` is set.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        first_parameter = next((p for group in self.param_groups for p in group["params"]), None)
        capturing = first_parameter is not None and is_capturing(first_parameter.device)
        if capturing and not self.capturable:
            raise ArgumentError(
                "a step inside vk.capture() would repeat its learning rate and its count of steps in each replay: set "
                "optimizer.capturable = True and replay by graph.replay(**optimizer.advance(graph))"
            )
        if capturing:
            self._capture_step()
            return loss
        with no_grad():
            for number, group in enumerate(self.param_groups):
                self._step_group(number, group, self._plans(group))
        return loss

    def _capture_step(self) -> None:
        """Take a step inside a capture, where kernels are recorded instead of run.

        If the step fails, the states, in which it has been counted already, are restored.
        """
        states_before = {p: dict(state) for p, state in self.state.items()}
        captured: list[tuple[UpdatePlan, list[tuple[Tensor, Group]]]] = []
        try:
            with no_grad():
                for number, group in enumerate(self.param_groups):
                    plans = self._plans(group)
                    _check_states(plans, self.state, states_before)
                    self._step_group(number, group, plans)
                    captured += [(plan, [(p, group) for p in parameters]) for plan, parameters in plans.items()]
            self._keep_captured(captured)
        except BaseException:
            self.state.clear()
            self.state.update(states_before)
            raise
        self._uncounted = {p: _host_values(state) for p, state in states_before.items()}

    def _keep_captured(self, plans: Sequence[tuple[UpdatePlan, list[tuple[Tensor, Group]]]]) -> None:
        """Store the plan and the parameters of a captured step for `advance`.

        Raises ArgumentError if the parameters don't all have the same plan: a graph has one set of hyperparameters.
        """
        if len({plan for plan, _ in plans}) != 1:
            raise ArgumentError(
                f"this step has {len(plans)} different sets of numbers, expected one: parameters of a captured step are in groups "
                "with the same options and have been stepped equally often"
            )
        self._captured = plans[0][0], [pair for _, pairs in plans for pair in pairs]

    def advance(self, graph: Any) -> dict[str, Any]:
        """Count one step and return its hyperparameters for a replay: `graph.replay(**optimizer.advance(graph))`.

        Call it once per replay of a graph with a captured step. The values follow the current options of the groups,
        such as `lr`.

        Raises ArgumentError without a captured step, or if the step's rule, states or flags have changed since the
        capture.
        """
        if self._captured is None:
            raise ArgumentError("advance() without a captured step: call step() inside vk.capture() first")
        plan, pairs = self._captured
        if self._uncounted is not None:  # recounted below with the current options
            for parameter, _ in pairs:
                self.state[parameter].update(self._uncounted.get(parameter, {}))
            self._uncounted = None
        plans = {self._plan(parameter, self.state[parameter], group) for parameter, group in pairs}
        if len(plans) != 1 or any((p.rule, p.states, p.flags) != (plan.rule, plan.states, plan.flags) for p in plans):
            raise ArgumentError("the step differs from the captured one in its options or state: capture again")
        (plan,) = plans
        # the graph names hyperparameter i of the kernels step_one and step_many "step_one.n<i>" and "step_many.n<i>"
        split_names = [
            (name, name.rpartition(".n")) for name in graph.arguments if name.startswith(("step_one.", "step_many."))
        ]
        # the kernels also have other scalars, and may have more hyperparameters than the rule takes
        return {
            name: plan.hyperparameters[int(index)]
            for name, (_, separator, index) in split_names
            if separator and index.isdecimal() and int(index) < len(plan.hyperparameters)
        }

    def _plans(self, group: Group) -> dict[UpdatePlan, list[Tensor]]:
        """Count a step of each parameter of the group that has a gradient; return these parameters by update plan."""
        plans: dict[UpdatePlan, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.meta.grad is None:
                continue
            state = self.state.get(parameter)
            if state is None:
                state = self.state[parameter] = {}
            plans.setdefault(self._plan(parameter, state, group), []).append(parameter)
        return plans

    def _step_group(self, number: int, group: Group, plans: Mapping[UpdatePlan, list[Tensor]]) -> None:
        """Update the parameters of group `number`. Those with the same plan are updated together."""
        negate = bool(group.get("maximize"))
        for plan, parameters in plans.items():
            try:
                self._batches.run(number, plan, parameters, self.state, negate)
            except ArgumentError:  # report states on another device in terms of the optimizer
                for parameter in parameters:
                    _check_devices(parameter, self.state[parameter], plan.states)
                raise
            self._after_update(parameters, number)
            for parameter in parameters:
                parameter.bump_version()

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        """Return the update of a parameter in this step.

        Also counts the step in the parameter's `state`, and adds the entries that `state` lacks.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _plan()")

    def _after_update(self, parameters: Sequence[Tensor], number: int) -> None:
        """Hook for subclasses, called after the parameters of one plan have been updated; they are in group `number`."""

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Return the state in PyTorch's format: {"state": states by parameter index, "param_groups": groups}.

        In the groups, parameters are replaced by their indices. Tensors are not copied.
        """
        indices = self._parameter_indices()
        return {
            "state": {indices[id(p)]: dict(state) for p, state in self.state.items()},
            "param_groups": [
                {**group, "params": [indices[id(p)] for p in group["params"]]} for group in self.param_groups
            ],
        }

    def _parameter_indices(self) -> dict[int, int]:
        """Return {id of a parameter: index of the parameter}. Indices count through the parameters of all groups."""
        return {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state returned by `state_dict`, and the options of its groups.

        Tensors are copied to each parameter's device. Options that this optimizer lacks are ignored. Raises
        ArgumentError, before anything is changed, if groups, parameters or shapes don't match.
        """
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise ArgumentError('an optimiser\'s state is a mapping with "state" and "param_groups"')
        saved = state_dict["param_groups"]
        _check_groups(saved, self.param_groups)
        if not isinstance(state_dict["state"], Mapping):
            raise ArgumentError(f'"state" is a mapping, found a {type(state_dict["state"]).__name__}')
        # this optimizer's parameters by their indices in the saved state
        parameters = {
            index: parameter
            for theirs, ours in zip(saved, self.param_groups, strict=True)
            for index, parameter in zip(theirs["params"], ours["params"], strict=True)
        }
        state: dict[Tensor, dict[str, Any]] = {}
        for saved_index, values in state_dict["state"].items():
            # a string if the state was saved as JSON
            index = int(saved_index) if isinstance(saved_index, str) and saved_index.isdecimal() else saved_index
            if index not in parameters:
                raise ArgumentError(f"the state has values for parameter {index!r}, which is in none of its groups")
            if not isinstance(values, Mapping):
                raise ArgumentError(f"the state of parameter {index} is a mapping, found a {type(values).__name__}")
            state[parameters[index]] = {
                name: _loaded_value(value, name, index, parameters[index]) for name, value in values.items()
            }
        self.state = state
        for theirs, ours in zip(saved, self.param_groups, strict=True):
            # a scheduler adds the option initial_lr; betas may be saved as a list
            options = (set(ours) | {"initial_lr"}) - {"params"}
            ours.update({k: tuple(v) if k == "betas" else v for k, v in theirs.items() if k in options})

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return "\n".join([*lines, ")"])


def _check_states(
    plans: Mapping[UpdatePlan, Sequence[Tensor]], state: Mapping[Tensor, Any], before: Mapping[Tensor, Any]
) -> None:
    """Raise ArgumentError if this step has created state tensors: in a capture, each replay would create them again.

    state: the current states by parameter; before: the states before the step.
    """
    for plan, parameters in plans.items():
        for parameter in parameters:
            previous = before.get(parameter, {})
            if any(state[parameter][name] is not previous.get(name) for name in plan.states):
                raise ArgumentError(
                    "this step would make the optimiser's state inside the captured graph, where each replay makes it anew: take "
                    "an ordinary step before the captured one"
                )


def _check_devices(parameter: Tensor, state: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ArgumentError, with advice, if one of the state tensors `names` isn't on the device of its parameter."""
    device = parameter._array.device
    for name in names:
        if state[name]._array.device is not device:
            raise ArgumentError(
                f"{name} of a parameter of shape {parameter.shape} lies on {state[name].device}, the parameter on {device}: it has "
                "been moved since; optimizer.load_state_dict(optimizer.state_dict()) moves the state to it"
            )


def _host_values(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a state that are kept on the host."""
    return {name: value for name, value in state.items() if not isinstance(value, Tensor)}


def _check_groups(saved: Any, own: Sequence[Group]) -> None:
    """Raise ArgumentError unless the saved and the own groups match in number, and in their numbers of parameters."""
    if not isinstance(saved, list | tuple) or not all(
        isinstance(g, Mapping) and isinstance(g.get("params"), list | tuple) for g in saved
    ):
        raise ArgumentError('"param_groups" is a list of mappings, each with a list "params" of indices')
    if len(saved) != len(own):
        raise ArgumentError(f"the state has {len(saved)} parameter groups, the optimiser has {len(own)}")
    for number, (theirs, ours) in enumerate(zip(saved, own, strict=True)):
        if len(theirs["params"]) != len(ours["params"]):
            raise ArgumentError(
                f"group {number} of the state has {len(theirs['params'])} parameters, the optimiser's "
                f"has {len(ours['params'])}"
            )


def _loaded_value(value: Any, name: str, number: int, parameter: Tensor) -> Any:
    """Return the value `name` of the saved state of parameter `number`, with tensors copied to the parameter's device.

    Step counts, which PyTorch saves as tensors, become ints.
    """
    if name == "step":
        return int(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if not isinstance(value, Tensor | np.ndarray | np.generic) and not hasattr(value, "__dlpack__"):
        raise ArgumentError(f"{name} of parameter {number} is a tensor or a number, found a {type(value).__name__}")
    value_shape = tuple(value.shape)
    if value_shape not in ((), parameter.shape):
        raise ArgumentError(
            f"{name} of parameter {number} has shape {value_shape}, expected the parameter's {parameter.shape}"
        )
    if isinstance(value, Tensor):
        return value.detach().to(device=parameter.device, copy=True)
    return creation.tensor(value, dtype=parameter.dtype, device=parameter.device)
