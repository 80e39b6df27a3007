"""Frontend: parse Python kernels, infer types, and lower them to IR.

`lower_kernel` turns a `KernelSpec` and the `Signature` of a launch into an `ir.Module`, or raises a CompileError that
points at the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .composites import expanded, fields_of, leaves_of
from .dims import Dims, parse_dims
from .elements import ElementArray
from .fingerprint import Captures, fingerprint, value_digest
from .function import DeviceFunction
from .instances import naming_instance
from .signature import ArrayArg, ConstArg, ScalarArg, Signature, exact
from .spec import REQUIRED, Composite, KernelSpec, ParamSpec, describe, tune_choice

__all__ = [
    "REQUIRED",
    "ArrayArg",
    "Captures",
    "Composite",
    "ConstArg",
    "DeviceFunction",
    "Dims",
    "ElementArray",
    "KernelSpec",
    "ParamSpec",
    "ScalarArg",
    "Signature",
    "describe",
    "exact",
    "expanded",
    "fields_of",
    "fingerprint",
    "leaves_of",
    "lower_kernel",
    "naming_instance",
    "parse_dims",
    "tune_choice",
    "value_digest",
]

if TYPE_CHECKING:
    from .kernel import lower_kernel


def __getattr__(name: str) -> Any:
    """Import `lower_kernel` lazily, when the first kernel is compiled."""
    if name == "lower_kernel":
        from .kernel import lower_kernel

        return lower_kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
