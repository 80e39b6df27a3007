"""Collecting a module's state by name, and loading a state with a complete report of mismatches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..tensor.autograd.mode import no_grad
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .parameter import replace_memory

if TYPE_CHECKING:
    from .modules.module import Module

__all__ = ["Incompatible", "as_host_values", "collect", "load"]


class Incompatible(NamedTuple):
    """Names in which a state and a module differ."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _members(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and persistent buffers by dotted name, in PyTorch's order; shared ones under each of their
    names.
    """
    for place, owner in module.named_modules(remove_duplicate=False):
        owner._flush_cached_buffers()
        own: dict[str, Any] = dict(owner._parameters)
        own.update((name, b) for name, b in owner._buffers.items() if name not in owner._non_persistent)
        for name, tensor in own.items():
            if tensor is not None:
                yield (f"{place}.{name}" if place else name), tensor


def collect(module: Module, prefix: str, keep: bool = False) -> dict[str, Tensor]:
    """Return the state of a module and its descendants; `keep` doesn't detach the tensors from the tape."""
    return {prefix + name: tensor if keep else tensor.detach() for name, tensor in _members(module)}


def as_host_values(value: Any, name: str) -> Any:
    """Return a tensor unchanged; convert NumPy or PyTorch arrays and nested lists to NumPy arrays."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a PyTorch tensor, without importing PyTorch
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):
            value = value.float()  # NumPy has no bfloat16; f32 represents the values exactly
    try:
        values = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{name}: a {type(value).__name__} can't be read as an array: {error}") from error
    if values.dtype == object:
        raise ArgumentError(f"{name}: expected an array of numbers, found a {type(value).__name__}")
    return values


def load(module: Module, state: Mapping[str, Any], strict: bool, assign: bool = False) -> Incompatible:
    """Copy a state into a module, or with `assign` share the state's memory.

    Raises ArgumentError, before anything is changed, if they don't match.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(f"load_state_dict() takes a mapping of names to arrays, found {type(state).__name__}")
    members = dict(_members(module))
    missing = [name for name in members if name not in state]
    unexpected = [name for name in state if name not in members]
    values = {name: as_host_values(state[name], name) for name in members if name in state}
    mismatched = [
        f"{name}: the module has {members[name].shape}, the state has {tuple(value.shape)}"
        for name, value in values.items()
        if members[name].shape != tuple(value.shape)
    ]
    problems = _report_lines("missing from the state", missing if strict else [])
    problems += _report_lines("unexpected in the state", unexpected if strict else [])
    problems += _report_lines("of another shape", mismatched)
    if problems:
        advice = "" if mismatched else "\npass strict=False to load what is there"
        raise ArgumentError(f"the state doesn't fit {type(module).__name__}:\n" + "\n".join(problems) + advice)
    with no_grad():
        for name, value in values.items():
            if assign and isinstance(value, Tensor):
                replace_memory(members[name], value.detach())
            else:
                _copy(value, members[name])
    return Incompatible(missing, unexpected)


def _report_lines(title: str, names: list[str]) -> list[str]:
    return [f"  {len(names)} {title}:", *(f"    {name}" for name in names)] if names else []


def _copy(value: Any, target: Tensor) -> None:
    source = value if isinstance(value, Tensor) else creation.upload(value, target.dtype, target.device)
    target.copy_(source)
