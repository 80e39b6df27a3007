"""Split 64-bit integers into pairs of u32 words, for devices without 64-bit integers.

Takes a kernel after `lower_arithmetic`. Afterwards, values of the types i64, u64 and `index` are still loaded, stored,
carried by control flow, moved between lanes and reported, but they are only computed with as words::

    %a = load %x, %i : i64                   %a = load %x, %i : i64
    %b = add %a, %n : i64                    %a0 = extract_word %a {lane = 0} : u32
                                             %a1 = extract_word %a {lane = 1} : u32
                                   ->        (%n0 and %n1 likewise)
                                             %b0 = add %a0, %n0 : u32
                                             ... (the carry)
                                             %b1 = add %s, %c : u32
                                             %b = join_words %b0, %b1 : i64
    store %y, %i, %b                         store %y, %i, %b

1. The expansions are those of `passes.arithmetic.word_pairs`. The words of a result that is joined are known, so chains of
   operations neither join nor extract.
2. The high word of a value that is known to be in the range of u32 or i32 is 0 or the sign of the low word.
3. A `for` over 64-bit integers becomes a `loop` that counts its remaining iterations down.
4. Offsets of accesses that are in the range of i32 become i32.
5. Atomics whose words may be updated one after the other (`_is_separable`) are kept; others raise CompileError.

The interpreter runs the result, like any IR; the emitter represents a 64-bit integer as a vector of two words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from vkjit import dtypes
from vkjit.errors import CompileError, FeatureError
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import LOOPS, breaks_of, used_values
from vkjit.ir.types import Scalar, Vector

from ..analysis.value_ranges import I32_RANGE, Interval, Ranges
from ..arithmetic.word_pairs import WORD_RULES, cast, join, subgroup_rule, words
from ..formulas.expansion import Rule, expand
from ..formulas.formula import Formula, Term

__all__ = ["SplitInt64"]

_SOURCES: frozenset[OpName] = frozenset({
    "global_id", "local_id", "group_id", "num_groups", "local_size", "lane_id", "subgroup_id", "subgroup_size",
    "num_subgroups", "extent", "stride", "load", "sg_broadcast", "sg_shuffle", "sg_shuffle_xor",
    "sg_ballot", "assume_uniform",
})  # fmt: skip
"""Operations whose 64-bit results are taken apart where they are defined."""
_MOVES: frozenset[OpName] = _SOURCES | frozenset({
    "const", "poison", "bitcast", "extract_word", "join_words", "vec_make", "vec_extract", "vec_insert", "store", "if",
    "loop", "for", "yield", "continue", "break", "report", "print",
})  # fmt: skip
"""Operations that move 64-bit integers without computing with them."""

_MAX_GROUPS = (1 << 32) - 1
_U32_RANGE: Interval = (0, (1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class SplitInt64:
    """Split 64-bit integers into words, in a kernel without dead code.

    `max_groups` is the largest number of workgroups of a dispatch along each axis, `subgroup_size` the size of subgroups
    in kernels that don't require another one.

    Raises CompileError for operations that have no form in words, such as most atomics.
    """

    max_groups: tuple[int, int, int] = (_MAX_GROUPS, _MAX_GROUPS, _MAX_GROUPS)
    subgroup_size: int = 32
    name: ClassVar[str] = "split_int64"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        _split_loops(kernel.body)
        short = _Short(kernel, self.max_groups, self.subgroup_size)
        expand(module, short.choose)
        _narrow_offsets(kernel.body, short.offsets)
        _check_words(module)
        return module


def _check_words(module: Module) -> None:
    """Raise CompileError for the first operation of a kernel that computes with 64-bit integers.

    Raises FeatureError if the operation is one of the sanitizer's atomics.
    """
    used = used_values(module.kernel.body)
    by_words = {op for ops in _atomics(module.kernel.body).values() for op in ops if _is_separable(ops, used)}
    for op in module.kernel.body.walk():
        if op in by_words:
            continue
        values = (
            *(op.operands[2:] if op.name.startswith("atomic") else op.operands),
            *op.results,
        )  # without the offset
        wide = next((v for v in values if _is_wide(v)), None)
        if wide is not None and op.name not in _MOVES:
            if op.name.startswith("atomic") and module.kernel.attrs.get("sanitize"):
                raise FeatureError(f"the sanitizer of kernel {module.kernel.name} needs 64-bit atomics (int64_atomics)")
            what = f"{op.name} {op.attrs['op']}" if "op" in op.attrs else op.name
            raise CompileError(
                f"this device has no 64-bit integers, and {what} of {wide.type} can't be computed with pairs of 32-bit words",
                op.loc,
                hint="use i32 or u32 here, or a device with 64-bit integers",
            )


def _atomics(body: Region) -> dict[Value, list[Op]]:
    """Return the atomic operations by the array that they access."""
    found: dict[Value, list[Op]] = {}
    for op in body.walk():
        if op.name.startswith("atomic"):
            array = op.operands[0]
            while array.op is not None and array.op.name == "linear":
                array = array.op.operands[0]
            found.setdefault(array, []).append(op)
    return found


def _is_separable(ops: list[Op], used: set[Value]) -> bool:
    """True if the atomic operations on one array may update the words of an element one after the other.

    They may if they are all sums, or all the same bitwise operation: these commute, and if nothing observes the element
    in between, as no result is used.
    """
    names = {"add" if op.attrs["op"] == "sub" else op.attrs["op"] for op in ops if op.name == "atomic"}
    return (
        len(names) == 1
        and names <= {"add", "and", "or", "xor"}
        and all(op.name == "atomic" and op.result not in used for op in ops)
    )


def _inside(range_: Interval, limits: Interval) -> bool:
    return limits[0] <= range_[0] and range_[1] <= limits[1]


def _is_wide(value: Value) -> bool:
    """True for a 64-bit integer or a vector of them."""
    kind = value.type
    return isinstance(kind, (Scalar, Vector)) and kind.dtype.is_integer and kind.dtype.bits == 64


def _is_wide_scalar(results: list[Value]) -> bool:
    """True for the results of an operation if there is one, a 64-bit integer."""
    return len(results) == 1 and _is_wide(results[0]) and isinstance(results[0].type, Scalar)


# Short values


class _Short:
    """The choice of expansions in a kernel, by the values that are in the range of u32 and of i32 (rule 2).

    `offsets` are the accesses with offsets in the range of i32 (rule 4). `copies` are operations that are kept.
    """

    def __init__(self, kernel: Function, max_groups: tuple[int, int, int], subgroup_size: int) -> None:
        self.kernel = kernel
        self.subgroup_size = subgroup_size
        self.max_groups = max_groups
        self.unsigned: set[Value] = set()
        self.signed: set[Value] = set()
        self.offsets: set[Op] = set()
        self.copies: set[Op] = set()
        Ranges(kernel, self.note).run()

    def note(self, ranges: Ranges, op: Op) -> None:
        """Record the range of an operation's result, or of an access's offset; `Ranges` calls this for each operation."""
        is_access = op.name in ("load", "store") or op.name.startswith("atomic")
        if is_access and len(op.operands) > 1 and _is_wide(op.operands[1]):
            if _inside(ranges.of(op.operands[1]), I32_RANGE):
                self.offsets.add(op)
        if op.regions or not _is_wide_scalar(op.results):
            return
        low, high = ranges.of(op.result)
        if op.name in ("global_id", "group_id", "num_groups") and not self.kernel.attrs.get("cut"):
            dim = op.attrs["dim"]
            high = min(high, self.max_groups[dim] * self.kernel.attrs["local_size"][dim])
        if _inside((low, high), _U32_RANGE):
            self.unsigned.add(op.result)
        if _inside((low, high), I32_RANGE):
            self.signed.add(op.result)

    def choose(self, _function: Function, op: Op) -> Rule | None:
        """Return the expansion rule for an operation; None if it is kept."""
        if not any(_is_wide(v) for v in (*op.operands, *op.results)):
            return None
        rule = self.rule_of(op)
        if rule is None and op.name in _SOURCES and op not in self.copies and _is_wide_scalar(op.results):
            rule = partial(self.kept, op)
        is_short = rule is not None and (op.result in self.unsigned or op.result in self.signed)
        return partial(self.shortened, rule, op.result) if is_short and rule is not None else rule

    def rule_of(self, op: Op) -> Rule | None:
        """Return the rule of `passes.arithmetic.word_pairs` for an operation, if there is one."""
        if op.name == "cast":
            target = op.result.type
            assert isinstance(target, (Scalar, Vector))
            return partial(cast, target.dtype)
        if op.name in ("sg_reduce", "sg_scan"):
            attrs = self.kernel.attrs
            return subgroup_rule(op, attrs.get("subgroup_size") or self.subgroup_size, math.prod(attrs["local_size"]))
        return WORD_RULES.get(op.name)

    def kept(self, op: Op, f: Formula, *operands: Term) -> Term:
        """Emit a copy of an operation, and take its result apart."""
        result = f.call(op.name, *operands, **op.attrs)
        copy = result.value.op
        assert copy is not None
        self.copies.add(copy)
        if op in self.offsets:
            self.offsets.add(copy)
        return join(words(result), result.dtype)

    def shortened(self, rule: Rule, value: Value, f: Formula, *operands: Term) -> Term:
        """Apply a rule for a short value, and replace the high word of the result."""
        result = rule(f, *operands)
        low = words(result)[0]
        high = f.term(0, dtypes.u32) if value in self.unsigned else (low.signed_bits() >> 31).bits()
        return join((low, high), result.dtype)


def _narrow_offsets(region: Region, accesses: set[Op]) -> None:
    """Convert the offsets of `accesses` to i32 (rule 4)."""
    source, region.ops = region.ops, []
    for op in source:
        if op in accesses:
            f = Formula(Builder(region, op.loc))
            op.operands[1] = words(f.term(op.operands[1]))[0].signed_bits().value
        region.ops.append(op)
        for inner in op.regions:
            _narrow_offsets(inner, accesses)


# Loops


def _split_loops(region: Region) -> None:
    """Replace each `for` over 64-bit integers in a region by a `loop` (rule 3), inner loops first."""
    source, region.ops = region.ops, []
    for op in source:
        for inner in op.regions:
            _split_loops(inner)
        if op.name == "for" and _is_wide(op.operands[0]):
            _count_down(op, Builder(region, op.loc))
        region.ops.append(op)


def _count_down(loop: Op, before: Builder) -> None:
    """Turn a `for` into a `loop` in place, with the induction variable and the remaining iterations as carried values.

    They become results, too, so that results and carried values correspond. `before` appends to the preheader.
    """
    body = loop.regions[0]
    first, _, step = loop.operands[:3]
    loop.operands[:3] = [first, _trip_count(Formula(before), loop.operands[:3])]
    loop.name = "loop"
    left = Value(Scalar(dtypes.u64), body, 1, "left")
    body.args.insert(1, left)
    loop.results[:0] = [Value(value.type, loop, 0) for value in body.args[:2]]
    for position, value in (*enumerate(body.args), *enumerate(loop.results)):
        value.index = position
    for exit_op in breaks_of(loop):
        exit_op.operands[:0] = body.args[:2]
    head = Builder(Region(), loop.loc)
    done = head.emit("eq", left, head.const(0, left.type))
    test = head.op("if", done, types=[], regions=[Region(), Region()])
    with head.at(test.regions[0]):
        head.op("break", *body.args)
    with head.at(test.regions[1]):
        head.op("yield")
    for region in _continued(body):
        jump = region.ops.pop()
        builder = Builder(region, jump.loc)
        following = builder.emit("add", body.args[0], step), builder.emit("sub", left, builder.const(1, left.type))
        jump.operands[:0] = following
        region.ops.append(jump)
    body.ops[:0] = head.region.ops


def _continued(region: Region) -> Iterator[Region]:
    """Iterate over the regions that end in a `continue` of the loop whose body is `region`."""
    if region.terminator.name == "continue":
        yield region
    for op in region.ops:
        if op.name not in LOOPS:
            for inner in op.regions:
                yield from _continued(inner)


def _trip_count(f: Formula, bounds: list[Value]) -> Value:
    """Emit the number of iterations of a range as a u64. If the loop runs, no computation overflows."""
    low, high, step = (f.term(v) for v in bounds)
    rises, size = step > 0, step.bits()
    distance, runs = (high - low).bits(), (low < high) & rises
    if step.dtype.is_signed:
        distance = f.select(rises, distance, (low - high).bits())
        size = f.select(rises, size, (-step).bits())
        runs = runs | ((high < low) & (step < 0))
    if step.constant in (1, -1):
        trips = distance
    else:
        trips = f.call("udiv_raw", distance - 1, f.select(size.equals(0), 1, size)) + 1
    return f.select(runs, trips, 0).value
