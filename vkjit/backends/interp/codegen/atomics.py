"""Atomic operations, with the result of running the active invocations one after another, in lane order.

They update flat storage and, if the program reads it, return the old value seen by each invocation. Conflicts are resolved in
iterations: the r-th invocation of every position together. Positions with very many invocations are processed as a chain, one
invocation at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir import semantics
from vkjit.ir.core import Module, Op, Region
from vkjit.ir.ops import op_name
from vkjit.ir.types import Array, Scalar

from .compile import BATCH, Frame, FunctionCompiler, Step, plain
from .memory import Memory, Site
from .values import Lanes, Mask

__all__ = ["depends_on_order"]

_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}

_Chain = Callable[[Any, Sequence[Lanes]], Lanes]
"""From the first content and the operands of all invocations at one position: the contents one after another."""


def _ordered(
    cells: Lanes, position: Lanes, operands: Sequence[Lanes], step: Callable[..., Lanes], chain: _Chain
) -> Lanes:
    """Applies `step(content, *operands)` in order; gives the content that each invocation saw."""
    order = np.argsort(position, kind="stable")
    places = position[order]
    sorted_operands = [operand[order] for operand in operands]
    starts = np.flatnonzero(np.concatenate(([True], places[1:] != places[:-1])))
    counts = np.diff(np.append(starts, len(places)))
    seen = np.empty(len(places), dtype=cells.dtype)
    many = counts > max(isqrt(len(places)), 16)
    for start, count in zip(starts[many].tolist(), counts[many].tolist(), strict=True):
        part = slice(start, start + count)
        contents = chain(cells[places[start]], [operand[part] for operand in sorted_operands])
        seen[part] = contents[:-1]
        cells[places[start]] = contents[-1]
    starts, counts = starts[~many], counts[~many]
    for turn in range(int(counts.max(initial=0))):
        at = starts[counts > turn] + turn
        content = cells[places[at]]
        seen[at] = content
        cells[places[at]] = step(content, *(operand[at] for operand in sorted_operands))
    result = np.empty_like(seen)
    result[order] = seen
    return result


def _one_by_one(step: Callable[..., Lanes]) -> _Chain:
    def chain(first: Any, operands: Sequence[Lanes]) -> Lanes:
        contents = [first]
        for row in zip(*operands, strict=True):
            contents.append(np.asarray(step(contents[-1], *row))[()])
        return np.array(contents)

    return chain


def _accumulate(function: np.ufunc) -> _Chain:
    def chain(first: Any, operands: Sequence[Lanes]) -> Lanes:
        (values,) = operands
        return np.asarray(function.accumulate(np.concatenate(([first], values)), dtype=values.dtype))

    return chain


def _exchange(cells: Lanes, position: Lanes, value: Lanes, wanted: bool) -> Lanes | None:
    if wanted:
        return _ordered(cells, position, [value], lambda _, v: v, lambda f, o: np.concatenate(([f], o[0])))
    cells[position] = value
    return None


def _apply(cells: Lanes, position: Lanes, value: Lanes, op: str, wanted: bool) -> Lanes | None:
    """Read-modify-write in storage that is of the carried type."""
    if op == "exchange":
        return _exchange(cells, position, value, wanted)
    function = _UFUNCS.get(op)
    if function is None:
        raise InternalError(f"no atomic operation is named {op}")
    if op in ("min", "max") and cells.dtype.kind == "f":
        return _by_key(cells, position, value, op, wanted)
    if wanted:
        return _ordered(cells, position, [value], function, _accumulate(function))
    function.at(cells, position, value)
    return None


def _to_key(values: Lanes, op: str) -> Lanes:
    """Floats as integers of the same order: -0 before +0, NaN where it wins."""
    bits = values.view(np.dtype(f"i{values.dtype.itemsize}"))
    info = np.iinfo(bits.dtype)
    key: Lanes = bits ^ ((bits >> bits.dtype.type(info.bits - 1)) & bits.dtype.type(info.max))
    return np.where(np.isnan(values), bits.dtype.type(info.min if op == "min" else info.max), key)


def _from_key(key: Lanes, dtype: np.dtype[Any]) -> Lanes:
    info = np.iinfo(key.dtype)
    floats: Lanes = (key ^ ((key >> key.dtype.type(info.bits - 1)) & key.dtype.type(info.max))).view(dtype)
    return floats


def _by_key(cells: Lanes, position: Lanes, value: Lanes, op: str, wanted: bool) -> Lanes | None:
    """Minimum and maximum of floats, which NumPy's own leave open for zeros of different sign."""
    places, inverse = np.unique(position, return_inverse=True)
    keys = _to_key(cells[places], op)
    old = _apply(keys, inverse, _to_key(value, op), op, wanted)
    cells[places] = _from_key(keys, cells.dtype)
    return None if old is None else _from_key(old, cells.dtype)


