"""Lower bf16 arithmetic to f32 arithmetic with explicit rounding.

An elementwise operation on bf16 values becomes the same operation on f32 values, with its result cast to bf16, which
rounds to nearest even. Operations that can't round are kept: selects, sign changes, comparisons, conversions. Back ends
represent bf16 values as f32; only loads, stores and casts deal with the two bytes in memory.
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


@dataclass(frozen=True, slots=True)
class LowerBf16:
    """Lower bf16 arithmetic in place."""

    name: ClassVar[str] = "lower_bf16"

    def run(self, module: Module) -> Module:
        return expand(module, _choose)


def _choose(_function: Function, op: Op) -> Rule | None:
    info = OPS[op.name]
    if op.name in _EXACT or not info.elementwise or not op.operands:
        return None
    operand_type = op.operands[0].type
    if not isinstance(operand_type, (Scalar, Vector)) or operand_type.dtype is not dtypes.bf16:
        return None
    return partial(_rounded, op.name)


def _rounded(name: OpName, f: Formula, *operands: Term) -> Term:
    result = f.call(name, *(x.cast(dtypes.f32) for x in operands))
    return result if result.dtype.kind == "bool" else result.cast(dtypes.bf16)
