"""Operations on tiles: values that a workgroup, or a subgroup, holds together.

A tile value is an array (elements, g, l): its elements in C order, then as every value one column per invocation, or one
for all. Tiles of a workgroup are computed in one column; of a subgroup, in those of its invocations, which hold the same.
Inside the regions of `tile_map` and `tile_each` the elements stand side by side as if they were invocations, so that all
other operations work there as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.dtypes import index as INDEX_DTYPE
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName, op_name
from vkjit.ir.rewrite import outer_values
from vkjit.ir.tiles import permutation
from vkjit.ir.types import Array, Tile

from .batch import Batch, Triple
from .compile import BATCH, Frame, FunctionCompiler, Step, plain
from .elementwise import meaning_of
from .memory import Memory, Site
from .values import Lanes, Mask

__all__: list[str] = []


class _Elements(Batch):
    """A batch whose columns are elements of a tile: each belongs to an invocation of the batch behind it."""

    def __init__(self, batch: Batch, elements: int, columns: int) -> None:
        super().__init__(batch.grid, batch.numbers, batch.log)
        self.size = elements * columns
        self.lanes = self.count * self.size
        self.shared = batch.shared
        self.columns = columns
        self.behind = batch

    def id(self, name: OpName, dim: int = 0) -> Lanes:
        return self.behind.id(name, dim)

    def order(self, row: int, column: int) -> int:
        return int(self.numbers[row]) * self.grid.invocations + column % self.columns

    def invocation(self, row: int, column: int) -> Triple:
        return self.grid.global_id(int(self.numbers[row]), column % self.columns)


def _is_shared(tile: Tile) -> bool:
    return tile.scope == "workgroup"


def _columns(value: Any, shared: bool) -> Any:
    """The columns that a tile's operation looks at: the first one stands for a whole workgroup."""
    return value[..., :1] if shared and value.shape[-1] > 1 else value


def _as_lanes(value: Lanes) -> Lanes:
    """(elements, g, l) as (g, elements * l)."""
    elements, groups, columns = value.shape
    return np.moveaxis(value, 0, 1).reshape(groups, elements * columns)


def _as_tile(lanes: Lanes, elements: int, columns: int) -> Lanes:
    """(g, elements * l), or one column for all, as (elements, g, l)."""
    if lanes.shape[-1] == 1:
        return np.broadcast_to(lanes[None], (elements, lanes.shape[0], columns))
    return np.moveaxis(lanes.reshape(lanes.shape[0], elements, columns), 1, 0)


def _spread(value: Lanes, elements: int) -> Lanes:
    """A value (g, l) for each element: (g, elements * l)."""
    return value if value.shape[-1] == 1 else np.tile(value, (1, elements))


def _tile_of(value: Value) -> Tile:
    assert isinstance(value.type, Tile)
    return value.type


def _positions(shape: tuple[int, ...]) -> list[npt.NDArray[np.int64]]:
    """The position along each axis of each element."""
    return [axis.reshape(-1).astype(np.int64) for axis in np.indices(shape)]


def _broadcast(value: Lanes, source: tuple[int, ...], target: tuple[int, ...]) -> Lanes:
    """A tile value of one shape as one of another."""
    if source == target:
        return value
    wide = value.reshape(*(1,) * (len(target) - len(source)), *source, *value.shape[-2:])
    made = np.broadcast_to(wide, (*target, *value.shape[-2:]))
    return made.reshape(-1, *value.shape[-2:])


class _Body:
    """A region that runs once per element of a shape."""

    def __init__(self, compiler: FunctionCompiler, op: Op, tile: Tile) -> None:
        region = op.regions[0]
        self.tile = tile
        self.sources = compiler.slots(op.operands)
        self.shapes = [v.type.shape for v in op.operands if isinstance(v.type, Tile)]
        self.outer = compiler.slots([v for v in outer_values(region) if not isinstance(v.type, Array)])
        self.run = compiler.region(region)
        self.args = [compiler.slot(value) for value in region.args]
        self.results = compiler.slots(region.terminator.operands)
        self.positions = _positions(tile.shape)

    def __call__(self, frame: Frame, mask: Mask) -> list[Lanes]:
        batch: Batch = frame[BATCH]
        elements, shared = self.tile.size, _is_shared(self.tile)
        columns = 1 if shared else batch.size
        saved = [frame[slot] for slot in self.outer]
        operands = [_columns(frame[slot], shared) for slot in self.sources]
        for slot, value in zip(self.outer, saved, strict=True):
            frame[slot] = _spread(_columns(value, shared), elements)
        frame[BATCH] = _Elements(batch, elements, columns)
        for slot, position in zip(self.args, self.positions, strict=False):
            frame[slot] = np.repeat(position, columns)[None, :]
        for slot, value, shape in zip(self.args[len(self.positions) :], operands, self.shapes, strict=True):
            wide = _broadcast(value, shape, self.tile.shape)
            frame[slot] = _as_lanes(np.broadcast_to(wide, (*wide.shape[:-1], columns)))
        self.run(frame, None if mask is None else _spread(_columns(mask, shared), elements))
        results = [_as_tile(frame[slot], elements, columns) for slot in self.results]
        frame[BATCH] = batch
        for slot, value in zip(self.outer, saved, strict=True):
            frame[slot] = value
        return results


