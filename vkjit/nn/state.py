"""Implementation of `Module.state_dict` and `Module.load_state_dict`.

A state is a mapping of dotted names to arrays or tensors. Loading reports all mismatches at once.
"""

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

__all__ = ["Incompatible", "as_copy_source", "collect", "load"]


class Incompatible(NamedTuple):
    """Names that the module has and the state lacks (`missing_keys`), and vice versa (`unexpected_keys`)."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def _members(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and persistent buffers with their dotted names, in PyTorch's order.

    A shared tensor appears under each of its names.
    """
    for owner_name, owner in module.named_modules(remove_duplicate=False):
        owner._flush_cached_buffers()  # the buffers are about to be read
        own: dict[str, Any] = dict(owner._parameters)
        own.update((name, b) for name, b in owner._buffers.items() if name not in owner._non_persistent)
        for name, tensor in own.items():
            if tensor is not None:
                yield (f"{owner_name}.{name}" if owner_name else name), tensor


def collect(module: Module, prefix: str, keep: bool = False) -> dict[str, Tensor]:
    """Return the state of a module and its descendants, with `prefix` before each name.

    The tensors are detached from the tape unless `keep` is true.
    """
    return {prefix + name: tensor if keep else tensor.detach() for name, tensor in _members(module)}


def as_copy_source(value: Any, name: str) -> Any:
    """Return the value `name` of a state as a NumPy array, or unchanged if it is a `Tensor`.

    NumPy arrays, PyTorch tensors and nested lists are accepted. A `Tensor` isn't copied to the host, because
    `Tensor.copy_` accepts it as a source.
    """
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
    """Copy a state into a module or, with `assign`, make the module's tensors share the state's memory.

    Raises ArgumentError, before anything is changed, if shapes or, with `strict`, names don't match.
    """
    if not isinstance(state, Mapping):
        raise ArgumentError(f"load_state_dict() takes a mapping of names to arrays, found {type(state).__name__}")
    targets = dict(_members(module))
    missing = [name for name in targets if name not in state]
    unexpected = [name for name in state if name not in targets]
    values = {name: as_copy_source(state[name], name) for name in targets if name in state}
    mismatched = [
        f"{name}: the module has {targets[name].shape}, the state has {tuple(value.shape)}"
        for name, value in values.items()
        if targets[name].shape != tuple(value.shape)
    ]
    problems = _report_lines("missing from the state", missing if strict else [])
    problems += _report_lines("unexpected in the state", unexpected if strict else [])
    problems += _report_lines("of another shape", mismatched)
    if problems:
        advice = "" if mismatched else "\npass strict=False to load the names that match"
        raise ArgumentError(f"the state doesn't fit {type(module).__name__}:\n" + "\n".join(problems) + advice)
    with no_grad():
        for name, value in values.items():
            if assign and isinstance(value, Tensor):
                replace_memory(targets[name], value.detach())
            else:
                _copy(value, targets[name])
    return Incompatible(missing, unexpected)


def _report_lines(title: str, names: list[str]) -> list[str]:
    """Return lines of text that list names under a title; no lines if there are no names."""
    return [f"  {len(names)} {title}:", *(f"    {name}" for name in names)] if names else []


def _copy(value: Any, target: Tensor) -> None:
    """Copy a value returned by `as_copy_source` into a tensor of the module, converted to its type."""
    source = value if isinstance(value, Tensor) else creation.upload(value, target.dtype, target.device)
    target.copy_(source)
