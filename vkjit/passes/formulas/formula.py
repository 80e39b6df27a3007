"""Operator overloading for IR values, so that expansions read like mathematics.

A `Term` wraps a scalar value. Its operators, such as `x * y + 1`, emit operations through the builder of a `Formula`. A
Python number becomes a constant of the other operand's type. Error-free transformations (two-sum, split products) rely
on float operations that no compiler may reorder or contract: `Formula.exact` marks these, and the emitter decorates
them with NoContraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.attributes import Attrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import Scalar

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["Formula", "Number", "Term"]

Number = bool | int | float

_UNSIGNED: dict[int, DType] = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
_SIGNED: dict[int, DType] = {8: dtypes.i8, 16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}
RegionBuilder = Callable[[], Sequence["Term"]]
"""Builds one region of a branch and returns its results."""

_ROUNDED: frozenset[OpName] = frozenset({"add", "sub", "mul", "div"})
"""The operations that `Formula.exact` marks."""


class Term:
    """A scalar value with operators. Shift amounts must be non-negative and less than the type's number of bits."""

    __slots__ = ("formula", "value")

    def __init__(self, formula: Formula, value: Value) -> None:
        self.formula = formula
        self.value = value

    @property
    def dtype(self) -> DType:
        scalar = self.value.type
        if not isinstance(scalar, Scalar):
            raise InternalError(f"formulas are written over scalars, found {scalar}")
        return scalar.dtype

    def _with(self, name: OpName, other: Term | Number, swap: bool = False) -> Term:
        """Emit an operation on this term and another operand, with the operands in reverse order if `swap`."""
        right = self.formula.term(other, self.dtype)
        return self.formula.call(name, right, self) if swap else self.formula.call(name, self, right)

    def __add__(self, other: Term | Number) -> Term:
        return self._with("add", other)

    def __radd__(self, other: Number) -> Term:
        return self._with("add", other, swap=True)

    def __sub__(self, other: Term | Number) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: Number) -> Term:
        return self._with("sub", other, swap=True)

    def __mul__(self, other: Term | Number) -> Term:
        return self._with("mul", other)

    def __rmul__(self, other: Number) -> Term:
        return self._with("mul", other, swap=True)

    def __truediv__(self, other: Term | Number) -> Term:
        return self._with("div", other)

    def __rtruediv__(self, other: Number) -> Term:
        return self._with("div", other, swap=True)

    def __neg__(self) -> Term:
        return self.formula.call("neg", self)

    def __and__(self, other: Term | Number) -> Term:
        return self._with("and", other)

    def __or__(self, other: Term | Number) -> Term:
        return self._with("or", other)

    def __xor__(self, other: Term | Number) -> Term:
        return self._with("xor", other)

    def __invert__(self) -> Term:
        return self.formula.call("not", self)

    def __lshift__(self, other: Term | Number) -> Term:
        return self._with("shl_raw", other)

    def __rshift__(self, other: Term | Number) -> Term:
        return self._with("shr_raw", other)

    def __lt__(self, other: Term | Number) -> Term:
        return self._with("lt", other)

    def __le__(self, other: Term | Number) -> Term:
        return self._with("le", other)

    def __gt__(self, other: Term | Number) -> Term:
        return self._with("gt", other)

    def __ge__(self, other: Term | Number) -> Term:
        return self._with("ge", other)

    def equals(self, other: Term | Number) -> Term:
        return self._with("eq", other)

    def differs(self, other: Term | Number) -> Term:
        return self._with("ne", other)

    def abs(self) -> Term:
        return self.formula.call("abs", self)

    def cast(self, dtype: DType) -> Term:
        """Convert the value as `cast` does: floats saturate when converted to integers, integers wrap."""
        return self if dtype is self.dtype else self.formula.call("cast", self, type=Scalar(dtype))

    def raw_cast(self, dtype: DType) -> Term:
        """Convert a value that is known to be in the range of the target type, without the code for other values."""
        return self if dtype is self.dtype else self.formula.call("cast", self, type=Scalar(dtype), raw=True)

    def bits(self) -> Term:
        """Reinterpret the bits as an unsigned integer."""
        return self.as_bits_of(_UNSIGNED[self.dtype.bits])

    def signed_bits(self) -> Term:
        """Reinterpret the bits as a signed integer."""
        return self.as_bits_of(_SIGNED[self.dtype.bits])

    def as_bits_of(self, dtype: DType) -> Term:
        """Reinterpret the bits as a value of type `dtype`."""
        return self if dtype is self.dtype else self.formula.call("bitcast", self, type=Scalar(dtype))

    @property
    def constant(self) -> Number | None:
        """The value of a constant, None for other terms."""
        number: Number | None = constant_of(self.value) if is_constant(self.value) else None
        return number


