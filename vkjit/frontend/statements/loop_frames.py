"""Open loops: their exits, and the lowering of their bodies until the types of loop-carried variables settle.

Names that the body assigns and that are live at its start or after the loop are loop-carried. Their types are found by
fixed-point iteration: the body is lowered, and lowered again if an assumption proved wrong. A literal takes the type of
the first strong value it is joined with, values that disagree become a `Conflict`, and a name that only the body binds
is carried out of the loop if it is bound at every exit. The facts found are kept per loop in `LoopFacts`, so nested
loops don't multiply the number of attempts. The iteration ends because facts are only added.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field

from vkjit.errors import InternalError
from vkjit.ir import types
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Type

from ..context import Context, Place
from ..kernel_values import Binding, Conflict, Source, Unbound, is_array
from ..scope import assigned_names, stored_names
from ..values.joins import join_branches
from ..values.lazy import check_source
from ..values.struct_arrays import is_struct_array
from .loop_carried import Carried, Exit, LoopFacts, enter, leave

__all__ = ["DynamicExit", "LoopFrame", "emit_exit", "run_loop", "unless_broken"]

Names = dict[str, "Binding | Unbound | Conflict"]
BROKEN, ENDED = "broken", "ended"
"""Exit kinds of a loop: by `break`, or by the end of the range or a false condition."""


class DynamicExit(Exception):  # noqa: N818  (control flow, not an error)
    """A `break` or `continue` of an unrolled loop that depends on a run-time condition."""


@dataclass(slots=True)
class LoopFrame:
    """An open loop: its loop-carried variables and the exits lowered so far.

    - `runs_at_least_once`: the body runs at least once, so names it binds are bound where the range ends.
    - `flag`: the last loop-carried value tells whether a `break` was taken, for `else`.
    - `unrolled`: the loop is unrolled, with static `break` and `continue` only.
    - `single_iteration`: the loop runs one iteration of an unrolled loop that has dynamic exits.
    - `breaks`: the number of `break` operations emitted.
    - `exits_by_kind`: the exits by kind.
    - `evaluated`: the lazy sources from outside the loop that the body evaluates, with the locations.
    - `after_break`: the names after an exit by `break`, if `flag` is set.
    - `exit_kind`: "break" or "continue" if an unrolled iteration ends in a static exit.
    """

    node: ast.For | ast.While
    carried: list[Carried]
    knowledge: LoopFacts
    runs_at_least_once: bool = False
    flag: bool = False
    unrolled: bool = False
    single_iteration: bool = False
    breaks: int = 0
    exits_by_kind: dict[str, list[Exit]] = field(default_factory=lambda: {BROKEN: [], ENDED: []})
    evaluated: list[tuple[Place, Source]] = field(default_factory=list)
    after_break: Names = field(default_factory=dict)
    exit_kind: str = ""

    def exits(self) -> list[Exit]:
        """All exits, of both kinds."""
        return self.exits_by_kind[BROKEN] + self.exits_by_kind[ENDED]

    def types(self) -> list[Type]:
        return [t for c in self.carried for t in c.types] + ([types.BOOL] if self.flag else [])


def emit_exit(ctx: Context, frame: LoopFrame, kind: OpName, *, broke: bool) -> None:
    """Emit `break` or `continue` with the current values of the loop-carried variables."""
    exit_kind = BROKEN if broke else ENDED if kind == "break" or frame.runs_at_least_once else None
    values = [v for c in frame.carried for v in leave(ctx, c, frame.knowledge, exit_kind)]
    if exit_kind is not None:
        why = "it has no value where the loop is left here" if broke else "it has no value where the loop ends"
        frame.exits_by_kind[exit_kind].append(Exit(dict(ctx.env), why, ctx.builder.loc))
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
    runs_at_least_once: bool,
    single: bool = False,
) -> tuple[LoopFrame, Op]:
    """Lower a loop until its type assumptions hold, and bind the names after it.

    `body` lowers one iteration into the current region; it gets the region arguments that aren't loop-carried, of types
    `arguments`. `finish` emits the loop operation from the initial values.
    """
    knowledge = LoopFacts() if single else ctx.loop_memory.setdefault(node, LoopFacts())
    before, mark = dict(ctx.env), ctx.checkpoint()
    names = _candidates(ctx, node)
    for _ in range(4 + 4 * len(names)):
        flag = single or (bool(node.orelse) and _has_break(node.body))
        frame = LoopFrame(node, [], knowledge, runs_at_least_once, flag, single_iteration=single)
        initial = _open_carried(ctx, frame, names)
        region = Region([*arguments, *frame.types()])
        knowledge.changed = False
        if isinstance(node, ast.For) and not runs_at_least_once:
            _add_empty_exit(ctx, frame)
        _lower_body(ctx, frame, region, len(arguments), body)
        ctx.env = dict(before)
        knowledge.settle(ctx, frame.carried, frame.exits_by_kind[BROKEN] if frame.flag else frame.exits())
        if not knowledge.changed:
            op = finish(frame, region, initial)
            _bind_names(ctx, frame, op, names)
            return frame, op
        ctx.rollback(mark)
    raise InternalError(f"the types that the loop at {ctx.loc(node)} carries don't settle")


def _add_empty_exit(ctx: Context, frame: LoopFrame) -> None:
    """Add the exit of an empty range, at which the names are as before the loop."""
    assert isinstance(frame.node, ast.For)
    range_loc = ctx.loc(frame.node.iter)
    frame.exits_by_kind[ENDED].append(Exit(dict(ctx.env), "it has no value if the loop runs zero times", range_loc))
    for carried in frame.carried:
        if not carried.bound:
            carried.unbound_at.add(ENDED)


def _candidates(ctx: Context, node: ast.For | ast.While) -> list[str]:
    assigned = assigned_names([*node.body, node.target] if isinstance(node, ast.For) else node.body)
    assigned |= {name for name in stored_names(node.body) if _is_register(ctx, name)}
    live = ctx.scope.head.get(node, frozenset()) | ctx.scope.after.get(node, frozenset())
    return sorted(assigned & live)


def _is_register(ctx: Context, name: str) -> bool:
    """True if the name is bound to a register value (a vector or a struct), for which an element store makes a new
    value.
    """
    entry = ctx.env.get(name)
    return isinstance(entry, Binding) and not is_array(entry.value) and not is_struct_array(entry.value)


def _has_break(body: list[ast.stmt]) -> bool:
    """True if the body contains a `break` of this loop, not of a nested one."""
    for node in body:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, ast.If) and (_has_break(node.body) or _has_break(node.orelse)):
            return True
        if isinstance(node, ast.For | ast.While) and _has_break(node.orelse):
            return True
    return False


def _open_carried(ctx: Context, frame: LoopFrame, names: list[str]) -> list[Value]:
    """Determine the loop-carried variables and return their initial values."""
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
    if not frame.single_iteration:
        for loc, source in frame.evaluated:
            check_source(ctx, loc, source, writes)


def _bind_names(ctx: Context, frame: LoopFrame, op: Op, names: list[str]) -> None:
    """Bind the names that the loop may have changed."""
    before = ctx.env
    if frame.flag:
        ctx.env = dict(before)
        _bind_after(ctx, frame, op, names, [BROKEN])
        frame.after_break = ctx.env
    ctx.env = dict(before)
    _bind_after(ctx, frame, op, names, [ENDED] if frame.flag else [BROKEN, ENDED])


def _bind_after(ctx: Context, frame: LoopFrame, op: Op, names: list[str], kinds: list[str]) -> None:
    """Bind the names as they are after exits of the given kinds."""
    position = 0
    kept: set[str] = set()
    for variable in frame.carried:
        values = op.results[position : position + len(variable.types)]
        position += len(variable.types)
        if not variable.unbound_at.intersection(kinds):
            variable.finish(ctx, values)
            kept.add(variable.name)
    exits = [n for kind in kinds for n in frame.exits_by_kind[kind]]
    for name in names:
        if name not in kept:
            ctx.env[name] = frame.knowledge.after(ctx, name, exits, frame.node)


def unless_broken(
    ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op, lower_rest: Callable[[], bool]
) -> bool:
    """Lower `lower_rest` for the case that no `break` was taken. Returns True if control never reaches its end."""
    regions, names, exited = [Region(), Region()], [], []
    before = ctx.env
    bodies: tuple[Callable[[], bool], ...] = (lambda: False, lower_rest)
    for region, body, start in zip(regions, bodies, (frame.after_break, before), strict=True):
        ctx.env = dict(start)
        with ctx.builder.at(region):
            exited.append(body())
        names.append(ctx.env)
    ctx.env = before
    return join_branches(ctx, node, op.results[-1], regions, names, exited)
