"""Open loops: their exits, and the repeated lowering of their bodies until the types of loop-carried variables settle.

Names that the body assigns and that are live at its start or after the loop are loop-carried. Their types are found by
fixed-point iteration: the body is lowered under the assumption that each name keeps the type it has before the loop,
and lowered again with the facts found if the assumption proved wrong:

- A variable initialized from a literal takes the type of the first strong value (see `values.conversions`) that it is
  joined with.
- A name whose values disagree becomes a `Conflict`.
- A name that only the body binds is passed out of the loop if it is bound at every exit.

The facts are kept per loop in `LoopFacts`. An inner loop keeps its facts when the outer one is lowered again, so nested
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
"""The local names at a point of the function, as in `Context.env`."""
BROKEN, ENDED = "broken", "ended"
"""Exit kinds of a loop: by `break`, or by the end of the range or a false condition."""


class DynamicExit(Exception):  # noqa: N818  (control flow, not an error)
    """Raised for a `break` or `continue` of an unrolled loop that depends on a run-time condition."""


@dataclass(slots=True)
class LoopFrame:
    """An open loop during one attempt to lower it: its loop-carried variables and the exits lowered so far.

    - `facts`: the type facts found by all attempts.
    - `runs_at_least_once`: the body runs at least once, so names it binds are bound where the range ends.
    - `has_break_flag`: an additional loop-carried bool, the last one, is True if a `break` was taken. The code after the loop
      that runs unless a `break` was taken (such as an `else` block) tests it.
    - `unrolled`: this is an iteration of an unrolled loop; its `break` and `continue` emit no operation.
    - `single_iteration`: this is an iteration of an unrolled loop with a dynamic exit, emitted as a loop that runs
      once.
    - `breaks`: the number of `break` operations emitted.
    - `exits_by_kind`: the exits that go by `break` (BROKEN), and those at the end of the range or by a false condition
      (ENDED).
    - `evaluated`: the lazy sources from outside the loop that the body evaluates, with the locations.
    - `after_break`: the names after an exit by `break`, if `has_break_flag` is set.
    - `exit_kind`: "break" or "continue" if an iteration of an unrolled loop ends in such a statement, else "".
    """

    node: ast.For | ast.While
    carried: list[Carried]
    facts: LoopFacts
    runs_at_least_once: bool = False
    has_break_flag: bool = False
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
        """Return the types of all loop-carried values, in order."""
        return [t for c in self.carried for t in c.types] + ([types.BOOL] if self.has_break_flag else [])


def emit_exit(ctx: Context, frame: LoopFrame, kind: OpName, *, by_break: bool) -> None:
    """Emit the operation `kind`, "break" or "continue", with the current values of the loop-carried variables.

    `by_break` is True for a `break` statement. It is False for the exit of a loop whose condition is false, which is a
    "break" operation, too.
    """
    # After the `continue` of a body that runs at least once, the range may end: this is an exit, too.
    exit_kind = BROKEN if by_break else ENDED if kind == "break" or frame.runs_at_least_once else None
    values = [v for c in frame.carried for v in leave(ctx, c, frame.facts, exit_kind)]
    if exit_kind is not None:
        why = "it has no value where the loop is left here" if by_break else "it has no value where the loop ends"
        frame.exits_by_kind[exit_kind].append(Exit(dict(ctx.env), why, ctx.builder.loc))
    if kind == "break":
        frame.breaks += 1
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
    """Lower a loop until its type assumptions hold, and bind the names after it.

    `body(frame, values)` lowers one iteration into the current region; it gets the region arguments that aren't
    loop-carried (the induction variable of a `for`), of types `arguments`. `finish(frame, region, initial)` emits the
    loop operation from the initial values of the loop-carried variables. `single_iteration` means that the loop stands for one
    iteration of an unrolled loop (see `LoopFrame.single_iteration`).
    """
    knowledge = LoopFacts() if single_iteration else ctx.loop_facts.setdefault(node, LoopFacts())
    before, mark = dict(ctx.env), ctx.checkpoint()
    names = _candidates(ctx, node)
    for _ in range(4 + 4 * len(names)):  # more attempts than needed: the bound only catches a fact that keeps changing
        flag = single_iteration or (bool(node.orelse) and _has_break(node.body))
        frame = LoopFrame(node, [], knowledge, runs_at_least_once, flag, single_iteration=single_iteration)
        initial = _open_carried(ctx, frame, names)
        region = Region([*arguments, *frame.types()])
        knowledge.changed = False
        if isinstance(node, ast.For) and not runs_at_least_once:
            _add_empty_exit(ctx, frame)
        _lower_body(ctx, frame, region, len(arguments), body)
        ctx.env = dict(before)
        # With a flag, a name need only be bound at exits by `break`; the `else` block may bind it in the other case.
        knowledge.settle(ctx, frame.carried, frame.exits_by_kind[BROKEN] if frame.has_break_flag else frame.exits())
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
    """Return the names that the body may rebind and that are live at its start or after the loop."""
    assigned = assigned_names([*node.body, node.target] if isinstance(node, ast.For) else node.body)
    assigned |= {name for name in stored_names(node.body) if _is_register(ctx, name)}
    live = ctx.scope.head.get(node, frozenset()) | ctx.scope.after.get(node, frozenset())
    return sorted(assigned & live)


def _is_register(ctx: Context, name: str) -> bool:
    """True if the name is bound to a value in registers, such as a vector; a store to a part of it rebinds the name."""
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
    """Add the loop-carried variables among `names` to the frame and return their initial values."""
    initial: list[Value] = []
    for name in names:
        carried = enter(ctx, name, frame.facts, frame.node)
        if carried is not None:
            frame.carried.append(carried)
            initial += carried.initial
    if frame.has_break_flag:
        initial.append(ctx.builder.const(False, types.BOOL))
    return initial


def _lower_body(
    ctx: Context, frame: LoopFrame, region: Region, first: int, body: Callable[[LoopFrame, list[Value]], None]
) -> None:
    """Bind the loop-carried variables to the region's arguments from number `first` on, and lower the body."""
    position = first
    for carried in frame.carried:
        values = region.args[position : position + len(carried.types)]
        position += len(carried.types)
        carried.start(ctx, values)
    for name, conflict in frame.facts.conflicts.items():
        ctx.env[name] = conflict
    ctx.loops.append(frame)
    writes = len(ctx.session.writes)
    try:
        with ctx.builder.at(region):
            body(frame, region.args[:first])
    finally:
        ctx.loops.pop()
    if not frame.single_iteration:  # stores late in the body precede the evaluations in the next iteration
        for loc, source in frame.evaluated:
            check_source(ctx, loc, source, writes)


def _bind_names(ctx: Context, frame: LoopFrame, op: Op, names: list[str]) -> None:
    """Bind the names that the loop may have changed to their values after it: `op`'s results, or compile-time values.

    With `frame.flag`, they are bound as after an exit without `break`; `frame.after_break` has them for the other case.
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
    exits = [n for kind in kinds for n in frame.exits_by_kind[kind]]
    for name in names:
        if name not in kept:
            ctx.env[name] = frame.facts.after(ctx, name, exits, frame.node)


def unless_broken(
    ctx: Context, node: ast.For | ast.While, frame: LoopFrame, op: Op, lower_rest: Callable[[], bool]
) -> bool:
    """Call `lower_rest` to lower code that runs after the loop operation `op` unless a `break` was taken.

    Emits an `if` on the loop's flag. Returns True if control never reaches its end.
    """
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
