"""Lowers written-out loops: the body once for each item.

Enters: a `for` node and its items. Leaves: the bodies in a row. A `break` or `continue` that is certain, or whose
condition is known at compile time, leaves nothing behind; where one depends on a run-time condition, that round
becomes a loop of one round, and what follows runs unless it was broken.
"""

from __future__ import annotations

import ast

from ..ir.core import Op, Region, Value
from .carried import Knowledge
from .context import Context
from .loops import DynamicExit, LoopFrame, emit_exit, run_loop, unless_broken
from .statements import assign
from .values import KernelValue

__all__ = ["unrolled"]


def unrolled(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """Writes the body out for each item; says whether control never comes out at the end."""
    for number, item in enumerate(items):
        try:
            exited, kind = _round(ctx, node, item)
        except DynamicExit:
            return _dynamic(ctx, node, items[number:])
        if exited and not kind:
            return True
        if kind == "break":
            return False
    return ctx.block(node.orelse)


def _round(ctx: Context, node: ast.For, item: KernelValue) -> tuple[bool, str]:
    """One round in a region of its own, kept if its exits are static: (control never comes out, kind of exit)."""
    region, before, place, mark = Region(), dict(ctx.env), ctx.builder.loc, ctx.mark()
    frame = LoopFrame(node, [], Knowledge(region=region), unrolled=True)
    ctx.loops.append(frame)
    try:
        with ctx.builder.at(region):
            assign(ctx, node.target, item)
            exited = ctx.block(node.body)
    except DynamicExit:
        ctx.env, ctx.builder.loc = before, place
        ctx.forget(mark)
        raise
    finally:
        ctx.loops.pop()
    _move(ctx, region)
    return exited, frame.exit_kind


def _move(ctx: Context, region: Region) -> None:
    """Appends a region's operations to the current one, returns that wait for their operands included."""
    ctx.builder.region.ops += region.ops
    for waiting in ctx.returns:
        if waiting.region is region:
            waiting.region = ctx.builder.region


def _dynamic(ctx: Context, node: ast.For, items: tuple[KernelValue, ...]) -> bool:
    """The first item as a loop of one round; the rest where that round wasn't left by `break`."""
    place = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        assign(ctx, node.target, items[0])
        if not ctx.block(node.body):
            ctx.builder.loc = place
            emit_exit(ctx, frame, "break", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = place
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, once=True, single=True)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return unless_broken(ctx, node, frame, op, lambda: unrolled(ctx, node, items[1:]))
