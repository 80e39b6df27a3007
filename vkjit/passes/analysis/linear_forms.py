"""Linear forms of integers, constant + coefficient * atom + ..., and their known trailing zero bits.

The form of a value expands additions, subtractions, and multiplications by constants. An atom is a value that isn't
expanded further, as it is the result of another operation or a sum of more than `MAX_ATOMS` atoms. If the forms of two
values differ only in their constants, the values differ by exactly the difference of the constants.

The caller (`widen_access`) passes each operation of a function to `LinearForms.note` once, in program order. The
analysis finds the form of each value of type `index` or i32, exact modulo 2**width, and a lower bound of the trailing
zero bits of any integer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import I32, INDEX, Scalar

__all__ = ["LinearForm", "LinearForms"]

MAX_ATOMS = 8
"""The largest number of atoms in a form."""
_REMAINDERS: frozenset[OpName] = frozenset({"floormod", "truncrem", "and"})
"""Operations x op c with a constant c: if the result is 0, x may have known trailing zeros."""
_ALL_ZERO = 32
"""The trailing zeros of the number 0, and the maximum that is tracked."""


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A linear form: constant + sum of coefficient * atom. No coefficient is 0."""

    constant: int
    atoms: frozenset[tuple[Value, int]] = frozenset()

    def plus(self, other: LinearForm, factor: int) -> LinearForm:
        """Return self + factor * other."""
        total = dict(self.atoms)
        for atom, coefficient in other.atoms:
            total[atom] = total.get(atom, 0) + factor * coefficient
        kept = frozenset((atom, coefficient) for atom, coefficient in total.items() if coefficient)
        return LinearForm(self.constant + factor * other.constant, kept)


