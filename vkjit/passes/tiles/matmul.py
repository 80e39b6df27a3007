"""Lowering of `tile_mma`: bring the operands to where the engine reads them, then emit the engine's code.

`lower` calls `multiply` for each `tile_mma`. Slices of global memory are all loaded before any is stored to shared
memory, so that the loads overlap. The shared memory of an operand is released after its last use. The package's
docstring defines the terms (slice, product, staging, engine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from vkjit.ir.core import Op, Value
from vkjit.ir.types import Tile

from . import fma_matmul, mma_matmul, shared_operands
from .assign_layouts import tile_of
from .mma_matmul import KeptInMatrices
from .shared_operands import Packed
from .software_pipeline import PipelinedProduct
from .tile_state import Deferred, Held, Staged

if TYPE_CHECKING:
    from .lower import Lowering, Place

__all__ = ["label", "multiply", "shape_of"]


def multiply(low: Lowering, op: Op) -> None:
    """Lower a `tile_mma`: emit its code and record where the result is in `low.tiles`."""
    choice = low.engine(op)
    left, right = op.operands[:2]
    depth = tile_of(left).shape[1]
    note = f"{op.loc}: product of {shape_of(tile_of(left))} and {shape_of(tile_of(right))}: engine {choice.engine}"
    if choice.engine == "matrix":
        low.context.notes.append(f"{note} ({choice.reason})")
        _matrix_product(low, op, depth)
        return
    low.check_held(op.result)
    acc = low.in_registers(op.operands[2], low.layouts.of(op.result))
    low.context.notes.append(f"{note} ({choice.reason}); each invocation sums {acc.layout}")
    if choice.engine == "fma":
        _staged_product(low, op, acc, depth)
        return
    sources = [_readable(low, v) for v in (left, right)]
    for source in sources:
        if isinstance(source, Deferred):
            low.context.access(source.operands[0], "r", acc.layout.scope)
    if choice.engine == "direct" and any(isinstance(s, Held) for s in sources):
        # With an operand in registers, the loop over K would be unrolled completely (see `fma_matmul`).
        sources = [_stage(low, s, v) if isinstance(s, Held) else s for s, v in zip(sources, (left, right), strict=True)]
    _read_staged(low, sources)
    low.tiles[op.result] = fma_matmul.multiply(low.context, sources[0], sources[1], acc, depth)
    for source in sources:
        if isinstance(source, Staged):
            low.context.release(source.array)


def _readable(low: Lowering, value: Value) -> Held | Staged | Deferred:
    """Return the location of an operand. An operand that multiply-add can't read in place is moved to registers."""
    tile = low.tiles[value]
    return tile if isinstance(tile, Held | Staged | Deferred) else low.in_registers(value)


def _stage(low: Lowering, tile: Held, value: Value) -> Staged:
    """Stage the operand `value`, whose elements are in the registers `tile`."""
    return fma_matmul.stage_held(low.context, tile, tile_of(value), "factor")


def _read_staged(low: Lowering, sources: Sequence[Place]) -> None:
    """Record reads of the operands in shared memory, after a barrier if it is needed."""
    for source in sources:
        if isinstance(source, Staged | Packed):
            low.context.access(source.array, "r")


def _stage_operands(low: Lowering, op: Op, *, pad_rows: bool) -> tuple[list[Place], list[Value]]:
    """Bring both operands into shared memory, loading all slices before any store.

    Return the locations of the operands, and the shared arrays that were allocated for this product. `pad_rows` is True
    for products on matrices, which need 16 bytes of padding after each row in shared memory.
    """
    operand_tiles: list[Place] = [low.tiles[v] for v in op.operands[:2]]
    slices = [(s.op, s.operands, label(s.operands[0])) for s in operand_tiles if isinstance(s, Deferred)]
    staged: Iterator[Place]
    transposed = low.transposed_operands(
        op, [number for number, s in enumerate(operand_tiles) if isinstance(s, Deferred)]
    )
    if transposed is not None:
        staged = iter(shared_operands.stage(low.context, slices, transposed))
    else:
        staged = iter(fma_matmul.stage_slices(low.context, slices, pad_rows=pad_rows))
    sources: list[Place] = []
    arrays: list[Value] = []
    for source, value in zip(operand_tiles, op.operands[:2], strict=True):
        location = source
        if isinstance(source, Deferred):
            location = next(staged)
        elif not isinstance(source, Staged | Packed | KeptInMatrices):
            location = _stage(low, low.in_registers(value), value)
        sources.append(location)
        if location is not source and isinstance(location, Staged | Packed):
            arrays.append(location.array)
    _read_staged(low, sources)
    return sources, arrays


