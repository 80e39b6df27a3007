"""Frontend: parse Python kernels, infer types, and lower them to IR.

`lower_kernel` turns a `KernelSpec` (a decorated kernel) and the `Signature` of a launch (argument types and launch
properties) into an `ir.Module` in high form (see `ir.verify`), the input of the compiler's passes. It raises a
CompileError that points at the source if the kernel isn't valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .signature.composites import expand_composites, fields_of, leaves_of
from .signature.dims import Dims
from .signature.dims_parser import parse_dims
from .signature.elements import ElementArray
from .signature.function import DeviceFunction
from .signature.instances import naming_instance
from .signature.signature import ArrayArg, ConstArg, ScalarArg, Signature, constant_key
from .signature.spec import REQUIRED, Composite, KernelSpec, ParamSpec, describe, tune_choice
from .source import give_source

__all__ = [
    "REQUIRED",
    "ArrayArg",
    "Composite",
    "ConstArg",
    "DeviceFunction",
    "Dims",
    "ElementArray",
    "KernelSpec",
    "ParamSpec",
    "ScalarArg",
    "Signature",
    "constant_key",
    "describe",
    "expand_composites",
    "fields_of",
    "give_source",
    "leaves_of",
    "lower_kernel",
    "naming_instance",
    "parse_dims",
    "tune_choice",
]

if TYPE_CHECKING:
    from .kernel import lower_kernel


def __getattr__(name: str) -> Any:
    """Import `lower_kernel` lazily, when the first kernel is compiled."""
    if name == "lower_kernel":
        from .kernel import lower_kernel

        return lower_kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
