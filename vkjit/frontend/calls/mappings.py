"""Dictionaries with compile-time keys: captured ones, and the `**kwargs` of device functions."""

from __future__ import annotations

import ast

from ..context import Call, Context
from ..intrinsics import lowers_method
from ..kernel_values import Aggregate, KernelValue, MappingKind, Method, describe_value
from ..values.attributes import attributes
from ..values.mappings import is_mapping_value, items_of, position_of

__all__ = ["keyword_items"]


def keyword_items(ctx: Context, node: ast.expr) -> dict[str, KernelValue]:
    """Return the arguments that `**node` gives: those of a dictionary, or of one that is written out, as `{"a": 1}`."""
    if isinstance(node, ast.Dict):
        pairs: list[tuple[KernelValue, KernelValue]] = []
        for key_node, value_node in zip(node.keys, node.values, strict=True):
            if key_node is None:
                pairs += keyword_items(ctx, value_node).items()
            else:
                pairs.append((ctx.evaluate(key_node), ctx.evaluate(value_node)))
    else:
        value = ctx.evaluate(node)
        if not isinstance(value, Aggregate) or not isinstance(value.kind, MappingKind):
            raise ctx.error(
                node, f"** takes a dictionary of constants, found {describe_value(value)}", "write each keyword"
            )
        pairs = list(zip(value.kind.keys, value.items, strict=True))
    for key, _ in pairs:
        if not isinstance(key, str):
            raise ctx.error(node, f"** takes names as keys, found {describe_value(key)}", "write each keyword")
    return {str(key): value for key, value in pairs}


@attributes(is_mapping_value)
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    lowerings = {"get": _get, "keys": _keys, "values": _values, "items": _items}
    if node.attr not in lowerings:
        raise ctx.error(
            node, f"{describe_value(base)} has no {node.attr} in a kernel", f"it has {', '.join(lowerings)}"
        )
    return Method(base, node.attr, lowerings[node.attr])


class _Stub:
    """The signatures of the methods of dictionaries."""

    def get(self, key, default=None): ...  # type: ignore[no-untyped-def]
    def keys(self): ...  # type: ignore[no-untyped-def]


def _look_up(ctx: Context, call: Call, base: Aggregate, key: KernelValue, default: KernelValue) -> KernelValue:
    position = position_of(ctx, call.node, base, key)
    return default if position is None else base.items[position]


def _all_keys(ctx: Context, call: Call, base: Aggregate) -> KernelValue:
    return items_of(ctx, call.node, base)


def _all_values(_ctx: Context, _call: Call, base: Aggregate) -> KernelValue:
    return base.items


def _all_items(ctx: Context, call: Call, base: Aggregate) -> KernelValue:
    return tuple(zip(items_of(ctx, call.node, base) or (), base.items, strict=True))


_get = lowers_method(_Stub.get, _look_up)
_keys = lowers_method(_Stub.keys, _all_keys)
_values = lowers_method(_Stub.keys, _all_values)
_items = lowers_method(_Stub.keys, _all_items)
