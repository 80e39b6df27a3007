"""Errors for arguments of the wrong kind: which argument it is, what was expected, what was found.

Arguments aren't checked before a call, since warm calls would pay for it. If a call fails with an error that isn't one
of vkjit's, `explain` compares each argument with the annotation of its parameter, or with what parameters of that name
take, and raises an ArgumentError for the first that doesn't fit. Errors without such an argument stay as they are.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ..dtypes import ALL, DType
from ..errors import (
    ArgumentError,
    CompileError,
    InternalError,
    OutOfMemoryError,
    VkjitError,
    check_nesting,
    is_nested_too_deep,
)
from ..runtime.device import Device
from .tensor import Tensor

__all__ = ["ERRORS", "explain", "explain_all", "explain_errors", "explains"]

F = TypeVar("F", bound=Callable[..., Any])

ERRORS = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    CompileError,
    InternalError,
)
"""The errors that a wrong argument may cause inside a function. `explain` leaves subclasses that are vkjit's, such as
ShapeError, alone."""

_LIMITS = -(1 << 63), 1 << 64
"""The range of integers that element types hold: from the first to below the second."""


def _is_int(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and _LIMITS[0] <= int(value) < _LIMITS[1]


def _is_number(value: Any) -> bool:
    return _is_int(value) or isinstance(value, (float, np.floating, np.bool_))


def _is_operand(value: Any) -> bool:
    return isinstance(value, Tensor) or _is_number(value)


def _are(value: Any, fits: Callable[[Any], bool]) -> bool:
    """True for a list, tuple or vector whose items all fit, and for other iterables, whose items aren't looked at.

    Text, bytes, mappings and tensors don't count as iterables.
    """
    if isinstance(value, (list, tuple)):
        return all(map(fits, value))
    if isinstance(value, np.ndarray):
        return value.ndim == 1 and all(map(fits, value.tolist()))
    return hasattr(value, "__iter__") and not isinstance(value, (str, bytes, Tensor, Mapping))


def _is_dtype(value: Any) -> bool:
    return isinstance(value, (DType, type, str, np.dtype))


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("a tensor", lambda v: isinstance(v, Tensor)),
    "Parameter": ("a parameter", lambda v: isinstance(v, Tensor)),
    "None": ("None", lambda v: v is None),
    "int": ("an int", _is_int),
    "float": ("a number", _is_number),
    "bool": ("True or False", lambda v: isinstance(v, (bool, int, np.bool_))),
    "str": ("a string", lambda v: isinstance(v, str)),
    "Operand": ("a tensor or a number", _is_operand),
    "DType": (f"an element type such as {ALL[-2]!r}", _is_dtype),
    "DeviceLike": (
        "a device",
        lambda v: v is None or isinstance(v, (Device, str, int)) or type(v).__name__ == "DeviceInfo",
    ),
    "Generator": ("a vk.Generator", lambda v: type(v).__name__ == "Generator"),
    "Sequence[int]": ("a sequence of ints", lambda v: _are(v, _is_int)),
    "Sequence[float]": ("a sequence of numbers", lambda v: _are(v, _is_number)),
    "Sequence[Tensor]": ("a sequence of tensors", lambda v: _are(v, lambda t: isinstance(t, Tensor))),
    "Iterable[Tensor]": ("tensors", lambda v: isinstance(v, Tensor) or _are(v, lambda t: isinstance(t, Tensor))),
    "Sequence[Any]": ("a sequence", lambda v: isinstance(v, Sequence) or _are(v, lambda _: True)),
    "Path": ("a path", lambda v: isinstance(v, (str, os.PathLike))),
    "Dataset": (
        "a dataset",
        lambda v: hasattr(v, "__len__") and hasattr(v, "__getitem__") and not isinstance(v, Mapping),
    ),
    "Mapping": ("a dictionary", lambda v: isinstance(v, Mapping)),
    "Callable": ("a function", callable),
    "Module": ("a vk.nn.Module", lambda v: any(c.__name__ == "Module" for c in type(v).__mro__)),
    "Optimizer": ("an optimizer", lambda v: any(c.__name__ == "Optimizer" for c in type(v).__mro__)),
}
"""By annotation: what is expected, for the message, and a test for it."""

_ALIASES = {
    "Dims": "int | Sequence[int] | None",
    **dict.fromkeys(("Sizes", "Widths"), "int | Sequence[int]"),
    "Shape": "Sequence[int]",
    "State": "Tensor | Sequence[Tensor]",
    "int | float": "float",
    "Sequence": "Sequence[Any]",
    "Iterable": "Sequence[Any]",
    "os.PathLike": "Path",
    "dict": "Mapping",
    "Iterable[Any]": "Sequence[Any]",
    "list[Tensor]": "Sequence[Tensor]",
}
"""Annotations that stand for others."""

_NAMED: dict[str, str] = {
    **dict.fromkeys(
        ("x", "a", "b", "c", "y", "tensor1", "tensor2", "other", "condition", "exponent", "source"), "Operand"
    ),
    **dict.fromkeys(("query", "key", "input", "target", "indices", "mask", "boundaries", "weight", "bias"), "Tensor"),
    **dict.fromkeys(
        ("shape", "size", "sizes", "normalized_shape", "pad", "indices_or_sections"), "int | Sequence[int]"
    ),
    **dict.fromkeys(("mean", "deviation"), "float | Sequence[float]"),
    **dict.fromkeys(("path", "folder", "root"), "Path"),
    "dataset": "Dataset",
    **dict.fromkeys(
        ("kernel_size", "stride", "padding", "dilation", "output_size", "output_padding"), "int | Sequence[int]"
    ),
    "dtype": "DType",
    "device": "DeviceLike",
    "generator": "Generator",
    "tensors": "Sequence[Tensor]",
    "out": "Tensor | Sequence[Tensor]",
    **dict.fromkeys(("fill_value", "start", "end", "step", "low", "high", "value", "dx"), "Operand"),
    "weights": "Tensor",
}
"""By parameter name: the annotation that is assumed if the parameter has none but `Any`."""

_Alternative = tuple[str, Callable[[Any], bool]]


def _alternatives(parameter: inspect.Parameter) -> Iterator[_Alternative]:
    """Yield the kinds of values that a parameter takes; one that takes anything if they aren't known."""
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else "Any" if annotation is parameter.empty else str(annotation)
    default = parameter.default
    if text == "Any":
        text = _NAMED.get(parameter.name, "Any")
        if text == "Any" and isinstance(default, (bool, int, float, str)):  # as the default
            text = "int | Sequence[int]" if type(default) is int else type(default).__name__
    text = _ALIASES.get(text, text)
    for part in " | ".join(_ALIASES.get(part, part) for part in text.split(" | ")).split(" | "):
        kind = part if part in _KINDS else part.partition("[")[0]
        if kind in ("tuple", "list") and ("int" in part or "float" in part):
            kind = "Sequence[float]" if "float" in part else "Sequence[int]"
        yield _KINDS.get(_ALIASES.get(kind, kind), ("", lambda _: True))


