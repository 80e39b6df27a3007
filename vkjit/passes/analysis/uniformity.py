"""Uniformity analysis: which values and control flow are the same for all invocations, and why others diverge.

For each value of a kernel in high form (see `ir.verify`), `Uniformity` finds either the scope in which the value is
uniform ("workgroup": equal in all invocations of a workgroup; "subgroup": equal in all invocations of a subgroup) or
the reason for its divergence. `check_uniformity` raises CompileError if a barrier or a collective may be reached by
only part of the invocations of its scope.

1. The uniformity of a value follows from its operation, by the column `uniformity` of the op table (`ir.ops`). Ids
   along an axis of size 1 are uniform.
2. A load is uniform if its index is uniform and nothing can write the array during the launch.
3. A result of `if` is divergent if the condition is, unless both regions yield the same value; otherwise it is as
   divergent as the yielded values.
4. A loop-carried value is as divergent as the values that it may take, and as the condition under which invocations
   reach one of several `continue`s. A result of a loop is as divergent as the values that it may take, the conditions
   of `break`s, and the trip count.
5. After a divergent `return`, the rest of the function is divergent; after a divergent `break`, the whole loop; after a
   divergent `continue`, the rest of the iteration. A loop with a divergent trip count is divergent.
6. Callees are analyzed separately for each call, with the caller's arguments.

The analysis assumes at first that everything is uniform and repeats walks of the program up to the fixed point. A walk
only adds divergences, so this terminates, in practice after two or three walks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit.errors import UNKNOWN, CompileError, Loc, Note
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS, exits_of, outer_values
from vkjit.ir.types import Array, Matrix, Tile

from .alias import OTHERS, alias_class, origin

__all__ = ["CheckUniformity", "Divergence", "Uniformity", "check_uniformity"]

COMPUTED = "computed here"
"""The text of a divergence that comes from an operand: see `Divergence.chain`."""
SUBGROUP, INVOCATION = 1, 2
"""Levels of divergence: between the subgroups of a workgroup, and between the invocations of a subgroup."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """The reason why something isn't uniform.

    `level` is SUBGROUP (differs between subgroups) or INVOCATION (differs within a subgroup), `text` describes what
    happens at `loc`, and `cause` is the divergence that this one comes from.
    """

    level: int
    loc: Loc
    text: str
    cause: Divergence | None = None

    def chain(self) -> Iterator[Divergence]:
        """Yield this divergence and its causes, omitting further computations on the same source line."""
        seen: set[tuple[str, int]] = set()
        link: Divergence | None = self
        while link is not None:
            line = (link.loc.file, link.loc.line)
            if link.text != COMPUTED or line not in seen:
                yield link
            seen.add(line)
            link = link.cause


OptionalDivergence = Divergence | None
"""A divergence, or None if something is uniform in the workgroup."""


def _widest(*divergences: OptionalDivergence) -> OptionalDivergence:
    """Return the divergence with the highest level; the first of them if there are several, None if there is none."""
    return max(divergences, key=lambda d: d.level if d is not None else 0, default=None)


@dataclass(slots=True)
class _Exits:
    """The divergences under which invocations leave a piece of code early, by kind of exit.

    None means that no invocation or all invocations leave it by this kind of exit.
    """

    returns: OptionalDivergence = None
    breaks: OptionalDivergence = None
    continues: OptionalDivergence = None

    def add(self, other: _Exits) -> None:
        self.returns = _widest(self.returns, other.returns)
        self.breaks = _widest(self.breaks, other.breaks)
        self.continues = _widest(self.continues, other.continues)


@dataclass(slots=True)
class Uniformity:
    """The analysis of one function in one calling context.

    - `divergences` has the divergence of each value that isn't uniform, `loops` that of each loop that invocations
      leave at different times, and `returned` those of the function's results.
    - `calls` has the analysis of the callee for each call.
    - `assumptions` has the `assume_uniform`s of divergent values, each with the divergence under which it is reached.
    - `entry` is the divergence under which the function is called.
    - `others_written` is True if the kernel writes a global array that may overlap others.
    - With `checking`, walks raise CompileError for operations that divergent control flow reaches but must not.
      `changed` is True if the current walk has found anything new.
    """

    module: Module
    function: Function
    divergences: dict[Value, Divergence] = field(default_factory=dict)
    loops: dict[Op, Divergence] = field(default_factory=dict)
    calls: dict[Op, Uniformity] = field(default_factory=dict)
    returned: list[OptionalDivergence] = field(default_factory=list)
    others_written: bool = True
    checking: bool = False
    changed: bool = False
    entry: OptionalDivergence = None
    assumptions: dict[Op, OptionalDivergence] = field(default_factory=dict)

    @staticmethod
    def of(module: Module) -> Uniformity:
        """Analyze the module's kernel."""
        analysis = Uniformity(module, module.kernel, others_written=_writes_others(module))
        analysis.settle()
        return analysis

    def scope(self, value: Value) -> str | None:
        """Return the scope in which a value is uniform, "workgroup" or "subgroup"; None if it is divergent."""
        divergence = self.divergences.get(value)
        if divergence is None:
            return "workgroup"
        return "subgroup" if divergence.level == SUBGROUP else None

    def settle(self) -> None:
        """Walk the function until nothing changes."""
        self.returned = [None] * len(self.function.result_types)
        while self.walk(None):
            pass

    def walk(self, entry: OptionalDivergence) -> bool:
        """Walk the function once, as called under the divergence `entry`. Return True if anything new was found."""
        self.changed = False
        self.entry = entry
        self.region(self.function.body, None, None)
        return self.changed

    # -- results

    def learn(self, value: Value, divergence: OptionalDivergence) -> None:
        """Record a divergence of a value, unless it has one of the same or a higher level already."""
        previous = self.divergences.get(value)
        if divergence is not None and (previous is None or previous.level < divergence.level):
            self.divergences[value] = divergence
            self.changed = True

    def operands(self, op: Op, values: Sequence[Value]) -> OptionalDivergence:
        """Return the divergence of a value that `op` computes from `values`, None if all of them are uniform.

        It has the highest level among the divergences of `values`, and that divergence as its cause.
        """
        worst = _widest(*(self.divergences.get(v) for v in values))
        if worst is None or worst.loc == op.loc:
            return worst
        return Divergence(worst.level, op.loc, COMPUTED, worst)

    # -- walking
    # `outer` is the divergence of the control flow at the entry of the innermost loop, `inner` the divergence that
    # arose in the loop's body since then. The divergence of a `break` or `continue` is `inner`, that of a `return` the
    # higher one of `inner` and `outer`.

    def region(self, region: Region, outer: OptionalDivergence, inner: OptionalDivergence) -> _Exits:
        """Walk a region and return its divergent exits (rule 5)."""
        exits = _Exits()
        for op in region.ops:
            op_exits = self.operation(op, outer, inner)
            if op_exits is not None:
                exits.add(op_exits)
                inner = _widest(inner, op_exits.returns, op_exits.breaks, op_exits.continues)
        return exits

    def operation(self, op: Op, outer: OptionalDivergence, inner: OptionalDivergence) -> _Exits | None:
        """Walk an operation and its regions; return its divergent exits."""
        if op.name == "if":
            return self.branch(op, outer, inner)
        if op.name in LOOPS:
            return self.loop(op, _widest(inner, outer))
        if op.name == "call":
            self.call(op, _widest(inner, outer, self.entry))
            return None
        if op.name in ("return", "break", "continue"):
            return self.exit(op, outer, inner)
        if self.checking:
            _check(self, op, _widest(inner, outer, self.entry))
        if op.regions:  # regions of tile operations run once per element
            elements = Divergence(INVOCATION, op.loc, "the elements of a tile are spread over the invocations")
            for argument in op.regions[0].args:
                self.learn(argument, elements)
            self.region(op.regions[0], elements, None)
        if op.name == "assume_uniform":
            self.record_assumption(op, _widest(inner, outer, self.entry))
        for result in op.results:
            self.learn(result, self.value(op))
        return None

    def record_assumption(self, op: Op, control: OptionalDivergence) -> None:
        """Record the divergence under which an `assume_uniform` is reached, unless its value is provably uniform."""
        if op.operands[0] in self.divergences:
            self.assumptions[op] = _widest(self.assumptions.get(op), control)

    def reached_assumptions(self) -> dict[Op, OptionalDivergence]:
        """Return the `assume_uniform`s of values that aren't provably uniform, including those in callees, each with
        the divergence under which it is reached.
        """
        reached = dict(self.assumptions)
        for inner in self.calls.values():
            for op, control in inner.reached_assumptions().items():
                reached[op] = _widest(reached.get(op), control)
        return reached

    def exit(self, op: Op, outer: OptionalDivergence, inner: OptionalDivergence) -> _Exits | None:
        """Walk a `return`, `break` or `continue`; return None if all invocations take it."""
        control = inner
        if op.name == "return":
            control = _widest(inner, outer)
            operand_divergences = [_widest(self.operands(op, [v]), control) for v in op.operands]
            merged = [_widest(a, b) for a, b in zip(self.returned, operand_divergences, strict=True)]
            self.changed |= merged != self.returned
            self.returned = merged
        if control is None:
            return None
        text = f"some invocations leave here with this `{op.name}`, the others go on without them"
        # The field of `_Exits` is the operation's name with an s: `returns`, `breaks` or `continues`.
        return _Exits(**{f"{op.name}s": Divergence(control.level, op.loc, text, control)})

    def branch(self, op: Op, outer: OptionalDivergence, inner: OptionalDivergence) -> _Exits:
        """Walk an `if` and analyze its results (rule 3)."""
        condition = self.divergences.get(op.operands[0])
        if condition is not None:
            condition = Divergence(condition.level, op.loc, "this condition differs", condition)
        exits = _Exits()
        for region in op.regions:
            exits.add(self.region(region, outer, _widest(inner, condition)))
        yields = [r.terminator.operands for r in op.regions if r.terminator.name == "yield"]
        for position, result in enumerate(op.results):
            values = [operands[position] for operands in yields]
            same = all(v is values[0] for v in values)
            self.learn(result, _widest(self.operands(op, values), None if same else condition))
        return exits

    def loop(self, op: Op, control: OptionalDivergence) -> _Exits:
        """Walk a loop that is entered under the divergence `control`. Return the divergence of `return`s in it."""
        body = op.regions[0]
        if op.name == "for":  # the operands start, end and step, and the induction variable, precede the carried values
            initial_values, arguments = op.operands[3:], body.args[1:]
            trip_count = self.trip_count(op)
        else:
            initial_values, arguments = op.operands, body.args
            trip_count = None
        for argument, initial in zip(arguments, initial_values, strict=True):
            self.learn(argument, self.operands(op, [initial]))
        exits = self.region(body, _widest(control, trip_count, self.loops.get(op)), None)
        exit_divergence = _widest(trip_count, exits.breaks, exits.returns)
        previous = self.loops.get(op)
        if exit_divergence is not None and (previous is None or previous.level < exit_divergence.level):
            self.loops[op] = exit_divergence
            self.changed = True
        self.loop_carried(op, arguments, exits, trip_count)
        return _Exits(returns=exits.returns)

    def trip_count(self, op: Op) -> OptionalDivergence:
        """Return the divergence of a `for`'s trip count; also analyze its induction variable."""
        self.learn(op.regions[0].args[0], self.operands(op, [op.operands[0], op.operands[2]]))
        bounds = self.operands(op, op.operands[:3])
        if bounds is None:
            return None
        return Divergence(bounds.level, op.loc, "the number of rounds of this loop differs", bounds)

    def loop_carried(self, op: Op, arguments: list[Value], exits: _Exits, trip_count: OptionalDivergence) -> None:
        """Analyze the loop-carried values and results of a loop (rule 4)."""
        for exit in exits_of(op.regions[0]):
            if exit.name == "break":
                targets, exit_condition = op.results, exits.breaks
            else:
                targets, exit_condition = arguments, exits.continues
            for target, value in zip(targets, exit.operands, strict=True):
                unchanged = value is target  # an argument that is passed on as it is
                self.learn(target, _widest(self.operands(exit, [value]), None if unchanged else exit_condition))
        if op.name == "for":
            for result, argument in zip(op.results, arguments, strict=True):
                self.learn(result, self.divergences.get(argument))
        exit_divergence = _widest(trip_count, exits.breaks, exits.returns)
        for result in op.results:
            self.learn(result, exit_divergence)

    def call(self, op: Op, control: OptionalDivergence) -> None:
        """Analyze the callee of a call that is reached under the divergence `control` (rule 6)."""
        callee = self.module.functions[op.attrs["callee"]]
        inner = self.calls.get(op)
        if inner is None:
            inner = self.calls[op] = Uniformity(self.module, callee, others_written=self.others_written)
            inner.returned = [None] * len(callee.result_types)
        for parameter, value in zip(callee.params, op.operands, strict=True):
            inner.learn(parameter, self.operands(op, [value]))
        inner.checking = self.checking
        try:
            while inner.walk(control):
                pass
        except CompileError as error:
            raise error.with_note(op.loc, f"called from here by {self.function.name}") from None
        for result, divergence in zip(op.results, inner.returned, strict=True):
            self.learn(result, divergence)

    # -- values

    def value(self, op: Op) -> OptionalDivergence:
        """Return the divergence of an operation's results (rules 1 and 2)."""
        rule = OPS[op.name].uniformity
        if op.name.startswith("tile_"):
            return Divergence(SUBGROUP, op.loc, "each subgroup has a tile of its own") if _of_subgroup(op) else None
        if rule in ("always", "workgroup"):
            return None
        if rule == "operands":
            return self.operands(op, op.operands)
        if rule == "subgroup":
            return Divergence(SUBGROUP, op.loc, f"{_source_name(op)} differs between the subgroups of a workgroup")
        if rule == "load":
            return self.load(op)
        if op.name in ("global_id", "local_id"):
            # If the size isn't known, assume that no axis has size 1.
            size = self.module.kernel.attrs.get("local_size", (2, 2, 2))
            if size[op.attrs["dim"]] == 1:
                return None
        return Divergence(INVOCATION, op.loc, f"{_source_name(op)} differs between the invocations of a workgroup")

    def load(self, op: Op) -> OptionalDivergence:
        """Return the divergence of a loaded value (rule 2)."""
        array = origin(op.operands[0])
        index = self.operands(op, op.operands[1:])
        if index is not None:
            return index
        if self.is_read_only(array):
            return None
        name = f"`{array.name}`" if array.name else "this array"
        return Divergence(INVOCATION, op.loc, f"{name} may be written during the launch, so what is read may differ")

    def is_read_only(self, array: Value) -> bool:
        """True if nothing in the kernel can write the memory of a global array."""
        array_type = array.type
        if not isinstance(array_type, Array) or array_type.space != "global" or array_type.access != "in":
            return False
        return array_type.restrict or not self.others_written


