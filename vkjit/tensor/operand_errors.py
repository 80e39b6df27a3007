"""The error for operands that aren't tensors."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import ArgumentError
from .tensor import Tensor

__all__ = ["explained", "takes_tensors"]

F = TypeVar("F", bound=Callable[..., Any])


def explained(
    error: AttributeError, function: Callable[..., Any], operands: tuple[Any, ...], params: dict[str, Any]
) -> Exception:
    """Return the error to raise for an AttributeError of a call: an ArgumentError that names the parameter if one that is
    annotated as a tensor got another value, else `error` itself.

    Operands aren't checked before a call: warm calls would pay for it.
    """
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*operands, **params).arguments
    except (TypeError, ValueError):
        return error
    for name, value in bound.items():
        parameter = signature.parameters[name]
        optional = value is None and "None" in str(parameter.annotation)
        if str(parameter.annotation).split(" | ")[0] != "Tensor" or optional:
            continue
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        wrong = next((v for v in values if not isinstance(v, Tensor)), None)
        if wrong is not None or None in [v for v in values if v is None]:
            return ArgumentError(
                f"{getattr(function, '__name__', 'the function')}() takes a tensor as {name}, found "
                f"{type(wrong).__name__}: make one with vk.tensor(...)"
            )
    return error


def takes_tensors(function: F) -> F:
    """Decorate a function that neither `@operation` nor `@cached` handles: errors for other operands as in `explained`."""

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        try:
            return function(*operands, **params)
        except AttributeError as error:
            raise explained(error, function, operands, params) from error

    return run  # type: ignore[return-value]  # wraps keeps the signature
