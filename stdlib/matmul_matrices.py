"""Matrix multiplication on cooperative matrices: c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j].

Arrays have three axes; rows or columns are contiguous and 16-byte aligned. Tiles of a and b are staged in shared memory as
16-byte vectors, with rows padded by one vector against bank conflicts. The loop is software-pipelined: while the subgroups
multiply one K slice, they load the next one from shared memory into matrices, and the next tiles from global memory into
registers. A tile of a may span several tiles of b along K, so that both are read in whole cache lines.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import Device, DeviceArray, DeviceCaps, MatrixShape
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.matmul_operands import Operand, flat_operand, part

__all__ = ["TileShape", "fits", "multiply_by_matrices", "multiply_matrices", "tile_for"]

R = TypeVar("R", bound=vk.Element)


@dataclass(frozen=True, slots=True)
class TileShape:
    """Tile shape of a workgroup.

    `rows` x `columns` results are computed by `down` x `across` subgroups. Shared memory holds `depth` elements of b along K,
    and `halves` times as many of a. With `early`, the next global loads are issued between the two barriers. `band` is the
    height in tiles of the bands of the swizzled tile order.
    """

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    halves: int = 1
    early: bool = False
    band: int = 8


@vk.func
def left_matrix(sg, tile, line, k, T, ALONG, E, MM, MK):
    """Load the MM x MK matrix of a at row `line` of the tile and position k along K."""
    if ALONG:
        q = k // E
        return sg.load(tile[line : line + MM, q : q + MK // E], "a", dtype=T)
    else:
        q = line // E
        return sg.load(tile[k : k + MK, q : q + MM // E], "a", "column", dtype=T)


@vk.func
def right_matrix(sg, tile, column, k, T, ALONG, E, MN, MK):
    """Load the MK x MN matrix of b at `column` of the tile and position k along K."""
    if ALONG:
        q = k // E
        return sg.load(tile[column : column + MN, q : q + MK // E], "b", "column", dtype=T)
    else:
        q = column // E
        return sg.load(tile[k : k + MK, q : q + MN // E], "b", dtype=T)


@vk.kernel(
    groups=lambda c, PLAN: (vk.cdiv(c.shape[2], PLAN[1]), vk.cdiv(c.shape[1], PLAN[0]), c.shape[0]),
    local=lambda PLAN: PLAN[4] * PLAN[5] * PLAN[6],
    debug=False,
)
def multiply_tiles_of_matrices(  # noqa: PLR0915  one software pipeline, harder to follow in pieces
    a: vk.In[vk.u32, "X"],
    b: vk.In[vk.u32, "Y"],
    c: vk.Out[R, "G M N"],
    depth: vk.i32,
    a_line: vk.i32,
    a_batch: vk.i32,
    b_line: vk.i32,
    b_batch: vk.i32,
    T: vk.Const[Any],
    ACC: vk.Const[Any],
    PLAN: vk.Const[Any],
):
    """c = a @ b in tiles of BM x BN results. PLAN is the tuple of compile-time parameters that `_plan` returns.

    `depth`, the line strides and the batch strides are in 16-byte vectors of E elements. Matrix products are MM x MN x MK.
    A_ALONG, B_ALONG: the vectors lie along K. EXACT: K is a multiple of the tile's. EDGES: c isn't covered by whole tiles.
    """
    BM, BN, BK, HALVES, DOWN, ACROSS, SIZE, MM, MN, MK, E, A_ALONG, B_ALONG, EXACT, EDGES, EARLY, BAND = PLAN
    V = vk.vec(vk.u32, 4)
    KV, PARTS, COUNT = BK // E, BK // MK, DOWN * ACROSS * SIZE
    AK, TM, TN = BK * HALVES, BM // DOWN, BN // ACROSS
    FM, FN = TM // MM, TN // MN
    AV = AK // E if A_ALONG else BM // E
    BV = KV if B_ALONG else BN // E
    A_LINES, B_LINES = BM if A_ALONG else AK, BN if B_ALONG else BK
    A_STEP, B_STEP = COUNT // AV, COUNT // BV
    NA, NB = A_LINES // A_STEP, B_LINES // B_STEP
    a_tile, b_tile = vk.shared(V, (A_LINES, AV + 1)), vk.shared(V, (B_LINES, BV + 1))
    sg = vk.subgroup()
    lane, w, g = vk.i32(vk.local_id(0)), vk.i32(sg.id()), vk.i32(vk.group_id(2))
    rows, columns = vk.i32(c.shape[1]), vk.i32(c.shape[2])
    down, across = vk.i32(vk.num_groups(1)), vk.i32(vk.num_groups(0))
    number = vk.i32(vk.group_id(1)) * across + vk.i32(vk.group_id(0))
    band, rest = number // (BAND * across), number % (BAND * across)
    high = vk.min(down - band * BAND, BAND)
    tile_row, tile_column = band * BAND + rest % high, rest // high
    row, column = tile_row * BM, tile_column * BN
    a_first = row if A_ALONG else tile_row * (BM // E)
    b_first = column if B_ALONG else tile_column * (BN // E)
    a_last = rows - 1 if A_ALONG else vk.cdiv(rows, E) - 1
    b_last = columns - 1 if B_ALONG else vk.cdiv(columns, E) - 1
    a_base, b_base = g * a_batch, g * b_batch
    my_row, my_column = w // ACROSS * TM, w % ACROSS * TN
    ra, ca, rb, cb = lane // AV, lane % AV, lane // BV, lane % BV
    acc = ()
    for _ in vk.unroll(FM * FN):
        acc = acc + (sg.matrix((MM, MN), ACC),)
    for t in vk.unroll(NA):
        a_tile[ra + t * A_STEP, ca] = part(
            a, a_base, a_line, 0, a_first, a_last, depth, ra + t * A_STEP, ca, vk.u32, A_ALONG, E, EXACT, EDGES
        )
    for t in vk.unroll(NB):
        b_tile[rb + t * B_STEP, cb] = part(
            b, b_base, b_line, 0, b_first, b_last, depth, rb + t * B_STEP, cb, vk.u32, B_ALONG, E, EXACT, EDGES
        )
    ka = vk.min(KV * HALVES, depth - KV * HALVES) if EXACT else KV * HALVES
    kb = vk.min(KV, depth - KV) if EXACT else KV
    ahead_a, ahead_b = (), ()
    for t in vk.unroll(NA // HALVES):
        ahead_a = ahead_a + (
            part(a, a_base, a_line, ka, a_first, a_last, depth, ra + t * A_STEP, ca, vk.u32, A_ALONG, E, EXACT, EDGES),
        )
    for t in vk.unroll(NB):
        ahead_b = ahead_b + (
            part(b, b_base, b_line, kb, b_first, b_last, depth, rb + t * B_STEP, cb, vk.u32, B_ALONG, E, EXACT, EDGES),
        )
    vk.barrier()
    left, right = (), ()
    for i in vk.unroll(FM):
        left = left + (left_matrix(sg, a_tile, my_row + i * MM, 0, T, A_ALONG, E, MM, MK),)
    for j in vk.unroll(FN):
        right = right + (right_matrix(sg, b_tile, my_column + j * MN, 0, T, B_ALONG, E, MN, MK),)
    for k in range(0, depth, KV * HALVES):
        for s in vk.unroll(PARTS * HALVES):
            if s % PARTS == PARTS - 1:
                half = s // PARTS
                LAST = half == HALVES - 1
                vk.barrier()
                for t in vk.unroll(NB):
                    b_tile[rb + t * B_STEP, cb] = ahead_b[t]
                if LAST:
                    for t in vk.unroll(NA):
                        a_tile[ra + t * A_STEP, ca] = ahead_a[t]
                    ahead_a = ()
                if not EARLY:
                    vk.barrier()
                ka, kb = k + KV * HALVES * (2 if LAST else 1), k + KV * (half + 2)
                if EXACT:
                    ka, kb = vk.min(ka, depth - KV * HALVES), vk.min(kb, depth - KV)
                for t in vk.unroll(NA // HALVES):
                    r = ra + ((0 if LAST else half + 1) * (NA // HALVES) + t) * A_STEP
                    ahead_a = ahead_a + (
                        part(a, a_base, a_line, ka, a_first, a_last, depth, r, ca, vk.u32, A_ALONG, E, EXACT, EDGES),
                    )
                ahead_b = ()
                for t in vk.unroll(NB):
                    r = rb + t * B_STEP
                    ahead_b = ahead_b + (
                        part(b, b_base, b_line, kb, b_first, b_last, depth, r, cb, vk.u32, B_ALONG, E, EXACT, EDGES),
                    )
                if EARLY:
                    vk.barrier()
            next_left, next_right, total = (), (), ()
            for i in vk.unroll(FM):
                q = (s + 1) % (PARTS * HALVES) * MK
                next_left = next_left + (left_matrix(sg, a_tile, my_row + i * MM, q, T, A_ALONG, E, MM, MK),)
            for j in vk.unroll(FN):
                q = (s + 1) % PARTS * MK
                next_right = next_right + (right_matrix(sg, b_tile, my_column + j * MN, q, T, B_ALONG, E, MN, MK),)
            for i in vk.unroll(FM):
                for j in vk.unroll(FN):
                    total = total + (sg.mma(left[i], right[j], acc[i * FN + j]),)
            acc, left, right = total, next_left, next_right
    NATIVE = c.dtype is ACC or (c.dtype is vk.f16 and ACC is vk.f32)
    if NATIVE and (not EDGES or (row + BM <= rows and column + BN <= columns)):
        for i in vk.unroll(FM):
            for j in vk.unroll(FN):
                p, q = row + my_row + i * MM, column + my_column + j * MN
                sg.store(c[g, p : p + MM, q : q + MN], R(acc[i * FN + j]))
    elif not NATIVE or EDGES:
        WORDS, WORD = MN // 4, vk.f32 if ACC is vk.f16 else ACC
        line, place = w // ((AV + 1) // WORDS) * MM, w % ((AV + 1) // WORDS) * WORDS
        for i in vk.unroll(FM):
            for j in vk.unroll(FN):
                vk.barrier()
                sg.store(
                    a_tile[line : line + MM, place : place + WORDS],
                    acc[i * FN + j] if WORD is ACC else WORD(acc[i * FN + j]),
                )
                vk.barrier()
                for step in vk.unroll(MM * WORDS // SIZE):
                    at = step * SIZE + vk.i32(sg.rank())
                    words = a_tile[line + at // WORDS, place + at % WORDS]
                    p, q = row + my_row + i * MM + at // WORDS, column + my_column + j * MN + at % WORDS * 4
                    for t in vk.unroll(4):
                        c.put(g, p, q + t, R(vk.bitcast(WORD, words[t])))


@dataclass(frozen=True, slots=True)
class _Operands:
    """Both operands as arrays of 16-byte vectors; `each` is the number of elements per vector."""

    a: Operand
    b: Operand
    each: int

    @property
    def along(self) -> tuple[bool, bool]:
        return self.a.along, not self.b.along


def _operands(a: DeviceArray, b: DeviceArray) -> _Operands | None:
    """Return the operands of the kernel, or None if their layout isn't supported."""
    left, right = flat_operand(a, vk.u32), flat_operand(b, vk.u32)
    each = 16 // a.dtype.itemsize
    if left is None or right is None or a.shape[2] % each:
        return None
    return _Operands(left, right, each)


