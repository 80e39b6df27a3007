"""Items of tuples at an index that may be known at run time only: reading one, and replacing one.

For a run-time index, the items are stored to a local array, which is then read or written there.
"""

from __future__ import annotations

import ast

from vkjit.ir.core import Value
from vkjit.ir.types import Array, Scalar, Vector

from ..context import Context
from ..kernel_values import KernelValue, describe_value, is_scalar, literal_text
from .arrays import load
from .conversions import as_index, dtype_of_value, static_value
from .joins import JoinFailure, common_structure, parts_in_slots, rebuild, to_type

__all__ = ["constant_index", "item_at", "with_item"]


def constant_index(ctx: Context, node: ast.AST, index: KernelValue, size: int) -> int:
    """Return an index into `size` items, from 0 to size - 1.

    Negative indices count from the end. Raises CompileError if the index isn't known at compile time, or is out of
    range.
    """
    number = static_value(index)
    if number is None or not isinstance(number, int):
        raise ctx.error(
            node,
            "the index must be an integer known at compile time",
            "loop with vk.unroll(n), or keep the values in vk.local(dtype, n)",
        )
    if not -size <= number < size:
        hint = f"the first is 0, the last {size - 1} or -1" if size else "it has none"
        raise ctx.error(node, f"index {literal_text(number)} is outside the {size} items", hint)
    return int(number) % size


def _is_runtime_index(value: KernelValue) -> bool:
    return static_value(value) is None and is_scalar(value) and dtype_of_value(value).is_integer


def item_at(ctx: Context, node: ast.AST, items: tuple[KernelValue, ...], index: KernelValue) -> KernelValue:
    """Return an item of a tuple."""
    if not items or not _is_runtime_index(index):
        return items[constant_index(ctx, node, index, len(items))]
    structure, arrays = _in_memory(ctx, node, items, items)
    place = as_index(ctx, node, index)
    return rebuild(structure, [load(ctx, array, [place]) for array in arrays])


def with_item(
    ctx: Context, node: ast.AST, items: tuple[KernelValue, ...], index: KernelValue, value: KernelValue
) -> tuple[KernelValue, ...]:
    """Return a tuple with one item replaced."""
    if not items or not _is_runtime_index(index):
        position = constant_index(ctx, node, index, len(items))
        return (*items[:position], value, *items[position + 1 :])
    structure, arrays = _in_memory(ctx, node, items, (*items, value))
    place = as_index(ctx, node, index)
    for part, array in zip(parts_in_slots(structure, value), arrays, strict=True):
        ctx.builder.op("store", array, place, to_type(ctx, node, part, _element(array)))
    places = [ctx.builder.index(number) for number in range(len(items))]
    return tuple(rebuild(structure, [load(ctx, array, [at]) for array in arrays]) for at in places)


def _in_memory(
    ctx: Context, node: ast.AST, items: tuple[KernelValue, ...], values: tuple[KernelValue, ...]
) -> tuple[KernelValue, list[Value]]:
    """Store the items of a tuple to local arrays, one for each part; return the structure of an item, and the arrays.

    The structure is that of all `values`.
    """
    types: list[Scalar] = []
    try:
        structure = common_structure(ctx, list(values), types)  # type: ignore[arg-type]
    except JoinFailure:
        found = ", ".join(map(describe_value, values[:8]))
        hint = "give them one type, or loop with vk.unroll(n)"
        raise ctx.error(node, f"an index known at run time takes items of one type, found {found}", hint) from None
    arrays = []
    for number, element in enumerate(types):
        kind = Array(element, 1, space="local", shape=(len(items),), contiguous=True)
        arrays.append(ctx.entry_array(node, kind, f"{number}.{len(values) - len(items)}"))
    for position, item in enumerate(items):
        for part, array in zip(parts_in_slots(structure, item), arrays, strict=True):
            at = ctx.builder.index(position)
            ctx.builder.op("store", array, at, to_type(ctx, node, part, _element(array)))
    return structure, arrays


def _element(array: Value) -> Scalar | Vector:
    assert isinstance(array.type, Array)
    return array.type.element
