"""Lowering of structured control flow: `if`, `for`, `loop` and terminators of regions.

Regions must be in normal form: they end in `yield`, a `break` or `continue` of the innermost loop, `unreachable`, or
the `return` at the end of the kernel. A loop consists of a header (phis and test), a body, a continue target (one phi
per loop-carried value) and a merge block (one phi per result). `break` and `continue` branch to the merge block and the
continue target, from any depth of nested `if`s.

If the induction variable of a `for` provably can't overflow before the loop ends, the test is `iv < bound`, or
`iv > bound` for a negative step; drivers analyze this form best. Otherwise, the trip count is computed before the loop,
and the test compares it with an unsigned counter of the same width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vkjit.errors import InternalError
from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Scalar
from vkjit.spirv import Phi

from . import ids
from .context import Context, dtype_of
from .matrices import multiplies

__all__ = ["Loops", "lower_for", "lower_if", "lower_loop", "lower_region", "magnitude"]

Handler = Callable[[Context, Op], None]


@dataclass(slots=True)
class _Loop:
    """An open loop: its branch targets, and the edges to them so far, as (predecessor's label, values)."""

    merge: int
    continue_target: int
    breaks: list[tuple[int, list[int]]] = field(default_factory=list)
    continues: list[tuple[int, list[int]]] = field(default_factory=list)


@dataclass(slots=True)
class Loops:
    """The handlers of all operations, and the stack of open loops, innermost last."""

    handlers: dict[OpName, Handler]
    stack: list[_Loop] = field(default_factory=list)


def lower_region(ctx: Context, loops: Loops, region: Region) -> tuple[int, list[int]] | None:
    """Lower a region's operations and its terminator.

    For a `yield`, leave the block open and return its label and the yielded ids. Other terminators end the block; for
    these, return None.
    """
    handlers = loops.handlers
    for op in region.ops[:-1]:
        ctx.at(op.loc)
        handler = handlers.get(op.name)
        if handler is None:
            raise InternalError(f"{op.name} at {op.loc} has to be lowered before emission")
        handler(ctx, op)
    end = region.terminator
    ctx.at(end.loc)
    return _terminate(ctx, loops, end)


def _terminate(ctx: Context, loops: Loops, end: Op) -> tuple[int, list[int]] | None:
    values = [ctx.get(value) for value in end.operands]
    if end.name == "yield":
        return ctx.block.label, values
    if end.name == "return":
        ctx.block.return_()
    elif end.name == "unreachable":
        ctx.block.unreachable()
    elif end.name in ("break", "continue"):
        if not loops.stack:
            raise InternalError(f"{end.name} at {end.loc} stands in no loop")
        loop = loops.stack[-1]
        is_break = end.name == "break"
        (loop.breaks if is_break else loop.continues).append((ctx.block.label, values))
        ctx.block.branch(loop.merge if is_break else loop.continue_target)
    else:
        raise InternalError(f"{end.name} at {end.loc} doesn't end a region")
    return None


# if


def lower_if(ctx: Context, loops: Loops, op: Op) -> None:
    """Lower an `if`. An empty region gets no block."""
    condition = ctx.get(op.operands[0])
    merge = ctx.function.label()
    head = ctx.block
    labels = [merge if _empty(region) else ctx.function.label() for region in op.regions]
    if labels == [merge, merge]:
        _select_results(ctx, op)
        return
    ends: list[tuple[int, list[int]]] = []
    head.selection_merge(merge)
    head.branch_conditional(condition, *labels)
    for region, label in zip(op.regions, labels, strict=True):
        if label == merge:
            ends.append((head.label, [ctx.get(value) for value in region.terminator.operands]))
            continue
        ctx.open(label)
        end = lower_region(ctx, loops, region)
        if end is not None:
            ctx.block.branch(merge)
            ends.append(end)
    ctx.open(merge)
    _define_results(ctx, op.results, ends)


def _empty(region: Region) -> bool:
    return len(region.ops) == 1 and region.terminator.name == "yield"


def _select_results(ctx: Context, op: Op) -> None:
    """Lower an `if` whose regions are both empty: each result is an OpSelect."""
    condition = ctx.get(op.operands[0])
    yes, no = (region.terminator.operands for region in op.regions)
    for result, a, b in zip(op.results, yes, no, strict=True):
        ctx.values[result] = ctx.block.emit("OpSelect", ctx.type(result.type), condition, ctx.get(a), ctx.get(b))


def _define_results(ctx: Context, results: list[Value], ends: list[tuple[int, list[int]]]) -> None:
    """Define the results at a merge block: phis, the values of the only incoming edge, or undef if there is none."""
    for position, result in enumerate(results):
        type_id = ctx.type(result.type)
        if not ends:
            ctx.values[result] = ctx.writer.undef(type_id)
        elif len(ends) == 1:
            ctx.values[result] = ends[0][1][position]
        else:
            edges = [word for label, values in ends for word in (values[position], label)]
            ctx.values[result] = ctx.block.phi(type_id, *edges).id


# loops


def lower_loop(ctx: Context, loops: Loops, op: Op) -> None:
    """Lower a `loop`, which ends only by `break`."""
    _lower_any_loop(ctx, loops, op, op.operands, None)


def lower_for(ctx: Context, loops: Loops, op: Op) -> None:
    """Lower a counted loop."""
    _lower_any_loop(ctx, loops, op, op.operands[3:], _range_of(ctx, op))


@dataclass(frozen=True, slots=True)
class _Range:
    """The lowered range of a `for`; all fields but the opcode `compare` and `counted` are ids.

    If `counted`, a counter that starts at 0 is compared with `bound`, the trip count; else, the induction variable is.
    """

    type_id: int
    first: int
    step: int
    compare: str
    bound: int
    counted: bool


def _lower_any_loop(ctx: Context, loops: Loops, op: Op, carried: list[Value], range_: _Range | None) -> None:
    function = ctx.function
    body = op.regions[0]
    loop = _Loop(merge=function.label(), continue_target=function.label())
    args = body.args if range_ is None else body.args[1:]
    before = ctx.block.label
    header_label, body_label = function.label(), function.label()
    ctx.block.branch(header_label)
    ctx.open(header_label)
    phis = [ctx.block.phi(ctx.type(arg.type), ctx.get(value), before) for arg, value in zip(args, carried, strict=True)]
    for arg, phi in zip(args, phis, strict=True):
        ctx.values[arg] = phi.id
    steps: list[tuple[Phi, int]] = []
    hint = "DontUnroll" if multiplies(op) else "None"
    if range_ is None:
        ctx.block.loop_merge(loop.merge, loop.continue_target, hint)
        ctx.block.branch(body_label)
    else:
        steps = _test_range(ctx, loop, range_, (before, body_label), hint)
        ctx.values[body.args[0]] = steps[0][0].id
        loop.breaks.append((header_label, [phi.id for phi in phis]))
    ctx.open(body_label)
    loops.stack.append(loop)
    if lower_region(ctx, loops, body) is not None:
        raise InternalError(f"the loop at {op.loc} ends in yield: expected continue or break")
    loops.stack.pop()
    ctx.open(loop.continue_target)
    following = [_next_value(ctx, loop, position, ctx.type(arg.type)) for position, arg in enumerate(args)]
    stepped = [ctx.block.emit("OpIAdd", phi.result_type, phi.id, step) for phi, step in steps]
    for phi, value in zip([*phis, *(phi for phi, _ in steps)], [*following, *stepped], strict=True):
        phi.add(value, loop.continue_target)
    ctx.block.branch(header_label)
    ctx.open(loop.merge)
    _define_results(ctx, op.results, loop.breaks)
    if not loop.breaks:
        ctx.block.unreachable()
        ctx.open(function.label())


def _test_range(ctx: Context, loop: _Loop, range_: _Range, labels: tuple[int, int], hint: str) -> list[tuple[Phi, int]]:
    """Terminate a loop header by the test of a range. `labels` are those of the preheader and the body.

    Return the phis of the range with their steps, the induction variable first.
    """
    header, writer, (before, body) = ctx.block, ctx.writer, labels
    steps = [(header.phi(range_.type_id, range_.first, before), range_.step)]
    if range_.counted:
        counter = header.phi(range_.type_id, writer.constant(range_.type_id, 0), before)
        steps.append((counter, writer.constant(range_.type_id, 1)))
    test = header.emit(range_.compare, writer.type_bool(), steps[-1][0].id, range_.bound)
    header.loop_merge(loop.merge, loop.continue_target, hint)
    header.branch_conditional(test, body, loop.merge)
    return steps


def _next_value(ctx: Context, loop: _Loop, position: int, type_id: int) -> int:
    """Return the next value of a loop-carried value, in the continue target."""
    if not loop.continues:
        return ctx.writer.undef(type_id)
    if len(loop.continues) == 1:
        return loop.continues[0][1][position]
    edges = [word for label, values in loop.continues for word in (values[position], label)]
    return ctx.block.phi(type_id, *edges).id


# ranges


def _constant_of(value: Value) -> int | None:
    op = value.op
    return int(op.attrs["value"]) if op is not None and op.name == "const" else None


def _range_of(ctx: Context, op: Op) -> _Range:
    low, high, step = op.operands[:3]
    type_ = low.type
    dtype = dtype_of(type_)
    if not isinstance(type_, Scalar) or not dtype.is_integer:
        raise InternalError(f"the range at {op.loc} is of {type_}: expected an integer scalar")
    type_id = ctx.type(type_)
    first, bound, by = ctx.get(low), ctx.get(high), ctx.get(step)
    constant = _constant_of(step)
    less, greater = ("OpSLessThan", "OpSGreaterThan") if dtype.is_signed else ("OpULessThan", "OpUGreaterThan")
    if constant is not None:
        room = (1 << (dtype.bits - 1 if dtype.is_signed else dtype.bits)) - 1
        if constant == 1 or (constant > 0 and magnitude(high) + constant - 1 <= room):
            return _Range(type_id, first, by, less, bound, False)
        if constant == -1 or (constant < 0 and magnitude(high) - constant - 1 <= room):
            return _Range(type_id, first, by, greater, bound, False)
    trips = _trip_count(ctx, type_id, (first, bound, by), constant, dtype.is_signed)
    return _Range(type_id, first, by, "OpULessThan", trips, True)


def _trip_count(ctx: Context, type_id: int, ends: tuple[int, int, int], constant: int | None, signed: bool) -> int:
    """Return the trip count as an unsigned integer of the type's width. If the loop runs, no computation overflows."""
    first, bound, by = ends
    block, writer = ctx.block, ctx.writer
    bool_type, zero, one = writer.type_bool(), writer.constant(type_id, 0), writer.constant(type_id, 1)
    less = "OpSLessThan" if signed else "OpULessThan"
    runs_up = block.emit(less, bool_type, first, bound)
    up = block.emit("OpISub", type_id, bound, first)
    if constant is not None and constant > 0:
        runs, distance, size = runs_up, up, by
    elif constant is not None and constant < 0:
        runs = block.emit(less, bool_type, bound, first)
        distance = block.emit("OpISub", type_id, first, bound)
        size = writer.constant(type_id, -constant)
    elif constant == 0:
        return zero
    else:
        runs, distance, size = _runtime_step(ctx, type_id, ends, runs_up, up, signed)
    less_one = block.emit("OpISub", type_id, distance, one)
    trips = block.emit("OpIAdd", type_id, block.emit("OpUDiv", type_id, less_one, size), one)
    return block.emit("OpSelect", type_id, runs, trips, zero)


def _runtime_step(
    ctx: Context, type_id: int, ends: tuple[int, int, int], runs_up: int, up: int, signed: bool
) -> tuple[int, int, int]:
    """Return (the condition that the loop runs, distance, absolute step) for a step that isn't constant.

    A step of 0 means no iterations; the absolute step is then 1, so that the distance can be divided by it.
    """
    first, bound, by = ends
    block, writer = ctx.block, ctx.writer
    bool_type, zero, one = writer.type_bool(), writer.constant(type_id, 0), writer.constant(type_id, 1)
    nonzero = block.emit("OpINotEqual", bool_type, by, zero)
    if not signed:
        runs = block.emit("OpLogicalAnd", bool_type, runs_up, nonzero)
        return runs, up, block.emit("OpSelect", type_id, nonzero, by, one)
    rising = block.emit("OpSLessThan", bool_type, zero, by)
    runs_down = block.emit("OpSLessThan", bool_type, bound, first)
    down = block.emit("OpISub", type_id, first, bound)
    runs = block.emit("OpSelect", bool_type, rising, runs_up, runs_down)
    runs = block.emit("OpLogicalAnd", bool_type, runs, nonzero)
    size = block.emit("OpSelect", type_id, rising, by, block.emit("OpSNegate", type_id, by))
    size = block.emit("OpSelect", type_id, nonzero, size, one)
    return runs, block.emit("OpSelect", type_id, rising, up, down), size


_EXTENT_LIMIT = 1 << 48
"""Upper bound of ids, extents and strides: no device has more elements or workgroups."""

_ID_OPS: frozenset[OpName] = frozenset({*ids.HANDLERS})


def _may_be_negative(value: Value) -> bool:
    """Return False for a constant of at least 0."""
    return value.op is None or value.op.name != "const" or int(value.op.attrs["value"]) < 0


def magnitude(value: Value, depth: int = 6) -> int:
    """Return an upper bound of the absolute value, derived from the operations that compute the value."""
    dtype = dtype_of(value.type)
    type_limit = 1 << dtype.bits
    op = value.op
    if op is None or depth == 0:
        return type_limit
    if op.name == "const":
        return abs(int(op.attrs["value"]))
    if op.name in _ID_OPS:
        return _EXTENT_LIMIT
    if op.name == "cast":
        source = dtype_of(op.operands[0].type)
        wraps = source.is_signed and not dtype.is_signed  # negative values become large ones
        keeps = source.is_integer and source.bits <= dtype.bits and not (wraps and _may_be_negative(op.operands[0]))
        return min(type_limit, magnitude(op.operands[0], depth - 1)) if keeps else type_limit
    if op.name == "sub" and not dtype.is_signed:
        return type_limit  # it wraps below 0
    if op.name in ("add", "sub", "mul", "min", "max"):
        a, b = (magnitude(operand, depth - 1) for operand in op.operands)
        bound = {"mul": a * b, "min": max(a, b), "max": max(a, b)}.get(op.name, a + b)
        return bound if bound < type_limit // 2 else type_limit
    return type_limit
