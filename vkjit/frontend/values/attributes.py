"""Attribute access on kernel values: `x.shape`, `x.get`, `v.xy`.

Each kind of value registers the lowering of its attributes with `attributes`. An attribute lowers to a value or a
`Method`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from vkjit.ir.core import Value

from ..context import Context
from ..kernel_values import KernelValue, describe_value

__all__ = ["attribute_of", "attributes"]

AttributeLowering = Callable[[Context, ast.Attribute, KernelValue], KernelValue]
_ATTRIBUTES: list[tuple[Callable[[KernelValue], bool], AttributeLowering]] = []


def attributes(owner: Callable[[KernelValue], bool]) -> Callable[[AttributeLowering], AttributeLowering]:
    """Register the lowering `(context, node, value)` of attributes of values that satisfy the predicate `owner`."""

    def register(function: AttributeLowering) -> AttributeLowering:
        _ATTRIBUTES.append((owner, function))
        return function

    return register


def attribute_of(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower an attribute access. Raises CompileError if the value has no such attribute."""
    for owner, lower in _ATTRIBUTES:
        if owner(base):
            return lower(ctx, node, base)
    hint = ""
    if node.attr in ("astype", "to") and isinstance(base, Value):
        hint = f"a dtype converts: vk.f32({ast.unparse(node.value)})"
    elif isinstance(base, str):
        hint = 'format with an f-string, in print or the message of an assert: print(f"x is {x[0]}")'
    raise ctx.error(node, f"{describe_value(base)} has no attribute {node.attr}", hint)
