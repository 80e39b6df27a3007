"""Hides the lowest bit of 64-bit integers from a driver that multiplies it wrongly.

Enters and leaves: primitive form. Such a driver (quirk `wide_parity`) takes x & 1 of 64 bits for 1 where it is a factor, as
in the offset of `y[i & 1, j]`. The bit is taken from the lower half instead::

                                       %low = cast %x : u32
    %y = and %x, %1 : index     ->     %bit = and %low, %one : u32
                                       %y = cast %bit : index
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .. import dtypes
from ..ir.core import Function, Module, Op
from ..ir.rewrite import constant_of
from ..ir.types import Scalar
from .expansion import Rule, expand
from .formula import Formula, Term

__all__ = ["HideParity"]


@dataclass(frozen=True, slots=True)
class HideParity:
    """Does nothing where `needed` is False."""

    name: ClassVar[str] = "hide_parity"
    needed: bool = True
    way: str = "narrow"

    def run(self, module: Module) -> Module:
        rule = WAYS[self.way]
        return (
            expand(module, lambda function, op: rule if _is_parity(function, op) else None) if self.needed else module
        )


def _is_parity(_function: Function, op: Op) -> bool:
    if op.name != "and" or not isinstance(op.result.type, Scalar) or op.result.type.dtype.bits != 64:
        return False
    return any(constant_of(value) == 1 for value in op.operands)


def _other(x: Term, y: Term) -> Term:
    return y if x.constant == 1 else x


def _narrow(_f: Formula, x: Term, y: Term) -> Term:
    value = _other(x, y)
    return (value.cast(dtypes.u32) & 1).cast(value.dtype)


def _shifts(_f: Formula, x: Term, y: Term) -> Term:
    value = _other(x, y)
    return ((value.cast(dtypes.u64) << 63) >> 63).cast(value.dtype)


def _difference(_f: Formula, x: Term, y: Term) -> Term:
    value = _other(x, y)
    bits = value.cast(dtypes.u64)
    return (bits - ((bits >> 1) << 1)).cast(value.dtype)


WAYS: dict[str, Rule] = {"narrow": _narrow, "shifts": _shifts, "difference": _difference}
