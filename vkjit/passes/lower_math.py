"""Replaces mathematical functions by formulas of arithmetic, accurate to a few ULP on any device.

Before: exp, log, sin, pow and their kin as single operations. After: none that a device would compute loosely or not at
all; f16 is computed in f32 and rounded. With the function attribute `fast_math`, f32 and f16 keep those that
GLSL.std.450 has. The formulas need no fused multiply-add and no float controls; operations whose order matters are
marked `exact`. The bounds are those of the op table's column `ulp`, for results that are normal numbers. Leaves
operations for `lower_arithmetic`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from .. import dtypes
from ..ir.core import Function, Module, Op
from ..ir.ops import OPS
from ..ir.types import Scalar, Vector
from .expansion import Rule, expand
from .formula import Formula, Term
from .math import circular, error_function, exponential, hyperbolic, inverse, logarithm, power, roots

__all__ = ["MATH_RULES", "LowerMath"]

MATH_RULES: dict[str, Rule] = {
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
    """`run(module)` works in place and gives the module back. `native` names functions of f32 that the back end has itself,
    as accurate; kernels with `strict` don't use them. `branches` says that lanes surely come together again after a branch:
    angles that aren't large then go a short way."""

    native: frozenset[str] = frozenset()
    branches: bool = False

    name: ClassVar[str] = "lower_math"

    def run(self, module: Module) -> Module:
        return expand(module, partial(_choose, self.native, self.branches))


def _choose(native: frozenset[str], branches: bool, function: Function, op: Op) -> Rule | None:
    rule = MATH_RULES.get(op.name)
    if branches:
        rule = _BRANCHING.get(op.name, rule)
    found = op.operands[0].type if rule is not None else None
    if rule is None or not isinstance(found, (Scalar, Vector)) or not found.dtype.is_float:
        return None
    single = found.dtype.bits <= 32
    if op.name == "rsqrt" and single:
        return None
    if op.name in native and single and not function.attrs.get("strict"):
        return partial(_wider, partial(_called, op.name)) if found.dtype is dtypes.f16 else None
    if single and function.attrs.get("fast_math"):
        if "float" in OPS[op.name].spirv:
            return None
        rule = _FAST.get(op.name, rule)
    return partial(_wider, rule) if found.dtype is dtypes.f16 else rule


def _called(name: str, f: Formula, *operands: Term) -> Term:
    return f.call(name, *operands)


def _wider(rule: Rule, f: Formula, *operands: Term) -> Term:
    """The f32 formula, rounded to half precision."""
    return rule(f, *(x.cast(dtypes.f32) for x in operands)).cast(dtypes.f16)


def _fast_log10(f: Formula, x: Term) -> Term:
    return f.call("log2", x) * math.log10(2)


_BRANCHING: dict[str, Rule] = {
    "sin": partial(circular.sin, near=True),
    "cos": partial(circular.cos, near=True),
    "tan": partial(circular.tan, near=True),
}
"""Rules that branch."""

_FAST: dict[str, Rule] = {"log10": _fast_log10}
