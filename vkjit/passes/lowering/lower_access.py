"""Lower accesses to strided arrays to accesses to linear arrays, with explicit offset arithmetic.

Takes a kernel without calls. Afterwards, loads, stores and atomics access linear arrays, which are indexed by a single
offset: the number of elements from the first element (see `Array.linear` in `ir.types`). ::

    %v = load %x, %i, %j : f32        ->     %base = linear %x : array<f32, 1, in, linear>       (at the kernel's start)
                                             %s0 = stride %x {axis = 0} : index
                                             %s1 = stride %x {axis = 1} : index
                                             ...
                                             %a = mul %i, %s0 : index
                                             %b = mul %j, %s1 : index
                                             %o = add %a, %b : index
                                             %v = load %base, %o : f32

1. The strides of a contiguous array are computed from its extents: the last one is 1, each other one the product of the
   extents after it.
2. In a kernel with the attribute `narrow`, indices, extents and strides are cast to i32 first. All offsets are less
   than 2**31, so arithmetic modulo 2**32 is exact even if intermediate values overflow.
3. Shared and local arrays themselves become linear, with static strides and i32 offsets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import rewrite_region
from vkjit.ir.types import I32, INDEX, Array, Scalar

__all__ = ["LowerAccess"]

_ACCESSES: frozenset[OpName] = frozenset({
    "load", "store", "mat_load", "mat_store", "atomic", "atomic_cas", "atomic_load", "atomic_store",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class LowerAccess:
    """Lower multi-dimensional accesses to accesses to linear arrays."""

    name: ClassVar[str] = "lower_access"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        shapes = _linear_allocations(kernel)
        lowering = _Lowering(kernel, shapes)
        rewrite_region(kernel.body, lowering.rule)
        kernel.body.ops[:0] = lowering.prologue.ops
        return module


def _linear_allocations(kernel: Function) -> dict[Value, tuple[int, ...]]:
    """Make shared and local arrays linear (rule 3) in place, and return their previous shapes."""
    shapes: dict[Value, tuple[int, ...]] = {}
    for op in kernel.body.walk():
        if op.name not in ("shared", "local"):
            continue
        old = op.result.type
        assert isinstance(old, Array)
        if old.linear:
            continue
        shape = old.shape
        assert shape is not None
        new = Array(old.element, 1, old.space, old.access, shape=(math.prod(shape),), linear=True)
        shapes[op.result] = shape
        op.attrs["type"] = op.result.type = new
    return shapes


@dataclass(slots=True)
class _Lowering:
    """The lowering of one kernel.

    `shapes` has the previous shapes of shared and local arrays. `prologue` collects operations for the kernel's start.
    `bases` has the linear views of global arrays. `extents` and `strides` have the extents and strides in the type of
    offsets, by (array, axis). A stride of None stands for 1.
    """

    kernel: Function
    shapes: dict[Value, tuple[int, ...]]
    prologue: Region = field(default_factory=Region)
    bases: dict[Value, Value] = field(default_factory=dict)
    extents: dict[tuple[Value, int], Value] = field(default_factory=dict)
    strides: dict[tuple[Value, int], Value | None] = field(default_factory=dict)

    @property
    def offset_type(self) -> Scalar:
        return I32 if self.kernel.attrs.get("narrow") else INDEX

    def rule(self, op: Op, builder: Builder) -> list[Value] | None:
        """Lower one operation; the rule for `rewrite_region`."""
        if op.name == "stride":
            return self.stride_value(op, builder)
        if op.name not in _ACCESSES:
            return None
        array = op.operands[0]
        array_type = array.type
        if isinstance(array_type, Array) and array in self.shapes:
            rank = len(self.shapes[array])
            offset = self.static_offset(op.operands[1 : 1 + rank], self.shapes[array], builder)
        elif isinstance(array_type, Array) and not array_type.linear:
            rank = array_type.rank
            offset = self.strided_offset(array, op.operands[1 : 1 + rank], builder)
            array = self.base(array, array_type)
        else:
            return None
        return builder.op(op.name, array, offset, *op.operands[1 + rank :], **op.attrs).results

    def base(self, array: Value, type: Array) -> Value:
        """Return the linear view of a global array, emitted once in the prologue."""
        if array not in self.bases:
            linear = Array(type.element, 1, type.space, type.access, restrict=type.restrict, linear=True)
            self.bases[array] = Builder(self.prologue, self.kernel.loc).emit("linear", array, type=linear)
            self.bases[array].name = array.name
        return self.bases[array]

    # -- offsets

    def strided_offset(self, array: Value, indices: list[Value], builder: Builder) -> Value:
        """Emit the offset of an element of a global array: the sum of indices times strides."""
        terms: list[Value] = []
        for axis, index in enumerate(indices):
            index = builder.cast(index, self.offset_type)
            stride = self.stride(array, axis)
            terms.append(index if stride is None else builder.emit("mul", index, stride))
        return self.total(terms, builder, self.offset_type)

    def static_offset(self, indices: list[Value], shape: tuple[int, ...], builder: Builder) -> Value:
        """Emit the offset of an element of a shared or local array, which is in C order."""
        terms: list[Value] = []
        for axis, index in enumerate(indices):
            index = builder.cast(index, I32)
            stride = math.prod(shape[axis + 1 :])
            terms.append(index if stride == 1 else builder.emit("mul", index, builder.const(stride, I32)))
        return self.total(terms, builder, I32)

    @staticmethod
    def total(terms: list[Value], builder: Builder, type: Scalar) -> Value:
        """Emit the sum of `terms`."""
        if not terms:
            return builder.const(0, type)
        result = terms[0]
        for term in terms[1:]:
            result = builder.emit("add", result, term)
        return result

    # -- strides

    def stride(self, array: Value, axis: int) -> Value | None:
        """Return the stride along an axis, emitted once in the prologue, in the type of offsets; None stands for 1."""
        key = (array, axis)
        if key not in self.strides:
            self.strides[key] = self.new_stride(array, axis)
        return self.strides[key]

    def new_stride(self, array: Value, axis: int) -> Value | None:
        """Emit a stride; that of a contiguous array is computed from its extents (rule 1)."""
        builder = Builder(self.prologue, self.kernel.loc)
        array_type = array.type
        if not (isinstance(array_type, Array) and array_type.contiguous):
            return builder.cast(builder.emit("stride", array, axis=axis), self.offset_type)
        if axis == array_type.rank - 1:
            return None
        inner = self.stride(array, axis + 1)
        extent = self.extent(array, axis + 1)
        return extent if inner is None else builder.emit("mul", extent, inner)

    def extent(self, array: Value, axis: int) -> Value:
        """Return the extent along an axis, emitted once in the prologue, in the type of offsets."""
        key = (array, axis)
        if key not in self.extents:
            builder = Builder(self.prologue, self.kernel.loc)
            self.extents[key] = builder.cast(builder.emit("extent", array, axis=axis), self.offset_type)
        return self.extents[key]

    def stride_value(self, op: Op, builder: Builder) -> list[Value] | None:
        """Replace an operation `stride` on a contiguous array (rule 1).

        On other arrays, the operation is kept: it reads an argument of the kernel.
        """
        array, axis = op.operands[0], op.attrs["axis"]
        if not (isinstance(array.type, Array) and array.type.contiguous):
            return None
        stride = self.stride(array, axis)
        return [builder.index(1) if stride is None else builder.cast(stride, INDEX)]
