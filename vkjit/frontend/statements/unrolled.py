"""Lowering of unrolled loops: the body is emitted once per item.

A `break` or `continue` that is unconditional or has a compile-time condition emits no operation. An iteration whose
exit depends on a run-time condition becomes a loop of one iteration, and the iterations after it run unless it was left
by `break`.
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
    """Lower the body once per item. Returns True if control never reaches the end."""
    for number, item in enumerate(items):
        try:
            exited, kind = _iteration(ctx, node, item)
        except DynamicExit:
            return _dynamic(ctx, node, items[number:])
        if exited and not kind:
            return True
        if kind == "break":
            return False
    return ctx.block(node.orelse)


def _iteration(ctx: Context, node: ast.For, item: KernelValue) -> tuple[bool, str]:
    """Lower one iteration in its own region, kept if its exits are static; return (control never reaches the end, exit
    kind).
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
    """Append a region's operations to the current one, and update pending returns in it."""
    ctx.builder.region.ops += region.ops
    for return_ in ctx.returns:
        if return_.region is region:
            return_.region = ctx.builder.region


def _dynamic(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """Lower the first item as a loop of one iteration, and the remaining items unless it was left by `break`."""
    place = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        assign(ctx, node.target, items[0])
        if not ctx.block(node.body):
            ctx.builder.loc = place
            emit_exit(ctx, frame, "break", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = place
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, runs_at_least_once=True, single=True)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return unless_broken(ctx, node, frame, op, lambda: lower_unrolled(ctx, node, items[1:]))
