"""The array API standard's data type functions and namespace inspection.

f16 and bf16 aren't part of the standard, so inspection doesn't list them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import default_device, device as open_device, devices
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..tensor.promotion import promote_types, result_type as common_type
from ..tensor.tensor import Tensor

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS: dict[str, tuple[DType, ...]] = {
    "bool": (dtypes.boolean,),
    "signed integer": (dtypes.i8, dtypes.i16, dtypes.i32, dtypes.i64),
    "unsigned integer": (dtypes.u8, dtypes.u16, dtypes.u32, dtypes.u64),
    "real floating": (dtypes.f32, dtypes.f64),
    "complex floating": (),
}
"""Types by the standard's names of kinds; the kinds "integral" and "numeric" are added below."""
_KINDS["integral"] = _KINDS["signed integer"] + _KINDS["unsigned integer"]
_KINDS["numeric"] = _KINDS["integral"] + _KINDS["real floating"]
_NAMES = {
    "boolean": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f32": "float32", "f64": "float64",
}  # fmt: skip
"""The standard's names of types by vkjit's names."""


@dataclass(frozen=True, slots=True)
class FloatInfo:
    """Limits of a float type, as `finfo` returns them."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True, slots=True)
class IntegerInfo:
    """Limits of an integer type, as `iinfo` returns them."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype_of(value: Any) -> DType:
    """Return the type of a tensor, or the type itself."""
    return value.dtype if isinstance(value, Tensor) else value


def finfo(type: Any, /) -> FloatInfo:
    """Return the limits of a float type, or of a tensor's type."""
    dtype = _dtype_of(type)
    if not dtype.is_float:
        raise DTypeError(f"finfo() takes a float type, found {dtype!r}")
    limits = np.finfo(dtype.numpy)
    return FloatInfo(
        dtype.bits, float(limits.eps), float(limits.max), float(limits.min), float(limits.smallest_normal), dtype
    )


def iinfo(type: Any, /) -> IntegerInfo:
    """Return the limits of an integer type, or of a tensor's type."""
    dtype = _dtype_of(type)
    if not dtype.is_integer:
        raise DTypeError(f"iinfo() takes an integer type, found {dtype!r}")
    limits = np.iinfo(dtype.numpy)
    return IntegerInfo(dtype.bits, int(limits.max), int(limits.min), dtype)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Return True if `dtype` belongs to `kind`: a type, a kind's name such as "integral", or a tuple of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise ArgumentError(f"isdtype(): the kind {kind!r} is none of {', '.join(_KINDS)}")
        return dtype in _KINDS[kind]
    return dtype is kind


def can_cast(from_: Any, to: Any, /) -> bool:
    """Return True if promotion converts a type, or a tensor's type, to the type `to`: if both promote to `to`."""
    source = _dtype_of(from_)
    try:
        return promote_types(source, to) is to
    except DTypeError:
        return False


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Return the type that the given tensors, types and scalars promote to."""
    tensors = [_dtype_of(a) for a in arrays_and_dtypes if not isinstance(a, (bool, int, float))]
    if not tensors:
        raise ArgumentError("result_type() needs at least one tensor or type")
    return common_type(*tensors, *(a for a in arrays_and_dtypes if isinstance(a, (bool, int, float))))


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """Convert x to another type, and optionally to another device.

    Copies even if neither changes, unless `copy` is False.
    """
    result = x.to(dtype=dtype, device=device if device is not None else x.device)
    return result.clone() if copy and result is x else result


class Info:
    """Inspection of this namespace, with the methods that the standard defines."""

    def capabilities(self) -> dict[str, Any]:
        """Return the optional capabilities: boolean indexing and data-dependent shapes are supported."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> Any:
        """Return the device on which new tensors are created by default."""
        return default_device()

    def devices(self) -> list[Any]:
        """Return all devices."""
        return [open_device(info) for info in devices()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType | None]:
        """Return the default types by kind; they are the same on all devices."""
        del device  # a parameter of the standard's method
        return {
            "real floating": dtypes.f32, "complex floating": None, "integral": dtypes.i64, "indexing": dtypes.i64
        }  # fmt: skip

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Return the types that a device supports by the standard's names, restricted to `kind` as in `isdtype`."""
        supported = open_device(device).caps.dtypes
        by_name = {}
        for dtype in (*_KINDS["bool"], *_KINDS["numeric"]):
            is_supported = dtype.name in supported or dtype.name in ("bool", "boolean")  # all devices support bool
            if is_supported and (kind is None or isdtype(dtype, kind)):
                by_name[_NAMES.get(dtype.name, dtype.name)] = dtype
        return by_name


def __array_namespace_info__() -> Info:  # noqa: N807  # the standard names it so
    """Return the namespace's inspection object."""
    return Info()