@dataclass(slots=True)
class LinearForms:
    """The analysis of one function.

    `forms` has the form of each value that isn't an atom. `zeros` has the number of known trailing zeros of each value
    that has any; callers may add what they know about a value before its first use.
    """

    forms: dict[Value, LinearForm] = field(default_factory=dict)
    zeros: dict[Value, int] = field(default_factory=dict)

    def of(self, value: Value) -> LinearForm:
        """Return the form of a value. A value that isn't a constant and wasn't passed to `note` is an atom."""
        form = self.forms.get(value)
        if form is not None:
            return form
        return LinearForm(int(constant_of(value))) if is_constant(value) else LinearForm(0, frozenset({(value, 1)}))

    def trailing_zeros(self, value: Value) -> int:
        """Return the number of known trailing zeros of an integer."""
        if is_constant(value):
            return _trailing_zeros(int(constant_of(value)))
        return self.zeros.get(value, 0)

    def atoms_trailing_zeros(self, form: LinearForm) -> int:
        """Return the number of known trailing zeros of a form without its constant."""
        zeros = [self.trailing_zeros(atom) + _trailing_zeros(coefficient) for atom, coefficient in form.atoms]
        return min(zeros, default=_ALL_ZERO)

    def note(self, op: Op) -> None:
        """Record the form and trailing zeros of an operation's result, or the zeros of a `for`'s induction variable."""
        if op.name == "for":
            self.zeros[op.regions[0].args[0]] = min(
                self.trailing_zeros(op.operands[0]), self.trailing_zeros(op.operands[2])
            )
        elif len(op.results) == 1 and _is_integer(op.result):
            self._zeros_of(op)
            if op.result.type in (INDEX, I32):
                self._form_of(op)

    def assume(self, op: Op) -> None:
        """Learn the trailing zeros of x from `assume x % c == 0` or `assume x & c == 0`.

        The assumption holds up to the end of the region of the `assume`. The caller must restore `zeros` there.
        """
        test = op.operands[0].op
        if test is None or test.name != "eq":
            return
        remainder, zero = test.operands if is_constant(test.operands[1]) else test.operands[::-1]
        inner = remainder.op
        if inner is None or inner.name not in _REMAINDERS or not is_constant(zero) or int(constant_of(zero)) != 0:
            return
        value, divisor_or_mask = inner.operands
        if not is_constant(divisor_or_mask):
            return
        number = int(constant_of(divisor_or_mask))
        # x & c == 0 means that x has zeros where c has ones, so x has as many trailing zeros as c has trailing ones.
        zeros = _trailing_zeros(~number) if inner.name == "and" else _trailing_zeros(number)
        if not number:
            return
        self._record_zeros(value, zeros)

    def _record_zeros(self, value: Value, zeros: int) -> None:
        """Record that a value, and the values that it was cast from, have at least `zeros` trailing zeros."""
        while True:
            self.zeros[value] = max(self.zeros.get(value, 0), min(zeros, _ALL_ZERO))
            op = value.op
            kind = value.type
            if op is None or op.name != "cast" or not _is_integer(op.operands[0]) or not isinstance(kind, Scalar):
                return
            value, zeros = op.operands[0], min(zeros, kind.dtype.bits)  # a truncated result has only the low bits

    def _zeros_of(self, op: Op) -> None:
        """Record the known trailing zeros of an operation's result, from those of its operands."""
        name, operands = op.name, op.operands
        if name in ("add", "sub", "min", "max", "or", "xor"):
            trailing_zeros = min(self.trailing_zeros(operands[0]), self.trailing_zeros(operands[1]))
        elif name == "mul":
            trailing_zeros = self.trailing_zeros(operands[0]) + self.trailing_zeros(operands[1])
        elif name == "and":
            trailing_zeros = max(self.trailing_zeros(operands[0]), self.trailing_zeros(operands[1]))
        elif name in ("shl", "shl_raw") and is_constant(operands[1]):
            trailing_zeros = self.trailing_zeros(operands[0]) + int(constant_of(operands[1]))
        elif name == "select":  # operand 0 is the condition
            trailing_zeros = min(self.trailing_zeros(operands[1]), self.trailing_zeros(operands[2]))
        elif name == "neg" or (name == "cast" and _is_integer(operands[0])):
            trailing_zeros = self.trailing_zeros(operands[0])
        else:
            return
        if trailing_zeros:
            self.zeros[op.result] = min(trailing_zeros, _ALL_ZERO)

    def _form_of(self, op: Op) -> None:
        """Record the form of an operation's result, unless the result is an atom."""
        form = self._sum(op)
        if form is not None and len(form.atoms) <= MAX_ATOMS:
            self.forms[op.result] = form

    def _sum(self, op: Op) -> LinearForm | None:
        """Return the form of an operation's result, None if the operation isn't linear in its operands."""
        name, operands = op.name, op.operands
        if name in ("add", "sub"):
            return self.of(operands[0]).plus(self.of(operands[1]), 1 if name == "add" else -1)
        if name == "neg":
            return LinearForm(0).plus(self.of(operands[0]), -1)
        if name == "mul" and is_constant(operands[1]):
            return LinearForm(0).plus(self.of(operands[0]), int(constant_of(operands[1])))
        if name == "mul" and is_constant(operands[0]):
            return LinearForm(0).plus(self.of(operands[1]), int(constant_of(operands[0])))
        if name in ("shl", "shl_raw") and is_constant(operands[1]) and 0 <= int(constant_of(operands[1])) < 32:
            return LinearForm(0).plus(self.of(operands[0]), 1 << int(constant_of(operands[1])))
        if name == "cast" and op.result.type == I32 and operands[0].type == INDEX:
            return self.of(operands[0])  # the form holds modulo 2**64, and so modulo 2**32
        return None


def _trailing_zeros(number: int) -> int:
    lowest_set_bit = number & -number
    return min(lowest_set_bit.bit_length() - 1, _ALL_ZERO) if number else _ALL_ZERO


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, Scalar) and value.type.dtype.is_integer