def _writes_others(module: Module) -> bool:
    """True if the module writes any global array that may overlap others."""
    ops = (op for function in module.all_functions() for op in function.body.walk())
    writes = (op for op in ops if OPS[op.name].effect in (Effect.WRITE, Effect.READ_WRITE))
    return any(alias_class(op.operands[0]) == OTHERS for op in writes)


def _source_name(op: Op) -> str:
    """Return the source-level name of an operation."""
    if "dim" in op.attrs:
        return f"{op.name}({op.attrs['dim']})"
    if op.name.startswith("sg_"):
        return f"the subgroup's {op.name[3:]}"
    if op.name.startswith("mat_"):
        return "a subgroup's matrix"
    if op.name.startswith("tile_"):
        return "an operation on a tile"
    return {"atomic_cas": "atomic.cas", "atomic_load": "atomic.load", "atomic": f"atomic.{op.attrs.get('op')}"}.get(
        op.name, f"{op.name}()"
    )


# -- the check


@dataclass(frozen=True, slots=True)
class CheckUniformity:
    """Raise CompileError for barriers and collectives in divergent control flow. The module stays unchanged."""

    name: ClassVar[str] = "check_uniformity"

    def run(self, module: Module) -> Module:
        check_uniformity(module)
        return module


def check_uniformity(module: Module) -> None:
    """Raise CompileError for barriers and collectives in divergent control flow.

    Modules without such operations aren't analyzed.
    """
    functions = module.all_functions()
    if not any(OPS[op.name].convergent for function in functions for op in function.body.walk()):
        return
    analysis = Uniformity.of(module)
    analysis.checking = True
    analysis.walk(None)


def _check(analysis: Uniformity, op: Op, control: OptionalDivergence) -> None:
    """Raise CompileError if a convergent operation may be reached by only part of the invocations that it needs."""
    if not OPS[op.name].convergent:
        return
    is_tile = op.name.startswith("tile_")
    # The highest level of divergence that the operation tolerates: none if it needs the whole workgroup.
    allowed = 0 if op.name == "barrier" or (is_tile and not _of_subgroup(op)) else SUBGROUP
    scope = "subgroup" if allowed else "workgroup"
    what = "a collective of the subgroup" if allowed else "a barrier or a collective of the workgroup"
    if control is not None and control.level > allowed:
        raise _error(
            f"not every invocation of the {scope} may reach this: {what} needs all of them", op, control, analysis
        )
    if op.name.startswith("mat_"):
        _check_matrix(analysis, op)
    if is_tile:
        _check_tile(analysis, op, allowed)
    lane = analysis.divergences.get(op.operands[1]) if op.name == "sg_broadcast" else None
    if lane is not None and lane.level > allowed:
        raise _error("the lane of a broadcast has to be the same in the whole subgroup", op, lane, analysis)


def _of_subgroup(op: Op) -> bool:
    """True if a tile operation has subgroup scope."""
    return any(isinstance(v.type, Tile) and v.type.scope == "subgroup" for v in (*op.operands, *op.results))


