"""The intermediate representation: types, operations, functions, printer, parser and verifier.

Import from the modules: `core`, `types`, `ops`, `builder`, `semantics`, `rewrite`, `verify`, `printer`, `parser`. The
names that nearly every user needs are available here, too. The parser is imported only when it is used, since it needs
lark.
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
