"""Deferred initialization: models built on the device "meta" have shapes only; memory and values are added later.

The functions `to_empty` and `materialize` implement the methods of `Module` with these names. They update a module in
place. Its tensor objects stay the same, so existing optimizers remain valid.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..runtime.device import Device
from ..runtime.meta import META_KIND
from ..tensor.autograd.mode import no_grad
from ..tensor.ops import creation
from ..tensor.tensor import Tensor
from .parameter import replace_memory

if TYPE_CHECKING:
    from .modules.module import Module

__all__ = ["materialize", "to_empty"]


def _own_tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of one module by name, without those of its children."""
    for registry in (module._parameters, module._buffers):
        for name, tensor in registry.items():
            if tensor is not None:
                yield name, tensor


def is_meta(tensor: Tensor) -> bool:
    """True if a tensor is on the device "meta" and has no values."""
    return tensor.device.caps.kind == META_KIND


def to_empty(module: Module, device: Device, *, only_meta: bool) -> None:
    """Allocate uninitialized memory on a device for the tensors of a module and its descendants.

    With only_meta, tensors that aren't on the device "meta" keep their memory and values.
    """
    allocated: set[int] = set()
    for owner in module.modules():
        for _, tensor in _own_tensors(owner):
            if id(tensor) in allocated or (only_meta and not is_meta(tensor)):
                continue
            allocated.add(id(tensor))
            replace_memory(tensor, creation.empty(tensor.shape, dtype=tensor.dtype, device=device))


def materialize(module: Module, device: Device, state: Mapping[str, Any] | None) -> None:
    """Allocate and initialize all tensors of a module that have no values.

    Values come from `state` (tensors by dotted name), or, if that is None, from each module's reset_parameters().
    Raises ArgumentError, before anything is changed, if a tensor would stay uninitialized.
    """
    if state is not None and not isinstance(state, Mapping):
        raise ArgumentError(f"state is a mapping of names to tensors, found a {type(state).__name__}")
    uninitialized = {
        f"{owner_name}.{name}" if owner_name else name: (owner, name)
        for owner_name, owner in module.named_modules()
        for name, tensor in _own_tensors(owner)
        if is_meta(tensor)
    }
    owners = {id(owner): owner for owner, _ in uninitialized.values()}
    if state is None:
        without_source = [name for name, (owner, _) in uninitialized.items() if not hasattr(owner, "reset_parameters")]
    else:
        without_source = [
            name
            for name, (owner, part) in uninitialized.items()
            if name not in state and part not in owner._non_persistent
        ]
    if without_source:
        source = "its module has no reset_parameters()" if state is None else "the state lacks it"
        raise ArgumentError(
            f"{len(without_source)} tensors would stay without values, the first {without_source[0]}: {source}"
        )
    if state is not None and all(
        isinstance(state.get(name), Tensor) and state[name].device is device for name in uninitialized
    ):
        module.load_state_dict(state, assign=True)  # without allocations or copies
        return
    to_empty(module, device, only_meta=True)
    to_reset = [m for m in _children_first(module) if id(m) in owners and hasattr(m, "reset_parameters")]
    with no_grad():
        for owner in to_reset:  # also if there is a state: it has no values for buffers that aren't persistent
            owner.reset_parameters()
    if state is not None:
        module.load_state_dict(state)


def _children_first(module: Module) -> list[Module]:
    """Return all modules, children before parents, because a parent's reset_parameters may reinitialize its
    children.
    """
    return list(reversed(list(module.modules())))
