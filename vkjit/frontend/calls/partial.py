"""Calls of `functools.partial`, and of functions with their first arguments (see `values.bound`)."""

from __future__ import annotations

import functools

from ..context import Call, Context
from ..intrinsics import callable_values, intrinsic, lowering_of
from ..kernel_values import Aggregate, KernelValue, PartialKind, describe_value
from ..values.bound import split_partial

__all__: list[str] = []


def _is_partial(value: KernelValue) -> bool:
    return split_partial(value)[0] is not value


@callable_values(_is_partial)
def _call(ctx: Context, call: Call, callee: KernelValue) -> KernelValue:
    """Lower a call of a partial that isn't the callee in the source, such as a property."""
    function, args, keywords = split_partial(callee)
    lower = lowering_of(function)
    assert lower is not None
    return lower(ctx, Call(call.node, [*args, *call.args], keywords | call.keywords))


@intrinsic(functools.partial)
def _partial(ctx: Context, call: Call) -> KernelValue:
    """Lower `functools.partial(f, ...)`."""
    if not call.args or lowering_of(split_partial(call.args[0])[0]) is None:
        found = describe_value(call.args[0]) if call.args else "no argument"
        raise ctx.error(call.node, f"functools.partial takes a function first, found {found}", "name a device function")
    kind = PartialKind(len(call.args) - 1, tuple(call.keywords))
    return Aggregate(kind, (*call.args, *call.keywords.values()))
