"""Lowering of `tile_mma`: bring the operands to where the engine reads them, then emit the engine's code.

All slices of global memory are loaded before anything is written to shared memory. Shared memory whose operands have no
further use is released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from vkjit.ir.core import Op, Value
from vkjit.ir.types import Tile

from . import fma_matmul, memory, mma_matmul, shared_operands
from .mma_matmul import KeptInMatrices
from .shared_operands import Packed
from .software_pipeline import PipelinedProduct
from .tile_state import Deferred, Held, Staged

if TYPE_CHECKING:
    from .lower import Lowering, Place

__all__ = ["label", "multiply", "shape_of"]


def multiply(low: Lowering, op: Op) -> None:
    """Lower a `tile_mma`."""
    choice = low.engine(op)
    left, right = op.operands[:2]
    depth = memory.kind_of(left).shape[1]
    note = f"{op.loc}: product of {shape_of(memory.kind_of(left))} and {shape_of(memory.kind_of(right))}: engine {choice.engine}"
    if choice.engine == "matrix":
        low.context.notes.append(f"{note} ({choice.reason})")
        _matrix_product(low, op, depth)
        return
    low.check_held(op.result)
    acc = low.held(op.operands[2], low.layouts.of(op.result))
    low.context.notes.append(f"{note} ({choice.reason}); each invocation sums {acc.layout}")
    if choice.engine == "fma":
        _staged_product(low, op, acc, depth)
        return
    sources = [_factor(low, v) for v in (left, right)]
    for source in sources:
        if isinstance(source, Deferred):
            low.context.access(source.operands[0], "r", acc.layout.scope)
    if choice.engine == "direct" and any(isinstance(s, Held) for s in sources):
        sources = [_stage(low, s, v) if isinstance(s, Held) else s for s, v in zip(sources, (left, right), strict=True)]
    _read_staged(low, sources)
    low.tiles[op.result] = fma_matmul.multiply(low.context, sources[0], sources[1], acc, depth)
    for source in sources:
        if isinstance(source, Staged):
            low.context.release(source.array)


def _factor(low: Lowering, value: Value) -> Held | Staged | Deferred:
    """Return an operand in a form that multiply-add in registers reads."""
    tile = low.tiles[value]
    return tile if isinstance(tile, Held | Staged | Deferred) else low.held(value)


def _stage(low: Lowering, tile: Held, value: Value) -> Staged:
    return fma_matmul.stage_held(low.context, tile, memory.kind_of(value), "factor")


def _read_staged(low: Lowering, sources: Sequence[Place]) -> None:
    for source in sources:
        if isinstance(source, Staged | Packed):
            low.context.access(source.array, "r")


def _factors(low: Lowering, op: Op, *, packed: bool) -> tuple[list[Place], list[Value]]:
    """Stage both operands in shared memory, loading all slices before any store.

    Return where the operands are, and the arrays that this product alone uses.
    """
    operand_tiles: list[Place] = [low.tiles[v] for v in op.operands[:2]]
    slices = [(s.op, s.operands, label(s.operands[0])) for s in operand_tiles if isinstance(s, Deferred)]
    staged: Iterator[Place]
    turns = low.transposed_operands(op, [number for number, s in enumerate(operand_tiles) if isinstance(s, Deferred)])
    if turns is not None:
        staged = iter(shared_operands.stage(low.context, slices, turns))
    else:
        staged = iter(fma_matmul.stage_slices(low.context, slices, pad_rows=packed))
    sources: list[Place] = []
    arrays: list[Value] = []
    for source, value in zip(operand_tiles, op.operands[:2], strict=True):
        place = source
        if isinstance(source, Deferred):
            place = next(staged)
        elif not isinstance(source, Staged | Packed | KeptInMatrices):
            place = _stage(low, low.held(value), value)
        sources.append(place)
        if place is not source and isinstance(place, Staged | Packed):
            arrays.append(place.array)
    _read_staged(low, sources)
    return sources, arrays


def _places(low: Lowering, op: Op, *, packed: bool) -> tuple[list[Place], list[Value]]:
    """Variant of `_factors` for a product whose operands may have been prefetched."""
    ahead = low.prefetches.get(op)
    if ahead is None:
        return _factors(low, op, packed=packed)
    arrays: list[Value] = []

    def put(number: int) -> Callable[[], Staged | Packed | KeptInMatrices]:
        value = op.operands[number]
        staged = low.tiles[value]
        if isinstance(staged, Staged | Packed | KeptInMatrices):
            return lambda: staged
        tile = low.held(value)

        def stage() -> Staged:
            place = _stage(low, tile, value)
            arrays.append(place.array)
            return place

        return stage

    others = {number: put(number) for number in (0, 1) if number not in ahead.operand_numbers}
    sources: list[Place] = list(ahead.stage_and_load_next(low.context, others))
    own = [sources[number] for number in ahead.operand_numbers]
    return sources, arrays + [place.array for place in own if isinstance(place, Staged | Packed)]


def _staged_product(low: Lowering, op: Op, acc: Held, depth: int) -> None:
    (left, right), arrays = _places(low, op, packed=False)
    assert isinstance(left, Staged | Packed)
    assert isinstance(right, Staged | Packed)
    ahead = low.prefetches.get(op)
    alone = ahead is not None and sum(other.loop is ahead.loop for other in low.prefetches.values()) == 1
    low.tiles[op.result] = fma_matmul.multiply(low.context, left, right, acc, depth, prefetched=alone)
    _release(low, op, arrays)


def _matrix_product(low: Lowering, op: Op, depth: int) -> None:
    acc = low.matrices(op.operands[2], low.plans[op.result])
    ahead = low.prefetches.get(op)
    if isinstance(ahead, PipelinedProduct):
        low.tiles[op.result] = ahead.multiply(low.context, acc)
        return
    (left, right), arrays = _places(low, op, packed=True)
    assert isinstance(left, Staged | Packed | KeptInMatrices)
    assert isinstance(right, Staged | Packed | KeptInMatrices)
    low.tiles[op.result] = mma_matmul.multiply(low.context, left, right, acc, depth)
    _release(low, op, arrays)


def _release(low: Lowering, op: Op, made: Sequence[Value]) -> None:
    """Release the memory of operands without further uses."""
    for array in made:
        low.context.release(array)
    for value in dict.fromkeys(op.operands[:2]):
        uses, kept = low.uses[value], low.tiles[value]
        if not isinstance(kept, Staged | Packed) or value.op is None or uses[-1] is not op:
            continue
        if all(low.regions[o] is low.regions[op] for o in (*uses, value.op)):
            low.context.release(kept.array)


def label(array: Value) -> str:
    """Return the name of an array, for the tile that is staged from it."""
    return array.name or "tile"


def shape_of(kind: Tile) -> str:
    """Return a tile's shape as text, for notes."""
    return " x ".join(map(str, kind.shape))
