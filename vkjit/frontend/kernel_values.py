"""Kernel values: the values of expressions during lowering.

A run-time scalar, vector, tile, matrix or array is an `ir.Value`. Everything else is known at compile time and
represents itself: Python numbers (literals, which adapt to the type of the other operand), strings, None, dtypes,
functions, modules, enum members, tuples (whose items may be run-time values), and the small classes below.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeGuard

from ..dtypes import DType
from ..errors import Loc
from ..ir.core import Value
from ..ir.types import Array, Matrix, Scalar, Tile, Type, Vector
from .signature.free_names import is_frozen

__all__ = [
    "Aggregate",
    "Binding",
    "Conflict",
    "Element",
    "FunctionKind",
    "GridStride",
    "IntMember",
    "KernelValue",
    "Lazy",
    "MappingKind",
    "Method",
    "PartialKind",
    "Range",
    "Source",
    "StructArrayKind",
    "Unbound",
    "Unrolled",
    "describe_value",
    "holds_lazy",
    "is_array",
    "is_function",
    "is_literal",
    "is_matrix",
    "is_runtime",
    "is_scalar",
    "is_tile",
    "is_vector",
    "literal_text",
    "parts_of",
    "same_constant",
    "same_structure",
    "with_parts",
]

KernelValue = object
"""The value of an expression, of any kind that the module docstring lists."""


class IntMember(int):
    """The literal that a member of an `IntEnum` or `IntFlag` is; `is` compares `member`, all else the number."""

    member: enum.Enum

    @staticmethod
    def of(member: enum.Enum) -> IntMember:
        """Return the literal of a member."""
        literal = IntMember(member)  # type: ignore[call-overload]  # the member is an int
        literal.member = member
        return literal  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Range:
    """The result of `range(...)`; bounds are literals or integer scalars."""

    start: KernelValue
    stop: KernelValue
    step: KernelValue


@dataclass(frozen=True, slots=True)
class Unrolled:
    """The result of `vk.unroll(...)`: one item per copy of the body."""

    items: tuple[KernelValue, ...]


@dataclass(frozen=True, slots=True)
class GridStride:
    """The result of `vk.grid_stride(n, dim)`, with n in `stop`.

    A loop over it runs from the invocation's global id along grid dimension `dim` up to `stop`, in steps of the number
    of invocations along this dimension.
    """

    stop: KernelValue
    dim: int


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A structured value other than a tuple, such as a struct: `items` are its parts, and `kind` is its type.

    The kind is a struct type, a StructArrayKind, a MappingKind, a PartialKind or a nested function
    (`calls.local_functions`).
    """

    kind: object
    items: tuple[KernelValue, ...]


@dataclass(frozen=True, slots=True)
class StructArrayKind:
    """The kind of an aggregate that is an array of structs, vectors, packed (8-bit) floats or arrays.

    `element` is the element type, and `rank` the number of axes. The items of the aggregate are arrays: one for each
    field of a struct (an aggregate again if the field is a struct), and a single one for any other element type. Each
    array has the `rank` axes of the whole, followed by the axes of the field, such as the lanes of a vector.
    """

    element: object
    rank: int

    def __str__(self) -> str:
        return f"array of {self.element} with {self.rank} dimension{'s' if self.rank != 1 else ''}"


@dataclass(frozen=True, slots=True)
class MappingKind:
    """The kind of an aggregate that is a dictionary with compile-time keys; its items are the values."""

    keys: tuple[object, ...]

    def __str__(self) -> str:
        return f"dictionary of {len(self.keys)}"


class FunctionKind:
    """Base class of the kinds of aggregates that can be called."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class PartialKind(FunctionKind):
    """The kind of an aggregate that is a function with its first arguments: a `functools.partial` or a bound method.

    Its items are the function, `positional` arguments, and the values of `keywords`.
    """

    positional: int
    keywords: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "function with arguments"


@dataclass(frozen=True, slots=True)
class Element:
    """An element of an array of structs or vectors that isn't loaded yet; `at` is its index along each axis."""

    array: Aggregate
    at: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """An array slice that a lazy value reads.

    `writes` is the number of stores recorded (in `Session.writes`) before the slice was taken, and `starts` has the
    first index along each axis of the array. `loops` are the loops that enclose the slice; the slice is taken anew in
    each of their iterations.
    """

    array: Value
    writes: int
    loc: Loc
    starts: tuple[Value, ...] = ()
    loops: tuple[object, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """An array slice, or an elementwise expression of slices, whose elements are computed on demand.

    See `values.lazy`. `element(context, index)` emits the element at an index inside `shape`. `target` is the
    `SliceTarget` of a plain slice, to store into it, and None for an expression. `sizes` are the extents before
    clipping to the array where they are static (`i:i+BM` has size BM), else None.
    """

    shape: tuple[Value, ...]
    element: Callable[..., KernelValue]
    sources: tuple[Source, ...]
    target: object
    sizes: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Method:
    """An uncalled method of a kernel value: `x.get`. Its call is lowered by `lower(context, call, owner)`."""

    owner: KernelValue
    name: str
    lower: Callable[..., KernelValue]


@dataclass(frozen=True, slots=True)
class Binding:
    """The value of a name, and the location where it was bound."""

    value: KernelValue
    loc: Loc


@dataclass(frozen=True, slots=True)
class Unbound:
    """A name that may have no value at the current point; `reason` says on which control-flow path."""

    reason: str
    loc: Loc | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A name whose values from two control-flow paths have incompatible types; `first` and `second` describe them."""

    first: str
    first_loc: Loc
    second: str
    second_loc: Loc


def is_runtime(value: KernelValue) -> TypeGuard[Value]:
    """True for a run-time scalar or vector; arrays, tiles and matrices don't count."""
    return isinstance(value, Value) and not isinstance(value.type, Array | Matrix | Tile)


def is_matrix(value: KernelValue) -> TypeGuard[Value]:
    """True for a cooperative matrix."""
    return isinstance(value, Value) and isinstance(value.type, Matrix)


def is_tile(value: KernelValue) -> TypeGuard[Value]:
    """True for a tile."""
    return isinstance(value, Value) and isinstance(value.type, Tile)


def is_vector(value: KernelValue) -> TypeGuard[Value]:
    """True for a run-time vector."""
    return isinstance(value, Value) and isinstance(value.type, Vector)


def holds_lazy(value: KernelValue) -> bool:
    """True if the value is lazy, or a tuple or Aggregate that contains a lazy value."""
    parts = parts_of(value)
    return isinstance(value, Lazy) if parts is None else any(map(holds_lazy, parts))


def parts_of(value: KernelValue) -> tuple[KernelValue, ...] | None:
    """Return the parts of a tuple or Aggregate; None for any other value."""
    if isinstance(value, tuple):
        return value
    return value.items if isinstance(value, Aggregate) else None


def with_parts(value: KernelValue, parts: Iterable[KernelValue]) -> KernelValue:
    """Return the tuple (perhaps a named one) or Aggregate `value` with its parts replaced."""
    if isinstance(value, Aggregate):
        return Aggregate(value.kind, tuple(parts))
    return type(value)._make(parts) if hasattr(value, "_make") else tuple(parts)


def same_structure(a: KernelValue, b: KernelValue) -> bool:
    """True if both values are Aggregates of the same kind, or tuples of the same length. Their parts may differ."""
    if isinstance(a, Aggregate) and isinstance(b, Aggregate):
        return a.kind is b.kind or a.kind == b.kind
    return isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b)


