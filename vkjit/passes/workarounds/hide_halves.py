"""Hide conversions of f32 to f16 from a driver that omits the rounding.

A driver with the quirk `unrounded_halves` folds f32(f16(x)) to x, so that x isn't rounded to f16, and values beyond the
f16 range don't become infinite. If a converted value has uses other than stores (which convert correctly), the pass
combines its bits with a zero that the driver can't fold::

                                    %z: u16, always 0 (see `opaque_constants`)
                                    %h = cast %x : f16
                                    %b = bitcast %h : u16
                                    %o = or %b, %z : u16
    %h = cast %x : f16      ->      %g = bitcast %o : f16
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.attributes import Attrs
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Value
from vkjit.ir.rewrite import rewrite_region
from vkjit.ir.types import Scalar, Type, Vector

from .opaque_constants import OpaqueConstant

__all__ = ["HideF16Rounding"]


@dataclass(frozen=True, slots=True)
class HideF16Rounding:
    """Hide the rounding of f32 to f16. The pass does nothing if `needed` is False."""

    name: ClassVar[str] = "hide_halves"
    needed: bool = True

    def run(self, module: Module) -> Module:
        if not self.needed:
            return module
        body = module.kernel.body
        used = {value for op in body.walk() if op.name != "store" for value in op.operands}
        rounded = {op for op in body.walk() if _rounds(op) and op.result in used}
        zeros = OpaqueConstant.of(module, 0, grids=True) if rounded else None
        if zeros is None:
            return module

        def hide(op: Op, builder: Builder) -> list[Value] | None:
            if op not in rounded:
                return None
            attrs: Attrs = {**op.attrs, "type": op.result.type}
            half = builder.emit("cast", op.operands[0], **attrs)
            bits = builder.emit("bitcast", half, type=_bits_type(half.type))
            return [builder.emit("bitcast", builder.emit("or", bits, zeros.like(bits.type)), type=half.type)]

        rewrite_region(body, hide)
        zeros.insert(module)
        return module


def _rounds(op: Op) -> bool:
    """True for a conversion of f32 to f16."""
    return op.name == "cast" and _has_dtype(op.result.type, dtypes.f16) and _has_dtype(op.operands[0].type, dtypes.f32)


def _has_dtype(type: Type, dtype: DType) -> bool:
    """True for a scalar or vector type with elements of `dtype`."""
    return isinstance(type, (Scalar, Vector)) and type.dtype is dtype


def _bits_type(type: Type) -> Type:
    """Return the u16 type with the shape of an f16 type."""
    return Vector(dtypes.u16, type.size) if isinstance(type, Vector) else Scalar(dtypes.u16)
