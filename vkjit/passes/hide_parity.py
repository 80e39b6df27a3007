"""Hides lowest bits that are factors from a driver that multiplies them wrongly.

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
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .. import dtypes
from ..ir.builder import Builder
from ..ir.core import Module, Op, Region, Value
from ..ir.rewrite import constant_of
from ..ir.types import Array, Scalar, Type

__all__ = ["HideParity"]


@dataclass(frozen=True, slots=True)
class HideParity:
    """Does nothing where `needed` is False, nor in kernels whose arrays all have sizes known beforehand."""

    name: ClassVar[str] = "hide_parity"
    needed: bool = True

    def run(self, module: Module) -> Module:
        array = next((p for p in module.kernel.params if _has_extents(p)), None)
        if not self.needed or array is None:
            return module
        word = dtypes.u32 if module.kernel.attrs.get("narrow") else dtypes.u64
        ones = _Ones(array, Scalar(word), Builder(Region(), module.kernel.loc))
        factors = [v for op in module.kernel.body.walk() if op.name in ("mul", "fma") for v in op.operands[:2]]
        for op in {id(op): op for op in map(_parity_of, factors) if op is not None}.values():
            op.operands[:] = [ones.of(v.type) if constant_of(v) == 1 else v for v in op.operands]
        module.kernel.body.ops[:0] = ones.builder.region.ops
        return module


def _has_extents(param: Value) -> bool:
    return isinstance(param.type, Array) and param.type.rank > 0 and param.type.shape is None


def _parity_of(value: Value) -> Op | None:
    """The operation x & 1 that a value is, or is a conversion of."""
    op = value.op
    while op is not None and op.name == "cast":
        op = op.operands[0].op
    if op is None or op.name != "and" or not isinstance(op.result.type, Scalar):
        return None
    wide = op.result.type.dtype.bits >= 32 and op.result.type.dtype.kind != "bool"
    return op if wide and any(constant_of(v) == 1 for v in op.operands) else None


@dataclass(slots=True)
class _Ones:
    """Hidden ones by type; the builder appends to what goes in front of the kernel. `word`: what extents are passed as; its
    top bit is never set, and a wider one would show that."""

    array: Value
    word: Scalar
    builder: Builder
    made: dict[Type, Value] = field(default_factory=dict)

    def of(self, type: Type) -> Value:
        if type not in self.made:
            made = self.root() if type == self.word else self.builder.cast(self.of(self.word), type)
            self.made[type] = made
        return self.made[type]

    def root(self) -> Value:
        b, word = self.builder, self.word
        extent = b.cast(b.emit("extent", self.array, axis=0), word)
        top = b.emit("shr_raw", extent, b.const(word.dtype.bits - 2, word))
        return b.emit("or", b.emit("and", top, b.const(2, word)), b.const(1, word))
