"""Hides lowest bits of integers from a driver that multiplies them wrongly.

Enters and leaves: primitive form. Such a driver (quirk `parity_products`) now and then takes x & 1 for 1 where it is
a factor, as in the offset of `y[i & 1, j]`, in kernels with much else in them. The one becomes a number that the driver
can't know (see `hidden`)::

    %p = and %x, %1 : index        ->    %p = and %x, %n : index
    %q = mul %p, %stride : index         %q = mul %p, %stride : index

1. What such a driver makes x & 1 of by itself is hidden too: the remainder by 2 of a number that is taken without sign, and
   a bit that is shifted to the top and back.
2. Sums of such a bit and products of the sums are as good as products of it, and so are offsets; only bits that nothing but
   a comparison looks at are left.
3. Where no array has an extent that isn't known beforehand, no number is unknown: products become masks, y & (0 - p).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...ir.builder import Builder
from ...ir.core import Module, Op, Region, Value
from ...ir.rewrite import constant_of, is_constant, rewrite_region
from ...ir.types import Scalar, Type, Vector
from .hidden import HiddenNumbers

__all__ = ["HideParity"]

_FORMS = frozenset({"and", "urem_raw", "shr_raw"})
_TESTS = frozenset({"eq", "ne"})


@dataclass(frozen=True, slots=True)
class HideParity:
    """Does nothing where `needed` is False."""

    name: ClassVar[str] = "hide_parity"
    needed: bool = True

    def run(self, module: Module) -> Module:
        found = _bits(module.kernel.body) if self.needed else []
        if not found:
            return module
        ones = HiddenNumbers.of(module, 1)
        if ones is None:
            rewrite_region(module.kernel.body, _masked)
            return module
        for op, source in found:
            op.name, op.attrs = "and", {}
            op.operands[:] = [source, ones.like(op.result.type)]
        ones.place(module)
        return module


def _bits(body: Region) -> list[tuple[Op, Value]]:
    """The operations that give the lowest bit of a number, with the number; those that more than comparisons look at."""
    others: set[Value] = set()
    for op in body.walk():
        is_test = op.name in _TESTS or (op.name == "cast" and _kind(op.result.type) == "bool")
        if not is_test:
            others.update(op.operands)
    pairs = ((op, _source(op)) for op in body.walk() if op.name in _FORMS and op.result in others)
    return [(op, source) for op, source in pairs if source is not None and not is_constant(source)]


def _source(op: Op) -> Value | None:
    """The number whose lowest bit an operation of `_FORMS` gives."""
    kind = op.result.type
    if not isinstance(kind, (Scalar, Vector)) or not kind.dtype.is_integer:
        return None
    if op.name == "and":
        return next((x for x, y in (op.operands, op.operands[::-1]) if constant_of(y) == 1), None)
    if op.name == "urem_raw":
        return op.operands[0] if constant_of(op.operands[1]) == 2 else None
    if op.name == "shr_raw" and not kind.dtype.is_signed:
        up, top = op.operands[0].op, kind.dtype.bits - 1
        if (
            up is not None
            and up.name == "shl_raw"
            and constant_of(op.operands[1]) == constant_of(up.operands[1]) == top
        ):
            return up.operands[0]
    return None


def _kind(type: Type) -> str:
    return type.dtype.kind if isinstance(type, (Scalar, Vector)) else ""


def _masked(op: Op, builder: Builder) -> list[Value] | None:
    """A product with a lowest bit, without a product (rule 3)."""
    if op.name != "mul" or not isinstance(op.result.type, (Scalar, Vector)):
        return None
    for bit, other in (op.operands, op.operands[::-1]):
        if _is_bit(bit):
            mask = builder.emit("sub", builder.const(0, bit.type), bit)
            return [builder.emit("and", other, mask)]
    return None


def _is_bit(value: Value) -> bool:
    """Whether a value is a lowest bit, or converted from one."""
    op = value.op
    while op is not None and op.name == "cast" and _kind(op.operands[0].type) in ("int", "uint", "index"):
        op = op.operands[0].op
    return op is not None and op.name in _FORMS and _source(op) is not None
