"""The types of IR values. Types are immutable and compared by their fields."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .. import dtypes
from ..dtypes import DType

__all__ = ["BOOL", "F32", "I32", "INDEX", "U32", "Array", "Matrix", "Scalar", "Tile", "Type", "Vector", "scalar"]


@dataclass(frozen=True, slots=True)
class Type:
    """The base class of the IR's types."""


@dataclass(frozen=True, slots=True)
class Scalar(Type):
    """A scalar of a dtype. The dtype may be `index`, the integer type of indices and extents."""

    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


@dataclass(frozen=True, slots=True)
class Vector(Type):
    """A short vector: `size` elements (2, 3 or 4) of one dtype."""

    dtype: DType
    size: int

    def __str__(self) -> str:
        return f"vec<{self.dtype.name}, {self.size}>"


@dataclass(frozen=True, slots=True)
class Array(Type):
    """A strided array with `rank` axes.

    `space` is the memory space, "global", "shared" or "local". Shared and local arrays have a static `shape` and are in
    C order. `access` of a global array is "in", "out" or "inout". `contiguous` promises C order: the strides follow
    from the extents. `restrict` promises that this array overlaps no other array of the kernel, unless neither of the
    two is written. A `linear` array has rank 1 and no known extent. Its index is the offset from its first element, in
    elements.
    """

    element: Scalar | Vector
    rank: int
    space: str = "global"
    access: str = "inout"
    shape: tuple[int, ...] | None = None
    contiguous: bool = False
    restrict: bool = False
    linear: bool = False

    @property
    def dtype(self) -> DType:
        return self.element.dtype

    def __str__(self) -> str:
        if self.space != "global":
            parts = [str(self.element), "x".join(map(str, self.shape or ())), "linear" if self.linear else ""]
            return f"{self.space}<{', '.join(filter(None, parts))}>"
        parts = [str(self.element), str(self.rank), self.access]
        parts += [flag for flag in ("contiguous", "restrict", "linear") if getattr(self, flag)]
        return f"array<{', '.join(parts)}>"


@dataclass(frozen=True, slots=True)
class Matrix(Type):
    """A cooperative matrix: `rows` x `columns` elements, distributed over a subgroup in a layout that only the device
    knows.

    `use` is "a" or "b" for the left or right operand of a product, "acc" for the accumulator and the result.
    """

    dtype: DType
    rows: int
    columns: int
    use: str

    def __str__(self) -> str:
        return f"matrix<{self.dtype.name}, {self.rows}x{self.columns}, {self.use}>"


@dataclass(frozen=True, slots=True)
class Tile(Type):
    """A block of elements with a static `shape`, distributed over the invocations of a `scope` ("workgroup" or
    "subgroup"). The pass `LowerTiles` chooses the layout.
    """

    dtype: DType
    shape: tuple[int, ...]
    scope: str = "workgroup"

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"tile<{self.dtype.name}, {'x'.join(map(str, self.shape))}, {self.scope}>"


def scalar(dtype: DType) -> Scalar:
    """Return the scalar type of a dtype."""
    return Scalar(dtype)


BOOL = Scalar(dtypes.boolean)
I32 = Scalar(dtypes.i32)
U32 = Scalar(dtypes.u32)
F32 = Scalar(dtypes.f32)
INDEX = Scalar(dtypes.index)