def described(value: Any) -> str:
    """Return a value as text for an error message: its type, and what of its contents fits one line."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {value.shape} and type {value.dtype!r}"
    if value is None or isinstance(value, (bool, float, DType)):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if value.bit_length() < 64 else f"an int of {value.bit_length()} bits"
    kind = type(value).__name__
    if isinstance(value, (str, list, tuple)) and len(value) < 40 and not any(isinstance(v, Tensor) for v in value):
        text = kind if is_nested_too_deep(value) else repr(value)
        return f"{kind} {text}" if len(text) < 40 and "\n" not in text else kind
    return kind


def explain(
    error: BaseException,
    function: Callable[..., Any],
    operands: tuple[Any, ...],
    params: Mapping[str, Any],
    name: str = "",
) -> None:
    """Raise an ArgumentError for an error of a call in which an argument isn't of the kind that its parameter takes.

    Returns if there is none, and for vkjit's own errors (but see `ERRORS`) and those of users' functions: the caller
    then raises the error again. `name` is the name of the function in the message.
    """
    if isinstance(error, VkjitError) and not isinstance(error, (CompileError, InternalError)):
        return
    if _passed_users_code(error):
        return
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*operands, **params).arguments
    except (TypeError, ValueError):
        return
    name = name or getattr(function, "__name__", "")
    name = type(operands[0]).__name__ if name == "__init__" else name
    for key, value in bound.items() if isinstance(error, (RecursionError, ValueError)) else ():
        check_nesting(value, f"{name}(): argument {key}")
    for key, value in bound.items():
        parameter = signature.parameters[key]
        alternatives = list(_alternatives(parameter))
        if parameter.kind is parameter.VAR_KEYWORD or value is parameter.default:
            continue
        values = value if parameter.kind is parameter.VAR_POSITIONAL else (value,)
        wrong = [v for v in values if not any(fits(v) for _, fits in alternatives)]
        if wrong:
            expected = " or ".join(dict.fromkeys(text for text, _ in alternatives))
            advice = ": make one with vk.tensor(...)" if expected.startswith("a tensor") else ""
            raise ArgumentError(f"{name}() takes {expected} as {key}, found {described(wrong[0])}{advice}") from error
    culprit = getattr(error, "obj", None)  # of an AttributeError
    for key, value in bound.items():
        if not isinstance(culprit, (Tensor, type(None))) and (value is culprit or _holds(value, culprit)):
            raise ArgumentError(f"{name}() can't take {described(culprit)} as {key}") from error
    if isinstance(error, ZeroDivisionError):
        for key, value in bound.items():
            if _is_number(value) and value == 0:
                raise ArgumentError(f"{name}() takes a number other than 0 as {key}, found {value!r}") from error
    _explain_size(error, name, bound)


def _explain_size(error: BaseException, name: str, bound: Mapping[str, Any]) -> None:
    """Raise a vkjit error for an error of a call for which an argument is too large, or the memory too small."""
    if isinstance(error, (MemoryError, OverflowError, ValueError)):
        for key, value in bound.items():
            numbers = value if isinstance(value, (list, tuple)) else (value,)
            if any(isinstance(number, int) and abs(number) >= 1 << 31 for number in numbers):
                raise ArgumentError(f"{name}(): {key}={described(value)} is too large for this call") from error
    if isinstance(error, MemoryError):
        raise OutOfMemoryError(f"{name}(): the host lacks the memory for this call ({error or 'a list'})") from error


_LIBRARIES = sys.stdlib_module_names | {"vkjit", "numpy", "PIL", "sklearn"}
"""The packages whose errors are the library's. An error whose traceback has a frame of another package is the
user's."""


