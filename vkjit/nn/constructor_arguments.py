"""Recover a module's constructor arguments from its attributes: the default of `Module.constructor_arguments()`, used
to serialize models (`config`).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..tensor.tensor import Tensor

if TYPE_CHECKING:
    from ..dtypes import DType
    from .modules.module import Module

__all__ = ["constructor_arguments_of", "dtype_of"]


def constructor_arguments_of(module: Module) -> dict[str, Any]:
    """Return the arguments of a module's constructor by name, each taken from the attribute of the same name.

    A bool argument such as "bias" may have a tensor or None as its attribute; it becomes True if the tensor exists.
    "dtype" defaults to the type of the module's first float tensor; "device" is omitted. Raises ArgumentError for
    arguments without an attribute.
    """
    arguments: dict[str, Any] = {}
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
        arguments[name] = kept is not None if is_choice else kept
    return arguments


def dtype_of(module: Module) -> DType | Any:
    """Return the type of the first float tensor among a module's parameters and buffers, or f32."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_float:
            return tensor.dtype
    from ..dtypes import f32

    return f32


def _unknown(module: Module, name: str) -> ArgumentError:
    """Return the error for an argument without an attribute."""
    kind = type(module).__name__
    return ArgumentError(
        f"{kind} doesn't keep its argument {name!r} as an attribute: assign it (self.{name.strip('*')} = ...), or write "
        f"{kind}.constructor_arguments(), which gives the constructor's arguments"
    )
