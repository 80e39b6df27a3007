"""Mask tests: cheap scalar tests that a condition holds in all lanes.

A comparison of a `Step` with a uniform value is tested in its first or last lane only, a conjunction by its operands.
"""

from __future__ import annotations

from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName

from .context import Generator, dtype_of
from .stride_analysis import constant_number

__all__ = ["all_lanes"]

_MIRRORED: dict[OpName, OpName] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_MAX_PARTS = 6


def all_lanes(g: Generator, condition: Value, depth: int = _MAX_PARTS) -> str | None:
    """Emit scalar instructions that compute an i1: if it is true, the condition holds in all lanes.

    Returns None if there is no such test. At most `depth` conjunctions are nested.
    """
    if g.shapes.is_uniform(condition):
        return g.scalar(condition) if condition in g.parts else None  # it may be defined in another barrier region
    op = condition.op
    if op is None or depth == 0 or not (condition in g.parts or condition in g.postponed):
        return None
    if op.name == "and":
        first = all_lanes(g, op.operands[0], depth - 1)
        second = all_lanes(g, op.operands[1], depth - 1) if first is not None else None
        return None if first is None or second is None else g.text.op(f"and i1 {first}, {second}")
    if op.name in _MIRRORED:
        return _comparison(g, op)
    return None


def _comparison(g: Generator, op: Op) -> str | None:
    name, (left, right) = op.name, op.operands
    if g.shapes.is_uniform(left):
        name, left, right = _MIRRORED[name], right, left
    step = g.shapes.of_value(left)
    if step is None or step.size == 0 or not g.shapes.is_uniform(right) or not dtype_of(left.type).is_integer:
        return None
    if left not in g.parts or right not in g.parts:
        return None
    signed = dtype_of(left.type).is_signed
    kind = g.type(left.type, False)
    base, bound = g.scalar(left), g.scalar(right)
    reach = step.size * (g.width - 1)
    if abs(reach) >= 1 << (dtype_of(left.type).bits - 1):
        return None  # the lanes may wrap several times
    upper = name in ("lt", "le")
    if upper == (reach < 0):
        if not signed:
            return None
        first = g.text.op(f"icmp {_word(name, signed)} {kind} {base}, {bound}")
        return first if step.exact else g.text.op(f"and i1 {first}, {_no_wrap(g, left, base, reach)}")
    if constant_number(right) is not None and name == "ge" and signed and reach < 0:
        return None
    return _far_lane(g, name, kind, base, bound, abs(reach), signed)


def _no_wrap(g: Generator, value: Value, base: str, reach: int) -> str:
    """Test that the signed integers from lane 0, `base`, to the last lane, `base + reach`, don't wrap."""
    extreme = 1 << (dtype_of(value.type).bits - 1)
    word, limit = ("sle", extreme - 1 - reach) if reach > 0 else ("sge", -extreme - reach)
    return g.text.op(f"icmp {word} {g.type(value.type, False)} {base}, {limit}")


def _word(name: str, signed: bool) -> str:
    return ("s" if signed else "u") + name


def _far_lane(g: Generator, name: str, kind: str, base: str, bound: str, reach: int, signed: bool) -> str:
    """Emit the comparison for the last lane, whose value is closest to the bound.

    Instead of `base + reach < bound` it tests `base < bound - reach`. If that difference wraps, the result is false.
    """
    if name in ("lt", "le"):
        moved = g.text.op(f"sub {kind} {bound}, {reach}")
        sound = g.text.op(f"icmp {_word('lt', signed)} {kind} {moved}, {bound}")
    else:
        moved = g.text.op(f"add {kind} {bound}, {reach}")
        sound = g.text.op(f"icmp {_word('gt', signed)} {kind} {moved}, {bound}")
    holds = g.text.op(f"icmp {_word(name, signed)} {kind} {base}, {moved}")
    return g.text.op(f"and i1 {sound}, {holds}")
