"""Lowering of unrolled loops (`vk.unroll`, or a `for` over a tuple): the body is emitted once per item.

A `break` or `continue` that is unconditional or has a compile-time condition emits no operation: the rest of the
iteration just isn't lowered. A `break` or `continue` under a run-time condition is a dynamic exit. Its iteration is
emitted as a `loop` operation that runs once, which either statement leaves. The remaining iterations follow in an `if`
that tests a flag: they run unless the operation was left by `break`.
"""

from __future__ import annotations

import ast

from vkjit.ir.core import Op, Region, Value

from ..context import Context
from ..kernel_values import KernelValue
from .loop_carried import LoopFacts
from .loop_frames import DynamicExit, LoopFrame, emit_exit, run_loop, unless_broken
from .statements import assign

__all__ = ["lower_unrolled"]


def lower_unrolled(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """Lower the loop `node` with its body once per item. Returns True if control never reaches the loop's end."""
    for number, item in enumerate(items):
        try:
            exited, exit_statement = _lower_iteration(ctx, node, item)
        except DynamicExit:
            return _lower_dynamic_exit(ctx, node, items[number:])
        if exited and not exit_statement:  # by `return`
            return True
        if exit_statement == "break":
            return False
    return ctx.block(node.orelse)


def _lower_iteration(ctx: Context, node: ast.For, item: KernelValue) -> tuple[bool, str]:
    """Lower one iteration and append it to the current region.

    The first result is True if control never reaches the body's end; the second is "break" or "continue" if such a
    statement is the reason, else "". Raises DynamicExit, with nothing emitted, if the iteration has a dynamic exit.
    """
    names_before, loc_before = dict(ctx.env), ctx.builder.loc
    checkpoint = ctx.checkpoint()
    region = Region()
    frame = LoopFrame(node, [], LoopFacts(region=region), unrolled=True)
    ctx.loops.append(frame)
    try:
        with ctx.builder.at(region):
            assign(ctx, node.target, item)
            exited = ctx.block(node.body)
    except DynamicExit:
        # `region` is discarded; the caller lowers the iteration again, as a loop operation.
        ctx.env, ctx.builder.loc = names_before, loc_before
        ctx.rollback(checkpoint)
        raise
    finally:
        ctx.loops.pop()
    _append_region(ctx, region)
    return exited, frame.exit_statement


def _append_region(ctx: Context, region: Region) -> None:
    """Move a region's operations to the end of the current region, and update `Context.returns` accordingly."""
    ctx.builder.region.ops += region.ops
    for return_ in ctx.returns:
        if return_.region is region:
            return_.region = ctx.builder.region


def _lower_dynamic_exit(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """Lower the first item, which has a dynamic exit, as a loop that runs once, and the remaining items after it.

    Returns True if control never reaches the end of the whole loop.
    """
    loop_loc = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        assign(ctx, node.target, items[0])
        if not ctx.block(node.body):
            ctx.builder.loc = loop_loc
            emit_exit(ctx, frame, "break", by_break=False)  # the only iteration ends: leave the loop operation

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = loop_loc
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, runs_at_least_once=True, single_iteration=True)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return unless_broken(ctx, node, frame, op, lambda: lower_unrolled(ctx, node, items[1:]))
