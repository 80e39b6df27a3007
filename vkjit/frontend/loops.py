"""Lowers `for` and `while`: counted loops, loops until a condition fails, written-out loops.

Enters: loop nodes. Leaves: `for` and `loop` operations. The names that the body assigns and that are read in a later
round or after the loop are carried; the types that they are carried in are found by lowering the body, and lowering
it again where an assumption proved wrong: a literal takes the type of its first strong join, values that disagree
become a `Conflict`, and a name that the body alone binds is carried out of the loop if every way out has it. What was
found is remembered per loop, so that nested loops cost no more rounds than single ones. Knowledge only grows: each
round adds to it, so the rounds end.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import InternalError
from ..ir import types
from ..ir.core import Op, Region, Value
from ..ir.types import Type
from .carried import Carried, Exit, Knowledge, enter, leave
from .context import Context, Place, statement
from .expressions import condition
from .joins import join_branches
from .lazy import check_source
from .ranges import counted, iterable_of, range_bounds, static_trips
from .records import is_records
from .scope import assigned_names, stored_names
from .statements import assign
from .values import Binding, Conflict, Range, Source, Unbound, Unrolled, is_array

__all__ = ["DynamicExit", "LoopFrame", "emit_exit", "run_loop", "unless_broken"]

Names = dict[str, "Binding | Unbound | Conflict"]
BROKEN, ENDED = "broken", "ended"
"""The ways out of a loop: by `break`, or by the end of the range or the failing condition."""


class DynamicExit(Exception):  # noqa: N818  (no error: the round is lowered anew, as a loop of one round)
    """A `break` or `continue` of a written-out loop that depends on a run-time condition."""


@dataclass(slots=True)
class LoopFrame:
    """An open loop: what it carries, and what its exits have shown.

    `once`: the body runs at least once, so that the end of the range is an exit at which names of the body are bound.
    `flag`: the last carried value tells whether a `break` was taken, for `else`. `unrolled`: break and continue are
    static.
    """

    node: ast.For | ast.While
    carried: list[Carried]
    knowledge: Knowledge
    once: bool = False
    flag: bool = False
    unrolled: bool = False
    single: bool = False
    breaks: int = 0
    ways: dict[str, list[Exit]] = field(default_factory=lambda: {BROKEN: [], ENDED: []})
    evaluated: list[tuple[Place, Source]] = field(default_factory=list)
    after_break: Names = field(default_factory=dict)
    exit_kind: str = ""

    def exits(self) -> list[Exit]:
        """The names at all ways out."""
        return self.ways[BROKEN] + self.ways[ENDED]

    def types(self) -> list[Type]:
        return [t for c in self.carried for t in c.types] + ([types.BOOL] if self.flag else [])


@statement(ast.Break)
def _break(ctx: Context, _node: ast.Break) -> bool:
    return _exit(ctx, "break")


@statement(ast.Continue)
def _continue(ctx: Context, _node: ast.Continue) -> bool:
    return _exit(ctx, "continue")


def _exit(ctx: Context, kind: str) -> bool:
    frame = ctx.loops[-1]
    if frame.unrolled:
        if ctx.builder.region is not frame.knowledge.region:
            raise DynamicExit
        frame.exit_kind = kind
    else:
        emit_exit(ctx, frame, "break" if frame.single else kind, broke=kind == "break")
    return True


def emit_exit(ctx: Context, frame: LoopFrame, kind: str, *, broke: bool) -> None:
    """`break` or `continue` with the carried values as the names hold them here."""
    way = BROKEN if broke else ENDED if kind == "break" or frame.once else None
    values = [v for c in frame.carried for v in leave(ctx, c, frame.knowledge, way)]
    if way is not None:
        why = "it has no value where the loop is left here" if broke else "it has no value where the loop ends"
        frame.ways[way].append(Exit(dict(ctx.env), why, ctx.builder.loc))
    if kind == "break":
        frame.breaks += 1
    if frame.flag:
        values.append(ctx.builder.const(broke, types.BOOL))
    ctx.builder.op(kind, *values)


def run_loop(
    ctx: Context,
    node: ast.For | ast.While,
    arguments: list[Type],
    body: Callable[[LoopFrame, list[Value]], None],
    finish: Callable[[LoopFrame, Region, list[Value]], Op],
    *,
    once: bool,
    single: bool = False,
) -> tuple[LoopFrame, Op]:
    """Lowers the loop until what it assumes of the carried names holds; binds the names as they are after it.

    `body` lowers one round into the current region, given the arguments that aren't carried (`arguments` are their
    types); `finish` makes the operation from the initial values.
    """
    knowledge = Knowledge() if single else ctx.loop_memory.setdefault(node, Knowledge())
    before, mark = dict(ctx.env), ctx.mark()
    names = _candidates(ctx, node)
    for _ in range(4 + 4 * len(names)):
        flag = single or (bool(node.orelse) and _has_break(node.body))
        frame = LoopFrame(node, [], knowledge, once, flag, single=single)
        initial = _open(ctx, frame, names)
        region = Region([*arguments, *frame.types()])
        knowledge.changed = False
        if isinstance(node, ast.For) and not once:
            _may_not_run(ctx, frame)
        _lower_body(ctx, frame, region, len(arguments), body)
        ctx.env = dict(before)
        knowledge.settle(ctx, frame.carried, frame.ways[BROKEN] if frame.flag else frame.exits())
        if not knowledge.changed:
            op = finish(frame, region, initial)
            _after(ctx, frame, op, names)
            return frame, op
        ctx.forget(mark)
    raise InternalError(f"the types that the loop at {ctx.loc(node)} carries don't settle")


def _may_not_run(ctx: Context, frame: LoopFrame) -> None:
    """The range may be empty: one way out has the names as they are before the loop."""
    assert isinstance(frame.node, ast.For)
    place = ctx.loc(frame.node.iter)
    frame.ways[ENDED].append(Exit(dict(ctx.env), "it has no value if the loop runs zero times", place))
    for carried in frame.carried:
        if not carried.bound:
            carried.lost.add(ENDED)


def _candidates(ctx: Context, node: ast.For | ast.While) -> list[str]:
    assigned = assigned_names([*node.body, node.target] if isinstance(node, ast.For) else node.body)
    assigned |= {name for name in stored_names(node.body) if _is_register(ctx, name)}
    live = ctx.scope.head.get(node, frozenset()) | ctx.scope.after.get(node, frozenset())
    return sorted(assigned & live)


def _is_register(ctx: Context, name: str) -> bool:
    """Whether storing into what the name is makes a new value: a vector or a struct, not an array."""
    entry = ctx.env.get(name)
    return isinstance(entry, Binding) and not is_array(entry.value) and not is_records(entry.value)


def _has_break(body: list[ast.stmt]) -> bool:
    """Whether a `break` of this loop, not of one inside, is in the body."""
    for node in body:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, ast.If) and (_has_break(node.body) or _has_break(node.orelse)):
            return True
        if isinstance(node, ast.For | ast.While) and _has_break(node.orelse):
            return True
    return False


def _open(ctx: Context, frame: LoopFrame, names: list[str]) -> list[Value]:
    """Decides what is carried, and gives the initial values."""
    initial: list[Value] = []
    for name in names:
        carried = enter(ctx, name, frame.knowledge, frame.node)
        if carried is not None:
            frame.carried.append(carried)
            initial += carried.initial
    if frame.flag:
        initial.append(ctx.builder.const(False, types.BOOL))
    return initial


def _lower_body(
    ctx: Context, frame: LoopFrame, region: Region, first: int, body: Callable[[LoopFrame, list[Value]], None]
) -> None:
    position = first
    for carried in frame.carried:
        values = region.args[position : position + len(carried.types)]
        position += len(carried.types)
        carried.start(ctx, values)
    for name, conflict in frame.knowledge.conflicts.items():
        ctx.env[name] = conflict
    ctx.loops.append(frame)
    writes = len(ctx.session.writes)
    try:
        with ctx.builder.at(region):
            body(frame, region.args[:first])
    finally:
        ctx.loops.pop()
    if not frame.single:
        for place, source in frame.evaluated:
            check_source(ctx, place, source, writes)


def _after(ctx: Context, frame: LoopFrame, op: Op, names: list[str]) -> None:
    """Binds the names that the loop may have changed."""
    before = ctx.env
    if frame.flag:
        ctx.env = dict(before)
        _bind_after(ctx, frame, op, names, [BROKEN])
        frame.after_break = ctx.env
    ctx.env = dict(before)
    _bind_after(ctx, frame, op, names, [ENDED] if frame.flag else [BROKEN, ENDED])


def _bind_after(ctx: Context, frame: LoopFrame, op: Op, names: list[str], ways: list[str]) -> None:
    """Binds the names as they are after the loop was left on one of the ways."""
    position = 0
    kept: set[str] = set()
    for one in frame.carried:
        values = op.results[position : position + len(one.types)]
        position += len(one.types)
        if not one.lost.intersection(ways):
            one.finish(ctx, values)
            kept.add(one.name)
    exits = [n for way in ways for n in frame.ways[way]]
    for name in names:
        if name not in kept:
            ctx.env[name] = frame.knowledge.after(ctx, name, exits, frame.node)


# -- while
@statement(ast.While)
def _while(ctx: Context, node: ast.While) -> bool:
    place = ctx.loc(node)

    def body(frame: LoopFrame, _arguments: list[Value]) -> None:
        test = condition(ctx, node.test)
        ctx.builder.loc = place
        if test is False:
            emit_exit(ctx, frame, "break", broke=False)
            return
        if isinstance(test, Value):
            _leave_unless(ctx, frame, test)
        if not ctx.block(node.body):
            ctx.builder.loc = place
            emit_exit(ctx, frame, "continue", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = place
        return ctx.builder.op("loop", *initial, types=frame.types(), regions=[region])

    frame, op = run_loop(ctx, node, [], body, finish, once=False)
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
    """The `else` of a loop: runs unless a `break` was taken."""
    if not node.orelse:
        return False
    if not frame.flag:
        return ctx.block(node.orelse)
    return unless_broken(ctx, node, frame, op, lambda: ctx.block(node.orelse))


def unless_broken(ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op, rest: Callable[[], bool]) -> bool:
    """Lowers `rest` where the loop wasn't left by `break`; says whether control never comes out."""
    regions, names, exited = [Region(), Region()], [], []
    before = ctx.env
    bodies: tuple[Callable[[], bool], ...] = (lambda: False, rest)
    for region, body, start in zip(regions, bodies, (frame.after_break, before), strict=True):
        ctx.env = dict(start)
        with ctx.builder.at(region):
            exited.append(body())
        names.append(ctx.env)
    ctx.env = before
    return join_branches(ctx, node, op.results[-1], regions, names, exited)


# -- for
@statement(ast.For)
def _for(ctx: Context, node: ast.For) -> bool:
    iterable = iterable_of(ctx, node.iter, ctx.evaluate(node.iter))
    ctx.builder.loc = ctx.loc(node)
    if isinstance(iterable, Unrolled):
        from .unrolled import unrolled

        return unrolled(ctx, node, iterable.items)
    return _counted(ctx, node, iterable)


def _counted(ctx: Context, node: ast.For, bounds: Range) -> bool:
    place = ctx.loc(node)
    low, high, step = range_bounds(ctx, node.iter, bounds)

    def body(frame: LoopFrame, arguments: list[Value]) -> None:
        assign(ctx, node.target, arguments[0])
        if not ctx.block(node.body):
            ctx.builder.loc = place
            emit_exit(ctx, frame, "continue", broke=False)

    def finish(frame: LoopFrame, region: Region, initial: list[Value]) -> Op:
        ctx.builder.loc = place
        return counted(ctx, low, high, step, initial, frame.types(), region)

    trips = static_trips(bounds)
    frame, op = run_loop(ctx, node, [low.type], body, finish, once=bool(trips))
    return _else(ctx, node, frame, op)
