"""The sanitizer's checks "overflow" and "nan": signed integer overflow, and operations that produce a new NaN.

Overflow: signed sums, differences, products, negations and absolute values, and conversions to a narrower signed type,
are reported if the result isn't the exact one.

NaN: float operations are reported if the result is NaN and no operand is. NaNs that come from memory or constants
aren't reported.
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
"""Maps the operations that may overflow to the operators that messages show."""
_PROPAGATING: frozenset[OpName] = frozenset({
    "select", "min", "max", "fmin", "fmax", "neg", "abs", "sign", "copysign", "floor", "ceil", "trunc", "round", "cast",
    "bitcast", "const", "poison",
})  # fmt: skip
"""Operations that aren't checked for NaN: constants, and operations that return NaN only if an operand is NaN."""


@dataclass(slots=True)
class Arithmetic:
    """Instrumentation of arithmetic. The components of vectors are checked one by one.

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
        """Emit a report per component of the result. It fires if the component is NaN and that of no operand is."""
        # all operands of an elementwise operation are scalars or vectors; non-floats can't be NaN
        operands = [v for v in op.operands if getattr(v.type, "dtype", dtypes.i32).is_float]
        for lane in range(_size(op.result)):
            is_new = f.call("isnan", _lane(f, op.result, lane))
            components = [_lane(f, value, lane) for value in operands]
            for component in components:
                is_new = is_new & ~f.call("isnan", component)
            # placeholders in the message for the operands' values
            shown = ", ".join(f"{{{number}}}" for number in range(len(components)))
            self._report(f, op, is_new, components, "nan", f"{op.name} of {shown} gives NaN")

    def _check_overflow(self, op: Op, f: Formula) -> None:
        """Emit a report per component of the result. It fires if the component isn't the exact result.

        Does nothing for operations that can't overflow.
        """
        for lane in range(_size(op.result)):
            result = _lane(f, op.result, lane)
            operands = [_lane(f, value, lane) for value in op.operands]
            if op.name in _WRAPPING:
                wrapped = _wrapped(op.name, operands, result)
                operator = _WRAPPING[op.name]
                shown = f"{{0}} {operator} {{1}}" if len(operands) == 2 else f"{operator} {{0}}"
                text = f"{shown} wraps in {result.dtype.name}"
            elif op.name == "cast" and _narrows(operands[0], result) and not op.attrs.get("raw"):
                # a `raw` cast is known to be in range; any other cast is exact if converting back restores the operand
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
    # only the type's minimum wraps: both operations return it unchanged
    if name == "neg":
        return (a < 0) & result.equals(a)
    if name == "abs":
        return (a < 0) & (result < 0)
    b = operands[1]
    # a sum overflows if its sign differs from those of both operands; x < 0 tests the sign bit
    if name == "add":
        return ((a ^ result) & (b ^ result)) < 0
    # a difference overflows if the operands' signs differ and the result's sign isn't that of `a`
    if name == "sub":
        return ((a ^ b) & (a ^ result)) < 0
    if result.dtype.bits <= 32:
        return (a.cast(dtypes.i64) * b.cast(dtypes.i64)).differs(result.cast(dtypes.i64))
    # No type is wide enough for the exact product of 64-bit integers. The product is exact if dividing it by b gives a.
    # The exception is -2**63 * -1, which wraps to -2**63: its division by -1 wraps, too, and gives a.
    f = result.formula
    quotient = f.call("truncdiv", result, b)
    minimum = -(1 << 63)
    return b.differs(0) & (quotient.differs(a) | (b.equals(-1) & a.equals(minimum)))
