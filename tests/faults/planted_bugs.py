"""Thirty-six typical compiler bugs, planted one at a time, that the fuzzer must find.

`BUGS` lists them; planting one changes the compiler for the rest of the process. Run by
`python -m vkjit.testing.fuzz --planted tests/faults/planted_bugs.py`, which starts a process for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vkjit import dtypes
from vkjit.backends.vulkan.codegen import (
    arithmetic as emit_arithmetic,
    atomics as emit_atomics,
    control_flow as emit_control,
    conversions as emit_conversions,
    lower as emit_lower,
    storage as emit_storage,
)
from vkjit.frontend.calls import collectives as frontend_collectives, lazy_collectives, reductions, scans
from vkjit.frontend.expressions import operators
from vkjit.frontend.values.scopes import invocations
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.rewrite import constant_of, is_constant
from vkjit.ir.types import Array
from vkjit.passes.analysis import value_ranges
from vkjit.passes.arithmetic import bits, conversion, division
from vkjit.passes.lowering import lower_exits
from vkjit.passes.transforms import (
    algebraic_simplify,
    barrier_elimination as barriers_pass,
    cse,
    dead_stores,
    licm,
    loop_guard,
    narrow_index,
    simplify_branches,
    sroa,
    strength_reduction,
    unroll,
)
from vkjit.passes.workarounds.hide_starts import HideStarts
from vkjit.passes.workarounds.keep_results import KeepLoopResults
from vkjit.passes.workarounds.limit_nesting import LimitNesting

__all__ = ["BUGS", "Bug"]


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug: `text` describes it, `plant` introduces it."""

    name: str
    text: str
    plant: Callable[[], None]


BUGS: list[Bug] = []