@plain("tile_map")
def _map(compiler: FunctionCompiler, op: Op) -> Step:
    body = _Body(compiler, op, _tile_of(op.result))
    target = compiler.define(op.result)

    def step(frame: Frame, mask: Mask) -> None:
        (frame[target],) = body(frame, mask)

    return step


@plain("tile_each")
def _each(compiler: FunctionCompiler, op: Op) -> Step:
    tile = op.operands[0].type
    assert isinstance(tile, Tile)
    body = _Body(compiler, op, tile)

    def step(frame: Frame, mask: Mask) -> None:
        body(frame, _once(frame[BATCH], mask, tile))

    return step


def _once(batch: Batch, mask: Mask, tile: Tile) -> Mask:
    """The mask of those who act for their scope: all of one column, or the first invocation of each subgroup."""
    if _is_shared(tile):
        return mask
    first: npt.NDArray[np.bool_] = batch.id("lane_id") == 0
    return first if mask is None else mask & first


class _Access:
    """The operands of a load or store, and which elements lie inside."""

    def __init__(self, compiler: FunctionCompiler, op: Op, tile: Tile) -> None:
        array_type = op.operands[0].type
        assert isinstance(array_type, Array)
        slots = compiler.slots(op.operands)
        self.array, self.last = slots[0], slots[-1]
        self.starts = slots[1 : 1 + array_type.rank]
        self.lengths = slots[1 + array_type.rank : -1]
        self.axes = op.attrs["axes"]
        self.tile, self.loc = tile, op.loc
        self.positions = _positions(tile.shape)

    def places(self, frame: Frame, mask: Mask) -> tuple[list[Lanes], Lanes, Site, int]:
        batch: Batch = frame[BATCH]
        shared = _is_shared(self.tile)
        columns = 1 if shared else batch.size
        elements = self.tile.size
        spread = [np.repeat(position, columns)[None, :] for position in self.positions]
        inside = np.ones((1, 1), np.bool_)
        for slot, position in zip(self.lengths, spread, strict=True):
            inside = inside & (position < _spread(_columns(frame[slot], shared), elements))
        if mask is not None:
            inside = inside & _spread(_columns(mask, shared), elements)
        starts = [_spread(_columns(frame[slot], shared), elements) for slot in self.starts]
        pairs = zip(starts, self.axes, strict=True)
        indices = [start if axis is None else start + spread[axis] for start, axis in pairs]
        inside = np.broadcast_to(inside, (batch.count, elements * columns))
        return indices, inside, Site(_Elements(batch, elements, columns), self.loc), columns


@plain("tile_load")
def _load(compiler: FunctionCompiler, op: Op) -> Step:
    tile = _tile_of(op.result)
    access, target = _Access(compiler, op, tile), compiler.define(op.result)

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[access.array]
        indices, inside, site, columns = access.places(frame, mask)
        pad = _spread(_columns(frame[access.last], _is_shared(tile)), tile.size)
        if not inside.any():
            frame[target] = _as_tile(np.broadcast_to(pad, inside.shape), tile.size, columns)
            return
        found = memory.load([np.where(inside, index, 0) for index in indices], inside, site)
        frame[target] = _as_tile(np.where(inside, found, pad), tile.size, columns)

    return step


@plain("tile_store")
def _store(compiler: FunctionCompiler, op: Op) -> Step:
    tile = op.operands[-1].type
    assert isinstance(tile, Tile)
    access = _Access(compiler, op, tile)

    def step(frame: Frame, mask: Mask) -> None:
        memory: Memory = frame[access.array]
        indices, inside, site, columns = access.places(frame, _once(frame[BATCH], mask, tile))
        if not inside.any():
            return
        value = _columns(frame[access.last], _is_shared(tile))
        lanes = _as_lanes(np.broadcast_to(value, (*value.shape[:-1], columns)))
        memory.store([np.where(inside, index, 0) for index in indices], lanes, inside, site)

    return step