def _rounded_bf16(op: str) -> Callable[..., Lanes]:
    if op == "exchange":
        return lambda _, value: value
    function: Callable[..., Lanes] = semantics.MEANING[op_name(op)]
    return lambda content, value: semantics.to_bf16(function(content, value))


def _run(memory: Memory, cells: Lanes, position: Lanes, value: Lanes, op: str, wanted: bool) -> Lanes | None:
    if memory.codec.dtype is not dtypes.bf16:
        return _apply(cells, position, value, op, wanted)
    places, inverse = np.unique(position, return_inverse=True)
    wide = memory.codec.decode(cells[places])
    step = _rounded_bf16(op)
    old = _ordered(wide, inverse, [value], step, _one_by_one(step))
    cells[places] = memory.codec.encode(wide)
    return old


def _chosen(frame: Frame, slot: int, mask: Mask) -> Lanes:
    full = frame[BATCH].full(frame[slot])
    chosen: Lanes = full.reshape(-1) if mask is None else full[frame[BATCH].full(mask)]
    return chosen


def _spread(frame: Frame, seen: Lanes, mask: Mask) -> Lanes:
    batch = frame[BATCH]
    if mask is None:
        return seen.reshape(batch.count, batch.size)
    result = np.zeros((batch.count, batch.size), dtype=seen.dtype)
    result[batch.full(mask)] = seen
    return result


def _check_element(op: Op) -> DType:
    array = op.operands[0].type
    if not isinstance(array, Array) or not isinstance(array.element, Scalar) or array.dtype is dtypes.boolean:
        raise InternalError(f"{op.name} needs an array of numbers, found {array}")
    return array.dtype


@plain("atomic")
def _atomic(compiler: FunctionCompiler, op: Op) -> Step:
    _check_element(op)
    array, *indices, value = compiler.slots(op.operands)
    target, loc, name, wanted = compiler.define(op.result), op.loc, op.attrs["op"], op.result in compiler.used

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[array]
        cells, position = memory.lanes([frame[slot] for slot in indices], mask, Site(frame[BATCH], loc))
        seen = _run(memory, cells, position, _chosen(frame, value, mask), name, wanted)
        frame[target] = None if seen is None else _spread(frame, seen, mask)

    return step


@plain("atomic_cas")
def _atomic_cas(compiler: FunctionCompiler, op: Op) -> Step:
    dtype = _check_element(op)
    array, *indices, expected, wish = compiler.slots(op.operands)
    target, loc = compiler.define(op.result), op.loc

    def swap(content: Lanes, compare: Lanes, value: Lanes) -> Lanes:
        return np.where(content == compare, value, content)

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[array]
        cells, position = memory.lanes([frame[slot] for slot in indices], mask, Site(frame[BATCH], loc))
        operands = [_chosen(frame, slot, mask) for slot in (expected, wish)]
        if dtype is dtypes.bf16:
            operands = [memory.codec.encode(operand) for operand in operands]
        seen = _ordered(cells, position, operands, swap, _one_by_one(swap))
        frame[target] = memory.codec.decode(_spread(frame, seen, mask))

    return step


def depends_on_order(module: Module) -> bool:
    """Whether the kernel's atomics on global arrays may give something else when its workgroups interleave differently.

    One atomic operation that runs once sees the invocations in their order, whatever the batch is; integer sums that
    nobody reads back commute. All else is run in batches of a fixed size, so that results don't depend on the caller's.
    """
    used = {value for function in module.all_functions() for op in function.body.walk() for value in op.operands}
    found: list[Op] = []

    def visit(region: Region, weight: int) -> None:
        for op in region.ops:
            array = op.operands[0].type if op.operands else None
            if op.name.startswith("atomic") and isinstance(array, Array) and array.space == "global":
                found.extend([op] * weight)
            if op.name == "call":
                visit(module.functions[op.attrs["callee"]].body, weight)
            for inner in op.regions:
                visit(inner, 2 if op.name in ("for", "loop") else weight)

    visit(module.kernel.body, 1)
    kinds = {_kind(op, used) for op in found}
    return len(found) > 1 and (len(kinds) > 1 or "ordered" in kinds)


def _kind(op: Op, used: set[Any]) -> str:
    array = op.operands[0].type
    if op.name != "atomic" or not isinstance(array, Array) or array.dtype.is_float or op.result in used:
        return "ordered"
    name = op.attrs["op"]
    return {"exchange": "ordered", "sub": "add"}.get(name, name)
