"""Matrix products: c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j], for every matrix g of a batch.

Enters: arrays of three axes, of any strides (transposed views, broadcast batches). Leaves: c. Products are added in ACC, in
the order of k, and converted once. `multiply` chooses the variant for the device.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.stdlib.registry import choose, variant

__all__ = ["multiply", "multiply_large_tiles", "multiply_registers", "multiply_tiles"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TILE = 64
LARGE = 128
DEPTH = 16
EACH = 4
LANES = 8
MANY_TILES = 64
"""Large tiles from which on they keep a GPU busy."""

MOST_K = 16384
"""Rounds of one invocation of `multiply_registers`; longer products are cut by the caller."""


@vk.kernel(groups=lambda c: (vk.cdiv(c.shape[2], TILE), vk.cdiv(c.shape[1], TILE), c.shape[0]), local=256, debug=False)
def multiply_tiles(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    A_ROWS: vk.Const[bool],
    B_ROWS: vk.Const[bool],
):
    """Tiles of 64 x 64 in shared memory, 4 x 4 results per invocation. A_ROWS, B_ROWS: neighbours in a row of the matrix are
    neighbours in memory, so that the workgroup loads along rows; else along columns."""
    a_tile, b_tile = vk.shared(ACC, (DEPTH, TILE + 4)), vk.shared(ACC, (DEPTH, TILE + 4))
    lane, g = vk.local_id(0), vk.group_id(2)
    row, column = vk.group_id(1) * TILE, vk.group_id(0) * TILE
    my_row, my_column = lane // 16, lane % 16
    depth = a.shape[2]
    acc = vk.local(ACC, (EACH, EACH))
    for i in vk.unroll(EACH):
        for j in vk.unroll(EACH):
            acc[i, j] = ACC(0)
    for k in range(0, depth, DEPTH):
        for step in vk.unroll(TILE * DEPTH // 256):
            if A_ROWS:
                a_tile[lane % 16, lane // 16 + 16 * step] = ACC(
                    a.get(g, row + lane // 16 + 16 * step, k + lane % 16, pad=0)
                )
            else:
                a_tile[lane // 64 + 4 * step, lane % 64] = ACC(
                    a.get(g, row + lane % 64, k + lane // 64 + 4 * step, pad=0)
                )
            if B_ROWS:
                b_tile[lane // 64 + 4 * step, lane % 64] = ACC(
                    b.get(g, k + lane // 64 + 4 * step, column + lane % 64, pad=0)
                )
            else:
                b_tile[lane % 16, lane // 16 + 16 * step] = ACC(
                    b.get(g, k + lane % 16, column + lane // 16 + 16 * step, pad=0)
                )
        vk.barrier()
        for t in range(DEPTH):
            for i in vk.unroll(EACH):
                x = a_tile[t, my_row + 16 * i]
                for j in vk.unroll(EACH):
                    acc[i, j] = acc[i, j] + x * b_tile[t, my_column + 16 * j]
        vk.barrier()
    for i in vk.unroll(EACH):
        for j in vk.unroll(EACH):
            c.put(g, row + my_row + 16 * i, column + my_column + 16 * j, R(acc[i, j]))


@vk.kernel(groups=lambda c: (vk.cdiv(c.shape[2], LARGE), vk.cdiv(c.shape[1], LARGE), c.shape[0]), local=256, debug=False)
def multiply_large_tiles(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    A_ROWS: vk.Const[bool],
    B_ROWS: vk.Const[bool],
):
    """Tiles of 128 x 128 in shared memory, 8 x 8 results per invocation; the next tiles are on their way into registers
    while these are multiplied."""
    a_tile, b_tile = vk.shared(ACC, (DEPTH, LARGE + 4)), vk.shared(ACC, (DEPTH, LARGE + 4))
    lane, g = vk.local_id(0), vk.group_id(2)
    row, column = vk.group_id(1) * LARGE, vk.group_id(0) * LARGE
    my_row, my_column = lane // 16 * 4, lane % 16 * 4
    depth = a.shape[2]
    acc, left = vk.local(ACC, (8, 8)), vk.local(ACC, 8)
    next_a, next_b = vk.local(ACC, 8), vk.local(ACC, 8)
    for i in vk.unroll(8):
        for j in vk.unroll(8):
            acc[i, j] = ACC(0)
    for s in vk.unroll(8):
        next_a[s] = ACC(a.get(g, row + along(lane, s, A_ROWS), across(lane, s, A_ROWS), pad=0))
        next_b[s] = ACC(b.get(g, across(lane, s, not B_ROWS), column + along(lane, s, not B_ROWS), pad=0))
    for k in range(0, depth, DEPTH):
        for s in vk.unroll(8):
            a_tile[across(lane, s, A_ROWS), along(lane, s, A_ROWS)] = next_a[s]
            b_tile[across(lane, s, not B_ROWS), along(lane, s, not B_ROWS)] = next_b[s]
        vk.barrier()
        for s in vk.unroll(8):
            next_a[s] = ACC(a.get(g, row + along(lane, s, A_ROWS), k + DEPTH + across(lane, s, A_ROWS), pad=0))
            next_b[s] = ACC(b.get(g, k + DEPTH + across(lane, s, not B_ROWS), column + along(lane, s, not B_ROWS), pad=0))
        for t in range(DEPTH):
            for i in vk.unroll(8):
                left[i] = a_tile[t, i // 4 * 64 + my_row + i % 4]
            for j in vk.unroll(8):
                right = b_tile[t, j // 4 * 64 + my_column + j % 4]
                for i in vk.unroll(8):
                    acc[i, j] = acc[i, j] + left[i] * right
        vk.barrier()
    for i in vk.unroll(8):
        for j in vk.unroll(8):
            c.put(g, row + i // 4 * 64 + my_row + i % 4, column + j // 4 * 64 + my_column + j % 4, R(acc[i, j]))


@vk.func
def along(lane, step, depth_first):
    """The row (of a) or column (of b) of a tile that an invocation loads in a step: neighbours along the depth, or not."""
    return vk.where(depth_first, lane // 16 + 16 * step, lane % 128)


@vk.func
def across(lane, step, depth_first):
    """The place along the depth that an invocation loads in a step."""
    return vk.where(depth_first, lane % 16, lane // 128 + 2 * step)


@vk.kernel(
    groups=lambda c, ROWS, COLUMNS: (vk.cdiv(c.shape[2], LANES * COLUMNS), vk.cdiv(c.shape[1], ROWS), c.shape[0]),
    local=LANES,
    debug=False,
)
def multiply_registers(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    ROWS: vk.Const[int],
    COLUMNS: vk.Const[int],
):
    """ROWS x COLUMNS results per invocation, no shared memory: the workgroup shares its elements of a, lanes lie along a row
    of b. Rows and columns past the end repeat the last one and aren't stored."""
    lane, g = vk.local_id(0), vk.group_id(2)
    row, column = vk.group_id(1) * ROWS, vk.group_id(0) * (LANES * COLUMNS) + lane
    last_row, last_column = c.shape[1] - 1, c.shape[2] - 1
    acc = vk.local(ACC, (ROWS, COLUMNS))
    right = vk.local(ACC, COLUMNS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            acc[i, j] = ACC(0)
    for k in range(vk.min(a.shape[2], MOST_K)):
        for j in vk.unroll(COLUMNS):
            right[j] = ACC(b[g, k, vk.min(column + j * LANES, last_column)])
        for i in vk.unroll(ROWS):
            left = ACC(a[g, vk.min(row + i, last_row), k])
            for j in vk.unroll(COLUMNS):
                acc[i, j] = acc[i, j] + left * right[j]
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            c.put(g, row + i, column + j * LANES, R(acc[i, j]))


@variant("matmul", "gpu")
def _on_gpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    a_rows = abs(a.strides[2]) <= abs(a.strides[1])
    b_rows = abs(b.strides[2]) <= abs(b.strides[1])
    tiles = c.shape[0] * vk.cdiv(c.shape[1], LARGE) * vk.cdiv(c.shape[2], LARGE)
    kernel = multiply_large_tiles if tiles >= MANY_TILES and accumulate.bits == 32 else multiply_tiles
    kernel(a, b, c, accumulate, a_rows, b_rows)


@variant("matmul", "cpu")
def _on_cpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    rows = 8 if c.shape[1] >= 8 else 1
    multiply_registers(a, b, c, accumulate, rows, 2 if c.shape[2] > LANES else 1)


def multiply(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Queues the product on the device of c. On devices of class "cpu" K is at most `MOST_K`."""
    choose("matmul", c.device)(a, b, c, accumulate)
