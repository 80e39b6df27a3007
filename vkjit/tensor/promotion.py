"""Type promotion of tensor operations, with PyTorch's rules.

Types fall into three categories: bool < integer < float. The result has the highest category among the operands. Of the
operands in this category, those of the highest rank determine its type: tensors with dimensions if there are any, else
0-d tensors, else Python scalars. Several types are combined by `promote_types`. Python scalars count as bool, i64 or
f32.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..dtypes import DType
from ..errors import DTypeError

__all__ = ["category", "promote_types", "result_type"]

_WIDER_SIGNED = {8: dtypes.i16, 16: dtypes.i32, 32: dtypes.i64}
"""The smallest signed type that holds all unsigned integers of a number of bits."""


def category(dtype: DType) -> int:
    """Return 0 for bool, 1 for integers, 2 for floats."""
    return 0 if dtype.kind == "bool" else 2 if dtype.is_float else 1


def promote_types(a: DType, b: DType) -> DType:
    """Return the common type of two types, for tensors with dimensions: u8 with i8 is i16, i64 with f32 is f32.

    Raises DTypeError if there is none.
    """
    if a is b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if a.is_float or a.kind == b.kind:
        if a.bits == b.bits:  # two float formats, such as f16 and bf16
            return dtypes.f32
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    wider = _WIDER_SIGNED.get(unsigned.bits)
    if wider is None:
        raise DTypeError(f"{a!r} and {b!r} have no common type: convert one of them with .to(...)")
    return wider


def _number_type(value: Any) -> DType:
    """Return the type that a Python scalar has in promotion. Raises DTypeError for other objects."""
    if isinstance(value, bool):
        return dtypes.boolean
    if isinstance(value, int):
        return dtypes.i64
    if isinstance(value, float):
        return dtypes.f32
    raise DTypeError(f"expected a tensor or a number, found {type(value).__name__}")


def result_type(*operands: Any) -> DType:
    """Return the promoted type: the result type of an elementwise operation on these operands.

    Operands are tensors, dtypes (treated as tensors with dimensions), and Python scalars.
    """
    ranked: dict[int, DType] = {}
    for operand in operands:
        rank, dtype = _rank_of(operand)
        ranked[rank] = promote_types(ranked[rank], dtype) if rank in ranked else dtype
    result: DType | None = None
    for rank in sorted(ranked, reverse=True):
        dtype = ranked[rank]
        if result is None or category(dtype) > category(result):
            result = dtype
    if result is None:
        raise DTypeError("expected at least one operand")
    return result


def _rank_of(operand: Any) -> tuple[int, DType]:
    """Return an operand's rank in promotion and its dtype.

    The rank is 2 for dtypes and tensors with dimensions, 1 for 0-d tensors, and 0 for Python scalars.
    """
    if isinstance(operand, DType):
        return 2, operand
    shape = getattr(operand, "shape", None)
    if shape is None:
        return 0, _number_type(operand)
    return (2 if len(shape) else 1), operand.dtype
