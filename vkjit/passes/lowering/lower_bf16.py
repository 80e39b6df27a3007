"""Lower bf16 arithmetic to f32 arithmetic with explicit rounding.

An elementwise operation on bf16 values becomes the same operation on f32 values, and its result is cast to bf16, which
rounds to nearest even. Selects, sign changes, comparisons and conversions are kept, as they don't round. Back ends can
emit the kept operations, because they represent a bf16 value as an f32. Only loads, stores and casts use the 16-bit
format.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vkjit import dtypes
from vkjit.ir.core import Function, Module, Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Scalar, Vector

from ..formulas.expansion import Rule, expand
from ..formulas.formula import Formula, Term

__all__ = ["LowerBf16"]

_EXACT: frozenset[OpName] = frozenset(
    {"select", "neg", "abs", "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "const", "cast", "bitcast"}
)
"""The operations that are kept."""


@dataclass(frozen=True, slots=True)
class LowerBf16:
    """Lower bf16 arithmetic in place."""

    name: ClassVar[str] = "lower_bf16"

    def run(self, module: Module) -> Module:
        return expand(module, _choose)


def _choose(_function: Function, op: Op) -> Rule | None:
    """Return the expansion rule for an operation; None if it is kept."""
    info = OPS[op.name]
    if op.name in _EXACT or not info.elementwise or not op.operands:
        return None
    operand_type = op.operands[0].type
    if not isinstance(operand_type, (Scalar, Vector)) or operand_type.dtype is not dtypes.bf16:
        return None
    return partial(_rounded, op.name)


def _rounded(name: OpName, f: Formula, *operands: Term) -> Term:
    """Compute the operation `name` in f32 and round a float result to bf16."""
    result = f.call(name, *(x.cast(dtypes.f32) for x in operands))
    return result if result.dtype.kind == "bool" else result.cast(dtypes.bf16)
