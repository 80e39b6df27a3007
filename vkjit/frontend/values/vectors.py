"""Short vectors: lanes and swizzles `v.xy`."""

from __future__ import annotations

import ast

from vkjit.ir.core import Value
from vkjit.ir.types import Scalar, Vector

from ..context import Context
from ..kernel_values import KernelValue, describe_value, is_vector
from .attributes import attributes
from .conversions import dtype_of_value

__all__ = ["lane", "lanes_named"]

_LANES = ("xyzw", "rgba")  # the two alternative sets of lane names


def lane(ctx: Context, vector: Value, number: int) -> Value:
    """Emit the extraction of one lane."""
    return ctx.builder.emit("vec_extract", vector, lane=number, type=Scalar(dtype_of_value(vector)))


def lanes_named(ctx: Context, node: ast.AST, what: str, name: str, size: int) -> list[int]:
    """Return the lane indices of a swizzle of a vector with `size` lanes; `what` describes the vector in messages."""
    letters = next((s for s in _LANES if set(name) <= set(s)), None)
    lanes = [letters.index(c) for c in name] if letters is not None else []
    if not lanes or len(lanes) > 4 or max(lanes) >= size:
        raise ctx.error(node, f"{what} has no lane {name}", f"its lanes are {' '.join(_LANES[0][:size])}, as in v.xy")
    return lanes


@attributes(is_vector)
def _swizzle(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower `v.x` to a lane, `v.xy` to a vector of lanes, `v.dtype` to the element type."""
    assert isinstance(base, Value)
    assert isinstance(base.type, Vector)
    if node.attr == "dtype":
        return base.type.dtype
    parts = [
        lane(ctx, base, number) for number in lanes_named(ctx, node, describe_value(base), node.attr, base.type.size)
    ]
    if len(parts) == 1:
        return parts[0]
    return ctx.builder.emit("vec_make", *parts, type=Vector(base.type.dtype, len(parts)))
