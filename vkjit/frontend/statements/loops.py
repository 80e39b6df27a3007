"""Lowering of `for`, `while`, `break` and `continue` to `for` and `loop` operations."""

from __future__ import annotations

import ast

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OpName

from ..context import Context, statement
from ..expressions.expressions import condition
from ..kernel_values import Range, Unrolled
from .loop_frames import DynamicExit, LoopFrame, emit_exit, run_loop, unless_broken
from .ranges import emit_for, iterable_of, range_bounds, static_trip_count
from .statements import assign
from .unrolled import lower_unrolled

__all__: list[str] = []


@statement(ast.Break)
def _break(ctx: Context, _node: ast.Break) -> bool:
    return _exit(ctx, "break")


@statement(ast.Continue)
def _continue(ctx: Context, _node: ast.Continue) -> bool:
    return _exit(ctx, "continue")


def _exit(ctx: Context, kind: OpName) -> bool:
    frame = ctx.loops[-1]
    if frame.unrolled:
        if ctx.builder.region is not frame.knowledge.region:
            raise DynamicExit
        frame.exit_kind = kind
    else:
        emit_exit(ctx, frame, "break" if frame.single_iteration else kind, broke=kind == "break")
    return True


# -- while
@statement(ast.While)
def _while(ctx: Context, node: ast.While) -> bool:
    loop_loc = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        test = condition(ctx, node.test)
        ctx.builder.loc = loop_loc
        if test is False:
            emit_exit(ctx, frame, "break", broke=False)
            return
        if isinstance(test, Value):
            _leave_unless(ctx, frame, test)
        if not ctx.block(node.body):
            ctx.builder.loc = loop_loc
            emit_exit(ctx, frame, "continue", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = loop_loc
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, runs_at_least_once=False)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return _else(ctx, node, frame, op)


def _leave_unless(ctx: Context, frame: LoopFrame, test: Value) -> None:
    stay, go = Region(), Region()
    with ctx.builder.at(stay):
        ctx.builder.op("yield")
    with ctx.builder.at(go):
        emit_exit(ctx, frame, "break", broke=False)
    ctx.builder.op("if", test, types=[], regions=[stay, go])


def _else(ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op) -> bool:
    """Lower the `else` block of a loop, which runs unless a `break` was taken."""
    if not node.orelse:
        return False
    if not frame.flag:
        return ctx.block(node.orelse)
    return unless_broken(ctx, node, frame, op, lambda: ctx.block(node.orelse))


# -- for
@statement(ast.For)
def _for(ctx: Context, node: ast.For) -> bool:
    iterable = iterable_of(ctx, node.iter, ctx.evaluate(node.iter))
    ctx.builder.loc = ctx.loc(node)
    if isinstance(iterable, Unrolled):
        return lower_unrolled(ctx, node, iterable.items)
    return _counted(ctx, node, iterable)


def _counted(ctx: Context, node: ast.For, bounds: Range) -> bool:
    loop_loc = ctx.loc(node)
    low, high, step = range_bounds(ctx, node.iter, bounds)

    def body(frame: LoopFrame, arguments: list[Value]) -> None:
        assign(ctx, node.target, arguments[0])
        if not ctx.block(node.body):
            ctx.builder.loc = loop_loc
            emit_exit(ctx, frame, "continue", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = loop_loc
        return emit_for(ctx, low, high, step, initial, frame.types(), region)

    trips = static_trip_count(bounds)
    frame, op = run_loop(ctx, node, [low.type], body, finish, runs_at_least_once=bool(trips))
    return _else(ctx, node, frame, op)
