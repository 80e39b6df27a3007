"""Deferred initialization: models built on the device "meta" have shapes only; memory and values are added later.

The functions update a module in place. Its tensor objects stay the same, so optimizers keep them.
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


def _own(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and buffers of one module, without its children's."""
    for registry in (module._parameters, module._buffers):
        for name, tensor in registry.items():
            if tensor is not None:
                yield name, tensor


def is_meta(tensor: Tensor) -> bool:
    """True if a tensor is on the device "meta" and has no values."""
    return tensor.device.caps.kind == META_KIND


def to_empty(module: Module, device: Device, *, only_meta: bool) -> None:
    """Allocate uninitialized memory for the tensors of a module and its descendants; only_meta: only for those without
    values.
    """
    done: set[int] = set()
    for owner in module.modules():
        for _, tensor in _own(owner):
            if id(tensor) in done or (only_meta and not is_meta(tensor)):
                continue
            done.add(id(tensor))
            replace_memory(tensor, creation.empty(tensor.shape, dtype=tensor.dtype, device=device))


def materialize(module: Module, device: Device, state: Mapping[str, Any] | None) -> None:
    """Allocate and initialize all tensors of a module that have no values.

    Values come from `state`, or from each module's reset_parameters() if it is None. Raises ArgumentError if a tensor
    would stay uninitialized.
    """
    waiting = {
        f"{place}.{name}" if place else name: (owner, name)
        for place, owner in module.named_modules()
        for name, tensor in _own(owner)
        if is_meta(tensor)
    }
    owners = {id(owner): owner for owner, _ in waiting.values()}
    if state is None:
        helpless = [name for name, (owner, _) in waiting.items() if not hasattr(owner, "reset_parameters")]
    else:
        helpless = [
            name for name, (owner, part) in waiting.items() if name not in state and part not in owner._non_persistent
        ]
    if helpless:
        source = "its module has no reset_parameters()" if state is None else "the state lacks it"
        raise ArgumentError(f"{len(helpless)} tensors have no values and get none, the first {helpless[0]}: {source}")
    if state is not None and all(
        isinstance(state.get(name), Tensor) and state[name].device is device for name in waiting
    ):
        module.load_state_dict(state, assign=True)  # without allocations or copies
        return
    to_empty(module, device, only_meta=True)
    drawing = [m for m in _children_first(module) if id(m) in owners and hasattr(m, "reset_parameters")]
    with no_grad():
        for owner in drawing:  # with a state as well, to initialize buffers that aren't saved
            owner.reset_parameters()
    if state is not None:
        module.load_state_dict(state)


def _children_first(module: Module) -> list[Module]:
    """Return all modules, children before parents, so that a parent's initialization of its children takes effect."""
    return list(reversed(list(module.modules())))
