"""The arguments that a module was made with, read off its attributes.

Enters: a module. Leaves: its constructor's arguments by name.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from ..dtypes import DType
    from .module import Module

__all__ = ["arguments_of", "dtype_of"]


def arguments_of(module: Module) -> dict[str, Any]:
    """Each argument from the attribute of its name. A parameter that is there or not answers a bool ("bias"), "dtype" is that of
    the module's first float tensor, and "device" is left out.
    """
    found: dict[str, Any] = {}
    for name, argument in list(inspect.signature(type(module).__init__).parameters.items())[1:]:
        if name == "device":
            continue
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            raise _unknown(module, f"{'*' if argument.kind is argument.VAR_POSITIONAL else '**'}{name}")
        kept = getattr(module, name, argument.empty)
        if name == "dtype" and kept is argument.empty:
            kept = dtype_of(module)
        if kept is argument.empty:
            raise _unknown(module, name)
        is_choice = isinstance(argument.default, bool) and (kept is None or isinstance(kept, Tensor))
        found[name] = kept is not None if is_choice else kept
    return found


def dtype_of(module: Module) -> DType | Any:
    """The type of the first float among a module's parameters and buffers; f32 where there is none."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_float:
            return tensor.dtype
    from ..dtypes import f32

    return f32


def _unknown(module: Module, name: str) -> ArgumentError:
    kind = type(module).__name__
    return ArgumentError(
        f"{kind} doesn't keep its argument {name!r} as an attribute: assign it (self.{name.strip('*')} = ...), or write "
        f"{kind}.constructor_arguments(), which gives the constructor's arguments"
    )
