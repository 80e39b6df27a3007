"""Hide the extraction of an integer's lowest bit from a driver that miscompiles products with this bit.

In large kernels, a driver with the quirk `parity_products` sometimes folds x & 1 to 1 in a product, as in the offset of
`y[i & 1, j]`. The pass replaces the constant 1 by a value that the driver can't fold (see `opaque_constants`)::

    %p = and %x, %1 : index        ->    %n: index, always 1
    %q = mul %p, %stride : index         %p = and %x, %n : index
                                         %q = mul %p, %stride : index

1. Such a driver canonicalizes two other forms to x & 1: the unsigned remainder by 2, and a shift of the lowest bit to
   the top and back. The pass replaces these forms by an `and`, too.
2. The driver also miscompiles products and offsets with a sum that contains the bit. Therefore every extracted lowest
   bit is hidden, unless only comparisons use it.
3. If no array has a dynamic extent, there is no opaque constant. In this case, each product y * p with an extracted bit
   p becomes the mask y & (0 - p).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant, rewrite_region
from vkjit.ir.types import Scalar, Type, Vector

from .opaque_constants import OpaqueConstant

__all__ = ["HideParity"]

_FORMS: frozenset[OpName] = frozenset({"and", "urem_raw", "shr_raw"})
"""The operations that can extract the lowest bit."""
_TESTS: frozenset[OpName] = frozenset({"eq", "ne"})
"""Comparisons. (`_lowest_bits` also treats conversions to bool as such.)"""


@dataclass(frozen=True, slots=True)
class HideParity:
    """Hide extractions of integers' lowest bits. The pass does nothing if `needed` is False."""

    name: ClassVar[str] = "hide_parity"
    needed: bool = True

    def run(self, module: Module) -> Module:
        bits = _lowest_bits(module.kernel.body) if self.needed else []
        if not bits:
            return module
        ones = OpaqueConstant.of(module, 1)
        if ones is None:  # rule 3
            rewrite_region(module.kernel.body, _product_to_mask)
            return module
        for op, source in bits:
            op.name, op.attrs = "and", {}  # it may have been another form (rule 1)
            op.operands[:] = [source, ones.like(op.result.type)]
        ones.insert(module)
        return module


def _lowest_bits(body: Region) -> list[tuple[Op, Value]]:
    """Return (operation, value) for each operation that extracts the lowest bit of a value.

    Operations whose results are used only in comparisons are left out.
    """
    used_otherwise: set[Value] = set()
    for op in body.walk():
        is_test = op.name in _TESTS or (op.name == "cast" and _kind(op.result.type) == "bool")
        if not is_test:
            used_otherwise.update(op.operands)
    pairs = ((op, _source(op)) for op in body.walk() if op.name in _FORMS and op.result in used_otherwise)
    return [(op, source) for op, source in pairs if source is not None and not is_constant(source)]


def _source(op: Op) -> Value | None:
    """Return the value whose lowest bit `op` extracts; None if `op`, of a name in `_FORMS`, computes something else."""
    result_type = op.result.type
    if not isinstance(result_type, (Scalar, Vector)) or not result_type.dtype.is_integer:
        return None
    if op.name == "and":
        return next((x for x, y in (op.operands, op.operands[::-1]) if constant_of(y) == 1), None)
    if op.name == "urem_raw":
        return op.operands[0] if constant_of(op.operands[1]) == 2 else None
    if op.name == "shr_raw" and not result_type.dtype.is_signed:
        # (value << top) >> top, where `top` is the number of the top bit
        shl = op.operands[0].op
        top = result_type.dtype.bits - 1
        if (
            shl is not None
            and shl.name == "shl_raw"
            and constant_of(op.operands[1]) == constant_of(shl.operands[1]) == top
        ):
            return shl.operands[0]
    return None


def _kind(type: Type) -> str:
    """Return the kind of the dtype of a scalar or vector type; "" for other types."""
    return type.dtype.kind if isinstance(type, (Scalar, Vector)) else ""


def _product_to_mask(op: Op, builder: Builder) -> list[Value] | None:
    """Replace a product of a value and an extracted lowest bit by a mask of the value (rule 3)."""
    if op.name != "mul" or not isinstance(op.result.type, (Scalar, Vector)):
        return None
    for bit, other in (op.operands, op.operands[::-1]):
        if _is_bit(bit):
            mask = builder.emit("sub", builder.const(0, bit.type), bit)
            return [builder.emit("and", other, mask)]
    return None


def _is_bit(value: Value) -> bool:
    """True if a value is an extracted lowest bit, or an integer cast of one."""
    op = value.op
    while op is not None and op.name == "cast" and _kind(op.operands[0].type) in ("int", "uint", "index"):
        op = op.operands[0].op
    return op is not None and op.name in _FORMS and _source(op) is not None
