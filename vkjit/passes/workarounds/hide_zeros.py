"""Hide literal zeros in float arithmetic from a driver that folds them wrongly.

A driver with the quirk `literal_float_zero` folds x * 0.0, x / 0.0 and 0.0 / x to 0.0, and x + 0.0 to x, which is wrong
for NaN, infinities and negative zeros. In a select between 1.0 or -1.0 and a zero, it loses the zero's sign.

The pass first folds constants, as the driver would, to expose all such zeros. It then replaces each literal zero by a
value that is 0 at run time but unknown to the driver: the top bit of the workgroup id along the last axis, which is
never set. (Local ids wouldn't do: drivers may compute them by a remainder, whose top bit they know to be 0.) ::

                                     %id = group_id {dim = 2} : index     (at the kernel's start)
                                     %u = cast %id : u32
                                     %t = and %u, %top : u32
                                     %z = bitcast %t : f32
    %0 = const 0.0 : f32             ...
    %y = mul %x, %0 : f32     ->     %y = mul %x, %z : f32
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import U32, Scalar, Type, Vector

from ..transforms.fold import Fold

__all__ = ["HideZeros"]

_ARITHMETIC: frozenset[OpName] = frozenset({"add", "sub", "mul", "div", "fma"})


@dataclass(frozen=True, slots=True)
class HideZeros:
    """Hide literal float zeros. The pass does nothing if `needed` is False."""

    name: ClassVar[str] = "hide_zeros"
    needed: bool = True

    def run(self, module: Module) -> Module:
        if not self.needed:
            return module
        module = Fold().run(module)  # the driver would fold, too, and find more zeros
        zeros = _Zeros(Builder(Region(), module.kernel.loc))
        for op in module.kernel.body.walk():
            selects_constant = op.name == "select" and all(map(is_constant, op.operands[1:]))
            if (selects_constant or op.name in _ARITHMETIC) and any(map(_is_zero, op.operands)):
                op.operands[:] = [zeros.hidden(v) if _is_zero(v) else v for v in op.operands]
        module.kernel.body.ops[:0] = zeros.builder.region.ops
        return module


def _is_zero(value: Value) -> bool:
    """True for a constant float zero of either sign."""
    number = constant_of(value)
    return number == 0 and isinstance(value.type, (Scalar, Vector)) and value.type.dtype.is_float


@dataclass(slots=True)
class _Zeros:
    """The opaque zeros emitted so far.

    `emitted` has them by (type, is negative). `builder` collects the operations for the kernel's start.
    """

    builder: Builder
    emitted: dict[tuple[Type, bool], Value] = field(default_factory=dict)

    def hidden(self, constant: Value) -> Value:
        """Return the opaque zero that replaces a constant zero."""
        negative = math.copysign(1, constant_of(constant)) < 0
        return self.of(constant.type, negative)

    def of(self, type: Type, negative: bool) -> Value:
        """Return the opaque zero of a type and sign; emit it on first use."""
        key = (type, negative)
        if key not in self.emitted:
            self.emitted[key] = self.build(type, negative)
        return self.emitted[key]

    def build(self, type: Type, negative: bool) -> Value:
        """Emit the opaque zero of a type and sign. It is derived from the positive zero of a scalar type."""
        if isinstance(type, Vector):
            return self.builder.emit("vec_make", *[self.of(Scalar(type.dtype), negative)] * type.size, type=type)
        if negative:
            return self.builder.emit("neg", self.of(type, False))
        assert isinstance(type, Scalar)
        return self.root() if type.dtype is dtypes.f32 else self.converted(type.dtype)

    def converted(self, dtype: DType) -> Value:
        """Emit the positive zero of a float type other than f32."""
        return self.builder.cast(self.of(Scalar(dtypes.f32), False), dtype)

    def root(self) -> Value:
        """Emit the positive f32 zero, from which all others are derived."""
        b = self.builder
        bits = b.emit("and", b.cast(b.emit("group_id", dim=2), U32), b.const(1 << 31, U32))
        return b.emit("bitcast", bits, type=Scalar(dtypes.f32))
