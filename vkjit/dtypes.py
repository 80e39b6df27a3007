"""Element types of arrays and scalars (`vk.f32`, `vk.i32`, ...): names, widths, NumPy equivalents and promotion.

Element types are classes, instances of the metaclass `DType`, so that they can be used as annotations. Calling one
makes a NumPy scalar: `vk.f32(2)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import DTypeError

__all__ = [
    "ALL",
    "DType",
    "Element",
    "bf16",
    "boolean",
    "by_name",
    "f16",
    "f32",
    "f64",
    "from_numpy",
    "i8",
    "i16",
    "i32",
    "i64",
    "index",
    "promote",
    "u8",
    "u16",
    "u32",
    "u64",
]


class DType(type):
    """The metaclass of the element types.

    Attributes of each type:

    - `kind`: one of "bool", "int", "uint", "float", "index".
    - `bits`: the width of a value in bits (1 for bool).
    - `numpy`: the NumPy dtype that represents a value (float32 for bf16).
    - `storage`: the NumPy dtype of the bits of an element in memory (uint16 for bf16).
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any]
    storage: np.dtype[Any]

    @property
    def itemsize(cls) -> int:
        """The size of one element in memory, in bytes (1 for bool)."""
        return int(cls.storage.itemsize)

    @property
    def is_float(cls) -> bool:
        """True for the float types, bf16 included."""
        return cls.kind == "float"

    @property
    def is_integer(cls) -> bool:
        """True for signed, unsigned and index types; False for bool."""
        return cls.kind in ("int", "uint", "index")

    @property
    def is_signed(cls) -> bool:
        """True for signed integers, index and floats."""
        return cls.kind in ("int", "index", "float")

    def __repr__(cls) -> str:
        return f"vk.{cls.__name__}"

    def __eq__(cls, other: Any) -> bool:
        """True for the same type, and for NumPy's dtype or scalar class of it, as in kernels."""
        return cls is other or (is_numpy_type(other) and _FROM_NUMPY.get(np.dtype(other)) is cls)

    __hash__ = type.__hash__

    def __call__(cls, value: Any = 0) -> Any:
        """Return a NumPy scalar of this type. In a kernel, calling a type converts a value to it."""
        if "name" not in cls.__dict__:
            raise DTypeError(f"{cls!r} is abstract: use one of {', '.join(map(repr, ALL))}")
        return cls.numpy.type(value)


if TYPE_CHECKING:

    class Element(Any, metaclass=DType):
        """The base class of all element types, for `TypeVar("T", bound=vk.Element)`."""

        def __init__(self, value: Any = 0) -> None: ...

        # arithmetic in kernels: without these, a type checker infers int for `f32 + int`
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __rmod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __rand__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __ror__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __rxor__(self, other: Any) -> Any: ...
        def __lshift__(self, other: Any) -> Any: ...
        def __rlshift__(self, other: Any) -> Any: ...
        def __rshift__(self, other: Any) -> Any: ...
        def __rrshift__(self, other: Any) -> Any: ...

else:

    class Element(metaclass=DType):
        """The base class of all element types, for `TypeVar("T", bound=vk.Element)`."""


class boolean(Element):
    """True or False; one byte in memory."""

    name, kind, bits = "bool", "bool", 1
    numpy = storage = np.dtype(np.bool_)


class i8(Element):
    """8-bit signed integer."""

    name, kind, bits = "i8", "int", 8
    numpy = storage = np.dtype(np.int8)


class i16(Element):
    """16-bit signed integer."""

    name, kind, bits = "i16", "int", 16
    numpy = storage = np.dtype(np.int16)


class i32(Element):
    """32-bit signed integer."""

    name, kind, bits = "i32", "int", 32
    numpy = storage = np.dtype(np.int32)


class i64(Element):
    """64-bit signed integer."""

    name, kind, bits = "i64", "int", 64
    numpy = storage = np.dtype(np.int64)


