"""Lower arithmetic that SPIR-V lacks, or leaves undefined for some operands, to operations that it defines.

Takes a module after `lower_bf16` and `lower_math`. Afterwards, each elementwise operation has a SPIR-V instruction for
the kind of its operands, and its results are those of `ir.semantics` for all operands. This concerns integer division
by zero, the smallest integer divided by -1, shifts by more than the bit width, NaN and signed zeros in min and max, and
out-of-range conversions of floats to integers. Bit counts of other widths are built from 32-bit ones.

The expansions are in the package `passes.arithmetic`; this module selects the one for each operation and device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Function, Module, Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar, Vector

from ..analysis.value_ranges import Ranges
from ..arithmetic.bits import BIT_RULES, absolute
from ..arithmetic.conversion import conversion_rule
from ..arithmetic.division import INTEGER_RULES, UNSIGNED_RULES
from ..arithmetic.floats import FAST_MATH_RULES, FLOAT_RULES, ROUNDING_RULES, multiply_add
from ..formulas.expansion import Rule, expand
from ..formulas.formula import Formula, Term
from ..math.roots import rounded_square_root

__all__ = ["LowerArithmetic"]


@dataclass(frozen=True, slots=True)
class LowerArithmetic:
    """Lower arithmetic in place.

    `native`: float operations that the back end provides in addition to SPIR-V's. `correctly_rounded_sqrt`: True if the
    back end's f32 square root is correctly rounded, as strict kernels require. `correct_f64_rounding`: True if the back
    end's `trunc` and `round` are correct for f64. `int64`: True if the device has 64-bit integers.
    """

    native: frozenset[OpName] = frozenset()
    correctly_rounded_sqrt: bool = True
    correct_f64_rounding: bool = True
    int64: bool = True

    name: ClassVar[str] = "lower_arithmetic"

    def run(self, module: Module) -> Module:
        non_negative: set[Op] = set()
        for function in module.all_functions():
            Ranges(function, partial(_note_non_negative, non_negative)).run()
        return expand(module, partial(_choose, self, non_negative), dtypes.u64 if self.int64 else dtypes.u32)


def _note_non_negative(non_negative: set[Op], ranges: Ranges, op: Op) -> None:
    """Add a division to `non_negative` if its operands are; `Ranges` calls this for each operation."""
    if op.name in UNSIGNED_RULES and isinstance(op.result.type, Scalar) and op.result.type.dtype.is_integer:
        if all(ranges.of(v)[0] >= 0 for v in op.operands):
            non_negative.add(op)


def _element(op: Op) -> DType | None:
    """Return the dtype of the first operand; None if there is none, or if it isn't a scalar or vector."""
    operand_type = op.operands[0].type if op.operands else None
    return operand_type.dtype if isinstance(operand_type, (Scalar, Vector)) else None


def _choose(options: LowerArithmetic, non_negative: set[Op], function: Function, op: Op) -> Rule | None:
    """Return the expansion rule for an operation; None if it is kept.

    `options` are those of the pass, and `non_negative` the divisions whose operands aren't negative.
    """
    element, native = _element(op), options.native
    if element is None:
        return None
    if op.name == "cast":
        target = op.result.type
        assert isinstance(target, (Scalar, Vector))
        return conversion_rule(op, element, target.dtype)
    if element.is_integer:
        if op.name == "abs":
            return absolute if element.kind == "uint" else None
        if op.name in UNSIGNED_RULES and (element.kind == "uint" or op in non_negative):
            return UNSIGNED_RULES[op.name]
        return INTEGER_RULES.get(op.name) or BIT_RULES.get(op.name)
    if not element.is_float:
        return None
    if op.name == "fma":
        if function.attrs.get("strict"):
            return multiply_add
        # LLVM would compute the f16 operation in f64
        return partial(_through_f32, "fma") if native and element is dtypes.f16 else None
    if element is dtypes.f64 and op.name in ROUNDING_RULES and not options.correct_f64_rounding:
        return ROUNDING_RULES[op.name]
    if op.name == "sqrt" and not options.correctly_rounded_sqrt and function.attrs.get("strict"):
        roots: dict[DType, Rule] = {dtypes.f32: rounded_square_root, dtypes.f16: partial(_through_f32, "sqrt")}
        return roots.get(element)
    rules = FLOAT_RULES | FAST_MATH_RULES if function.attrs.get("fast_math") else FLOAT_RULES
    rule = rules.get(op.name) if op.name not in native else None
    # most rules are for f32 and f64 only; that for `truncdiv` takes f16, too
    through_f32 = element is dtypes.f16 and rule is not None and op.name != "truncdiv"
    return partial(_through_f32, op.name) if through_f32 else rule


def _through_f32(name: OpName, f: Formula, *operands: Term) -> Term:
    """Compute the f16 operation `name` in f32, and round the result to f16: the same as NumPy computes for f16."""
    result = f.call(name, *(x.cast(dtypes.f32) for x in operands))
    return result if result.dtype.kind == "bool" else result.cast(dtypes.f16)
