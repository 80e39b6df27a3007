"""Dictionaries with compile-time keys, as values, and what else has constant items; methods are in `calls.mappings`."""

from __future__ import annotations

import ast
import enum
from typing import TypeGuard

from vkjit.ir.core import Value

from ..context import Context, Place
from ..kernel_values import Aggregate, IntMember, KernelValue, MappingKind, describe_value, literal_text, parts_of
from ..resolve import captured

__all__ = ["is_mapping_value", "item_of", "items_of", "position_of"]


def is_mapping_value(value: KernelValue) -> TypeGuard[Aggregate]:
    """True for a dictionary."""
    return isinstance(value, Aggregate) and isinstance(value.kind, MappingKind)


def items_of(ctx: Context, node: Place, value: KernelValue) -> tuple[KernelValue, ...] | None:
    """Return what a loop over a tuple, dictionary or enum gets; None for other values."""
    if isinstance(value, tuple):
        return value
    if is_mapping_value(value):
        assert isinstance(value.kind, MappingKind)
        return tuple(captured(ctx, node, "the key", key) for key in value.kind.keys)
    if isinstance(value, enum.EnumMeta):
        return tuple(captured(ctx, node, "the member", member) for member in list[object](value))
    return None


def position_of(ctx: Context, node: Place, mapping: Aggregate, key: KernelValue) -> int | None:
    """Return the number of a key's item, or None if there is no such key."""
    assert isinstance(mapping.kind, MappingKind)
    if not _is_constant(key):
        hint = "choose with if/elif, or pass the values in an array and index that"
        raise ctx.error(node, f"a dictionary's key must be known at compile time, found {describe_value(key)}", hint)
    plain = key.member if isinstance(key, IntMember) else key
    return next((number for number, k in enumerate(mapping.kind.keys) if k is plain or k == plain), None)


def _is_constant(value: KernelValue) -> bool:
    parts = parts_of(value)
    return not isinstance(value, Value) and all(map(_is_constant, parts or ()))


def item_of(ctx: Context, node: ast.Subscript, mapping: Aggregate) -> KernelValue:
    """Lower `d[key]`."""
    key = ctx.evaluate(node.slice)
    position = position_of(ctx, node.slice, mapping, key)
    if position is None:
        assert isinstance(mapping.kind, MappingKind)
        keys = ", ".join(map(literal_text, mapping.kind.keys[:10])) or "it has none"
        reason = f"the dictionary {ast.unparse(node.value)} has no key {literal_text(key)}"
        raise ctx.error(node.slice, reason, f"its keys are {keys}{', ...' if len(mapping.kind.keys) > 10 else ''}")
    return mapping.items[position]
