"""Control flow under masks: if, for, loop, call and the exits.

A region's code gives the mask of those that reach its end. Those that leave by `continue`, `break` or `return` are
gathered in accumulators: two for each running loop (next round, results), one for each call. Both branches of an `if`
run only when some invocation takes each; a loop runs until no invocation is left in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit.errors import InternalError
from vkjit.ir.core import Op, Region

from .compile import BATCH, PATH, RETURNED, ControlStep, Frame, FunctionCompiler, control, plain
from .values import DEAD, Accumulator, Lanes, Mask, merge, narrow, union

__all__ = ["trip_count"]

_MAX_TRIPS = np.iinfo(np.uint64).max


class _Loop:
    """A running loop: those that go into the next round, and those that are through."""

    __slots__ = ("done", "next")

    def __init__(self) -> None:
        self.done = Accumulator()
        self.next = Accumulator()


def _may_exit(region: Region, inside_loop: bool = False) -> bool:
    """Whether some invocation may leave a region otherwise than by its end."""
    for op in region.ops:
        if op.name in ("return", "unreachable") or (op.name in ("continue", "break") and not inside_loop):
            return True
        nested = inside_loop or op.name in ("for", "loop")
        if any(_may_exit(inner, nested) for inner in op.regions):
            return True
    return False


def _yielded(compiler: FunctionCompiler, region: Region) -> list[int]:
    end = region.ops[-1] if region.ops else None
    return compiler.slots(end.operands) if end is not None and end.name == "yield" else []


@plain("yield")
def _yield(_compiler: FunctionCompiler, _op: Op) -> None:
    """Nothing to do: the operation around the region reads the operands."""


@control("if")
def _if(compiler: FunctionCompiler, op: Op) -> ControlStep:
    condition_slot = compiler.slot(op.operands[0])
    first, second = op.regions
    run_first = compiler.region(first)
    from_first = _yielded(compiler, first)
    run_second = compiler.region(second)
    from_second = _yielded(compiler, second)
    results = [compiler.define(value) for value in op.results]
    exits = _may_exit(first) or _may_exit(second)

    def single(frame: Frame, mask: Mask, run: ControlStep, sources: list[int]) -> Mask:
        after = run(frame, mask)
        if after is not DEAD:
            values = [frame[slot] for slot in sources]
            for slot, value in zip(results, values, strict=True):
                frame[slot] = value
        return after if exits else mask

    def step(frame: Frame, mask: Mask) -> Mask:
        condition = frame[condition_slot]
        if condition.size == 1:
            return single(frame, mask, *((run_first, from_first) if condition.item() else (run_second, from_second)))
        taken = narrow(mask, condition)
        if taken is DEAD:
            return single(frame, mask, run_second, from_second)
        other = DEAD if taken is None else narrow(mask, ~condition)
        if other is DEAD:
            return single(frame, mask, run_first, from_first)
        after_first = run_first(frame, taken)
        firsts = [frame[slot] for slot in from_first]
        after_second = run_second(frame, other)
        if after_first is DEAD:
            merged = [frame[slot] for slot in from_second]
        elif after_second is DEAD:
            merged = firsts
        else:
            merged = [merge(condition, a, frame[b]) for a, b in zip(firsts, from_second, strict=True)]
        if merged:
            for slot, value in zip(results, merged, strict=True):
                frame[slot] = value
        return union(after_first, after_second) if exits else mask

    return step


def _wide(values: Lanes) -> Lanes:
    """Integers of any type as 64 bits, unsigned, so that differences can't overflow."""
    if values.dtype.kind == "u":
        return values.astype(np.uint64)
    return values.astype(np.int64).view(np.uint64)


def trip_count(low: Lanes, high: Lanes, stride: Lanes) -> Lanes:
    """Rounds of a counted loop as u64: exact at the ends of the type, 0 for an empty range or step 0."""
    start, end, step = _wide(low), _wide(high), _wide(stride)
    one, zero = np.uint64(1), np.uint64(0)
    up = (stride > 0) & (low < high)
    down = (stride < 0) & (low > high)
    distance = np.where(up, end - start, start - end)
    size = np.where(up, step, zero - step)
    counted: Lanes = (distance - one) // np.where(up | down, size, one) + one
    return np.where(up | down, counted, zero)


def _fewest(trips: Lanes, mask: Mask) -> int:
    return int((trips if mask is None else np.where(mask, trips, np.uint64(_MAX_TRIPS))).min())


