"""Lowering of `for`, `while`, `break` and `continue` to `for` and `loop` operations.

A `for` over a range becomes a `for` operation with an induction variable. A `while` becomes a `loop` operation, which
repeats its region until a `break`. Both pass the loop-carried values as operands of `continue` and `break`;
`loop_frames` finds out which values these are.
"""

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
    """Lower `break` or `continue` of the innermost loop."""
    frame = ctx.loops[-1]
    if frame.unrolled:
        if ctx.builder.region is not frame.facts.region:  # inside an `if` operation: the condition is a run-time value
            raise DynamicExit
        frame.exit_statement = kind
    else:
        emit_exit(ctx, frame, "break" if frame.single_iteration else kind, by_break=kind == "break")
    return True


# -- while
@statement(ast.While)
def _while(ctx: Context, node: ast.While) -> bool:
    """Lower a `while` to a `loop` operation, whose region starts with the test."""
    loop_loc = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        test = condition(ctx, node.test)
        ctx.builder.loc = loop_loc
        if test is False:
            emit_exit(ctx, frame, "break", by_break=False)
            return
        if isinstance(test, Value):
            _leave_unless(ctx, frame, test)
        if not ctx.block(node.body):
            ctx.builder.loc = loop_loc
            emit_exit(ctx, frame, "continue", by_break=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = loop_loc
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, runs_at_least_once=False)
    if not frame.exits():
        ctx.builder.op("unreachable")
        return True
    return _else(ctx, node, frame, op)


def _leave_unless(ctx: Context, frame: LoopFrame, test: Value) -> None:
    """Emit an `if` that leaves a `while` loop if the value `test` of its condition is false."""
    stay, leave = Region(), Region()
    with ctx.builder.at(stay):
        ctx.builder.op("yield")
    with ctx.builder.at(leave):
        emit_exit(ctx, frame, "break", by_break=False)
    ctx.builder.op("if", test, types=[], regions=[stay, leave])


def _else(ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op) -> bool:
    """Lower the `else` block of a loop, which runs unless a `break` was taken. `op` is the loop operation.

    Returns True if control never reaches the end of the whole statement.
    """
    if not node.orelse:
        return False
    if not frame.has_break_flag:
        return ctx.block(node.orelse)
    return unless_broken(ctx, node, frame, op, lambda: ctx.block(node.orelse))


# -- for
@statement(ast.For)
def _for(ctx: Context, node: ast.For) -> bool:
    """Lower a `for`: over `vk.unroll` or a tuple item by item, over a range to a `for` operation."""
    iterable = iterable_of(ctx, node.iter, ctx.evaluate(node.iter))
    ctx.builder.loc = ctx.loc(node)
    if isinstance(iterable, Unrolled):
        return lower_unrolled(ctx, node, iterable.items)
    return _counted(ctx, node, iterable)


def _counted(ctx: Context, node: ast.For, bounds: Range) -> bool:
    """Lower a `for` over a range to a `for` operation."""
    loop_loc = ctx.loc(node)
    low, high, step = range_bounds(ctx, node.iter, bounds)

    def body(frame: LoopFrame, arguments: list[Value]) -> None:
        assign(ctx, node.target, arguments[0])
        if not ctx.block(node.body):
            ctx.builder.loc = loop_loc
            emit_exit(ctx, frame, "continue", by_break=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = loop_loc
        return emit_for(ctx, low, high, step, initial, frame.types(), region)

    trip_count = static_trip_count(bounds)
    runs_at_least_once = trip_count is not None and trip_count > 0
    frame, op = run_loop(ctx, node, [low.type], body, finish, runs_at_least_once=runs_at_least_once)
    return _else(ctx, node, frame, op)
