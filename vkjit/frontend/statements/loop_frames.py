"""Lowering of loops: their exits, and the repeated lowering of a body until the types of loop-carried variables settle.

Names that the body assigns and that are live at its start or after the loop are loop-carried. Their types are found by
fixed-point iteration: the body is lowered under the assumption that each name keeps the type it has before the loop. If
a value in the body contradicts this, the fact is recorded, and the body is lowered again:

- A variable initialized from a literal takes the type of the first strong value (see `values.conversions`) that it is
  joined with.
- A name whose values disagree becomes a `Conflict`: reading it is an error.
- A name that only the body binds is passed out of the loop if it is bound at every exit.

The facts are kept per loop in `LoopFacts`. An inner loop keeps its facts when the outer one is lowered again, so nested
loops don't multiply the number of attempts. The iteration ends because facts are only added. A loop is open while its
body is being lowered; `Context.loops` is the stack of open loops.
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
"""The local names at a point of the function, as in `Context.env`."""
BROKEN, ENDED = "broken", "ended"
"""Kinds of exits of a loop: by a `break` statement, or at the end of the range or by a false `while` condition."""


class DynamicExit(Exception):  # noqa: N818  (control flow, not an error)
    """Raised for a `break` or `continue` of an unrolled loop that depends on a run-time condition."""


@dataclass(slots=True)
class LoopFrame:
    """An open loop during one attempt to lower it: its loop-carried variables and the exits lowered so far.

    Fields that are set when the attempt begins:

    - `facts`: the type facts found by all attempts.
    - `runs_at_least_once`: the body runs at least once, so names it binds are bound where the range ends.
    - `has_break_flag`: the loop carries an additional last value, a bool that is True if a `break` was taken. Code that
      runs after the loop unless a `break` was taken (such as an `else` block) tests it.
    - `unrolled`: this is an iteration of an unrolled loop that is lowered without a loop operation. Its `break` and
      `continue` emit no operation.
    - `single_iteration`: this is an iteration of an unrolled loop with a dynamic exit, emitted as a loop operation that
      runs once. Its `break` and `continue` both leave this operation.

    Fields that are filled in while the body is lowered:

    - `exits_by_kind`: the exits by kind (BROKEN, ENDED).
    - `evaluated`: the evaluations in the body of lazy array slices that were taken before the loop, as pairs (location
      of the evaluation, slice). The next iteration evaluates them again, so stores in the body must not change them
      (see `values.lazy`).
    - `after_break`: the names after an exit by `break`, if `has_break_flag` is set.
    - `exit_statement`: "break" or "continue" if the iteration (of a loop with `unrolled`) ends in such a statement,
      else "".
    """

    node: ast.For | ast.While
    carried: list[Carried]
    facts: LoopFacts
    runs_at_least_once: bool = False
    has_break_flag: bool = False
    unrolled: bool = False
    single_iteration: bool = False

    exits_by_kind: dict[str, list[Exit]] = field(default_factory=lambda: {BROKEN: [], ENDED: []})
    evaluated: list[tuple[Place, Source]] = field(default_factory=list)
    after_break: Names = field(default_factory=dict)
    exit_statement: str = ""

    def exits(self) -> list[Exit]:
        """Return all exits, of both kinds."""
        return self.exits_by_kind[BROKEN] + self.exits_by_kind[ENDED]

    def types(self) -> list[Type]:
        """Return the types of all loop-carried values, in order."""
        return [t for c in self.carried for t in c.types] + ([types.BOOL] if self.has_break_flag else [])


def emit_exit(ctx: Context, frame: LoopFrame, kind: OpName, *, by_break: bool) -> None:
    """Emit the operation `kind`, "break" or "continue", with the current values of the loop-carried variables.

    `by_break` is True if the operation stands for a `break` statement. A "break" operation also ends a `while` loop
    whose condition is false, and the iteration of a loop with `LoopFrame.single_iteration`; then `by_break` is False.
    """
    # The range of a `for` may end after a `continue`, which then counts as an exit. If the body may run zero times,
    # this exit needn't be recorded: `_add_empty_exit` has recorded the exit of the empty range, where fewer names are
    # bound. A `while` loop doesn't end after a `continue`, but only by a "break" operation.
    exit_kind: str | None = None
    if by_break:
        exit_kind = BROKEN
    elif kind == "break" or frame.runs_at_least_once:
        exit_kind = ENDED
    values = [v for c in frame.carried for v in leave(ctx, c, frame.facts, exit_kind)]
    if exit_kind is not None:
        why = "it has no value where the loop is left here" if by_break else "it has no value where the loop ends"
        frame.exits_by_kind[exit_kind].append(Exit(dict(ctx.env), why, ctx.builder.loc))
    if frame.has_break_flag:
        values.append(ctx.builder.const(by_break, types.BOOL))
    ctx.builder.op(kind, *values)


def run_loop(
    ctx: Context,
    node: ast.For | ast.While,
    arguments: list[Type],
    body: Callable[[LoopFrame, list[Value]], None],
    finish: Callable[[LoopFrame, Region, list[Value]], Op],
    *,
    runs_at_least_once: bool,
    single_iteration: bool = False,
) -> tuple[LoopFrame, Op]:
    """Lower a loop, repeatedly until its type assumptions hold, and bind the names after it.

    `body(frame, values)` lowers one iteration into the current region; `values` are the region's first arguments, of
    types `arguments`, which aren't loop-carried (the induction variable of a `for`). `finish(frame, region, initial)`
    emits the loop operation from the initial values of the loop-carried variables. See `LoopFrame` for the flags.
    Returns the frame of the last attempt and the loop operation.
    """
    facts = LoopFacts() if single_iteration else ctx.loop_facts.setdefault(node, LoopFacts())
    before, mark = dict(ctx.env), ctx.checkpoint()
    names = _carried_candidates(ctx, node)
    for _ in range(4 + 4 * len(names)):  # more attempts than needed: the bound only catches a fact that keeps changing
        # In an unrolled loop, the flag tells whether the remaining iterations run.
        needs_flag = single_iteration or (bool(node.orelse) and _has_break(node.body))
        frame = LoopFrame(node, [], facts, runs_at_least_once, needs_flag, single_iteration=single_iteration)
        initial = _open_carried(ctx, frame, names)
        region = Region([*arguments, *frame.types()])
        facts.changed = False
        if isinstance(node, ast.For) and not runs_at_least_once:
            _add_empty_exit(ctx, frame)
        _lower_body(ctx, frame, region, len(arguments), body)
        ctx.env = dict(before)
        # With a flag, an exported name need only be bound at exits by `break`. At the other exits, the code that tests
        # the flag (such as the `else` block) may bind it.
        facts.settle(ctx, frame.carried, frame.exits_by_kind[BROKEN] if frame.has_break_flag else frame.exits())
        if not facts.changed:
            op = finish(frame, region, initial)
            _bind_names(ctx, frame, op, names)
            return frame, op
        ctx.rollback(mark)
    raise InternalError(f"the types that the loop at {ctx.loc(node)} carries don't settle")


def _add_empty_exit(ctx: Context, frame: LoopFrame) -> None:
    """Add the exit taken if the range is empty: the names have their entries from before the loop."""
    assert isinstance(frame.node, ast.For)
    range_loc = ctx.loc(frame.node.iter)
    frame.exits_by_kind[ENDED].append(Exit(dict(ctx.env), "it has no value if the loop runs zero times", range_loc))
    for carried in frame.carried:
        if not carried.bound_before:
            carried.unbound_at.add(ENDED)


def _carried_candidates(ctx: Context, node: ast.For | ast.While) -> list[str]:
    """Return the names that may be loop-carried: rebound by the body, and live at its start or after the loop.

    A store to a lane or field (`v.x = 1`) rebinds v if its value is in registers.
    """
    assigned = assigned_names([*node.body, node.target] if isinstance(node, ast.For) else node.body)
    assigned |= {name for name in stored_names(node.body) if _is_register(ctx, name)}
    live = ctx.scope.head.get(node, frozenset()) | ctx.scope.after.get(node, frozenset())
    return sorted(assigned & live)


def _is_register(ctx: Context, name: str) -> bool:
    """True if the name is bound to a value in registers, such as a vector, rather than to an array."""
    entry = ctx.env.get(name)
    return isinstance(entry, Binding) and not is_array(entry.value) and not is_struct_array(entry.value)


def _has_break(body: list[ast.stmt]) -> bool:
    """True if the body contains a `break` of this loop, not of a nested one."""
    for node in body:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, ast.If) and (_has_break(node.body) or _has_break(node.orelse)):
            return True
        # A `break` in the `else` block of a nested loop belongs to this loop.
        if isinstance(node, ast.For | ast.While) and _has_break(node.orelse):
            return True
    return False


def _open_carried(ctx: Context, frame: LoopFrame, names: list[str]) -> list[Value]:
    """Add the loop-carried variables among `names` to the frame and return their initial values."""
    initial: list[Value] = []
    for name in names:
        carried = enter(ctx, name, frame.facts, frame.node)
        if carried is not None:
            frame.carried.append(carried)
            initial += carried.initial
    if frame.has_break_flag:
        initial.append(ctx.builder.const(False, types.BOOL))  # no `break` was taken yet
    return initial


def _lower_body(
    ctx: Context, frame: LoopFrame, region: Region, argument_count: int, body: Callable[[LoopFrame, list[Value]], None]
) -> None:
    """Bind the loop-carried variables to the region's arguments, and lower the body.

    The first `argument_count` arguments aren't loop-carried.
    """
    position = argument_count
    for carried in frame.carried:
        values = region.args[position : position + len(carried.types)]
        position += len(carried.types)
        carried.start(ctx, values)
    for name, conflict in frame.facts.conflicts.items():
        ctx.env[name] = conflict
    ctx.loops.append(frame)
    writes_before = len(ctx.session.writes)
    try:
        with ctx.builder.at(region):
            body(frame, region.args[:argument_count])
    finally:
        ctx.loops.pop()
    # A store that follows an evaluation in the body precedes it in the next iteration.
    if not frame.single_iteration:
        for loc, source in frame.evaluated:
            check_source(ctx, loc, source, writes_before)


def _bind_names(ctx: Context, frame: LoopFrame, op: Op, names: list[str]) -> None:
    """Bind the names that the loop may have changed to their values after it: `op`'s results, or compile-time values.

    With `frame.has_break_flag`, this is done twice: `ctx.env` gets the names after an exit without `break`, and
    `frame.after_break` those after a `break`.
    """
    before = ctx.env
    if frame.has_break_flag:
        ctx.env = dict(before)
        _bind_after(ctx, frame, op, names, [BROKEN])
        frame.after_break = ctx.env
    ctx.env = dict(before)
    _bind_after(ctx, frame, op, names, [ENDED] if frame.has_break_flag else [BROKEN, ENDED])


def _bind_after(ctx: Context, frame: LoopFrame, op: Op, names: list[str], kinds: list[str]) -> None:
    """Bind the names to their values after an exit of one of the given kinds (BROKEN, ENDED)."""
    position = 0
    kept: set[str] = set()
    for variable in frame.carried:
        values = op.results[position : position + len(variable.types)]
        position += len(variable.types)
        if not variable.unbound_at.intersection(kinds):
            variable.finish(ctx, values)
            kept.add(variable.name)
    exits = [exit_ for kind in kinds for exit_ in frame.exits_by_kind[kind]]
    for name in names:
        if name not in kept:
            ctx.env[name] = frame.facts.after(ctx, name, exits, frame.node)


def unless_broken(
    ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op, lower_rest: Callable[[], bool]
) -> bool:
    """Call `lower_rest` to lower code that runs after the loop operation `op` unless a `break` was taken.

    Emits an `if` that tests the loop's flag (see `LoopFrame.has_break_flag`). Returns True if control never reaches the
    end of the `if`.
    """
    regions = [Region(), Region()]
    names: list[Names] = []
    exited: list[bool] = []
    before = ctx.env
    branch_bodies: tuple[Callable[[], bool], ...] = (lambda: False, lower_rest)  # after a `break`: nothing
    for region, lower_branch, names_before in zip(regions, branch_bodies, (frame.after_break, before), strict=True):
        ctx.env = dict(names_before)
        with ctx.builder.at(region):
            exited.append(lower_branch())
        names.append(ctx.env)
    ctx.env = before
    return join_branches(ctx, node, op.results[-1], regions, names, exited)
