"""Lowering of subscripts `x[...]` of arrays, arrays of structs, tiles, vectors, tuples and dictionaries."""

from __future__ import annotations

import ast
import enum

from vkjit.ir.core import Value
from vkjit.ir.types import Vector

from ..context import Context, expression, unloaded_expression
from ..kernel_values import Aggregate, Element, KernelValue, describe_value, is_array, is_tile
from ..tiles.shapes import subscript_tile
from ..values.arrays import has_slice, indices, load, subscript_values
from ..values.conversions import index_hint, static_value
from ..values.items import constant_index, item_at
from ..values.lazy import slice_of
from ..values.mappings import is_mapping_value, item_of
from ..values.members import member_named
from ..values.struct_arrays import element_at, is_struct_array, load_element, load_scalar, locate_part
from ..values.vectors import lane

__all__ = ["static_index"]


@unloaded_expression(ast.Subscript)
def _unloaded_subscript(ctx: Context, node: ast.Subscript) -> KernelValue:
    """Lower a subscript; an element of an array of structs or vectors isn't loaded."""
    base = ctx.evaluate_unloaded(node.value)
    if isinstance(base, Aggregate) and is_struct_array(base):
        return element_at(ctx, node, base)
    if isinstance(base, Element):
        location = locate_part(ctx, node, base)
        if location is None:
            raise ctx.error(node, f"{describe_value(load_element(ctx, base))} can't be indexed")
        return load_scalar(ctx, location)
    if is_array(base) and has_slice(node):
        return slice_of(ctx, node, base)
    if is_tile(base):
        return subscript_tile(ctx, node, base)
    if is_array(base):
        return load(ctx, base, indices(ctx, node, base, subscript_values(ctx, node)))
    if is_mapping_value(base):
        return item_of(ctx, node, base)
    if isinstance(base, enum.EnumMeta):
        return member_named(ctx, node, base)
    if isinstance(base, tuple):
        return _item(ctx, node, base)
    if isinstance(base, Value) and isinstance(base.type, Vector):
        return lane(ctx, base, static_index(ctx, node.slice, base.type.size))
    raise ctx.error(node, f"{describe_value(base)} can't be indexed", index_hint(base))


@expression(ast.Subscript)
def _subscript(ctx: Context, node: ast.Subscript) -> KernelValue:
    return load_element(ctx, ctx.evaluate_unloaded(node))


def _item(ctx: Context, node: ast.Subscript, base: tuple[KernelValue, ...]) -> KernelValue:
    """Lower a subscript of a tuple: `t[1]`, `t[1:]`, or `t[1, 0]` for nested tuples."""
    if isinstance(node.slice, ast.Slice):
        bound_nodes = [node.slice.lower, node.slice.upper, node.slice.step]
        bounds = [None if n is None else static_value(ctx.evaluate(n)) for n in bound_nodes]
        for bound_node, bound in zip(bound_nodes, bounds, strict=True):
            if bound_node is not None and (bound is None or isinstance(bound, float)):
                raise ctx.error(node.slice, "the bounds of a tuple's slice must be integers known at compile time")
        return base[slice(*(None if bound is None else int(bound) for bound in bounds))]
    item: KernelValue = base
    for index in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        if not isinstance(item, tuple):
            raise ctx.error(index, f"{describe_value(item)} can't be indexed")
        item = item_at(ctx, index, item, ctx.evaluate(index))
    return item


def static_index(ctx: Context, node: ast.expr, size: int) -> int:
    """Return the value of an index into `size` items, from 0 to size - 1.

    Negative indices count from the end. Raises CompileError if the index isn't known at compile time, or is out of
    range.
    """
    return constant_index(ctx, node, ctx.evaluate(node), size)