def _passed_users_code(error: BaseException) -> bool:
    """True if the error passed a frame of other packages, such as a user's dataset, layer or function."""
    entry = error.__traceback__
    while entry is not None:
        if str(entry.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _LIBRARIES:
            return True
        entry = entry.tb_next
    return False


def _holds(value: Any, item: Any) -> bool:
    """True if a sequence, or a sequence in it, has this item."""
    if is_nested_too_deep(value):
        return False
    return isinstance(value, (list, tuple)) and any(v is item or _holds(v, item) for v in value)


_explained: set[Callable[..., Any]] = set()
"""The functions that explain their errors."""


def explains(function: F) -> F:
    """Note that a function explains its errors, and return it."""
    _explained.add(function)
    return function


_explaining: dict[tuple[Callable[..., Any], str], Callable[..., Any]] = {}
"""What `explain_errors` has made, so that a function that is public under several names stays one object."""


def explain_errors(function: F, name: str = "") -> F:
    """Return the function with its errors explained (see `explain`); unchanged if it explains them already."""
    if function in _explained:
        return function
    if (function, name) in _explaining:
        return _explaining[function, name]  # type: ignore[return-value]

    @functools.wraps(function)
    def run(*operands: Any, **params: Any) -> Any:
        try:
            return function(*operands, **params)
        except ERRORS as error:
            explain(error, function, operands, params, name)
            raise

    _explaining[function, name] = explains(run)
    return run  # type: ignore[return-value]  # wraps keeps the signature


def explain_all(space: dict[str, Any], names: Sequence[str]) -> None:
    """Make public functions and constructors of a module, whose `globals()` is `space`, explain their errors."""
    for name in names:
        value = space[name]
        if not inspect.isclass(value):
            space[name] = explain_errors(value) if inspect.isfunction(value) else value
            continue
        for owner in value.__mro__:  # the constructor may be that of a base class
            constructor = owner.__dict__.get("__init__")
            if constructor is not None:
                if inspect.isfunction(constructor):
                    owner.__init__ = explain_errors(constructor)  # type: ignore[misc]  # of the class itself
                break
