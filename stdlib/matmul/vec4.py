"""f32 matrix multiplication on GPUs with vectorized loads: vec4 tiles in shared memory, 8 x 8 sums per invocation.

`by_rule` uses this kernel for large products of f32. The operands have three axes; their rows or their columns are
contiguous and 16-byte aligned. A *line* of an operand is such a contiguous row or column, and a *vector* is four
adjacent elements of a line (see `operands`). R is the element type of c. Products are added in the order of k. The next
tiles are prefetched into registers while the current ones are multiplied.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.matmul.operands import flat_operand, load_tile_vector

__all__ = ["multiply_vec4"]

R = TypeVar("R", bound=vk.Element)

TILE = 128
"""Rows and columns of the tile of c that a workgroup computes."""
DEPTH = 16
"""Extent of a tile of a or b along K, in elements."""
QUADS = DEPTH // 4
"""Extent of a tile of a or b along K, in vectors."""


@vk.kernel(groups=lambda c: (vk.cdiv(c.shape[2], TILE), vk.cdiv(c.shape[1], TILE), c.shape[0]), local=256, debug=False)
def multiply_vec4_tiles(
    a: vk.In[vk.f32, "X"],
    b: vk.In[vk.f32, "Y"],
    c: vk.Out[R, "G M N"],
    depth: vk.i32,
    a_line: vk.i32,
    a_batch: vk.i32,
    b_line: vk.i32,
    b_batch: vk.i32,
    A_ALONG: vk.Const[bool],
    B_ALONG: vk.Const[bool],
    EXACT: vk.Const[bool],
    EDGES: vk.Const[bool],
    BAND: vk.Const[int] = 8,
):
    """Compute c = a @ b, one TILE x TILE tile of c per workgroup.

    `depth` is the extent of K; `a_line` and `b_line` are the strides of lines, `a_batch` and `b_batch` those of
    matrices in the batch. All five are in vectors. A_ALONG, B_ALONG: the vectors of a, b lie along K. EXACT: K is a
    multiple of DEPTH. EDGES: some tiles extend beyond c. BAND: the number of tile rows in a band of the swizzled tile
    order (see the comment in the kernel).
    """
    V = vk.vec(vk.f32, 4)
    # A tile has A_LINES (B_LINES) lines of AV (BV) vectors, padded by one vector against bank conflicts.
    AV, BV = (QUADS if A_ALONG else TILE // 4), (QUADS if B_ALONG else TILE // 4)
    A_LINES, B_LINES = (TILE if A_ALONG else DEPTH), (TILE if B_ALONG else DEPTH)
    a_tile, b_tile = vk.shared(V, (A_LINES, AV + 1)), vk.shared(V, (B_LINES, BV + 1))
    invocation, g = vk.i32(vk.local_id(0)), vk.i32(vk.group_id(2))
    rows, columns = vk.i32(c.shape[1]), vk.i32(c.shape[2])
    tiles_down, tiles_across = vk.i32(vk.num_groups(1)), vk.i32(vk.num_groups(0))
    # Swizzled tile order for L2 locality: a band is BAND rows of tiles. Consecutive workgroups compute the tiles of a
    # band column by column, so that those running at the same time share tiles of a and b.
    tile_number = vk.i32(vk.group_id(1)) * tiles_across + vk.i32(vk.group_id(0))
    band, in_band = tile_number // (BAND * tiles_across), tile_number % (BAND * tiles_across)
    band_height = vk.min(tiles_down - band * BAND, BAND)
    tile_row, tile_column = band * BAND + in_band % band_height, in_band // band_height
    row, column = tile_row * TILE, tile_column * TILE
    # First line (or vector, if the vectors don't lie along K) of this tile in a and b, and the last one in the matrix.
    a_first = row if A_ALONG else tile_row * (TILE // 4)
    b_first = column if B_ALONG else tile_column * (TILE // 4)
    a_last = rows - 1 if A_ALONG else vk.cdiv(rows, 4) - 1
    b_last = columns - 1 if B_ALONG else vk.cdiv(columns, 4) - 1
    a_base, b_base = g * a_batch, g * b_batch
    # Line and vector in the tile of a (ra, ca) and in that of b (rb, cb) at which this invocation starts to load. It
    # loads two vectors of each tile, A_STEP (B_STEP) lines apart.
    ra, ca, rb, cb = invocation // AV, invocation % AV, invocation // BV, invocation % BV
    A_STEP, B_STEP = 256 // AV, 256 // BV
    # The 256 invocations form a grid of 16 x 16; 32 consecutive ones cover 4 x 8 of it, so that they share loads.
    my_row, my_column = invocation // 64 * 4 + invocation % 32 // 8, invocation // 32 % 2 * 8 + invocation % 8
    acc = vk.local(V, (8, 2))
    for i in vk.unroll(8):
        for j in vk.unroll(2):
            acc[i, j] = V(0)
    ahead_a, ahead_b = vk.local(V, 2), vk.local(V, 2)
    for s in vk.unroll(2):
        r, q = ra + s * A_STEP, rb + s * B_STEP
        ahead_a[s] = load_tile_vector(
            a, a_base, a_line, 0, a_first, a_last, depth, r, ca, vk.f32, A_ALONG, 4, EXACT, EDGES
        )
        ahead_b[s] = load_tile_vector(
            b, b_base, b_line, 0, b_first, b_last, depth, q, cb, vk.f32, B_ALONG, 4, EXACT, EDGES
        )
    for k in range(0, depth, QUADS):
        for s in vk.unroll(2):
            a_tile[ra + s * A_STEP, ca] = ahead_a[s]
            b_tile[rb + s * B_STEP, cb] = ahead_b[s]
        vk.barrier()
        # with EXACT, loads aren't checked against `depth`: the last iteration prefetches the last tile again, unused
        after = vk.min(k + QUADS, depth - QUADS) if EXACT else k + QUADS
        for s in vk.unroll(2):
            r, q = ra + s * A_STEP, rb + s * B_STEP
            ahead_a[s] = load_tile_vector(
                a, a_base, a_line, after, a_first, a_last, depth, r, ca, vk.f32, A_ALONG, 4, EXACT, EDGES
            )
            ahead_b[s] = load_tile_vector(
                b, b_base, b_line, after, b_first, b_last, depth, q, cb, vk.f32, B_ALONG, 4, EXACT, EDGES
            )
        # With A_ALONG, left[i] is the vector of row my_row + 16 i for four k; without it, left[0] and left[1] are those
        # of 4 rows each for one k. Likewise with B_ALONG, `right` and the columns.
        for quad in vk.unroll(QUADS):
            left, right = vk.local(V, 8), vk.local(V, 8)
            if A_ALONG:
                for i in vk.unroll(8):
                    left[i] = a_tile[my_row + 16 * i, quad]
            if B_ALONG:
                for j in vk.unroll(8):
                    right[j] = b_tile[my_column + 16 * j, quad]
            for t in vk.unroll(4):
                if not B_ALONG:
                    right[0], right[1] = b_tile[quad * 4 + t, my_column], b_tile[quad * 4 + t, 16 + my_column]
                if not A_ALONG:
                    left[0], left[1] = a_tile[quad * 4 + t, my_row], a_tile[quad * 4 + t, 16 + my_row]
                for i in vk.unroll(8):
                    x = left[i][t] if A_ALONG else left[i // 4][i % 4]
                    for j in vk.unroll(2):
                        if B_ALONG:
                            y = V(right[j * 4][t], right[j * 4 + 1][t], right[j * 4 + 2][t], right[j * 4 + 3][t])
                        else:
                            y = right[j]
                        acc[i, j] = vk.fma(y, x, acc[i, j])
        vk.barrier()
    for i in vk.unroll(8):
        p = row + my_row + 16 * i if A_ALONG else row + i // 4 * 64 + my_row * 4 + i % 4
        for j in vk.unroll(2):
            for e in vk.unroll(4):
                q = column + my_column + 16 * (j * 4 + e) if B_ALONG else column + j * 64 + my_column * 4 + e
                if EDGES:
                    c.put(g, p, q, R(acc[i, j][e]))
                else:
                    c[g, p, q] = R(acc[i, j][e])


def multiply_vec4(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> bool:
    """Queue c = a @ b, a product of f32, on the device of c; return False if the layout isn't supported."""
    left, right = flat_operand(a, vk.f32), flat_operand(b, vk.f32)
    if left is None or right is None or a.shape[2] % 4:
        return False
    edges: Any = c.shape[1] % TILE != 0 or c.shape[2] % TILE != 0
    multiply_vec4_tiles(
        left.words, right.words, c, a.shape[2] // 4, left.line_stride, left.batch_stride, right.line_stride, right.batch_stride,
        A_ALONG=left.along_last_axis, B_ALONG=not right.along_last_axis, EXACT=a.shape[2] % DEPTH == 0, EDGES=edges,
    )  # fmt: skip
    return True