class u8(Element):
    """8-bit unsigned integer."""

    name, kind, bits = "u8", "uint", 8
    numpy = storage = np.dtype(np.uint8)


class u16(Element):
    """16-bit unsigned integer."""

    name, kind, bits = "u16", "uint", 16
    numpy = storage = np.dtype(np.uint16)


class u32(Element):
    """32-bit unsigned integer."""

    name, kind, bits = "u32", "uint", 32
    numpy = storage = np.dtype(np.uint32)


class u64(Element):
    """64-bit unsigned integer."""

    name, kind, bits = "u64", "uint", 64
    numpy = storage = np.dtype(np.uint64)


class f16(Element):
    """IEEE binary16."""

    name, kind, bits = "f16", "float", 16
    numpy = storage = np.dtype(np.float16)


class bf16(Element):
    """bfloat16: the upper half of a binary32. Represented as float32 in NumPy, two bytes in memory."""

    name, kind, bits = "bf16", "float", 16
    numpy = np.dtype(np.float32)
    storage = np.dtype(np.uint16)


class f32(Element):
    """IEEE binary32."""

    name, kind, bits = "f32", "float", 32
    numpy = storage = np.dtype(np.float32)


class f64(Element):
    """IEEE binary64."""

    name, kind, bits = "f64", "float", 64
    numpy = storage = np.dtype(np.float64)


class index(Element):
    """The 64-bit signed type of ids, extents and strides."""

    name, kind, bits = "index", "index", 64
    numpy = storage = np.dtype(np.int64)


ALL: tuple[DType, ...] = (boolean, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
"""All types that array elements can have. `index` isn't among them: it is a type of values in kernels only."""

by_name: dict[str, DType] = {t.name: t for t in (*ALL, index)}
"""All types, `index` included, by name."""

_FROM_NUMPY: dict[Any, DType] = {t.storage: t for t in ALL if t is not bf16}


def is_numpy_type(value: Any) -> bool:
    """True for NumPy's dtypes and scalar classes, such as `np.float32`; False for abstract ones, such as `np.floating`."""
    return isinstance(value, np.dtype) or any(value is scalar for scalar in np.sctypeDict.values())


def from_numpy(dtype: Any) -> DType:
    """Return the element type of a NumPy dtype. Raises DTypeError if there is none.

    `bfloat16` of the package `ml_dtypes` is recognized by its name.
    """
    dt = np.dtype(dtype)
    dtype_class = _FROM_NUMPY.get(dt)
    if dtype_class is not None:
        return dtype_class
    if dt.name == "bfloat16":
        return bf16
    if dt.byteorder not in "=|":  # neither native nor irrelevant
        raise DTypeError(f"array of {dt.name} in foreign byte order: convert it with .astype({dt.name!r})")
    raise DTypeError(f"no element type for NumPy's {dt}: expected one of {', '.join(t.name for t in ALL)}")


def promote(a: DType, b: DType) -> DType:
    """Return the common type of two operands.

    - A bool and any other type give the other type.
    - An integer and a float give the float type, of any width: i64 and f16 give f16.
    - Two types of the same kind give the wider one; f16 and bf16 give f32.
    - An integer and `index` give `index`.
    - A signed and an unsigned type give the signed one if it is wider; else DTypeError is raised.
    """
    if a is b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_float or b.is_float:
        return _promote_float(a, b)
    if a is index or b is index:
        return index
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    raise DTypeError(
        f"{a!r} and {b!r} have no common type: cast one of them, as in vk.{signed.name}(x) or vk.{unsigned.name}(x)"
    )


def _promote_float(a: DType, b: DType) -> DType:
    """Return the common type of two different types of which at least one is a float."""
    if not (a.is_float and b.is_float):
        return a if a.is_float else b
    if a.bits == b.bits:
        return f32
    return a if a.bits > b.bits else b
