"""Replaces arithmetic that SPIR-V lacks, or leaves undefined for some operands, by operations that it defines.

Before: any elementwise operation but the functions of `lower_math`; no values of type bf16. After: operations with a
SPIR-V instruction for the kind of their operands, with the meaning of `ir.semantics` for all operands: integer division
by zero, the least integer by -1, shifts past the width, NaN and signed zeros in min and max, float to integer out of
range. Popcounts and their kin are made of 32-bit ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from .. import dtypes
from ..dtypes import DType
from ..ir.core import Function, Module, Op
from ..ir.types import Scalar, Vector
from .arithmetic.bits import BIT_RULES, absolute
from .arithmetic.conversion import conversion_rule
from .arithmetic.division import INTEGER_RULES
from .arithmetic.floats import FLOAT_RULES, LOOSE_RULES, WHOLE_RULES, multiply_add
from .expansion import Rule, expand
from .formula import Formula, Term
from .math.roots import rounded_root

__all__ = ["LowerArithmetic"]


@dataclass(frozen=True, slots=True)
class LowerArithmetic:
    """`run(module)` works in place and gives the module back. `native` names operations on floats that the back end has
    itself; `rounded_root` says whether its square root of f32 is rounded to the nearest number, which strict kernels need;
    `whole_numbers`, whether it rounds f64 to whole numbers rightly."""

    native: frozenset[str] = frozenset()
    rounded_root: bool = True
    whole_numbers: bool = True

    name: ClassVar[str] = "lower_arithmetic"

    def run(self, module: Module) -> Module:
        return expand(module, partial(_choose, self))


def _element(op: Op) -> DType | None:
    found = op.operands[0].type if op.operands else None
    return found.dtype if isinstance(found, (Scalar, Vector)) else None


def _choose(device: LowerArithmetic, function: Function, op: Op) -> Rule | None:
    element, native = _element(op), device.native
    if element is None:
        return None
    if op.name == "cast":
        return conversion_rule(op, element, op.attrs["type"].dtype)
    if element.is_integer:
        if op.name == "abs":
            return absolute if element.kind == "uint" else None
        return INTEGER_RULES.get(op.name) or BIT_RULES.get(op.name)
    if not element.is_float:
        return None
    if op.name == "fma":
        if function.attrs.get("strict"):
            return multiply_add
        return partial(_wider, "fma") if native and element is dtypes.f16 else None  # LLVM would go by way of f64
    if element is dtypes.f64 and op.name in WHOLE_RULES and not device.whole_numbers:
        return WHOLE_RULES[op.name]
    if op.name == "sqrt" and not device.rounded_root and function.attrs.get("strict"):
        roots: dict[DType, Rule] = {dtypes.f32: rounded_root, dtypes.f16: partial(_wider, "sqrt")}
        return roots.get(element)
    rules = FLOAT_RULES | LOOSE_RULES if function.attrs.get("fast_math") else FLOAT_RULES
    rule = rules.get(op.name) if op.name not in native else None
    wider = element is dtypes.f16 and rule is not None and op.name != "truncdiv"
    return partial(_wider, op.name) if wider else rule


def _wider(name: str, f: Formula, *operands: Term) -> Term:
    """The same operation on f32 values; a half's result is exact in f32 or rounds as NumPy rounds it."""
    result = f.call(name, *(x.cast(dtypes.f32) for x in operands))
    return result if result.dtype.kind == "bool" else result.cast(dtypes.f16)
