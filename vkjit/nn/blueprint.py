"""Models built apart from their data: on the device "meta" they have shapes and no values, later memory and values.

Enters: a module whose tensors lie on "meta". Leaves: the same module, its tensors (the same objects, so that optimisers
keep them) on a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..autograd.mode import no_grad
from ..errors import ArgumentError
from ..runtime.interface import Device
from ..runtime.meta import META_KIND
from ..tensor import creation
from ..tensor.tensor import Tensor
from .parameter import replace_memory

if TYPE_CHECKING:
    from .module import Module

__all__ = ["materialize", "to_empty"]


def _own(module: Module) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one module, without those below."""
    for registry in (module._parameters, module._buffers):
        for name, tensor in registry.items():
            if tensor is not None:
                yield name, tensor


def is_meta(tensor: Tensor) -> bool:
    """Whether a tensor has no values."""
    return tensor.device.caps.kind == META_KIND


def to_empty(module: Module, device: Device, *, only_meta: bool) -> None:
    """Gives the tensors of a module and all below (only those without values) fresh memory."""
    done: set[int] = set()
    for owner in module.modules():
        for _, tensor in _own(owner):
            if id(tensor) in done or (only_meta and not is_meta(tensor)):
                continue
            done.add(id(tensor))
            replace_memory(tensor, creation.empty(tensor.shape, dtype=tensor.dtype, device=device))


def materialize(module: Module, device: Device, state: Mapping[str, Any] | None) -> None:
    """Memory and values for all tensors of a module that have none."""
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
            name for name, (owner, part) in waiting.items() if name not in state and part not in owner._transient
        ]
    if helpless:
        source = "its module has no reset_parameters()" if state is None else "the state lacks it"
        raise ArgumentError(f"{len(helpless)} tensors have no values and get none, the first {helpless[0]}: {source}")
    if state is not None and all(
        isinstance(state.get(name), Tensor) and state[name].device is device for name in waiting
    ):
        module.load_state_dict(state, assign=True)  # nothing is allocated or copied
        return
    to_empty(module, device, only_meta=True)
    drawing = [m for m in _children_first(module) if id(m) in owners and hasattr(m, "reset_parameters")]
    with no_grad():
        for owner in drawing:  # also with a state: what isn't saved (buffers) starts right
            owner.reset_parameters()
    if state is not None:
        module.load_state_dict(state)


def _children_first(module: Module) -> list[Module]:
    """All modules, each after those below it: what an outer one sets on purpose stays."""
    return list(reversed(list(module.modules())))
