"""The intermediate representation: types, operations, functions, printer, parser and verifier.

`core` describes the structure of the IR, `ops` its operations, and `verify` its rules. Passes import from these
modules; the names that nearly every user needs are available here, too. `parser` isn't imported here, since it needs
the package lark.
"""

from __future__ import annotations

from .builder import Builder
from .core import Function, Module, Op, Region, Value
from .ops import OPS, Effect, OpInfo, info
from .printer import print_module, print_op
from .types import BOOL, F32, I32, INDEX, U32, Array, Scalar, Type, Vector
from .verify import verify

__all__ = [
    "BOOL",
    "F32",
    "I32",
    "INDEX",
    "OPS",
    "U32",
    "Array",
    "Builder",
    "Effect",
    "Function",
    "Module",
    "Op",
    "OpInfo",
    "Region",
    "Scalar",
    "Type",
    "Value",
    "Vector",
    "info",
    "print_module",
    "print_op",
    "verify",
]
