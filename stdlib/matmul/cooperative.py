"""Matrix multiplication on cooperative matrices: c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j].

`cooperative_plan` chooses the parameters and launches the kernel. The operands have three axes; their rows or their
columns are contiguous and 16-byte aligned. A *line* of an operand is such a contiguous row or column. The operand is
passed as a flat array of 32-bit words (`operands.Operand`) and read in *vectors* of 16 bytes. R is the element type of
c.

Tiles of a and b are staged in shared memory, with lines padded by one vector against bank conflicts. The loop over K is
software-pipelined: while the subgroups multiply one K slice (the MK elements along K of one cooperative matrix
product), they load the next slice from shared memory into matrices, and the next tiles from global memory into
registers. A tile of a may span several tiles of b along K, so that both are read in whole cache lines.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.stdlib.matmul.operands import load_tile_vector

__all__ = ["multiply_coopmat_tiles"]

R = TypeVar("R", bound=vk.Element)


@vk.func
def load_a_matrix(sg, tile, row, k, T, ALONG, E, MM, MK):
    """Load a cooperative matrix of MM x MK elements of type T from the tile of a in shared memory.

    `row` is its first row and k its first column in the tile, in elements. ALONG: the vectors of the tile lie along K,
    else along M. Each vector holds E elements. `sg` is the subgroup.
    """
    if ALONG:
        q = k // E
        return sg.load(tile[row : row + MM, q : q + MK // E], "a", dtype=T)
    else:
        q = row // E
        return sg.load(tile[k : k + MK, q : q + MM // E], "a", "column", dtype=T)


@vk.func
def load_b_matrix(sg, tile, column, k, T, ALONG, E, MN, MK):
    """Load a cooperative matrix of MK x MN elements of type T from the tile of b in shared memory.

    k is its first row and `column` its first column in the tile, in elements. ALONG: the vectors of the tile lie along
    K, else along N. Each vector holds E elements. `sg` is the subgroup.
    """
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
def multiply_coopmat_tiles(  # noqa: PLR0915  one software pipeline, harder to follow in pieces
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
    """Compute c = a @ b, one tile of BM x BN results per workgroup.

    T is the element type of a and b, ACC the accumulator type. `depth` is the extent of K; `a_line` and `b_line` are
    the strides of lines, `a_batch` and `b_batch` those of matrices in the batch. All five are in vectors of E elements.
    PLAN holds the compile-time parameters, in the order in which `cooperative_plan._plan` returns them:

    - BM, BN: rows and columns of a workgroup's tile of results.
    - BK: extent of a tile of b along K, in elements. A_DEPTH_FACTOR: number of these that a tile of a spans along K.
    - SUBGROUP_ROWS, SUBGROUP_COLUMNS: the workgroup's arrangement of subgroups. SIZE: invocations per subgroup.
    - MM, MN, MK: M, N and K of one cooperative matrix product.
    - E: elements per vector. A_ALONG, B_ALONG: the vectors of a, b lie along K.
    - EXACT: K is a multiple of BK * A_DEPTH_FACTOR. EDGES: some tiles extend beyond c.
    - EARLY: issue the global loads of the next tiles between the two barriers instead of after the second one.
    - BAND: the number of tile rows in a band of the swizzled tile order (see the comment in the kernel).
    """
    (
        BM, BN, BK, A_DEPTH_FACTOR, SUBGROUP_ROWS, SUBGROUP_COLUMNS, SIZE, MM, MN, MK, E, A_ALONG, B_ALONG, EXACT, EDGES,
        EARLY, BAND,
    ) = PLAN  # fmt: skip
    # The tile of a (b) has A_LINES (B_LINES) lines of AV (BV) vectors each; each of COUNT invocations loads NA (NB)
    # vectors of it, A_STEP (B_STEP) lines apart. A subgroup computes TM x TN results in FM x FN matrices. Along K, a
    # tile of a has AK elements, and a tile of b has KV vectors, or SLICES K slices.
    V = vk.vec(vk.u32, 4)
    KV, SLICES, COUNT = BK // E, BK // MK, SUBGROUP_ROWS * SUBGROUP_COLUMNS * SIZE
    AK, TM, TN = BK * A_DEPTH_FACTOR, BM // SUBGROUP_ROWS, BN // SUBGROUP_COLUMNS
    FM, FN = TM // MM, TN // MN
    AV = AK // E if A_ALONG else BM // E
    BV = KV if B_ALONG else BN // E
    A_LINES, B_LINES = BM if A_ALONG else AK, BN if B_ALONG else BK
    A_STEP, B_STEP = COUNT // AV, COUNT // BV
    NA, NB = A_LINES // A_STEP, B_LINES // B_STEP
    a_tile, b_tile = vk.shared(V, (A_LINES, AV + 1)), vk.shared(V, (B_LINES, BV + 1))
    sg = vk.subgroup()
    invocation, subgroup_index, g = vk.i32(vk.local_id(0)), vk.i32(sg.id()), vk.i32(vk.group_id(2))
    rows, columns = vk.i32(c.shape[1]), vk.i32(c.shape[2])
    tiles_down, tiles_across = vk.i32(vk.num_groups(1)), vk.i32(vk.num_groups(0))
    # Swizzled tile order for L2 locality: a band is BAND rows of tiles. Consecutive workgroups compute the tiles of a
    # band column by column, so that those running at the same time share tiles of a and b.
    tile_number = vk.i32(vk.group_id(1)) * tiles_across + vk.i32(vk.group_id(0))
    band, in_band = tile_number // (BAND * tiles_across), tile_number % (BAND * tiles_across)
    band_height = vk.min(tiles_down - band * BAND, BAND)
    tile_row, tile_column = band * BAND + in_band % band_height, in_band // band_height
    row, column = tile_row * BM, tile_column * BN
    # First line (or vector, if the vectors don't lie along K) of this tile in a and b, and the last one in the matrix.
    a_first = row if A_ALONG else tile_row * (BM // E)
    b_first = column if B_ALONG else tile_column * (BN // E)
    a_last = rows - 1 if A_ALONG else vk.cdiv(rows, E) - 1
    b_last = columns - 1 if B_ALONG else vk.cdiv(columns, E) - 1
    a_base, b_base = g * a_batch, g * b_batch
    my_row, my_column = subgroup_index // SUBGROUP_COLUMNS * TM, subgroup_index % SUBGROUP_COLUMNS * TN
    # Line and vector in the tile of a (ra, ca) and in that of b (rb, cb) at which this invocation starts to load.
    ra, ca, rb, cb = invocation // AV, invocation % AV, invocation // BV, invocation % BV
    acc = ()
    for _ in vk.unroll(FM * FN):
        acc = acc + (sg.matrix((MM, MN), ACC),)
    # Prologue: load the first tiles into shared memory.
    for t in vk.unroll(NA):
        a_tile[ra + t * A_STEP, ca] = load_tile_vector(
            a, a_base, a_line, 0, a_first, a_last, depth, ra + t * A_STEP, ca, vk.u32, A_ALONG, E, EXACT, EDGES
        )
    for t in vk.unroll(NB):
        b_tile[rb + t * B_STEP, cb] = load_tile_vector(
            b, b_base, b_line, 0, b_first, b_last, depth, rb + t * B_STEP, cb, vk.u32, B_ALONG, E, EXACT, EDGES
        )
    # Prefetch the first 1 / A_DEPTH_FACTOR of the next tile of a, and the next tile of b, into registers. With EXACT,
    # loads aren't checked against `depth`. Instead the offset is clamped: a prefetch past the end of K loads the last
    # tile again, which isn't used.
    ka = vk.min(KV * A_DEPTH_FACTOR, depth - KV * A_DEPTH_FACTOR) if EXACT else KV * A_DEPTH_FACTOR
    kb = vk.min(KV, depth - KV) if EXACT else KV
    ahead_a, ahead_b = (), ()
    for t in vk.unroll(NA // A_DEPTH_FACTOR):
        ahead_a = ahead_a + (
            load_tile_vector(
                a, a_base, a_line, ka, a_first, a_last, depth, ra + t * A_STEP, ca, vk.u32, A_ALONG, E, EXACT, EDGES
            ),
        )
    for t in vk.unroll(NB):
        ahead_b = ahead_b + (
            load_tile_vector(
                b, b_base, b_line, kb, b_first, b_last, depth, rb + t * B_STEP, cb, vk.u32, B_ALONG, E, EXACT, EDGES
            ),
        )
    vk.barrier()
    # Load the matrices of the first K slice.
    left, right = (), ()
    for i in vk.unroll(FM):
        left = left + (load_a_matrix(sg, a_tile, my_row + i * MM, 0, T, A_ALONG, E, MM, MK),)
    for j in vk.unroll(FN):
        right = right + (load_b_matrix(sg, b_tile, my_column + j * MN, 0, T, B_ALONG, E, MN, MK),)
    # Main loop: one tile of a per iteration. k is in vectors; s counts the K slices of the tile.
    for k in range(0, depth, KV * A_DEPTH_FACTOR):
        for s in vk.unroll(SLICES * A_DEPTH_FACTOR):
            if s % SLICES == SLICES - 1:
                # The matrices of the last K slice of this tile of b are in registers, so its shared memory can be
                # reused. If it is the last tile of b that the tile of a spans (LAST), so can the memory of the tile of
                # a. Store the prefetched tiles to shared memory.
                b_tile_number = s // SLICES
                LAST = b_tile_number == A_DEPTH_FACTOR - 1
                vk.barrier()
                for t in vk.unroll(NB):
                    b_tile[rb + t * B_STEP, cb] = ahead_b[t]
                if LAST:
                    for t in vk.unroll(NA):
                        a_tile[ra + t * A_STEP, ca] = ahead_a[t]
                    ahead_a = ()
                if not EARLY:
                    vk.barrier()
                # Prefetch the tile of b after the one just stored, and the next 1 / A_DEPTH_FACTOR of a tile of a.
                ka, kb = k + KV * A_DEPTH_FACTOR * (2 if LAST else 1), k + KV * (b_tile_number + 2)
                if EXACT:
                    ka, kb = vk.min(ka, depth - KV * A_DEPTH_FACTOR), vk.min(kb, depth - KV)
                for t in vk.unroll(NA // A_DEPTH_FACTOR):
                    r = ra + ((0 if LAST else b_tile_number + 1) * (NA // A_DEPTH_FACTOR) + t) * A_STEP
                    ahead_a = ahead_a + (
                        load_tile_vector(
                            a, a_base, a_line, ka, a_first, a_last, depth, r, ca, vk.u32, A_ALONG, E, EXACT, EDGES
                        ),
                    )
                ahead_b = ()
                for t in vk.unroll(NB):
                    r = rb + t * B_STEP
                    ahead_b = ahead_b + (
                        load_tile_vector(
                            b, b_base, b_line, kb, b_first, b_last, depth, r, cb, vk.u32, B_ALONG, E, EXACT, EDGES
                        ),
                    )
                if EARLY:
                    vk.barrier()
            # Load the matrices of the next K slice while the current ones are multiplied.
            next_left, next_right, new_acc = (), (), ()
            for i in vk.unroll(FM):
                q = (s + 1) % (SLICES * A_DEPTH_FACTOR) * MK
                next_left = next_left + (load_a_matrix(sg, a_tile, my_row + i * MM, q, T, A_ALONG, E, MM, MK),)
            for j in vk.unroll(FN):
                q = (s + 1) % SLICES * MK
                next_right = next_right + (load_b_matrix(sg, b_tile, my_column + j * MN, q, T, B_ALONG, E, MN, MK),)
            for i in vk.unroll(FM):
                for j in vk.unroll(FN):
                    new_acc = new_acc + (sg.mma(left[i], right[j], acc[i * FN + j]),)
            acc, left, right = new_acc, next_left, next_right
    # Epilogue: store the results. NATIVE: matrices can be stored to c directly, if the whole tile lies in c.
    NATIVE = c.dtype is ACC or (c.dtype is vk.f16 and ACC is vk.f32)
    if NATIVE and (not EDGES or (row + BM <= rows and column + BN <= columns)):
        for i in vk.unroll(FM):
            for j in vk.unroll(FN):
                p, q = row + my_row + i * MM, column + my_column + j * MN
                sg.store(c[g, p : p + MM, q : q + MN], R(acc[i * FN + j]))
    elif not NATIVE or EDGES:
        # Otherwise each subgroup stages one matrix at a time in its own slot of `a_tile`, which starts at line
        # `slot_line`, vector `slot_vector`. Its invocations then convert and store the elements; `put` skips those
        # outside c. WORD is the type of the staged elements, of 32 bits; a row of the matrix is WORDS vectors of four.
        WORDS, WORD = MN // 4, vk.f32 if ACC is vk.f16 else ACC
        slot_line, slot_vector = (
            subgroup_index // ((AV + 1) // WORDS) * MM,
            subgroup_index % ((AV + 1) // WORDS) * WORDS,
        )
        for i in vk.unroll(FM):
            for j in vk.unroll(FN):
                vk.barrier()
                sg.store(
                    a_tile[slot_line : slot_line + MM, slot_vector : slot_vector + WORDS],
                    acc[i * FN + j] if WORD is ACC else WORD(acc[i * FN + j]),
                )
                vk.barrier()
                for step in vk.unroll(MM * WORDS // SIZE):
                    position = step * SIZE + vk.i32(sg.rank())
                    vector = a_tile[slot_line + position // WORDS, slot_vector + position % WORDS]
                    p, q = row + my_row + i * MM + position // WORDS, column + my_column + j * MN + position % WORDS * 4
                    for t in vk.unroll(4):
                        c.put(g, p, q + t, R(vk.bitcast(WORD, vector[t])))