class Formula:
    """A factory of terms, which emits operations through a builder.

    `strict` is True if the function that the formula is for has the attribute `strict`: nothing is fused or reordered.
    The flag doesn't change what the methods emit. `word` is the widest unsigned integer type of the device.
    """

    def __init__(self, builder: Builder, *, strict: bool = False, word: DType = dtypes.u64) -> None:
        self.builder = builder
        self.strict = strict
        self.word = word
        self._exact = False

    def term(self, value: Value | Term | Number, dtype: DType | None = None) -> Term:
        """Return a value, or a constant of type `dtype`, as a term."""
        if isinstance(value, Term):
            return value
        if isinstance(value, Value):
            return Term(self, value)
        if dtype is None:
            raise InternalError(f"no type given for the constant {value}")
        return Term(self, self.builder.const(_fitted(value, dtype), dtype))

    def call(self, name: OpName, *operands: Term, **attrs: Unpack[Attrs]) -> Term:
        """Emit an operation with one result."""
        if self._exact and name in _ROUNDED and operands[0].dtype.is_float:
            attrs["exact"] = True
        return Term(self, self.builder.emit(name, *(t.value for t in operands), **attrs))

    @contextmanager
    def exact(self) -> Iterator[None]:
        """Within this context, mark float additions, subtractions, multiplications and divisions as exact."""
        saved, self._exact = self._exact, True
        try:
            yield
        finally:
            self._exact = saved

    def select(self, condition: Term, yes: Term | Number, no: Term | Number) -> Term:
        """Emit a select; at least one of `yes` and `no` must be a term."""
        dtype = next((side.dtype for side in (yes, no) if isinstance(side, Term)), None)
        return self.call("select", condition, self.term(yes, dtype), self.term(no, dtype))

    def polynomial(self, x: Term, coefficients: Sequence[float]) -> Term:
        """Evaluate c[0] + x*(c[1] + x*(...)) by Horner's rule."""
        result = self.term(coefficients[-1], x.dtype)
        for number in reversed(coefficients[:-1]):
            result = result * x + number
        return result

    def branch(self, condition: Term, yes: RegionBuilder, no: RegionBuilder) -> list[Term]:
        """Emit an `if` on `condition`, with the regions that `yes` and `no` build, and return its results."""
        sides: list[tuple[Region, Sequence[Term]]] = []
        for build in (yes, no):
            region = Region()
            with self.builder.at(region):
                results = build()
                self.builder.op("yield", *(t.value for t in results))
            sides.append((region, results))
        types = [t.value.type for t in sides[0][1]]
        op = self.builder.op("if", condition.value, types=types, regions=[r for r, _ in sides])
        return [Term(self, value) for value in op.results]


def _fitted(value: Number, dtype: DType) -> Number:
    """Convert a Python number to the Python type that constants of `dtype` have; integers wrap around."""
    if dtype.kind == "bool":
        return bool(value)
    if dtype.is_float:
        return float(value)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return wrapped - (1 << dtype.bits) if dtype.is_signed and wrapped >> (dtype.bits - 1) else wrapped
