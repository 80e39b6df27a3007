"""Python functions to IR: source, annotations, inference, lowering.

Enters: a function and the signature of a launch. Leaves: `ir.Module`, or a CompileError that points at the source.
"""

from __future__ import annotations

from .device import DeviceFunction
from .dims import Dims, parse_dims
from .fingerprint import Captures, fingerprint
from .kernel import lower_kernel
from .signature import ArrayArg, ConstArg, ScalarArg, Signature
from .spec import REQUIRED, KernelSpec, ParamSpec, describe, tune_choice

__all__ = [
    "REQUIRED",
    "ArrayArg",
    "Captures",
    "ConstArg",
    "DeviceFunction",
    "Dims",
    "KernelSpec",
    "ParamSpec",
    "ScalarArg",
    "Signature",
    "describe",
    "fingerprint",
    "lower_kernel",
    "parse_dims",
    "tune_choice",
]
