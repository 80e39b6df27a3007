"""Scopes of collectives: `vk.workgroup()` and `vk.subgroup()`, and the registry of their methods.

The methods themselves, such as `vk.workgroup().sum(x)`, are lowered in `calls` and `tiles`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vkjit import lang
from vkjit.ir.attributes import Attrs
from vkjit.ir.core import Value
from vkjit.ir.ops import OpName
from vkjit.lang.collectives import Subgroup, Workgroup

from ..context import Call, Context
from ..intrinsics import lowers, lowers_method, not_in_over
from ..kernel_values import KernelValue, Method
from .attributes import attributes

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["REDUCTIONS", "ScopeValue", "emit", "invocations", "method", "rank_of", "uses_lanes"]


@dataclass(frozen=True, slots=True)
class ScopeValue:
    """The result of `vk.workgroup()` (kind "workgroup") or `vk.subgroup()` (kind "subgroup")."""

    kind: str


MethodLowering = Callable[..., KernelValue]
METHODS: dict[tuple[str, str], MethodLowering] = {}
"""The registered lowerings, by scope kind and method name."""

REDUCTIONS: tuple[OpName, ...] = ("add", "mul", "min", "max", "and", "or", "xor")
"""The operators of reductions and scans."""


def method(name: str, *kinds: str) -> Callable[[MethodLowering], MethodLowering]:
    """Register a method's lowering `(context, call, scope, *arguments)` for scopes of these kinds (default: both).

    The arguments are bound by the signature of the method's stub in `lang.collectives`.
    """

    def register(function: MethodLowering) -> MethodLowering:
        for kind in kinds or ("workgroup", "subgroup"):
            owner = Workgroup if kind == "workgroup" else Subgroup
            METHODS[kind, name] = lowers_method(getattr(owner, name), function)
        return function

    return register


@lowers(lang.workgroup)
def _workgroup(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a collective")
    return ScopeValue("workgroup")


@lowers(lang.subgroup)
def _subgroup(ctx: Context, call: Call) -> KernelValue:
    not_in_over(ctx, call, "a collective")
    ctx.session.module.kernel.attrs["full_subgroups"] = True
    return ScopeValue("subgroup")


@attributes(lambda value: isinstance(value, ScopeValue))
def _attribute(ctx: Context, node: ast.Attribute, base: KernelValue) -> KernelValue:
    """Lower `wg.name`, a method of a workgroup or subgroup."""
    assert isinstance(base, ScopeValue)
    lower = METHODS.get((base.kind, node.attr))
    if lower is None:
        methods = ", ".join(sorted(name for kind, name in METHODS if kind == base.kind))
        raise ctx.error(node, f"a {base.kind} has no {node.attr}", f"it has {methods}")
    return Method(base, node.attr, lower)


def uses_lanes(ctx: Context) -> None:
    """Mark the kernel as using subgroup ids or lane ids.

    The kernel is then emitted with a one-dimensional workgroup, and the local ids are computed from subgroup id and
    lane id, so that the two numberings of the invocations agree.
    """
    ctx.session.module.kernel.attrs["subgroups"] = True


def emit(ctx: Context, name: OpName, *operands: Value, **attrs: Unpack[Attrs]) -> Value:
    """Emit an operation that depends on the lanes of subgroups, and return its result."""
    uses_lanes(ctx)
    return ctx.builder.emit(name, *operands, **attrs)


def invocations(ctx: Context) -> int:
    """Return the number of invocations in a workgroup."""
    x, y, z = ctx.session.signature.local_size
    return x * y * z


def rank_of(ctx: Context, kind: str) -> Value:
    """Emit the linear id of the invocation within its workgroup or subgroup, as `kind` says."""
    lane = emit(ctx, "lane_id")
    if kind == "subgroup":
        return lane
    base = ctx.builder.emit("mul", emit(ctx, "subgroup_id"), emit(ctx, "subgroup_size"))
    return ctx.builder.emit("add", base, lane)
