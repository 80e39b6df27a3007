"""The sanitizer's checks "overflow" and "nan": signed integer overflow, and operations that produce a new NaN.

Overflow: inserts a report after each signed sum, difference, product, negation, absolute value, and conversion to a
narrower signed type. It fires if the result isn't the exact one.

NaN: inserts a report after each float operation. It fires if the result is NaN and no operand is. NaNs that come from
memory or constants aren't reported.
"""

from __future__ import annotations

from dataclasses import dataclass

from vkjit import dtypes
from vkjit.errors import ReportSite
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import Scalar, Vector

from ..formulas.formula import Formula, Term
from .state import State

__all__ = ["Arithmetic"]

_WRAPPING: dict[OpName, str] = {"add": "+", "sub": "-", "mul": "*", "neg": "-", "abs": "abs"}
"""The operations that may overflow, and how messages show them."""
_PROPAGATING: frozenset[OpName] = frozenset({
    "select", "min", "max", "fmin", "fmax", "neg", "abs", "sign", "copysign", "floor", "ceil", "trunc", "round", "cast",
    "bitcast", "const", "poison",
})  # fmt: skip
"""Operations that aren't checked: constants, and operations that compute no new NaN."""


@dataclass(slots=True)
class Arithmetic:
    """Instrumentation of arithmetic; each component of a vector is checked.

    `wraps` enables the check for integer overflow, `nans` the check for NaN.
    """

    state: State
    wraps: bool
    nans: bool

    def before_access(self, op: Op, builder: Builder) -> None:
        """Do nothing: these checks aren't about memory accesses."""

    def after(self, op: Op, builder: Builder) -> None:
        """Emit the checks of an operation's result."""
        if len(op.results) != 1 or not isinstance(op.result.type, (Scalar, Vector)):
            return
        dtype = op.result.type.dtype
        if self.nans and dtype.is_float and op.name not in _PROPAGATING and OPS[op.name].elementwise:
            self._check_nan(op, Formula(builder))
        if self.wraps and dtype.is_integer and dtype.is_signed:
            self._check_overflow(op, Formula(builder))

    def _check_nan(self, op: Op, f: Formula) -> None:
        """Emit a report for each component that is NaN although no operand's component is."""
        operands = [v for v in op.operands if getattr(v.type, "dtype", dtypes.i32).is_float]
        for lane in range(_size(op.result)):
            is_new = f.call("isnan", _lane(f, op.result, lane))
            parts = [_lane(f, value, lane) for value in operands]
            for part in parts:
                is_new = is_new & ~f.call("isnan", part)
            shown = ", ".join(f"{{{number}}}" for number in range(len(parts)))
            self._report(f, op, is_new, parts, "nan", f"{op.name} of {shown} gives NaN")

    def _check_overflow(self, op: Op, f: Formula) -> None:
        """Emit a report for each component that isn't the exact result, if the operation may overflow."""
        for lane in range(_size(op.result)):
            result = _lane(f, op.result, lane)
            operands = [_lane(f, value, lane) for value in op.operands]
            if op.name in _WRAPPING:
                wrapped = _wrapped(op.name, operands, result)
                sign = _WRAPPING[op.name]
                shown = f"{{0}} {sign} {{1}}" if len(operands) == 2 else f"{sign} {{0}}"
                text = f"{shown} wraps in {result.dtype.name}"
            elif op.name == "cast" and _narrows(operands[0], result) and not op.attrs.get("raw"):
                wrapped = result.cast(operands[0].dtype).differs(operands[0])
                text = f"{{0}} doesn't fit {result.dtype.name}"
            else:
                return
            self._report(f, op, wrapped, operands, "overflow", text)

    def _report(self, f: Formula, op: Op, condition: Term, values: list[Term], kind: str, text: str) -> None:
        site = self.state.module.add_site(ReportSite(kind, op.loc, text))
        f.builder.op("report", condition.value, *(term.value for term in values), site=site)


def _size(value: Value) -> int:
    return value.type.size if isinstance(value.type, Vector) else 1


def _lane(f: Formula, value: Value, lane: int) -> Term:
    """Return component `lane` of a vector, or a scalar itself."""
    if not isinstance(value.type, Vector):
        return f.term(value)
    return f.term(f.builder.emit("vec_extract", value, lane=lane, type=Scalar(value.type.dtype)))


def _narrows(source: Term, target: Term) -> bool:
    """True for a conversion from a signed type to one with fewer bits."""
    return source.dtype.is_integer and source.dtype.is_signed and target.dtype.bits < source.dtype.bits


def _wrapped(name: OpName, operands: list[Term], result: Term) -> Term:
    """Return the condition that the exact result of the operation `name` isn't `result`."""
    a = operands[0]
    if name in ("neg", "abs"):
        return (a < 0) & (result < 0 if name == "abs" else result.equals(a))
    b = operands[1]
    # a sum overflows if its sign differs from those of both operands; x < 0 tests the sign bit
    if name == "add":
        return ((a ^ result) & (b ^ result)) < 0
    if name == "sub":
        return ((a ^ b) & (a ^ result)) < 0
    if result.dtype.bits <= 32:
        return (a.cast(dtypes.i64) * b.cast(dtypes.i64)).differs(result.cast(dtypes.i64))
    # no wider type is available for the product: divide it by b; -2**63 * -1 wraps, but the division undoes that
    f = result.formula
    undone = f.call("truncdiv", result, b)
    least = -(1 << 63)
    return b.differs(0) & (undone.differs(a) | (b.equals(-1) & a.equals(least)))
