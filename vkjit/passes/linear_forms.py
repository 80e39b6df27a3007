"""Integers as sums: constant + coefficient * atom + ..., and what powers of two surely divide them.

Enters: a function's operations, noted in program order. Leaves: for each index value (`index` or i32) its form, exact
modulo 2**width, and for any integer the number of its low bits that are surely 0. Two values whose forms differ by
their constants alone differ by just that. Holds: each operation is looked at once; a sum of more than `MOST_ATOMS`
atoms is an atom itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..ir.core import Op, Value
from ..ir.rewrite import constant_of, is_constant
from ..ir.types import I32, INDEX, Scalar

__all__ = ["Form", "LinearForms"]

MOST_ATOMS = 8
_REMAINDERS = frozenset({"floormod", "truncrem", "and"})
_ALL_ZERO = 32
"""Low zero bits of the number 0: more than anybody asks for."""


@dataclass(frozen=True, slots=True)
class Form:
    """constant + sum of coefficient * atom; no coefficient is 0."""

    constant: int
    atoms: frozenset[tuple[Value, int]] = frozenset()

    def plus(self, other: Form, factor: int) -> Form:
        """self + factor * other."""
        total = dict(self.atoms)
        for atom, coefficient in other.atoms:
            total[atom] = total.get(atom, 0) + factor * coefficient
        kept = frozenset((atom, coefficient) for atom, coefficient in total.items() if coefficient)
        return Form(self.constant + factor * other.constant, kept)


@dataclass(slots=True)
class LinearForms:
    """The analysis. `zeros` may be told what the caller knows of values (see `note`)."""

    forms: dict[Value, Form] = field(default_factory=dict)
    zeros: dict[Value, int] = field(default_factory=dict)

    def of(self, value: Value) -> Form:
        """The form of a value; one that wasn't noted is an atom."""
        found = self.forms.get(value)
        if found is not None:
            return found
        return Form(int(constant_of(value))) if is_constant(value) else Form(0, frozenset({(value, 1)}))

    def low_zeros(self, value: Value) -> int:
        """How many low bits of an integer are surely 0."""
        if is_constant(value):
            return _trailing_zeros(int(constant_of(value)))
        return self.zeros.get(value, 0)

    def atoms_zeros(self, form: Form) -> int:
        """How many low bits of a form without its constant are surely 0."""
        found = [self.low_zeros(atom) + _trailing_zeros(coefficient) for atom, coefficient in form.atoms]
        return min(found, default=_ALL_ZERO)

    def note(self, op: Op) -> None:
        """Learns about the result of an operation, or the counter of a loop, from what is known of its operands."""
        if op.name == "for":
            self.zeros[op.regions[0].args[0]] = min(self.low_zeros(op.operands[0]), self.low_zeros(op.operands[2]))
        elif len(op.results) == 1 and _is_integer(op.result):
            self._zeros_of(op)
            if op.result.type in (INDEX, I32):
                self._form_of(op)

    def assume(self, op: Op) -> None:
        """Learns from an `assume` that a number is a multiple; the caller sees to it that the promise holds from here on."""
        test = op.operands[0].op
        if test is None or test.name != "eq":
            return
        remainder, zero = test.operands if is_constant(test.operands[1]) else test.operands[::-1]
        inner = remainder.op
        if inner is None or inner.name not in _REMAINDERS or not is_constant(zero) or int(constant_of(zero)) != 0:
            return
        value, divisor = inner.operands
        if not is_constant(divisor):
            return
        factor = int(constant_of(divisor))
        known = _trailing_zeros(~factor) if inner.name == "and" else _trailing_zeros(factor)
        if not factor:
            return
        self._multiple(value, known)

    def _multiple(self, value: Value, zeros: int) -> None:
        """The low bits of a number are 0, and so are those of what it was converted from."""
        while True:
            self.zeros[value] = max(self.zeros.get(value, 0), min(zeros, _ALL_ZERO))
            op = value.op
            kind = value.type
            if op is None or op.name != "cast" or not _is_integer(op.operands[0]) or not isinstance(kind, Scalar):
                return
            value, zeros = op.operands[0], min(zeros, kind.dtype.bits)  # a narrower one says nothing of the rest

    def _zeros_of(self, op: Op) -> None:
        name, x = op.name, op.operands
        if name in ("add", "sub", "min", "max", "or", "xor"):
            found = min(self.low_zeros(x[0]), self.low_zeros(x[1]))
        elif name == "mul":
            found = self.low_zeros(x[0]) + self.low_zeros(x[1])
        elif name == "and":
            found = max(self.low_zeros(x[0]), self.low_zeros(x[1]))
        elif name in ("shl", "shl_raw") and is_constant(x[1]):
            found = self.low_zeros(x[0]) + int(constant_of(x[1]))
        elif name == "select":
            found = min(self.low_zeros(x[1]), self.low_zeros(x[2]))
        elif name == "neg" or (name == "cast" and _is_integer(x[0])):
            found = self.low_zeros(x[0])
        else:
            return
        if found:
            self.zeros[op.result] = min(found, _ALL_ZERO)

    def _form_of(self, op: Op) -> None:
        found = self._sum(op)
        if found is not None and len(found.atoms) <= MOST_ATOMS:
            self.forms[op.result] = found

    def _sum(self, op: Op) -> Form | None:
        name, x = op.name, op.operands
        if name in ("add", "sub"):
            return self.of(x[0]).plus(self.of(x[1]), 1 if name == "add" else -1)
        if name == "neg":
            return Form(0).plus(self.of(x[0]), -1)
        if name == "mul" and is_constant(x[1]):
            return Form(0).plus(self.of(x[0]), int(constant_of(x[1])))
        if name == "mul" and is_constant(x[0]):
            return Form(0).plus(self.of(x[1]), int(constant_of(x[0])))
        if name in ("shl", "shl_raw") and is_constant(x[1]) and 0 <= int(constant_of(x[1])) < 32:
            return Form(0).plus(self.of(x[0]), 1 << int(constant_of(x[1])))
        if name == "cast" and op.result.type == I32 and x[0].type == INDEX:
            return self.of(x[0])  # the lower half of a sum is the sum of the lower halves
        return None


def _trailing_zeros(number: int) -> int:
    return min((number & -number).bit_length() - 1, _ALL_ZERO) if number else _ALL_ZERO


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer
