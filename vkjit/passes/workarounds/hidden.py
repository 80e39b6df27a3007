"""Numbers that a driver can't know, for passes that keep it from simplifying what it simplifies wrongly.

Enters: a module, a small number. Leaves: values of any integer type that are that number at run time. It is joined by a bit
that no extent of an array ever has::

    %e = extent %y {axis = 0} : index     (at the kernel's start)
    %w = cast %e : u32
    %s = shr_raw %w, %30 : u32
    %t = and %s, %2 : u32                 always 0
    %m = or %t, %1 : u32                  always 1

Where no array has an extent that only the launch tells, the number of workgroups can stand for it; a driver may know how many
there can be, so that this is second best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ... import dtypes
from ...ir.builder import Builder
from ...ir.core import Module, Region, Value
from ...ir.types import Array, Scalar, Type, Vector

__all__ = ["HiddenNumbers"]


@dataclass(slots=True)
class HiddenNumbers:
    """One number by type. `word`: what extents are passed as; its top bit is never set, and a wider one would show that."""

    number: int
    unknown: Callable[[Builder], Value]
    word: Scalar
    builder: Builder
    made: dict[Type, Value] = field(default_factory=dict)

    @staticmethod
    def of(module: Module, number: int, *, grids: bool = False) -> HiddenNumbers | None:
        """None where no array has an unknown extent, unless `grids` allows the number of workgroups."""
        unknown = _extent(module) or (_groups if grids else None)
        if unknown is None:
            return None
        word = dtypes.u32 if module.kernel.attrs.get("narrow") else dtypes.u64
        return HiddenNumbers(number, unknown, Scalar(word), Builder(Region(), module.kernel.loc))

    def like(self, type: Type) -> Value:
        """The number in a type, scalar or vector."""
        if type not in self.made:
            self.made[type] = self._root() if type == self.word else self._converted(type)
        return self.made[type]

    def place(self, module: Module) -> None:
        """Puts what was made in front of the kernel."""
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
    """An extent that only the launch tells; one that the kernel asks for anyway, where there is one."""
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
