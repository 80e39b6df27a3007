"""Opaque constants: integers that a driver can't fold, for workarounds of wrong driver optimizations.

A value is built that equals a given small number at run time. It is combined with a bit that is never set in an array's
extent::

    %e = extent %y {axis = 0} : index     (at the kernel's start)
    %w = cast %e : u32
    %s = shr_raw %w, %30 : u32
    %t = and %s, %2 : u32                 always 0
    %m = or %t, %1 : u32                  always 1

If all extents are static, the number of workgroups can be used instead. That is second best: a driver may know its
upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Region, Value
from vkjit.ir.types import Array, Scalar, Type, Vector

__all__ = ["OpaqueConstants"]


@dataclass(slots=True)
class OpaqueConstants:
    """An opaque number in any type.

    `unknown` emits the run-time value that the number is derived from, in the preamble that `builder` collects. `word`
    is the unsigned type in which extents are passed. Its top bit is never set in an extent, but the driver doesn't know
    that. In a wider type, the driver would see that zero extension clears the bit.
    """

    number: int
    unknown: Callable[[Builder], Value]
    word: Scalar
    builder: Builder
    made: dict[Type, Value] = field(default_factory=dict)

    @staticmethod
    def of(module: Module, number: int, *, grids: bool = False) -> OpaqueConstants | None:
        """Return the opaque `number`, or None if no array has a dynamic extent.

        With `grids`, the number of workgroups is used in that case.
        """
        unknown = _extent(module) or (_groups if grids else None)
        if unknown is None:
            return None
        word = dtypes.u32 if module.kernel.attrs.get("narrow") else dtypes.u64
        return OpaqueConstants(number, unknown, Scalar(word), Builder(Region(), module.kernel.loc))

    def like(self, type: Type) -> Value:
        """Return the number in a scalar or vector type."""
        if type not in self.made:
            self.made[type] = self._root() if type == self.word else self._converted(type)
        return self.made[type]

    def insert(self, module: Module) -> None:
        """Insert the emitted operations at the kernel's start."""
        module.kernel.body.ops[:0] = self.builder.region.ops

    def _converted(self, type: Type) -> Value:
        if isinstance(type, Vector):
            return self.builder.emit("vec_make", *[self.like(Scalar(type.dtype))] * type.size, type=type)
        return self.builder.cast(self.like(self.word), type)

    def _root(self) -> Value:
        b, word = self.builder, self.word
        top = b.emit("shr_raw", b.cast(self.unknown(b), word), b.const(word.dtype.bits - 2, word))
        zero = b.emit("and", top, b.const(2, word))
        return b.emit("or", zero, b.const(self.number, word)) if self.number else zero


def _extent(module: Module) -> Callable[[Builder], Value] | None:
    """Return an emitter of a dynamic extent, preferably of one that the kernel already uses; None if there is none."""
    asked = [(op.operands[0], op.attrs["axis"]) for op in module.kernel.body.walk() if op.name == "extent"]
    every = [(param, 0) for param in module.kernel.params]
    for array, axis in (*asked, *every):
        if _has_extents(array, module.kernel.params):
            return lambda builder: builder.emit("extent", array, axis=axis)
    return None


def _groups(builder: Builder) -> Value:
    return builder.emit("num_groups", dim=0)


def _has_extents(array: Value, params: Sequence[Value]) -> bool:
    kind = array.type
    return isinstance(kind, Array) and kind.rank > 0 and kind.shape is None and array in params