@control("for")
def _for(compiler: FunctionCompiler, op: Op) -> ControlStep:
    low, high, stride, *starts = compiler.slots(op.operands)
    record = compiler.fresh()
    compiler.loops.append(record)
    run = compiler.region(op.regions[0])
    compiler.loops.pop()
    compiler.release(record)
    counter, *carried_slots = [compiler.slot(value) for value in op.regions[0].args]
    results = [compiler.define(value) for value in op.results]
    exits = _may_exit(op.regions[0], inside_loop=True)

    def step(frame: Frame, mask: Mask) -> Mask:
        value, size = frame[low], frame[stride]
        trips = trip_count(value, frame[high], size)
        carried = [frame[slot] for slot in starts]
        loop = frame[record] = _Loop()
        active, count = mask, 0
        limit = _fewest(trips, active)
        while True:
            if count == limit:
                going = narrow(active, trips > np.uint64(count))
                ended = active if going is DEAD else narrow(active, trips <= np.uint64(count))
                loop.done.add(ended, carried)
                if going is DEAD:
                    break
                active, limit = going, _fewest(trips, going)
            loop.next = Accumulator()
            frame[counter] = value
            for slot, content in zip(carried_slots, carried, strict=True):
                frame[slot] = content
            run(frame, active)
            active, carried = loop.next.mask, loop.next.values
            if active is DEAD:
                break
            value = value + size
            count += 1
        return _finish(frame, record, results, mask, exits)

    return step


@control("loop")
def _loop(compiler: FunctionCompiler, op: Op) -> ControlStep:
    starts = compiler.slots(op.operands)
    record = compiler.fresh()
    compiler.loops.append(record)
    run = compiler.region(op.regions[0])
    compiler.loops.pop()
    compiler.release(record)
    carried_slots = [compiler.slot(value) for value in op.regions[0].args]
    results = [compiler.define(value) for value in op.results]
    exits = _may_exit(op.regions[0], inside_loop=True)

    def step(frame: Frame, mask: Mask) -> Mask:
        carried = [frame[slot] for slot in starts]
        loop = frame[record] = _Loop()
        active = mask
        while active is not DEAD:
            loop.next = Accumulator()
            for slot, content in zip(carried_slots, carried, strict=True):
                frame[slot] = content
            run(frame, active)
            active, carried = loop.next.mask, loop.next.values
        return _finish(frame, record, results, mask, exits)

    return step


def _finish(frame: Frame, record: int, results: list[int], mask: Mask, exits: bool) -> Mask:
    done: Accumulator = frame[record].done
    frame[record] = None
    if done.mask is DEAD:
        return DEAD
    for slot, value in zip(results, done.values, strict=True):
        frame[slot] = value
    return done.mask if exits else mask


@control("continue", "break")
def _leave_iteration(compiler: FunctionCompiler, op: Op) -> ControlStep:
    if not compiler.loops:
        raise InternalError(f"{op.name} outside of a loop")
    record, slots, repeat = compiler.loops[-1], compiler.slots(op.operands), op.name == "continue"

    def step(frame: Frame, mask: Mask) -> Mask:
        loop: _Loop = frame[record]
        (loop.next if repeat else loop.done).add(mask, [frame[slot] for slot in slots])
        return DEAD

    return step


@control("return")
def _return(compiler: FunctionCompiler, op: Op) -> ControlStep:
    slots = compiler.slots(op.operands)

    def step(frame: Frame, mask: Mask) -> Mask:
        frame[RETURNED].add(mask, [frame[slot] for slot in slots])
        return DEAD

    return step


@control("unreachable")
def _unreachable(compiler: FunctionCompiler, op: Op) -> ControlStep:
    name, loc = compiler.source.name, op.loc

    def step(frame: Frame, mask: Mask) -> Mask:
        row, column = frame[BATCH].active(mask)[0]
        raise InternalError(f"{loc}: {name} reached `unreachable` in invocation {frame[BATCH].invocation(row, column)}")

    return step


@control("call")
def _call(compiler: FunctionCompiler, op: Op) -> ControlStep:
    code = compiler.program.function(op.attrs["callee"])
    place = compiler.program.place()
    arguments = compiler.slots(op.operands)
    results = [compiler.define(value) for value in op.results]

    def step(frame: Frame, mask: Mask) -> Mask:
        inner: list[Any] = code.template.copy()
        returned = Accumulator()
        inner[BATCH], inner[RETURNED], inner[PATH] = frame[BATCH], returned, (*frame[PATH], place)
        for slot, source in zip(code.params, arguments, strict=True):
            inner[slot] = frame[source]
        code.body(inner, mask)
        if results:
            for slot, value in zip(results, returned.values, strict=True):
                frame[slot] = value
        return mask

    return step
