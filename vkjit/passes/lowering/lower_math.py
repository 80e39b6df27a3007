"""Expand mathematical functions (exp, log, sin, pow, ...) into arithmetic that is accurate to a few ULP on any device.

Functions that devices implement imprecisely or not at all are expanded. Functions of f16 values are computed in f32,
and the result is rounded. In kernels with the attribute `fast_math`, f32 and f16 functions that GLSL.std.450 has are
kept.

The expansions (in the package `passes.math`) need neither fused multiply-add nor float controls. Operations whose order
matters are marked `exact`. The error bounds are those in the column `ulp` of the op table, for results that are normal
numbers. The expansions contain operations that `lower_arithmetic`, which runs next, has to lower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vkjit import dtypes
from vkjit.ir.core import Function, Module, Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Scalar, Vector

from ..formulas.expansion import Rule, expand
from ..formulas.formula import Formula, Term
from ..math import circular, error_function, exponential, hyperbolic, inverse, logarithm, power, roots

__all__ = ["MATH_RULES", "LowerMath"]

MATH_RULES: dict[OpName, Rule] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "expm1": exponential.expm1,
    "log": logarithm.log,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "log1p": logarithm.log1p,
    "pow": power.power,
    "sin": circular.sin,
    "cos": circular.cos,
    "tan": circular.tan,
    "asin": inverse.asin,
    "acos": inverse.acos,
    "atan": inverse.atan,
    "atan2": inverse.atan2,
    "sinh": hyperbolic.sinh,
    "cosh": hyperbolic.cosh,
    "tanh": hyperbolic.tanh,
    "asinh": hyperbolic.asinh,
    "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": error_function.erf,
    "erfc": error_function.erfc,
    "rsqrt": roots.rsqrt,
    "hypot": roots.hypot,
}


@dataclass(frozen=True, slots=True)
class LowerMath:
    """Expand mathematical functions in place.

    `native`: f32 functions that the back end computes at least as accurately as the expansion. They are kept, except in
    strict kernels. `branches`: True if lanes are known to reconverge after a branch, so that trigonometric functions
    can have a fast path for small angles.
    """

    native: frozenset[OpName] = frozenset()
    branches: bool = False

    name: ClassVar[str] = "lower_math"

    def run(self, module: Module) -> Module:
        return expand(module, partial(_choose, self.native, self.branches))


def _choose(native: frozenset[OpName], branches: bool, function: Function, op: Op) -> Rule | None:
    """Return the expansion rule for an operation; None if it is kept."""
    rule = MATH_RULES.get(op.name)
    if branches:
        rule = _BRANCHING.get(op.name, rule)
    operand_type = op.operands[0].type if rule is not None else None
    if rule is None or not isinstance(operand_type, (Scalar, Vector)) or not operand_type.dtype.is_float:
        return None
    is_f32_or_f16 = operand_type.dtype.bits <= 32
    if op.name == "rsqrt" and is_f32_or_f16:  # GLSL.std.450's InverseSqrt is accurate enough
        return None
    if op.name in native and is_f32_or_f16 and not function.attrs.get("strict"):
        # the back end has the function for f32 only
        return partial(_through_f32, partial(_call_operation, op.name)) if operand_type.dtype is dtypes.f16 else None
    if is_f32_or_f16 and function.attrs.get("fast_math"):
        if "float" in OPS[op.name].spirv:
            return None
        rule = _FAST.get(op.name, rule)
    return partial(_through_f32, rule) if operand_type.dtype is dtypes.f16 else rule


def _call_operation(name: OpName, f: Formula, *operands: Term) -> Term:
    """Emit the operation `name` itself."""
    return f.call(name, *operands)


def _through_f32(rule: Rule, f: Formula, *operands: Term) -> Term:
    """Evaluate an f32 expansion for f16 operands and round the result to f16."""
    return rule(f, *(x.cast(dtypes.f32) for x in operands)).cast(dtypes.f16)


def _fast_log10(f: Formula, x: Term) -> Term:
    return f.call("log2", x) * math.log10(2)


_BRANCHING: dict[OpName, Rule] = {
    "sin": partial(circular.sin, fast_path=True),
    "cos": partial(circular.cos, fast_path=True),
    "tan": partial(circular.tan, fast_path=True),
}
"""Rules with a fast path for small angles, used if `LowerMath.branches` is True."""

_FAST: dict[OpName, Rule] = {"log10": _fast_log10}
"""Rules for functions that GLSL.std.450 lacks, used in kernels with `fast_math`."""