def _can_store(c: DeviceArray) -> bool:
    """True if cooperative matrices can be stored to c: its rows begin at multiples of 16 bytes."""
    return c.offset % 16 == 0 and c.shape[2] * c.dtype.itemsize % 16 == 0


def _plan(c: DeviceArray, depth: int, operands: _Operands, shape: MatrixShape, tile: TileShape) -> tuple[Any, ...]:
    """Return PLAN, the compile-time parameters of the kernel."""
    edges = c.shape[1] % tile.rows != 0 or c.shape[2] % tile.columns != 0
    return (
        tile.rows, tile.columns, tile.depth, tile.halves, tile.down, tile.across, c.device.caps.subgroup_size,
        shape.m, shape.n, shape.k, operands.each, *operands.along, depth % (tile.depth * tile.halves) == 0, edges, tile.early,
        tile.band,
    )  # fmt: skip


def multiply_matrices(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, accumulate: Any, shape: MatrixShape, tile: TileShape
) -> bool:
    """Queue the product on the device of c; return False if the layout of the arrays isn't supported.

    c is contiguous, with rows that begin at multiples of 16 bytes. The tile must fit the device (see `fits`).
    """
    operands = _operands(a, b)
    if operands is None or not _can_store(c):
        return False
    _launch(a, c, accumulate, operands, _plan(c, a.shape[2], operands, shape, tile))
    return True


