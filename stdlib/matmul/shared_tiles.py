"""Batched matrix multiplication, c = a @ b, with tiles in shared memory, for GPUs.

`by_rule` launches the kernels where those of `cooperative` and `vec4` aren't suitable. Arrays have three axes and any
strides (transposed views, broadcast batches). T, U and R are the element types of a, b and c. Products are accumulated
in the type ACC, in the order of k, and converted once.

A_ROWS, B_ROWS: in a, b, the stride between adjacent elements of a row is at most that between rows. Adjacent
invocations then load adjacent elements of a row, otherwise adjacent elements of a column, so that loads are coalesced
if possible. In shared memory, both tiles are stored with K as the first axis.

A workgroup has 256 invocations, which form a grid of 16 x 16 over a tile of results. The kernels spell out these
numbers, and those that follow from them: 256 invocations load 16 x 16 elements of a tile at a time, or 4 rows of 64.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["LARGE", "multiply_large_tiles", "multiply_tiles", "plain_mul_add"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TILE = 64
"""Rows and columns of a tile of c in `multiply_tiles`."""
LARGE = 128
"""Rows and columns of a tile of c in `multiply_large_tiles`."""
DEPTH = 16
"""Extent of a tile of a or b along K."""
RESULTS_PER_SIDE = 4
"""Rows and columns of results that an invocation of `multiply_tiles` computes, 16 apart."""


@vk.func
def plain_mul_add(x, y, z):
    """Return x * y + z: the MUL_ADD of `multiply_tiles` for types without fma."""
    return x * y + z


@vk.kernel(groups=lambda c: (vk.cdiv(c.shape[2], TILE), vk.cdiv(c.shape[1], TILE), c.shape[0]), local=256, debug=False)
def multiply_tiles(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    A_ROWS: vk.Const[bool],
    B_ROWS: vk.Const[bool],
    MUL_ADD: vk.Const[Any] = plain_mul_add,
):
    """Compute c = a @ b in tiles of 64 x 64 staged through shared memory, with 4 x 4 results per invocation.

    MUL_ADD(x, y, z) returns x * y + z. ACC, A_ROWS and B_ROWS are described in the module docstring.
    """
    # rows are padded against bank conflicts
    a_tile, b_tile = vk.shared(ACC, (DEPTH, TILE + 4)), vk.shared(ACC, (DEPTH, TILE + 4))
    invocation, g = vk.local_id(0), vk.group_id(2)
    row, column = vk.group_id(1) * TILE, vk.group_id(0) * TILE
    my_row, my_column = invocation // 16, invocation % 16
    depth = a.shape[2]
    acc = vk.local(ACC, (RESULTS_PER_SIDE, RESULTS_PER_SIDE))
    for i in vk.unroll(RESULTS_PER_SIDE):
        for j in vk.unroll(RESULTS_PER_SIDE):
            acc[i, j] = ACC(0)
    for k in range(0, depth, DEPTH):
        # Each of four steps loads 256 elements of both tiles: adjacent invocations load 16 elements along K if that
        # axis is contiguous (A_ROWS, or not B_ROWS), otherwise 64 elements across it.
        for step in vk.unroll(TILE * DEPTH // 256):
            if A_ROWS:
                a_tile[invocation % 16, invocation // 16 + 16 * step] = ACC(
                    a.get(g, row + invocation // 16 + 16 * step, k + invocation % 16, pad=0)
                )
            else:
                a_tile[invocation // 64 + 4 * step, invocation % 64] = ACC(
                    a.get(g, row + invocation % 64, k + invocation // 64 + 4 * step, pad=0)
                )
            if B_ROWS:
                b_tile[invocation // 64 + 4 * step, invocation % 64] = ACC(
                    b.get(g, k + invocation // 64 + 4 * step, column + invocation % 64, pad=0)
                )
            else:
                b_tile[invocation % 16, invocation // 16 + 16 * step] = ACC(
                    b.get(g, k + invocation % 16, column + invocation // 16 + 16 * step, pad=0)
                )
        vk.barrier()
        for first in range(0, DEPTH, 4):
            for t in vk.unroll(4):
                for i in vk.unroll(RESULTS_PER_SIDE):
                    x = a_tile[first + t, my_row + 16 * i]
                    for j in vk.unroll(RESULTS_PER_SIDE):
                        acc[i, j] = MUL_ADD(x, b_tile[first + t, my_column + 16 * j], acc[i, j])
        vk.barrier()
    for i in vk.unroll(RESULTS_PER_SIDE):
        for j in vk.unroll(RESULTS_PER_SIDE):
            c.put(g, row + my_row + 16 * i, column + my_column + 16 * j, R(acc[i, j]))


@vk.kernel(
    groups=lambda c: (vk.cdiv(c.shape[2], LARGE), vk.cdiv(c.shape[1], LARGE), c.shape[0]), local=256, debug=False
)
def multiply_large_tiles(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    A_ROWS: vk.Const[bool],
    B_ROWS: vk.Const[bool],
):
    """Compute c = a @ b in tiles of 128 x 128 staged through shared memory as vec4, with 8 x 8 results per invocation.

    The next tiles are prefetched into registers while the current ones are multiplied. At the edges of c, loads repeat
    the last row of a or column of b, and their results aren't stored; past the end of K, loads are 0. The 8 x 8 results
    of an invocation are four blocks of 4 x 4: the blocks start 64 rows or 64 columns apart. ACC, A_ROWS and B_ROWS are
    described in the module docstring.
    """
    V = vk.vec(ACC, 4)
    # rows are padded by one vec4 against bank conflicts
    a_tile, b_tile = vk.shared(V, (DEPTH, LARGE // 4 + 1)), vk.shared(V, (DEPTH, LARGE // 4 + 1))
    invocation, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * LARGE, vk.i32(vk.group_id(0)) * LARGE
    my_row, my_column = invocation // 16, invocation % 16
    depth, last_row, last_column = vk.i32(a.shape[2]), vk.i32(c.shape[1]) - 1, vk.i32(c.shape[2]) - 1
    acc = vk.local(V, (8, 2))  # 8 rows of two vec4s
    next_a, next_b = vk.local(V, 2), vk.local(V, 2)
    for i in vk.unroll(8):
        for j in vk.unroll(2):
            acc[i, j] = V(0)
    # In each of two steps s, an invocation loads one vec4 of each tile. Adjacent invocations load vec4s at adjacent k
    # if K is the contiguous axis: A_ROWS for a, not B_ROWS for b.
    for s in vk.unroll(2):
        next_a[s] = load_a_vec4(
            a, g, row, k_index(invocation, s, A_ROWS), vector_index(invocation, s, A_ROWS), last_row, depth, ACC
        )
        next_b[s] = load_b_vec4(
            b,
            g,
            column,
            k_index(invocation, s, not B_ROWS),
            vector_index(invocation, s, not B_ROWS),
            last_column,
            depth,
            ACC,
        )
    for k in range(0, depth, DEPTH):
        for s in vk.unroll(2):
            a_tile[k_index(invocation, s, A_ROWS), vector_index(invocation, s, A_ROWS)] = next_a[s]
            b_tile[k_index(invocation, s, not B_ROWS), vector_index(invocation, s, not B_ROWS)] = next_b[s]
        vk.barrier()
        # prefetch the next tiles
        after = k + DEPTH
        for s in vk.unroll(2):
            next_a[s] = load_a_vec4(
                a,
                g,
                row,
                after + k_index(invocation, s, A_ROWS),
                vector_index(invocation, s, A_ROWS),
                last_row,
                depth,
                ACC,
            )
            next_b[s] = load_b_vec4(
                b,
                g,
                column,
                after + k_index(invocation, s, not B_ROWS),
                vector_index(invocation, s, not B_ROWS),
                last_column,
                depth,
                ACC,
            )
        for t in vk.unroll(DEPTH):
            for half in vk.unroll(2):
                left = a_tile[t, half * 16 + my_row]
                for j in vk.unroll(2):
                    right = b_tile[t, j * 16 + my_column]
                    for i in vk.unroll(4):
                        acc[half * 4 + i, j] = vk.fma(right, left[i], acc[half * 4 + i, j])
        vk.barrier()
    for i in vk.unroll(8):
        for j in vk.unroll(2):
            for e in vk.unroll(4):
                c.put(g, row + i // 4 * 64 + my_row * 4 + i % 4, column + j * 64 + my_column * 4 + e, R(acc[i, j][e]))


@vk.func
def load_a_vec4(a, g, row, k, quad, last, depth, ACC):
    """Load a vec4 of a: column k, rows row + 4 quad to row + 4 quad + 3.

    Rows past `last` repeat the row `last`; columns from `depth` (K) on are 0. The elements are converted to ACC.
    """
    first_row, inside, safe_k = row + quad * 4, k < depth, vk.min(k, depth - 1)
    x, y = ACC(a[g, vk.min(first_row, last), safe_k]), ACC(a[g, vk.min(first_row + 1, last), safe_k])
    z, w = ACC(a[g, vk.min(first_row + 2, last), safe_k]), ACC(a[g, vk.min(first_row + 3, last), safe_k])
    return vk.vec(ACC, 4)(
        vk.where(inside, x, 0), vk.where(inside, y, 0), vk.where(inside, z, 0), vk.where(inside, w, 0)
    )


@vk.func
def load_b_vec4(b, g, column, k, quad, last, depth, ACC):
    """Load a vec4 of b: row k, columns column + 4 quad to column + 4 quad + 3.

    Columns past `last` repeat the column `last`; rows from `depth` (K) on are 0. The elements are converted to ACC.
    """
    first_column, inside, safe_k = column + quad * 4, k < depth, vk.min(k, depth - 1)
    x, y = ACC(b[g, safe_k, vk.min(first_column, last)]), ACC(b[g, safe_k, vk.min(first_column + 1, last)])
    z, w = ACC(b[g, safe_k, vk.min(first_column + 2, last)]), ACC(b[g, safe_k, vk.min(first_column + 3, last)])
    return vk.vec(ACC, 4)(
        vk.where(inside, x, 0), vk.where(inside, y, 0), vk.where(inside, z, 0), vk.where(inside, w, 0)
    )


@vk.func
def vector_index(invocation, step, depth_first):
    """Return the index of the vec4 that an invocation loads in step 0 or 1, among the vec4s of the tile for one k.

    A vec4 holds four rows of a or four columns of b. `k_index` returns the k of this vec4, and explains `depth_first`.
    In two steps, the 256 invocations of a workgroup load the 32 x 16 vec4s of the tile.
    """
    return vk.where(depth_first, invocation // 16 + 16 * step, invocation % 32)


@vk.func
def k_index(invocation, step, depth_first):
    """Return the k within a tile that an invocation loads in step 0 or 1.

    With `depth_first`, adjacent invocations load vec4s at adjacent k; else adjacent vec4s of rows (of a) or columns
    (of b).
    """
    return vk.where(depth_first, invocation % 16, invocation // 32 + 8 * step)