def _stage_or_take_prefetched(low: Lowering, op: Op, *, pad_rows: bool) -> tuple[list[Place], list[Value]]:
    """Like `_stage_operands`, but use operands that were prefetched in the previous iteration, if there are any."""
    prefetch = low.prefetches.get(op)
    if prefetch is None:
        return _stage_operands(low, op, pad_rows=pad_rows)
    arrays: list[Value] = []

    def stager(number: int) -> Callable[[], Staged | Packed | KeptInMatrices]:
        """Return a function that stages an operand that isn't prefetched.

        The operand is loaded to registers here already, before the prefetched operands are stored.
        """
        value = op.operands[number]
        staged = low.tiles[value]
        if isinstance(staged, Staged | Packed | KeptInMatrices):
            return lambda: staged
        tile = low.in_registers(value)

        def stage() -> Staged:
            place = _stage(low, tile, value)
            arrays.append(place.array)
            return place

        return stage

    others = {number: stager(number) for number in (0, 1) if number not in prefetch.operand_numbers}
    sources: list[Place] = list(prefetch.stage_and_load_next(low.context, others))
    prefetched_sources = [sources[number] for number in prefetch.operand_numbers]
    return sources, arrays + [place.array for place in prefetched_sources if isinstance(place, Staged | Packed)]


def _staged_product(low: Lowering, op: Op, acc: Held, depth: int) -> None:
    """Lower a product by multiply-add with operands in shared memory; `depth` is the size of K."""
    (left, right), arrays = _stage_or_take_prefetched(low, op, pad_rows=False)
    assert isinstance(left, Staged | Packed)
    assert isinstance(right, Staged | Packed)
    prefetch = low.prefetches.get(op)
    only_prefetched = prefetch is not None and sum(p.loop is prefetch.loop for p in low.prefetches.values()) == 1
    low.tiles[op.result] = fma_matmul.multiply(low.context, left, right, acc, depth, prefetched=only_prefetched)
    _release(low, op, arrays)


def _matrix_product(low: Lowering, op: Op, depth: int) -> None:
    """Lower a product on cooperative matrices; `depth` is the size of K."""
    acc = low.in_matrices(op.operands[2], low.plans[op.result])
    prefetch = low.prefetches.get(op)
    if isinstance(prefetch, PipelinedProduct):
        low.tiles[op.result] = prefetch.multiply(low.context, acc)
        return
    (left, right), arrays = _stage_or_take_prefetched(low, op, pad_rows=True)
    assert isinstance(left, Staged | Packed | KeptInMatrices)
    assert isinstance(right, Staged | Packed | KeptInMatrices)
    low.tiles[op.result] = mma_matmul.multiply(low.context, left, right, acc, depth)
    _release(low, op, arrays)


def _release(low: Lowering, op: Op, arrays: Sequence[Value]) -> None:
    """Release `arrays`, the shared arrays of this product, and the arrays of staged operands that have no later use.

    An operand that is defined or used in another region keeps its array, since a loop may read it again.
    """
    for array in arrays:
        low.context.release(array)
    for value in dict.fromkeys(op.operands[:2]):
        uses, kept = low.uses[value], low.tiles[value]
        if not isinstance(kept, Staged | Packed) or value.op is None or uses[-1] is not op:
            continue
        if all(low.regions[o] is low.regions[op] for o in (*uses, value.op)):
            low.context.release(kept.array)


def label(array: Value) -> str:
    """Return the label of a tile that is staged from an array: the array's name."""
    return array.name or "tile"


def shape_of(kind: Tile) -> str:
    """Return a tile's shape as text, for notes."""
    return " x ".join(map(str, kind.shape))