def _launch(a: DeviceArray, c: DeviceArray, accumulate: Any, operands: _Operands, plan: tuple[Any, ...]) -> None:
    multiply_tiles_of_matrices(
        operands.a.words, operands.b.words, c, a.shape[2] // operands.each, operands.a.line, operands.a.batch, operands.b.line,
        operands.b.batch, a.dtype, accumulate, plan,
    )  # fmt: skip


ACCUMULATORS = {"f16": "f32", "bf16": "f32", "i8": "i32", "u8": "u32"}
"""Maps element types of cooperative matrices to their accumulator types."""
LEAST_TILES = 96
"""Minimum number of workgroups that keeps a large GPU busy."""
DEPTH_BYTES = 64
"""Extent of a tile along K in bytes: 32 elements of 16 bits."""


def tiles_of(each: int) -> tuple[TileShape, ...]:
    """Return the candidate tiles, largest first; `each` is the number of elements in 16 bytes."""
    depth = DEPTH_BYTES // 16 * each
    return (
        TileShape(256, 128, depth, 4, 2, 2, early=True),
        TileShape(128, 128, depth, 2, 2),
        TileShape(64, 128, depth, 2, 2),
        TileShape(64, 64, depth, 2, 2),
    )


def fits(tile: TileShape, shape: MatrixShape, each: int, caps: DeviceCaps, along: tuple[bool, bool]) -> bool:
    """True if a device can run a tile. `along`: whether the vectors of a and b lie along K."""
    count = tile.down * tile.across * caps.subgroup_size
    if tile.rows % (tile.down * shape.m) or tile.columns % (tile.across * shape.n) or tile.depth % shape.k:
        return False
    sizes = (tile.rows, tile.columns, shape.m, shape.n, shape.k)
    if count > caps.max_invocations or shape.n % 4 or any(size % each for size in sizes):
        return False
    shared = 0
    for size, deep, is_along, halves in (
        (tile.rows, tile.depth * tile.halves, along[0], tile.halves), (tile.columns, tile.depth, along[1], 1),
    ):  # fmt: skip
        lines, vectors = (size, deep // each) if is_along else (deep, size // each)
        if count % vectors or lines * vectors % (count * halves):
            return False
        shared += lines * (vectors + 1) * 16
    return shared <= caps.shared_bytes and _staging_slots(tile, shape, each, along[0]) >= tile.down * tile.across


def _staging_slots(tile: TileShape, shape: MatrixShape, each: int, along: bool) -> int:
    """Return the number of result matrices that fit into the tile of a in shared memory.

    At edges, and to convert results, each subgroup stores one there at a time.
    """
    deep = tile.depth * tile.halves
    lines, vectors = (tile.rows, deep // each) if along else (deep, tile.rows // each)
    return lines // shape.m * ((vectors + 1) // (shape.n // 4))


def tile_for(
    rows: int, columns: int, batch: int, shape: MatrixShape, each: int, caps: DeviceCaps, along: tuple[bool, bool]
) -> TileShape | None:
    """Choose the largest tile that still yields enough workgroups to keep the device busy, else the smallest.

    Return None if no tile fits the device.
    """
    usable = [tile for tile in tiles_of(each) if fits(tile, shape, each, caps, along)]
    for tile in usable:
        if batch * vk.cdiv(rows, tile.rows) * vk.cdiv(columns, tile.columns) >= LEAST_TILES:
            return tile
    return usable[-1] if usable else None


Chosen = tuple[Any, tuple[Any, ...]]
"""The accumulator type and the PLAN of the kernel."""
_CHOSEN: weakref.WeakKeyDictionary[Device, dict[Any, Chosen | None]] = weakref.WeakKeyDictionary()
"""Per device: the choice for each combination of types, shapes and layouts; None if cooperative matrices can't be used."""
MOST_CHOSEN = 4096


def multiply_by_matrices(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> bool:
    """Like `multiply_matrices`, with the shapes chosen by rule; also False if the device has no suitable matrices."""
    device = c.device
    if not device.caps.matrices or a.dtype.itemsize > 2 or a.dtype is not b.dtype:
        return False
    operands = _operands(a, b)
    if operands is None or c.strides[2] != 1 or c.strides[1] != c.shape[2] or not _can_store(c):
        return False
    choices = _CHOSEN.setdefault(device, {})
    key = (a.dtype, c.dtype, c.shape, a.shape[2], operands.along)
    if key not in choices:
        if len(choices) >= MOST_CHOSEN:
            choices.clear()
        choices[key] = _choose(a, c, operands)
    chosen = choices[key]
    if chosen is None:
        return False
    _launch(a, c, chosen[0], operands, chosen[1])
    return True


def _choose(a: DeviceArray, c: DeviceArray, operands: _Operands) -> Chosen | None:
    caps, accumulator = c.device.caps, ACCUMULATORS.get(a.dtype.name, "")
    shape = native_shape(caps.matrices, a.dtype.name, a.dtype.name, accumulator)
    if shape is None:
        return None
    tile = tile_for(c.shape[1], c.shape[2], c.shape[0], shape, operands.each, caps, operands.along)
    if tile is None:
        return None
    return getattr(vk, accumulator), _plan(c, a.shape[2], operands, shape, tile)