def _bug(text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def register(plant: Callable[[], None]) -> Callable[[], None]:
        BUGS.append(Bug(plant.__name__, text, plant))
        return plant

    return register


def _change(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a function, method or constant by the result of `make` for it."""
    setattr(owner, name, make(getattr(owner, name)))


def _rule(name: OpName, wrong: Callable[[Op, Any, Any], Any]) -> None:
    """Replace an algebraic simplification by `wrong(op, builder, right rule)`."""
    right = algebraic_simplify.IDENTITIES[name]
    algebraic_simplify.IDENTITIES[name] = lambda op, builder: wrong(op, builder, right)


# -- folding


@_bug("x + 0.0 gives x, though -0.0 + 0.0 is 0.0")
def float_plus_zero() -> None:
    def wrong(op: Op, builder: Any, right: Any) -> Any:
        y = op.operands[1]
        return [op.operands[0]] if is_constant(y) and constant_of(y) == 0 else right(op, builder)

    _rule("add", wrong)


@_bug("not (a < b) of floats becomes a >= b, NaN or not")
def negated_float_comparison() -> None:
    def wrong(op: Op, builder: Any, right: Any) -> Any:
        inner = op.operands[0].op
        inverse = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}.get(inner.name) if inner is not None else None
        return [builder.emit(inverse, *inner.operands)] if inner is not None and inverse else right(op, builder)

    _rule("not", wrong)


@_bug("a conversion to a narrower integer and back is dropped")
def lossy_cast_chain() -> None:
    _change(
        algebraic_simplify,
        "exact_conversion",
        lambda right: lambda source, target: (source.is_integer and target.is_integer) or right(source, target),
    )


@_bug("(x * a) * b becomes x * (a + b)")
def wrong_reassociation() -> None:
    _rule("mul", lambda op, b, right: right(_as_sum(op), b))


def _as_sum(op: Op) -> Op:
    inner = op.operands[0].op
    if inner is not None and inner.name == "mul" and all(is_constant(v) for v in (op.operands[1], inner.operands[1])):
        inner.operands[1].op.attrs["value"] = 1  # type: ignore[union-attr]  # a constant has an operation
    return op


# -- value numbering and reuse


@_bug("a load after a store to its array takes what was loaded before")
def cse_across_stores() -> None:
    def wrong(_right: Any) -> Any:
        def after(self: Any, op: Op) -> None:
            if op.name != "store" and self.writes.get(op):
                self.overwrite(self.writes[op])

        return after

    _change(cse._Numbering, "invalidate_writes", wrong)


@_bug("operations that differ in their lane only are equal")
def cse_ignores_lanes() -> None:
    def wrong(right: Any) -> Any:
        def key(self: Any, op: Op) -> Any:
            return (op.name, tuple(op.operands)) if op.name in ("vec_extract", "extent") else right(self, op)

        return key

    _change(cse._Numbering, "key", wrong)


@_bug("what a loop's body writes is known at the loop's start")
def cse_into_loops() -> None:
    def wrong(_right: Any) -> Any:
        def inside(self: Any, op: Op) -> None:
            facts = [(op.operands[0], True), (op.operands[0], False)] if op.name == "if" else [None] * len(op.regions)
            for region, fact in zip(op.regions, facts, strict=True):
                self.region(region, fact)

        return inside

    _change(cse._Numbering, "visit_regions", wrong)


@_bug("loads move in front of loops that may store, or run zero times")
def licm_of_loads() -> None:
    _change(
        licm._Hoister,
        "movable",
        lambda right: staticmethod(lambda op, in_branch: op.name == "load" or right(op, in_branch)),
    )


# -- control flow


@_bug("an if of `not c` keeps its sides as they are")
def branch_not_reversed() -> None:
    def wrong(right: Any) -> Any:
        def branch(self: Any, op: Op, region: Any) -> None:
            inverse = op.operands[0].op
            if inverse is not None and inverse.name == "not":
                op.operands[0] = inverse.operands[0]
            right(self, op, region)

        return branch

    _change(simplify_branches._Simplifier, "branch", wrong)


@_bug("a loop of one round never runs")
def loop_of_one_round() -> None:
    def wrong(right: Any) -> Any:
        def never(op: Op) -> bool:
            low, high, step = (constant_of(v) for v in op.operands[:3])
            known = None not in (low, high, step)
            return bool(right(op) or (known and step > 0 and low + step >= high))

        return never

    _change(simplify_branches, "_never_runs", wrong)


@_bug("what a `break` gives is taken for the initial value")
def break_forgotten() -> None:
    _change(simplify_branches, "exits_of", lambda right: lambda region: (e for e in right(region) if e.name != "break"))


@_bug("a return out of an inner loop goes on in the outer one")
def inner_return_lost() -> None:
    _change(lower_exits._Lowering, "break_on", lambda right: lambda *given: given[-1] and right(*given))


@_bug("what follows a loop that was left by a return runs all the same")
def code_after_return() -> None:
    def wrong(right: Any) -> Any:
        def guarded(self: Any, flag: Any, values: Any, rest: Any, ending: Any, builder: Any) -> None:
            if ending.form == "function" and not self.types:
                self.sequence(rest, ending, builder.region)
            else:
                right(self, flag, values, rest, ending, builder)

        return guarded

    _change(lower_exits._Lowering, "guarded", wrong)


@_bug("an unrolled loop of several rounds loses its last one")
def unroll_one_less() -> None:
    def wrong(right: Any) -> Any:
        def chosen(self: Any, op: Op, size: int) -> Any:
            numbers = right(self, op, size)
            return numbers[:-1] if numbers is not None and len(numbers) > 1 else numbers

        return chosen

    _change(unroll._Unroller, "unrolled_values", wrong)


# -- memory and indices


@_bug("a store is dropped though a load comes before the next one")
def read_store_dropped() -> None:
    _change(dead_stores._Pending, "read", lambda _right: lambda self, memory: None)


@_bug("elements of two-dimensional local arrays share their places")
def sroa_mixes_rows() -> None:
    def wrong(right: Any) -> Any:
        def position(op: Op) -> int | None:
            found = right(op)
            array = op.operands[0].type
            if found is None or not isinstance(array, Array) or array.rank < 2:
                return None if found is None else int(found)
            place: int = sum(int(constant_of(v)) for v in op.operands[1 : 1 + array.rank])
            return place

        return position

    _change(sroa, "_linear_offset", wrong)


@_bug("barriers go as if every workgroup were one invocation")
def all_barriers_removed() -> None:
    def wrong(_right: Any) -> Any:
        def run(_self: Any, module: Any) -> Any:
            barriers_pass._Removal(module.kernel).remove_all(module.kernel.body)
            return module

        return run

    _change(barriers_pass.RemoveBarriers, "run", wrong)


@_bug("index arithmetic is done in 32 bits whether it fits or not")
def narrow_index_too_eager() -> None:
    _change(narrow_index, "I32_RANGE", lambda _right: (-math.inf, math.inf))


@_bug("products of ranges forget negative factors")
def range_of_products() -> None:
    value_ranges._RULES["mul"] = lambda a, b: (a[0] * b[0], max(a[1] * b[1], a[0] * b[0]))


@_bug("a product carried round a loop grows by its factor, whatever the step")
def carried_step_lost() -> None:
    def wrong(right: Any) -> Any:
        def times(value: Any, factor: Any, builder: Any) -> Any:
            number = constant_of(value)
            return factor if number is not None and number > 1 else right(value, factor, builder)

        return times

    _change(strength_reduction, "_times", wrong)


# -- arithmetic


@_bug("the remainder of Python's division has the dividend's sign")
def remainder_of_c() -> None:
    division.INTEGER_RULES["floormod"] = division.truncrem


@_bug("shift amounts aren't taken modulo the width")
def unmasked_shift() -> None:
    bits.BIT_RULES["shl"] = lambda _f, x, y: x << y


@_bug("a double becomes a half by way of a float, rounded twice")
def half_rounded_twice() -> None:
    _change(conversion, "_double_to_half", lambda _right: lambda _f, x: x.cast(dtypes.f32).cast(dtypes.f16))


@_bug("the guard of loops reports far below the driver's cap")
def guard_too_early() -> None:
    def wrong(right: Any) -> Any:
        def run(self: Any, module: Any) -> Any:
            if self.cap is None:
                return module
            return right(loop_guard.LoopGuard(68, self.width, self.subgroup_arithmetic, self.margin), module)

        return run

    _change(loop_guard.LoopGuard, "run", wrong)


# -- emission


@_bug("unsigned numbers are compared as signed ones")
def signed_comparison() -> None:
    emit_arithmetic.PLAIN["lt"]["uint"] = (False, "OpSLessThan")


@_bug("the components of a vector come out in the wrong order")
def wrong_component() -> None:
    def wrong(ctx: Any, op: Op) -> None:
        size = op.operands[0].type.size  # type: ignore[attr-defined]
        type_id = ctx.type(op.attrs["type"])
        lane = (op.attrs["lane"] + 1) % size
        ctx.values[op.result] = ctx.block.emit("OpCompositeExtract", type_id, ctx.get(op.operands[0]), lane)

    emit_lower._HANDLERS["vec_extract"] = wrong


@_bug("an atomic subtraction adds")
def atomic_sub_adds() -> None:
    emit_atomics._INTEGER["sub"] = "OpAtomicIAdd"


@_bug("no barrier is emitted")
def barrier_not_emitted() -> None:
    emit_lower._HANDLERS["barrier"] = lambda _ctx, _op: None


@_bug("a counted loop whose bound lies near its type's end runs a round less")
def trip_count_one_less() -> None:
    def wrong(right: Any) -> Any:
        def count(ctx: Any, type_id: int, ends: Any, constant: Any, signed: bool) -> int:
            trips: int = right(ctx, type_id, ends, constant, signed)
            one, zero = ctx.writer.constant(type_id, 1), ctx.writer.constant(type_id, 0)
            some = ctx.block.emit("OpUGreaterThan", ctx.writer.type_bool(), trips, one)
            less = ctx.block.emit("OpSelect", type_id, some, one, zero)
            return int(ctx.block.emit("OpISub", type_id, trips, less))

        return count

    _change(emit_control, "_trip_count", wrong)


@_bug("bf16 is cut off instead of rounded")
def bf16_cut_off() -> None:
    def wrong(_right: Any) -> Any:
        return lambda _ctx, value, _lanes=1: value

    _change(emit_conversions, "round_to_bf16", wrong)
    _change(emit_storage, "round_to_bf16", wrong)


# -- at the limits


@_bug("products never wrap, so that those of ids are never negative")
def products_never_wrap() -> None:
    def wrong(right: Any) -> Any:
        def define(self: value_ranges.Ranges, op: Op) -> None:
            right(self, op)
            interval = self.result(op) if op.name == "mul" else None
            if interval is not None:
                low, high = value_ranges._range_of_type(op.result)
                self.table[op.result] = max(interval[0], low), min(interval[1], high)

        return define

    _change(value_ranges.Ranges, "define", wrong)


@_bug("a reduction leaves out the last invocation of a workgroup with a size that isn't a multiple of four")
def last_invocation_left_out() -> None:
    def wrong(right: Any) -> Any:
        def reduce_value(ctx: Any, node: Any, kind: str, op: OpName, value: Value, label: str = "") -> Value:
            count, b = invocations(ctx), ctx.builder
            if kind == "workgroup" and count % 4:
                first = b.emit("mul", b.emit("subgroup_id"), b.emit("subgroup_size"))
                is_last = b.emit("eq", b.emit("add", first, b.emit("lane_id")), b.index(count - 1))
                value = b.emit("select", is_last, reductions.identity_element(ctx, op, value.type), value)
            result: Value = right(ctx, node, kind, op, value, label)
            return result

        return reduce_value

    for owner in (reductions, frontend_collectives, lazy_collectives, scans):
        if hasattr(owner, "reduce_value"):
            _change(owner, "reduce_value", wrong)


@_bug("branches may be nested to any depth, which llvmpipe doesn't support")
def nesting_not_limited() -> None:
    _change(LimitNesting, "run", lambda _right: lambda _self, module: module)


@_bug("loops start at constants, for which Mesa computes wrong trip counts")
def starts_not_hidden() -> None:
    _change(HideStarts, "run", lambda _right: lambda _self, module: module)


@_bug("values of loops are read after them, which llvmpipe computes again")
def results_not_kept() -> None:
    _change(KeepLoopResults, "run", lambda _right: lambda _self, module: module)


@_bug("tuples and structs are compared by identity")
def tuples_compared_by_identity() -> None:
    _change(operators, "same_structure", lambda _right: lambda _a, _b: False)


assert all(name in OPS for name in ("vec_extract", "extent", "barrier"))