def _unary(compiler: FunctionCompiler, op: Op, compute: Callable[[Lanes], Lanes]) -> Step:
    """An operation on one tile: `compute` gets (*shape, g, l) and gives the same with another shape."""
    tile = op.operands[0].type
    assert isinstance(tile, Tile)
    source, target = compiler.slot(op.operands[0]), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        value = _columns(frame[source], _is_shared(tile))
        result = compute(value.reshape(*tile.shape, *value.shape[-2:]))
        frame[target] = result.reshape(-1, *value.shape[-2:])

    return step


@plain("tile_reduce")
def _reduce(compiler: FunctionCompiler, op: Op) -> Step:
    combine, axis = meaning_of(op_name(op.attrs["op"]), _tile_of(op.result).dtype), op.attrs["axis"]

    def compute(value: Lanes) -> Lanes:
        lanes = np.moveaxis(value, axis, 0)
        while len(lanes) > 1:  # neighbours first, then pairs of them, as reductions of a subgroup
            half = combine(lanes[0 : len(lanes) - 1 : 2], lanes[1::2])
            lanes = np.concatenate([half, lanes[-1:]]) if len(lanes) % 2 else half
        found: Lanes = lanes[0]
        return found

    return _unary(compiler, op, compute)


@plain("tile_argument")
def _argument(compiler: FunctionCompiler, op: Op) -> Step:
    function = np.argmin if op.attrs["op"] == "min" else np.argmax
    axis = op.attrs["axis"]
    return _unary(compiler, op, lambda value: function(value, axis=axis).astype(INDEX_DTYPE.numpy))


@plain("tile_scan")
def _scan(compiler: FunctionCompiler, op: Op) -> Step:
    combine, axis = meaning_of(op_name(op.attrs["op"]), _tile_of(op.result).dtype), op.attrs["axis"]

    def compute(value: Lanes) -> Lanes:
        rows = list(np.moveaxis(value, axis, 0))
        for place in range(1, len(rows)):
            rows[place] = combine(rows[place - 1], rows[place])
        return np.moveaxis(np.stack(rows), 0, axis)

    return _unary(compiler, op, compute)


@plain("tile_reshape")
def _reshape(compiler: FunctionCompiler, op: Op) -> Step:
    return _unary(compiler, op, lambda value: value)


@plain("tile_transpose")
def _transpose(compiler: FunctionCompiler, op: Op) -> Step:
    axes = permutation(op)
    return _unary(compiler, op, lambda value: np.transpose(value, (*axes, value.ndim - 2, value.ndim - 1)))


@plain("tile_mma")
def _mma(compiler: FunctionCompiler, op: Op) -> Step:
    left, right, acc = compiler.slots(op.operands)
    a, b, tile = (v.type for v in op.operands)
    assert isinstance(a, Tile) and isinstance(b, Tile) and isinstance(tile, Tile)  # noqa: PT018  (mypy)
    target, dtype = compiler.define(op.result), tile.dtype
    multiply, add = meaning_of("mul", dtype), meaning_of("add", dtype)
    kind, shared = dtype.numpy, _is_shared(tile)

    def step(frame: Frame, _mask: Mask) -> None:
        x, y, total = (_columns(frame[slot], shared) for slot in (left, right, acc))
        x = x.reshape(*a.shape, *x.shape[-2:]).astype(kind, copy=False)
        y = y.reshape(*b.shape, *y.shape[-2:]).astype(kind, copy=False)
        total = total.reshape(*tile.shape, *total.shape[-2:])
        for k in range(a.shape[1]):
            total = add(total, multiply(x[:, k, None], y[None, k]))
        frame[target] = total.reshape(-1, *total.shape[-2:])

    return step


@plain("tile_get")
def _get(compiler: FunctionCompiler, op: Op) -> Step:
    tile = op.operands[0].type
    assert isinstance(tile, Tile)
    source, *indices = compiler.slots(op.operands)
    target = compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        shared = _is_shared(tile)
        value = _columns(frame[source], shared)
        place: Lanes = np.zeros((1, 1), np.int64)
        for slot, size in zip(indices, tile.shape, strict=True):
            place = place * size + np.clip(_columns(frame[slot], shared), 0, size - 1)
        shape = np.broadcast_shapes(value.shape[-2:], place.shape)
        wide = np.broadcast_to(value, (tile.size, *shape))
        frame[target] = np.take_along_axis(wide, np.broadcast_to(place, shape)[None], axis=0)[0]

    return step
