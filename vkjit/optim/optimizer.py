"""Base class of optimizers: parameter groups, per-parameter state, steps, saving and loading.

`step` updates parameters in place; on a GPU it updates as many tensors as possible in one launch, elsewhere one per
launch (`multi_tensor`). Step counts are kept on the host, so nothing waits for the device. In the formulas of
subclasses, p is a parameter and g its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

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

    params contains tensors, dictionaries {"params": tensors, option: value...} with their own options, or (name,
    tensor) pairs. `param_groups` is the list of groups; its options (`lr`...) may be changed between steps. Set
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
        """Add parameters with options of their own; missing options are the optimizer's defaults."""
        params = group.get("params")
        tensors = [params] if isinstance(params, Tensor) else list(params or ())
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
        """Raise ArgumentError for options out of range; subclasses add their own checks."""
        for name, value in group.items():
            if name not in ("lr", "eps", "weight_decay", "momentum"):
                continue
            if isinstance(value, str):
                raise ArgumentError(f"{type(self).__name__}: {name} is a number, found the string {value!r}")
            if not value >= 0:
                raise ArgumentError(f"{type(self).__name__}: {name} is at least 0, found {value!r}")
        for beta in group.get("betas", ()):
            if not 0 <= beta < 1:
                raise ArgumentError(f"{type(self).__name__}: betas lie in [0, 1), found {group['betas']}")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear all gradients, or set them to zero."""
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
        first = next((p for group in self.param_groups for p in group["params"]), None)
        capturing = first is not None and is_capturing(first.device)
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
        """Take a step inside a capture, where kernels are recorded instead of run. If it fails, restore the states."""
        before = {p: dict(state) for p, state in self.state.items()}
        captured: list[tuple[UpdatePlan, list[tuple[Tensor, Group]]]] = []
        try:
            with no_grad():
                for number, group in enumerate(self.param_groups):
                    plans = self._plans(group)
                    _check_states(plans, self.state, before)
                    self._step_group(number, group, plans)
                    captured += [(plan, [(p, group) for p in parameters]) for plan, parameters in plans.items()]
            self._keep_captured(captured)
        except BaseException:
            self.state.clear()
            self.state.update(before)
            raise
        self._uncounted = {p: _host_values(state) for p, state in before.items()}

    def _keep_captured(self, plans: Sequence[tuple[UpdatePlan, list[tuple[Tensor, Group]]]]) -> None:
        """Store the captured step's plan and parameters for `advance`. Raises ArgumentError if it has several plans."""
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
            raise ArgumentError("the step is another one than was captured, in its options or state: capture again")
        (plan,) = plans
        # the graph names hyperparameter i of the kernels step_one and step_many "step_one.n<i>" and "step_many.n<i>"
        suffixes = [
            (name, name.rpartition(".n")) for name in graph.arguments if name.startswith(("step_one.", "step_many."))
        ]
        return {
            name: plan.hyperparameters[int(index)]
            for name, (_, separator, index) in suffixes
            if separator and index.isdecimal() and int(index) < len(plan.hyperparameters)
        }

    def _plans(self, group: Group) -> dict[UpdatePlan, list[Tensor]]:
        """Return the group's parameters with gradients, grouped by their update plans."""
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
        """Update the parameters of one group, those with the same plan together."""
        negate = bool(group.get("maximize"))
        for plan, parameters in plans.items():
            try:
                self._batches.run(number, plan, parameters, self.state, negate)
            except ArgumentError:
                for parameter in parameters:
                    _check_devices(parameter, self.state[parameter], plan.states)
                raise
            self._after(parameters, group)
            for parameter in parameters:
                parameter.bump_version()

    def _plan(self, parameter: Tensor, state: dict[str, Any], group: Group) -> UpdatePlan:
        """Return the update of a tensor. Counts the step in `state`, which is initialized if it is empty."""
        raise NotImplementedError(f"{type(self).__name__} has no _plan()")

    def _after(self, parameters: Sequence[Tensor], group: Group) -> None:
        """Hook for subclasses, called after the tensors of a plan have been updated."""

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Return {"state": values by parameter index, "param_groups": options and parameter indices}, in PyTorch's
        format.

        Tensors are not copied.
        """
        numbers = self._numbers()
        return {
            "state": {numbers[id(p)]: dict(state) for p, state in self.state.items()},
            "param_groups": [
                {**group, "params": [numbers[id(p)] for p in group["params"]]} for group in self.param_groups
            ],
        }

    def _numbers(self) -> dict[int, int]:
        """Return the index of each parameter, by id, in the order of the groups."""
        return {id(p): i for i, p in enumerate(p for group in self.param_groups for p in group["params"])}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`. Tensors are copied to each parameter's device, and training resumes
        unchanged.

        Options that this optimizer lacks are ignored. Raises ArgumentError, before anything is changed, if groups,
        parameters or shapes don't match.
        """
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise ArgumentError('an optimiser\'s state is a mapping with "state" and "param_groups"')
        saved = state_dict["param_groups"]
        _check_groups(saved, self.param_groups)
        parameters = {
            number: parameter
            for theirs, ours in zip(saved, self.param_groups, strict=True)
            for number, parameter in zip(theirs["params"], ours["params"], strict=True)
        }
        state: dict[Tensor, dict[str, Any]] = {}
        for number, values in state_dict["state"].items():
            key = int(number)
            if key not in parameters:
                raise ArgumentError(f"the state has values for parameter {key}, which none of its groups has")
            state[parameters[key]] = {
                name: _loaded(value, name, key, parameters[key]) for name, value in values.items()
            }
        self.state = state
        for theirs, ours in zip(saved, self.param_groups, strict=True):
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
    """Raise ArgumentError if this step has created states: in a capture, each replay would create them again."""
    for plan, parameters in plans.items():
        for parameter in parameters:
            previous = before.get(parameter, {})
            if any(state[parameter][name] is not previous.get(name) for name in plan.states):
                raise ArgumentError(
                    "this step would make the optimiser's state inside the captured graph, where each replay makes it anew: take "
                    "an ordinary step before the captured one"
                )


def _check_devices(parameter: Tensor, state: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise ArgumentError, with advice, if a parameter and its state are on different devices."""
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
    """Raise ArgumentError if saved groups differ from an optimizer's in number or in their numbers of parameters."""
    if len(saved) != len(own):
        raise ArgumentError(f"the state has {len(saved)} parameter groups, the optimiser has {len(own)}")
    for number, (theirs, ours) in enumerate(zip(saved, own, strict=True)):
        if len(theirs["params"]) != len(ours["params"]):
            raise ArgumentError(
                f"group {number} of the state has {len(theirs['params'])} parameters, the optimiser's "
                f"has {len(ours['params'])}"
            )


def _loaded(value: Any, name: str, number: int, parameter: Tensor) -> Any:
    """Convert a value of a saved state for a parameter. Step counts, which may be saved as tensors, become ints."""
    if name == "step":
        return int(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    value_shape = tuple(value.shape)
    if value_shape not in ((), parameter.shape):
        raise ArgumentError(
            f"{name} of parameter {number} has shape {value_shape}, expected the parameter's {parameter.shape}"
        )
    if isinstance(value, Tensor):
        return value.detach().to(device=parameter.device, copy=True)
    return creation.tensor(value, dtype=parameter.dtype, device=parameter.device)
