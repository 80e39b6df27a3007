"""Lowering of unrolled loops (`vk.unroll`, or a `for` over a tuple): the body is emitted once per item.

A `break` or `continue` that is unconditional or has a compile-time condition emits no operation: the rest of the
iteration just isn't lowered. If a `break` or `continue` depends on a run-time condition (a dynamic exit), its iteration
is emitted as a `loop` operation that runs once, and both statements leave this loop. The remaining iterations follow in
an `if` that tests a flag: they run unless the loop was left by `break`.
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
            exited, kind = _iteration(ctx, node, item)
        except DynamicExit:
            return _dynamic(ctx, node, items[number:])
        if exited and not kind:  # by `return`
            return True
        if kind == "break":
            return False
    return ctx.block(node.orelse)


def _iteration(ctx: Context, node: ast.For, item: KernelValue) -> tuple[bool, str]:
    """Lower one iteration and append it to the current region.

    Returns True if control never reaches the body's end, and "break" or "continue" if that is because of such a
    statement (else ""). Raises DynamicExit, with nothing emitted, if the iteration has a dynamic exit.
    """
    region, before, place, mark = Region(), dict(ctx.env), ctx.builder.loc, ctx.checkpoint()
    frame = LoopFrame(node, [], LoopFacts(region=region), unrolled=True)
    ctx.loops.append(frame)
    try:
        with ctx.builder.at(region):
            assign(ctx, node.target, item)
            exited = ctx.block(node.body)
    except DynamicExit:
        ctx.env, ctx.builder.loc = before, place
        ctx.rollback(mark)
        raise
    finally:
        ctx.loops.pop()
    _append_region(ctx, region)
    return exited, frame.exit_kind


def _append_region(ctx: Context, region: Region) -> None:
    """Move a region's operations to the end of the current region; the records of `return` statements are updated."""
    ctx.builder.region.ops += region.ops
    for return_ in ctx.returns:
        if return_.region is region:
            return_.region = ctx.builder.region


def _dynamic(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """Lower the first item, which has a dynamic exit, as a loop that runs once, and the remaining items after it.

    Returns True if control never reaches the end of the whole loop.
    """
    place = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        assign(ctx, node.target, items[0])
        if not ctx.block(node.body):
            ctx.builder.loc = place
            emit_exit(ctx, frame, "break", by_break=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = place
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, runs_at_least_once=True, single_iteration=True)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return unless_broken(ctx, node, frame, op, lambda: lower_unrolled(ctx, node, items[1:]))
