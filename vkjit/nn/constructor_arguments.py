"""Recover a module's constructor arguments from its attributes.

Default implementation of `Module.constructor_arguments()`, which `config` uses to serialize models.
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

    If the attribute of a bool argument, such as "bias", is a tensor or None, the argument is True for a tensor. Without
    an attribute, "dtype" is the type of the module's first float tensor; "device" is always omitted. Raises
    ArgumentError for other arguments without an attribute.
    """
    arguments: dict[str, Any] = {}
    for name, argument in list(inspect.signature(type(module).__init__).parameters.items())[1:]:  # without `self`
        if name == "device":
            continue
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            raise _missing_attribute_error(module, f"{'*' if argument.kind is argument.VAR_POSITIONAL else '**'}{name}")
        value = getattr(module, name, argument.empty)
        if name == "dtype" and value is argument.empty:
            value = dtype_of(module)
        if value is argument.empty:
            raise _missing_attribute_error(module, name)
        # a bool argument that asks for an optional tensor, whose attribute is this tensor or None
        asks_for_tensor = isinstance(argument.default, bool) and (value is None or isinstance(value, Tensor))
        arguments[name] = value is not None if asks_for_tensor else value
    return arguments


def dtype_of(module: Module) -> DType | Any:
    """Return the type of the first float tensor among a module's parameters and buffers, or f32."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.dtype.is_float:
            return tensor.dtype
    from ..dtypes import f32

    return f32


def _missing_attribute_error(module: Module, name: str) -> ArgumentError:
    """Return the error for an argument without an attribute."""
    kind = type(module).__name__
    return ArgumentError(
        f"{kind} doesn't keep its argument {name!r} as an attribute: assign it (self.{name.strip('*')} = ...), or write "
        f"{kind}.constructor_arguments(), which gives the constructor's arguments"
    )
