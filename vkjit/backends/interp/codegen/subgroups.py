"""Operations of a subgroup: consecutive invocations (by linear local id) that exchange values.

Reductions follow a butterfly of ascending strides (neighbours first, then pairs of them...), scans the same strides
upward: invocation i takes in what i - stride holds. Inactive invocations count as the neutral element (-0 for sums of
floats). What comes from an inactive invocation, or one outside the subgroup, is poison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.core import Op
from vkjit.ir.ops import op_name
from vkjit.ir.types import Type

from .batch import Batch
from .compile import BATCH, Frame, FunctionCompiler, Step, plain
from .elementwise import meaning_of
from .values import Lanes, Mask, element_type, poison_number

__all__: list[str] = []


def neutral(op: str, dtype: DType) -> Any:
    """The element that leaves others as they are under a reduction."""
    kind = dtype.numpy.type
    if op in ("or", "xor") or (op == "add" and not dtype.is_float):
        return kind(0)
    if op == "add":
        return kind(-0.0)
    if op == "mul":
        return kind(1)
    if op == "and":
        return np.True_ if dtype is dtypes.boolean else np.invert(kind(0))
    if dtype.is_float:
        return kind(np.inf if op == "min" else -np.inf)
    info = np.iinfo(dtype.numpy)
    return kind(info.max if op == "min" else info.min)


class _Layout:
    """Values rearranged as (..., g, subgroups, lanes), missing lanes of the last subgroup padded."""

    __slots__ = ("batch", "count", "size")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.size = batch.grid.subgroup_size
        self.count = -(-batch.size // self.size)

    def split(self, value: Lanes) -> Lanes:
        batch = self.batch
        if value.shape[-1] != batch.size:
            value = np.broadcast_to(value, (*value.shape[:-1], batch.size))
        missing = self.count * self.size - batch.size
        if missing:
            value = np.concatenate([value, np.zeros((*value.shape[:-1], missing), dtype=value.dtype)], axis=-1)
        return value.reshape(*value.shape[:-1], self.count, self.size)

    def active(self, mask: Mask) -> npt.NDArray[np.bool_]:
        return self.split(np.ones((1, 1), dtype=np.bool_) if mask is None else mask)

    def join(self, split: Lanes) -> Lanes:
        flat = split.reshape(*split.shape[:-2], self.count * self.size)
        return flat[..., : self.batch.size]

    def spread(self, each: Lanes) -> Lanes:
        """One element per subgroup as a value."""
        if self.count == 1:
            return each
        return np.repeat(each, self.size, axis=-1)[..., : self.batch.size]


def _unary(compiler: FunctionCompiler, op: Op, compute: Callable[[_Layout, Lanes, Mask], Lanes]) -> Step:
    source, target = compiler.slot(op.operands[0]), compiler.define(op.result)

    def step(frame: Frame, mask: Mask) -> None:
        frame[target] = compute(_Layout(frame[BATCH]), frame[source], mask)

    return step


@plain("sg_reduce")
def _reduce(compiler: FunctionCompiler, op: Op) -> Step:
    name, dtype = op.attrs["op"], element_type(op.result.type)
    function, rest = meaning_of(op_name(name), dtype), neutral(name, dtype)

    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        lanes = np.where(layout.active(mask), layout.split(value), rest)
        while lanes.shape[-1] > 1:
            lanes = function(lanes[..., 0::2], lanes[..., 1::2])
        return layout.spread(lanes[..., 0])

    return _unary(compiler, op, compute)


@plain("sg_scan")
def _scan(compiler: FunctionCompiler, op: Op) -> Step:
    name, exclusive, dtype = op.attrs["op"], op.attrs["exclusive"], element_type(op.result.type)
    function, rest = meaning_of(op_name(name), dtype), neutral(name, dtype)
    empty = dtype.numpy.type(0) if name == "add" else rest

    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        active = layout.active(mask)
        lanes = np.where(active, layout.split(value), rest)
        stride = 1
        while stride < layout.size:
            taken = function(lanes[..., :-stride], lanes[..., stride:])
            lanes = np.concatenate([lanes[..., :stride], taken], axis=-1)
            stride *= 2
        if exclusive:
            before = np.cumsum(active, axis=-1) - active > 0
            lanes = np.where(before, np.roll(lanes, 1, axis=-1), empty)
        return layout.join(lanes)

    return _unary(compiler, op, compute)


def _gather(layout: _Layout, value: Lanes, lane: Lanes, mask: Mask, type: Type) -> Lanes:
    """The value of lane number `lane` (split), poison where there is none."""
    source, active = layout.split(value), layout.active(mask)
    inside = (lane >= 0) & (lane < layout.size)
    place = np.where(inside, lane, 0)
    shape = np.broadcast_shapes(source.shape[-3:], place.shape, active.shape)
    place = np.broadcast_to(place, shape)
    known = inside & np.take_along_axis(np.broadcast_to(active, shape), place, axis=-1)
    wide = np.broadcast_to(source, (*source.shape[:-3], *shape))
    found = np.take_along_axis(wide, np.broadcast_to(place, wide.shape), axis=-1)
    return layout.join(np.where(known, found, poison_number(element_type(type))))


@plain("sg_broadcast", "sg_shuffle")
def _shuffle(compiler: FunctionCompiler, op: Op) -> Step:
    value, lane = compiler.slots(op.operands)
    target, type = compiler.define(op.result), op.result.type

    def step(frame: Frame, mask: Mask) -> None:
        layout = _Layout(frame[BATCH])
        frame[target] = _gather(layout, frame[value], layout.split(frame[lane]), mask, type)

    return step


@plain("sg_shuffle_xor")
def _shuffle_xor(compiler: FunctionCompiler, op: Op) -> Step:
    distance, type = op.attrs["mask"], op.result.type

    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        lane = np.arange(layout.size, dtype=np.int64) ^ np.int64(distance)
        return _gather(layout, value, np.broadcast_to(lane, (1, layout.count, layout.size)), mask, type)

    return _unary(compiler, op, compute)


@plain("sg_any")
def _any(compiler: FunctionCompiler, op: Op) -> Step:
    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        return layout.spread(np.logical_or.reduce(layout.split(value) & layout.active(mask), axis=-1))

    return _unary(compiler, op, compute)


@plain("sg_all")
def _all(compiler: FunctionCompiler, op: Op) -> Step:
    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        return layout.spread(np.logical_and.reduce(layout.split(value) | ~layout.active(mask), axis=-1))

    return _unary(compiler, op, compute)


@plain("sg_elect")
def _elect(compiler: FunctionCompiler, op: Op) -> Step:
    target = compiler.define(op.result)

    def step(frame: Frame, mask: Mask) -> None:
        layout = _Layout(frame[BATCH])
        active = layout.active(mask)
        frame[target] = layout.join(active & (np.cumsum(active, axis=-1) == 1))

    return step


@plain("sg_ballot")
def _ballot(compiler: FunctionCompiler, op: Op) -> Step:
    dtype = element_type(op.result.type).numpy

    def compute(layout: _Layout, value: Lanes, mask: Mask) -> Lanes:
        votes = (layout.split(value) & layout.active(mask))[..., :64]  # the mask has room for 64 lanes
        weights = np.uint64(1) << np.arange(votes.shape[-1], dtype=np.uint64)
        return layout.spread(np.where(votes, weights, np.uint64(0)).sum(axis=-1, dtype=np.uint64).astype(dtype))

    return _unary(compiler, op, compute)