def _check_tile(analysis: Uniformity, op: Op, allowed: int) -> None:
    """Check that the operands of a tile operation, and the values that its regions use, are uniform in its scope.

    `allowed` is the highest level of divergence that the operation tolerates.
    """
    scope = "subgroup" if allowed else "workgroup"
    for value in (*op.operands, *(v for region in op.regions for v in outer_values(region))):
        why = analysis.divergences.get(value)
        if why is not None and why.level > allowed:
            what = "the tile" if isinstance(value.type, Tile) else "a number that goes into an operation on a tile"
            raise _error(f"{what} has to be the same in the whole {scope}", op, why, analysis)


def _check_matrix(analysis: Uniformity, op: Op) -> None:
    """Check that matrices, indices and scalars of a matrix operation are uniform in the subgroup."""
    for operand in op.operands:
        why = analysis.divergences.get(operand)
        if why is None or why.level <= SUBGROUP:
            continue
        if isinstance(operand.type, Matrix):
            raise _error("the matrix has to be the same one in the whole subgroup", op, why, analysis)
        what = "the element that fills a matrix" if op.name == "mat_fill" else "the place of a matrix in memory"
        raise _error(f"{what} has to be the same in the whole subgroup", op, why, analysis)


def _error(reason: str, op: Op, why: Divergence, analysis: Uniformity) -> CompileError:
    """Return an error at `op`, with the chain of causes of a divergence as notes."""
    links = list(why.chain())
    notes = tuple(Note(link.loc, link.text) for link in links if link.loc != UNKNOWN)
    if analysis.module.kernel.attrs.get("over"):
        hint = "kernels with over= run some invocations only; use groups= for barriers and collectives"
    elif any("leave here" in link.text for link in links):
        hint = "keep all invocations to the end: x.get(i, pad=0) reads and x.put(i, v) writes in bounds only"
    else:
        hint = "move it out of the branch or loop; where the value is in fact uniform, say so with vk.assume_uniform(x)"
    return CompileError(reason, op.loc, hint=hint, notes=notes)