def is_scalar(value: KernelValue) -> TypeGuard[Value]:
    """True for a run-time scalar."""
    return isinstance(value, Value) and isinstance(value.type, Scalar)


def is_array(value: KernelValue) -> TypeGuard[Value]:
    """True for an array."""
    return isinstance(value, Value) and isinstance(value.type, Array)


def is_literal(value: KernelValue) -> TypeGuard[int | float]:
    """True for a Python number or bool; these are weak: they adapt to the type of the other operand."""
    return isinstance(value, bool | int | float) and not isinstance(value, enum.Enum)


def same_constant(a: KernelValue, b: KernelValue) -> bool:
    """True if both are the same compile-time value, or the identical run-time value."""
    if isinstance(a, Value) or isinstance(b, Value) or type(a) is not type(b):
        return a is b
    if same_structure(a, b):
        return all(map(same_constant, parts_of(a) or (), parts_of(b) or ()))
    if isinstance(a, tuple | Aggregate):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex()  # unlike ==, this distinguishes 0.0 and -0.0, and NaN equals NaN
    if isinstance(a, IntMember) and isinstance(b, IntMember):
        return a.member is b.member
    if isinstance(a, int | str):
        return a == b
    return a is b


def is_function(value: KernelValue) -> bool:
    """True for a function: a Python object, or an aggregate that can be called."""
    return isinstance(value.kind, FunctionKind) if isinstance(value, Aggregate) else callable(value)


def literal_text(value: KernelValue) -> str:
    """Format a compile-time value for messages; integers of more than 128 bits, which can be too long, by their size."""
    is_long = isinstance(value, int) and value.bit_length() > 128
    return f"<integer of {value.bit_length()} bits>" if is_long else repr(value)  # type: ignore[attr-defined]


def describe_value(value: KernelValue) -> str:
    """Format the kind and type of a value for messages."""
    if isinstance(value, Value):
        return f"a {describe_type(value.type)}" if isinstance(value.type, Tile) else describe_type(value.type)
    if isinstance(value, bool | int | float | str) and not isinstance(value, enum.Enum):
        return f"the literal {literal_text(value)}"
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    if isinstance(value, Aggregate):
        return f"an {value.kind}" if isinstance(value.kind, StructArrayKind) else f"a {value.kind}"
    if value is None:
        return "None"
    if isinstance(value, DType):
        return f"the dtype {value!r}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    if isinstance(value, Lazy):
        return f"a lazy slice with {len(value.shape)} dimension{'s' if len(value.shape) != 1 else ''}"
    if isinstance(value, Range):
        return "a range"
    if isinstance(value, Unrolled | GridStride):
        return "a loop's iterable"
    if isinstance(value, Method):
        return f"the method {value.name}"
    if isinstance(value, enum.Enum):
        return str(value)
    if callable(value) and not is_frozen(value):
        return f"the function {getattr(value, '__name__', value)}"
    return f"a value of class {type(value).__name__}"


def describe_type(type_: Type) -> str:
    """Format a type as the user writes it."""
    if isinstance(type_, Scalar):
        return repr(type_.dtype)
    if isinstance(type_, Vector):
        return f"vk.vec({type_.dtype!r}, {type_.size})"
    if isinstance(type_, Tile):
        return f"tile of {' x '.join(map(str, type_.shape))} {type_.dtype!r}"
    if isinstance(type_, Array):
        prefix = "an " if type_.space == "global" else f"a {type_.space} "
        return f"{prefix}array of {type_.dtype!r} with {type_.rank} dimension{'s' if type_.rank != 1 else ''}"
    if isinstance(type_, Matrix):
        return f"a matrix of {type_.rows} x {type_.columns} {type_.dtype!r}, for use {type_.use!r}"
    return str(type_)
