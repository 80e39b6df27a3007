"""Operations on arrays, and what a workgroup does together: loads, stores, barriers, reports, printing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from vkjit.errors import InternalError, KernelError
from vkjit.ir.core import Op
from vkjit.ir.types import Array

from .batch import Batch
from .compile import BATCH, PATH, RETURNED, Frame, FunctionCompiler, Step, plain
from .memory import Memory, Site, make_local, make_shared
from .values import DEAD, Lanes, Mask

__all__: list[str] = []


@plain("load", "atomic_load")
def _load(compiler: FunctionCompiler, op: Op) -> Step:
    array, *indices = compiler.slots(op.operands)
    target, loc = compiler.define(op.result), op.loc

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[array]
        frame[target] = memory.load([frame[slot] for slot in indices], mask, Site(frame[BATCH], loc))

    return step


@plain("store", "atomic_store")
def _store(compiler: FunctionCompiler, op: Op) -> Step:
    array, *indices, source = compiler.slots(op.operands)
    loc = op.loc

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[array]
        memory.store([frame[slot] for slot in indices], frame[source], mask, Site(frame[BATCH], loc))

    return step


def _per_array(compiler: FunctionCompiler, op: Op, get: Callable[[Memory], Any]) -> Step:
    (array,), target = compiler.slots(op.operands), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        frame[target] = get(frame[array])

    return step


@plain("extent")
def _extent(compiler: FunctionCompiler, op: Op) -> Step:
    axis = op.attrs["axis"]
    return _per_array(compiler, op, lambda memory: np.full((1, 1), memory.extents[axis], dtype=np.int64))


@plain("stride")
def _stride(compiler: FunctionCompiler, op: Op) -> Step:
    axis = op.attrs["axis"]
    return _per_array(compiler, op, lambda memory: np.full((1, 1), memory.strides[axis], dtype=np.int64))


def _array_type(op: Op) -> Array:
    assert isinstance(op.result.type, Array)
    return op.result.type


@plain("linear")
def _linear(compiler: FunctionCompiler, op: Op) -> Step:
    type = _array_type(op)
    return _per_array(compiler, op, lambda memory: memory.linear(type))


@plain("shared")
def _shared(compiler: FunctionCompiler, op: Op) -> Step:
    type, name, place, target = _array_type(op), op.result.name, compiler.program.place(), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        batch: Batch = frame[BATCH]
        key = (frame[PATH], place)
        if key not in batch.shared:
            batch.shared[key] = make_shared(type, batch, name)
        frame[target] = batch.shared[key]

    return step


@plain("local")
def _local(compiler: FunctionCompiler, op: Op) -> Step:
    type, name, target = _array_type(op), op.result.name, compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        frame[target] = make_local(type, frame[BATCH], name)

    return step


@plain("barrier")
def _barrier(_compiler: FunctionCompiler, op: Op) -> Step:
    loc = op.loc

    def step(frame: Frame, mask: Mask) -> None:
        if mask is None:
            return
        batch: Batch = frame[BATCH]
        arrived = batch.full(mask)
        gone = batch.returned.mask
        absent = ~arrived if gone is DEAD or gone is None else ~(arrived | batch.full(gone))
        torn = absent & arrived.any(axis=1, keepdims=True)
        if torn.any():
            message = "divergent barrier: this invocation doesn't arrive where others of its workgroup wait"
            raise batch.error(KernelError, message, loc, torn)

    return step


@plain("fence")
def _fence(_compiler: FunctionCompiler, _op: Op) -> None:
    """Nothing to do: all invocations see memory in one order."""


@plain("report", "assume")
def _report(compiler: FunctionCompiler, op: Op) -> Step:
    condition, *values = compiler.slots(op.operands)
    site, promised = op.attrs["site"], op.name == "assume"

    def step(frame: Frame, mask: Mask) -> None:
        found: Lanes = ~frame[condition] if promised else frame[condition]
        if not found.any():
            return
        batch: Batch = frame[BATCH]
        active = batch.active(mask, found)
        if active:
            row, column = min(active, key=lambda lane: batch.order(*lane))
            numbers = [batch.pick(frame[slot], row, column) for slot in values]
            invocation = (int(batch.numbers[row]), column)
            batch.log.report(batch.grid, batch.order(row, column), invocation, site, numbers)

    return step


@plain("print")
def _print(compiler: FunctionCompiler, op: Op) -> Step:
    values, site = compiler.slots(op.operands), op.attrs["site"]

    def step(frame: Frame, mask: Mask) -> None:
        batch: Batch = frame[BATCH]
        template = batch.log.sites[site].message
        for row, column in batch.active(mask):
            numbers = [batch.pick(frame[slot], row, column) for slot in values]
            batch.log.print(batch.order(row, column), template.format(*numbers))

    return step


def require_returned(frame: Frame, batch: Batch) -> None:
    """Raises InternalError unless every invocation came to a `return`."""
    mask = frame[RETURNED].mask
    if mask is not None and not batch.full(mask).all():
        raise InternalError(f"some invocations of {batch.log.kernel} never returned")
