"""Lowering of call expressions.

Finds the callee's lowering (see `intrinsics`), evaluates the arguments, and calls the lowering; elementwise functions
are mapped over lazy slices and tiles. The lowerings of the individual functions are in the other modules of this
package.
"""

from __future__ import annotations

import ast
import sys
from types import FunctionType

from vkjit.lang import random

from ..context import Call, Context, evaluate_items, expression
from ..expressions.elementwise import is_mapped, map_elements
from ..intrinsics import IntrinsicLowering, is_callable_value, is_elementwise, lowering_of
from ..kernel_values import Aggregate, KernelValue, Method, describe_value, is_array, is_tile, with_parts
from ..migration_hints import advice_on_attribute, advice_on_object
from ..values.bound import split_partial
from ..values.closures import detached
from ..values.scopes import ScopeValue
from .mappings import keyword_items

__all__: list[str] = []

_TENSOR_ALIASES = {("vkjit.tensor.ops.random", name): getattr(random, name) for name in ("rand", "randn", "randint")}
"""Tensor functions exported from `vk` under the name of a kernel intrinsic, mapped to that intrinsic."""


@expression(ast.Call)
def _call(ctx: Context, node: ast.Call) -> KernelValue:
    """Lower a call: find the lowering of the callee, evaluate the arguments, and apply or map it."""
    callee = ctx.evaluate(node.func)
    function, args, keywords = split_partial(callee)
    function = detached(ctx, node, function)
    lower = _find_lowering(function)
    if lower is None:
        raise _not_callable(ctx, node, function)
    if not getattr(lower, "_raw_arguments", False):  # `print` lowers its arguments itself, for f-strings
        args = [*args, *evaluate_items(ctx, node.args)]
        keywords = keywords | _keywords(ctx, node)
    ctx.builder.loc = ctx.loc(node)
    taken = function.items if isinstance(function, Aggregate) else ()  # by a nested function
    values = [*args, *keywords.values(), *taken]
    if any(map(is_mapped, values)) and _maps_elements(function, lower, values):
        return _map_call(ctx, node, function, args, keywords)
    return lower(ctx, Call(node, args, keywords))


def _keywords(ctx: Context, node: ast.Call) -> dict[str, KernelValue]:
    """Evaluate the keyword arguments of a call; `**d` expands to the items of a dictionary."""
    keywords: dict[str, KernelValue] = {}
    for keyword in node.keywords:
        if keyword.arg is not None:
            found = {keyword.arg: ctx.evaluate(keyword.value)}
        else:
            found = keyword_items(ctx, keyword.value)
        for name in found:
            if name in keywords:
                raise ctx.error(keyword.value, f"{name} is given twice", "give each argument once")
        keywords |= found
    return keywords


def _maps_elements(callee: KernelValue, lower: IntrinsicLowering, values: list[KernelValue]) -> bool:
    """True if a call with lazy or tile arguments is mapped over their elements.

    A device function is called once, with whole tiles, if one argument is a workgroup or subgroup object and no
    argument is a lazy slice. An intrinsic is mapped if it is marked by `intrinsics.elementwise`.
    """
    if not is_callable_value(callee):
        return is_elementwise(lower)
    takes_scope = any(isinstance(v, ScopeValue) for v in values)
    only_tiles = all(is_tile(v) for v in values if is_mapped(v))
    return not (takes_scope and only_tiles)


def _map_call(
    ctx: Context, node: ast.Call, callee: KernelValue, args: list[KernelValue], keywords: dict[str, KernelValue]
) -> KernelValue:
    """Map a call over the elements of its lazy or tile arguments, and of those that a nested function takes along."""
    taken = callee.items if isinstance(callee, Aggregate) else ()
    last = len(args) + len(keywords)

    def function(inner: Context, *values: KernelValue) -> KernelValue:
        named = dict(zip(keywords, values[len(args) : last], strict=True))
        lower = _find_lowering(with_parts(callee, values[last:]) if taken else callee)
        assert lower is not None
        return lower(inner, Call(node, list(values[: len(args)]), named))

    return map_elements(ctx, node, function, [*args, *keywords.values(), *taken])


def _find_lowering(callee: KernelValue) -> IntrinsicLowering | None:
    """Return the lowering `(context, call)` of calls of a value, or None if the value can't be called."""
    if isinstance(callee, Method):
        method = callee
        return lambda ctx, call: method.lower(ctx, call, method.owner)
    if isinstance(callee, FunctionType):
        callee = _TENSOR_ALIASES.get((callee.__module__, callee.__name__), callee)
    return lowering_of(callee)


_CALLABLE_HINT = "kernels can call the functions of vk, and those of math and NumPy with the same names"


def _not_callable(ctx: Context, node: ast.Call, callee: KernelValue) -> Exception:
    """Return the error for a call of a value that has no lowering, with advice by the kind of value."""
    text = ast.unparse(node.func)
    if isinstance(callee, FunctionType) and (callee.__module__ or "").split(".")[0] == "vkjit":
        hint = advice_on_attribute(sys.modules["vkjit"], callee.__name__)
        if not hint or hint.startswith(
            "did"
        ):  # "did you mean ...?": a similar name is no advice, since this one exists
            hint = "in a kernel, write the loop over the elements"
        return ctx.error(node.func, f"{text} works on whole tensors", hint)
    if callable(callee):
        return ctx.error(node.func, f"{text} has no meaning in a kernel", advice_on_object(callee) or _CALLABLE_HINT)
    hint = f"index it: {text}[{', '.join(map(ast.unparse, node.args)) or 'i'}]" if is_array(callee) else ""
    return ctx.error(node.func, f"{text} is {describe_value(callee)}: it can't be called", hint)
