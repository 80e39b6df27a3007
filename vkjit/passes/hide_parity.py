"""Hides lowest bits of integers from a driver that multiplies them wrongly.

Enters and leaves: primitive form. Such a driver (quirk `parity_products`) now and then takes x & 1 for 1 where it is
a factor, as in the offset of `y[i & 1, j]`, in kernels with much else in them. The one becomes a number that the driver
can't know: a bit that extents never have joins it::

                                       %e = extent %y {axis = 0} : index     (at the kernel's start)
                                       %w = cast %e : u32
                                       %s = shr_raw %w, %30 : u32
                                       %t = and %s, %2 : u32
                                       %m = or %t, %1 : u32
    %p = and %x, %1 : index            %n = cast %m : index
    %q = mul %p, %stride : index       ...
                                 ->    %p = and %x, %n : index

1. What such a driver makes x & 1 of by itself is hidden too: the remainder by 2 of a number that is taken without sign, and
   a bit that is shifted to the top and back.
2. Sums of such a bit and products of the sums are as good as products of it, and so are offsets; only bits that nothing but
   a comparison looks at are left.
3. Where no array has an extent that isn't known beforehand, no number is unknown: products become masks, y & (0 - p).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .. import dtypes
from ..ir.builder import Builder
from ..ir.core import Module, Op, Region, Value
from ..ir.rewrite import constant_of, is_constant, rewrite_region
from ..ir.types import Array, Scalar, Type, Vector

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
        known = _unknown_extent(module)
        if known is None:
            rewrite_region(module.kernel.body, _masked)
            return module
        word = dtypes.u32 if module.kernel.attrs.get("narrow") else dtypes.u64
        ones = _Ones(*known, Scalar(word), Builder(Region(), module.kernel.loc))
        for op, source in found:
            op.name, op.attrs = "and", {}
            op.operands[:] = [source, ones.of(op.result.type)]
        module.kernel.body.ops[:0] = ones.builder.region.ops
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


def _unknown_extent(module: Module) -> tuple[Value, int] | None:
    """An array and an axis whose extent only the launch tells; one that the kernel asks for anyway, where there is one."""
    asked = [(op.operands[0], op.attrs["axis"]) for op in module.kernel.body.walk() if op.name == "extent"]
    every = [(param, 0) for param in module.kernel.params]
    return next((pair for pair in (*asked, *every) if _has_extents(pair[0], module.kernel.params)), None)


def _has_extents(array: Value, params: Sequence[Value]) -> bool:
    kind = array.type
    return isinstance(kind, Array) and kind.rank > 0 and kind.shape is None and array in params


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


@dataclass(slots=True)
class _Ones:
    """Hidden ones by type; the builder appends to what goes in front of the kernel. `word`: what extents are passed as; its
    top bit is never set, and a wider one would show that."""

    array: Value
    axis: int
    word: Scalar
    builder: Builder
    made: dict[Type, Value] = field(default_factory=dict)

    def of(self, type: Type) -> Value:
        if type not in self.made:
            self.made[type] = self.root() if type == self.word else self.converted(type)
        return self.made[type]

    def converted(self, type: Type) -> Value:
        if isinstance(type, Vector):
            return self.builder.emit("vec_make", *[self.of(Scalar(type.dtype))] * type.size, type=type)
        return self.builder.cast(self.of(self.word), type)

    def root(self) -> Value:
        b, word = self.builder, self.word
        extent = b.cast(b.emit("extent", self.array, axis=self.axis), word)
        top = b.emit("shr_raw", extent, b.const(word.dtype.bits - 2, word))
        return b.emit("or", b.emit("and", top, b.const(2, word)), b.const(1, word))
