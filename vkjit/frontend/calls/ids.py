"""Lowering of `vk.global_id(d)` and other ids and sizes of invocations and workgroups.

In an `over=` kernel, `global_id(d)` is the index of the invocation's element along axis rank - 1 - d. The library
chooses the workgroups of such a kernel, so local and group ids and sizes are errors in it.
"""

from __future__ import annotations

from typing import Any

from vkjit import lang
from vkjit.ir.ops import OpName, op_name

from ..context import Call, Context
from ..intrinsics import lowers
from ..kernel_values import KernelValue
from ..values.conversions import static_value

__all__ = ["dimension"]


def dimension(ctx: Context, call: Call, dim: KernelValue) -> int:
    """Return the dimension as 0, 1 or 2. Raises CompileError unless it is a compile-time constant in this range."""
    index = static_value(dim)
    if index is None or isinstance(index, bool | float) or not 0 <= index <= 2:
        raise ctx.error(call.node, "the dimension is 0, 1 or 2, known at compile time")
    return int(index)


@lowers(lang.global_id)
def _global_id(ctx: Context, call: Call, dim: KernelValue) -> KernelValue:
    """Lower `vk.global_id(dim)`; in an `over=` kernel it is an item of the element's index."""
    if ctx.session.over is None:
        return ctx.builder.emit("global_id", dim=dimension(ctx, call, dim))
    if ctx.index is None:
        hint = "pass the index as an argument"
        raise ctx.error(call.node, "vk.global_id in a device function called from an over= kernel", hint)
    number = static_value(dim)
    rank = len(ctx.index)
    if number is None or isinstance(number, bool | float) or not 0 <= number < rank:
        raise ctx.error(
            call.node,
            f"{ctx.session.over} has {rank} dimension{'s' if rank != 1 else ''}: "
            f"vk.global_id takes 0 to {rank - 1}, known at compile time",
            "dimension d is axis rank - 1 - d; vk.index() is the whole index",
        )
    return ctx.index[rank - 1 - int(number)]


def _lowering_outside_over(name: OpName) -> Any:
    """Return the lowering of an id or size that only kernels without `over=` have; `name` is its operation."""

    def lower(ctx: Context, call: Call, dim: KernelValue) -> KernelValue:
        if ctx.session.over is not None:
            raise ctx.error(
                call.node,
                f"vk.{name} in a kernel with over={ctx.session.over!r}: its workgroups are chosen by the library",
                "use vk.index() or vk.global_id(d), or launch with groups= and local=",
            )
        return ctx.builder.emit(name, dim=dimension(ctx, call, dim))

    return lower


for _stub in (lang.local_id, lang.group_id, lang.local_size, lang.num_groups):
    lowers(_stub)(_lowering_outside_over(op_name(_stub.__name__)))
