"""Opaque constants: integers that a driver can't fold, for workarounds of wrong driver optimizations.

An opaque constant is a value that equals a given small number at run time, but isn't constant to the driver's compiler.
It is derived from a bit of an array's extent that is never set. For the number 1::

    %e = extent %y {axis = 0} : index     (at the kernel's start)
    %w = cast %e : u32
    %s = shr_raw %w, %30 : u32
    %t = and %s, %2 : u32                 always 0
    %m = or %t, %1 : u32                  always 1

If no array has a dynamic extent, the number of workgroups can be used instead of the extent. This is less safe: a
driver may know the upper bound of that number, and conclude that the bit is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Region, Value
from vkjit.ir.types import Array, Scalar, Type, Vector

__all__ = ["OpaqueConstant"]


@dataclass(slots=True)
class OpaqueConstant:
    """One opaque constant, available in any type.

    `number` is its value at run time. `unknown` emits the run-time value from which it is derived (the extent or the
    number of workgroups). `builder` collects operations for the kernel's start. `emitted` has the constant by type.

    `word` is the unsigned type in which extents are passed. The top bit of an extent is never set, but the driver can't
    know that. In a type wider than `word`, the driver would know it, as zero extension clears the top bit.
    """

    number: int
    unknown: Callable[[Builder], Value]
    word: Scalar
    builder: Builder
    emitted: dict[Type, Value] = field(default_factory=dict)

    @staticmethod
    def of(module: Module, number: int, *, grids: bool = False) -> OpaqueConstant | None:
        """Return `number` as an opaque constant that is derived from a dynamic extent.

        If no array has a dynamic extent, it is derived from the number of workgroups if `grids` is True; otherwise the
        result is None.
        """
        unknown = _extent(module) or (_groups if grids else None)
        if unknown is None:
            return None
        word = dtypes.u32 if module.kernel.attrs.get("narrow") else dtypes.u64
        return OpaqueConstant(number, unknown, Scalar(word), Builder(Region(), module.kernel.loc))

    def like(self, type: Type) -> Value:
        """Return the opaque constant in a scalar or vector type; emit it on first use."""
        if type not in self.emitted:
            self.emitted[type] = self._root() if type == self.word else self._converted(type)
        return self.emitted[type]

    def never(self, number: int) -> Value:
        """Emit a condition that is false at run time; the driver can't derive it from that of another number."""
        b, largest = self.builder, (1 << self.word.dtype.bits) - 1
        return b.emit("eq", b.cast(self.unknown(b), self.word), b.const(largest - number, self.word))

    def insert(self, module: Module) -> None:
        """Insert the emitted operations at the kernel's start."""
        module.kernel.body.ops[:0] = self.builder.region.ops

    def _converted(self, type: Type) -> Value:
        """Emit the opaque constant in a type other than `word`."""
        if isinstance(type, Vector):
            return self.builder.emit("vec_make", *[self.like(Scalar(type.dtype))] * type.size, type=type)
        return self.builder.cast(self.like(self.word), type)

    def _root(self) -> Value:
        """Emit the opaque constant in the type `word`: `number`, combined by OR with the top bit of `unknown`."""
        b, word = self.builder, self.word
        top_bits = b.emit("shr_raw", b.cast(self.unknown(b), word), b.const(word.dtype.bits - 2, word))
        zero = b.emit("and", top_bits, b.const(2, word))  # the top bit of `unknown`, now bit 1
        return b.emit("or", zero, b.const(self.number, word)) if self.number else zero


def _extent(module: Module) -> Callable[[Builder], Value] | None:
    """Return a function that emits a dynamic extent; None if no array has one.

    An extent that the kernel already uses is preferred.
    """
    used_extents = [(op.operands[0], op.attrs["axis"]) for op in module.kernel.body.walk() if op.name == "extent"]
    first_extents = [(param, 0) for param in module.kernel.params]
    for array, axis in (*used_extents, *first_extents):
        if _has_extents(array, module.kernel.params):
            return lambda builder: builder.emit("extent", array, axis=axis)
    return None


def _groups(builder: Builder) -> Value:
    """Emit the number of workgroups."""
    return builder.emit("num_groups", dim=0)


def _has_extents(array: Value, params: Sequence[Value]) -> bool:
    """True if an array is a parameter with dynamic extents."""
    array_type = array.type
    return isinstance(array_type, Array) and array_type.rank > 0 and array_type.shape is None and array in params
