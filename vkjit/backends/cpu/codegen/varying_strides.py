"""Accesses with a stride between lanes that is only known at run time, such as the row stride of a larger array.

If a varying index is computed by sums and products from steps and uniform values, lane 0's index and the stride are
computed as scalars, with the same wrapping as the vector of indices. If the stride is 1 at run time, one vector access
replaces the gather or scatter.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.ir.core import Value
from vkjit.ir.types import Scalar

from .context import Generator, dtype_of

__all__ = ["both_ways", "steps_of"]

_MAX_DEPTH = 12

Stepped = tuple[str, str]
"""(the value of lane 0, the step between lanes), as LLVM scalars."""


def steps_of(g: Generator, index: Value) -> Stepped | None:
    """Emit the index of lane 0 (i64) and a test (i1) that the step between lanes is 1.

    Returns None if the index isn't such an expression, or if the step is a constant.
    """
    dtype = dtype_of(index.type)
    if (
        g.width < 2
        or not g.is_varying(index)
        or not dtype.is_integer
        or dtype.bits < 32
        or not _is_stepped(g, index, 0)
    ):
        return None
    first, step = _stepped(g, index)
    if not step.startswith("%"):
        return None
    kind = g.type(dtype, False)
    if dtype.bits < 64:
        first = g.text.op(f"{'sext' if dtype.is_signed else 'zext'} {kind} {first} to i64")
    return first, g.text.op(f"icmp eq {kind} {step}, 1")


def _is_stepped(g: Generator, value: Value, depth: int) -> bool:
    if not g.is_varying(value):
        return value in g.parts
    op = value.op
    if op is None or depth > _MAX_DEPTH or not isinstance(value.type, Scalar):
        return False
    if op.name in ("add", "sub"):
        return all(_is_stepped(g, v, depth + 1) for v in op.operands)
    if op.name == "mul":
        return any(g.shapes.is_uniform(v) for v in op.operands) and all(
            _is_stepped(g, v, depth + 1) for v in op.operands
        )
    if op.name != "cast":
        return False
    source, target = dtype_of(op.operands[0].type), dtype_of(value.type)
    return source.is_integer and source.bits >= target.bits and _is_stepped(g, op.operands[0], depth + 1)


def _stepped(g: Generator, value: Value) -> Stepped:
    shape, op = g.shapes.of_value(value), value.op
    if shape is not None or op is None:
        return g.scalar(value), str(shape.size if shape is not None else 0)
    kind = g.type(value.type, False)
    if op.name == "cast":
        source = g.type(op.operands[0].type, False)
        return _each(_stepped(g, op.operands[0]), lambda part: _cut(g, source, part, kind))
    left, right = (_stepped(g, v) for v in op.operands)
    if op.name == "mul":
        factor, other = (left, right) if g.shapes.is_uniform(op.operands[0]) else (right, left)
        return _each(other, lambda part: _op(g, "mul", kind, part, factor[0]))
    return _op(g, op.name, kind, left[0], right[0]), _op(g, op.name, kind, left[1], right[1])


def _each(pair: Stepped, change: Callable[[str], str]) -> Stepped:
    return change(pair[0]), change(pair[1])


def _cut(g: Generator, source: str, part: str, kind: str) -> str:
    if source == kind or not part.startswith("%"):
        return part
    return g.text.op(f"trunc {source} {part} to {kind}")


def _op(g: Generator, name: str, kind: str, left: str, right: str) -> str:
    """Emit an `add`, `sub` or `mul`, or fold it if an operand is 0, or a factor 1."""
    if name == "mul":
        if "0" in (left, right):
            return "0"
        if "1" in (left, right):
            return right if left == "1" else left
    elif right == "0":
        return left
    elif left == "0" and name == "add":
        return right
    return g.text.op(f"{name} {kind} {left}, {right}")


def both_ways(
    g: Generator, near: str, whole: Callable[[], str | None], apart: Callable[[], str | None], kind: str
) -> str:
    """Emit a branch on `near` between the code of `whole` and of `apart`, and return the value of the branch taken.

    The values have type `kind`; an empty `kind` means that there is none.
    """
    text = g.text
    cell = text.variable(kind) if kind else ""
    labels = text.new_label("whole"), text.new_label("apart"), text.new_label("either")
    text.branch(near, labels[0], labels[1])
    for label, write in zip(labels, (whole, apart), strict=False):
        text.label(label)
        with g.scope():
            part = write()
        if kind and part is not None:
            text.store(kind, part, cell)
        text.jump(labels[2])
    text.label(labels[2])
    return text.load(kind, cell) if kind else ""
