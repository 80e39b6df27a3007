"""Makes the roundings of bf16 arithmetic explicit.

Before: elementwise operations on values of type bf16. After: the same operation on f32 values, its result cast to bf16,
which rounds to the nearest, ties to even. What can't round stays: choices, sign changes, comparisons, conversions.
Values of type bf16 are carried as f32 by back ends; loads, stores and casts know the two bytes in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from .. import dtypes
from ..ir.core import Function, Module, Op
from ..ir.ops import OPS
from ..ir.types import Scalar, Vector
from .expansion import Rule, expand
from .formula import Formula, Term

__all__ = ["LowerBf16"]

_EXACT = frozenset(
    {"select", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "const", "cast", "bitcast"}
)


@dataclass(frozen=True, slots=True)
class LowerBf16:
    """`run(module)` works in place and gives the module back."""

    name: ClassVar[str] = "lower_bf16"

    def run(self, module: Module) -> Module:
        return expand(module, _choose)


def _choose(_function: Function, op: Op) -> Rule | None:
    row = OPS[op.name]
    if op.name in _EXACT or not row.elementwise or not op.operands:
        return None
    found = op.operands[0].type
    if not isinstance(found, (Scalar, Vector)) or found.dtype is not dtypes.bf16:
        return None
    return partial(_rounded, op.name)


def _rounded(name: str, f: Formula, *operands: Term) -> Term:
    result = f.call(name, *(x.cast(dtypes.f32) for x in operands))
    return result if result.dtype.kind == "bool" else result.cast(dtypes.bf16)
