"""Batched matrix multiplication: c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j].

Arrays have three axes and any strides (transposed views, broadcast batches). Products are accumulated in ACC, in the order of
k, and converted once. `multiply` chooses the kernel for the device.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib.matmul_matrices import multiply_by_matrices
from vkjit.stdlib.matmul_parts import multiply_in_parts, parts_by_rule
from vkjit.stdlib.matmul_precision import multiply_reduced
from vkjit.stdlib.matmul_tuned import tuned_words
from vkjit.stdlib.matmul_vectors import multiply_vectors
from vkjit.stdlib.registry import choose, device_class, variant

__all__ = [
    "in_pairs", "multiply", "multiply_broadcast", "multiply_large_tiles", "multiply_pairs", "multiply_registers",
    "multiply_tiles", "multiply_whole",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

TILE = 64
LARGE = 128
DEPTH = 16
EACH = 4
MANY_TILES = 64
"""Minimum number of large tiles that keeps a GPU busy."""

MOST_K = 16384
"""Maximum K of the register-blocked kernels, which loop over it; the caller splits longer products."""


@vk.func
def plain_mul_add(x, y, z):
    """x * y + z."""
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
    """Tiles of 64 x 64 staged through shared memory, 4 x 4 results per invocation.

    A_ROWS, B_ROWS: the matrix is row-major, so that coalesced loads run along rows; else along columns.
    """
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
        for first in range(0, DEPTH, 4):
            for t in vk.unroll(4):
                for i in vk.unroll(EACH):
                    x = a_tile[first + t, my_row + 16 * i]
                    for j in vk.unroll(EACH):
                        acc[i, j] = MUL_ADD(x, b_tile[first + t, my_column + 16 * j], acc[i, j])
        vk.barrier()
    for i in vk.unroll(EACH):
        for j in vk.unroll(EACH):
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
    """Tiles of 128 x 128 staged through shared memory as vec4, 8 x 8 results per invocation.

    The next tiles are prefetched into registers while the current ones are multiplied. Loads past an edge of c repeat the
    last row or column; loads past the end of K are 0.
    """
    V = vk.vec(ACC, 4)
    a_tile, b_tile = vk.shared(V, (DEPTH, LARGE // 4 + 1)), vk.shared(V, (DEPTH, LARGE // 4 + 1))
    lane, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * LARGE, vk.i32(vk.group_id(0)) * LARGE
    my_row, my_column = lane // 16, lane % 16
    depth, last_row, last_column = vk.i32(a.shape[2]), vk.i32(c.shape[1]) - 1, vk.i32(c.shape[2]) - 1
    acc = vk.local(V, (8, 2))
    next_a, next_b = vk.local(V, 2), vk.local(V, 2)
    for i in vk.unroll(8):
        for j in vk.unroll(2):
            acc[i, j] = V(0)
    for s in vk.unroll(2):
        next_a[s] = four_of_a(a, g, row, across(lane, s, A_ROWS), along(lane, s, A_ROWS), last_row, depth, ACC)
        next_b[s] = four_of_b(
            b, g, column, across(lane, s, not B_ROWS), along(lane, s, not B_ROWS), last_column, depth, ACC
        )
    for k in range(0, depth, DEPTH):
        for s in vk.unroll(2):
            a_tile[across(lane, s, A_ROWS), along(lane, s, A_ROWS)] = next_a[s]
            b_tile[across(lane, s, not B_ROWS), along(lane, s, not B_ROWS)] = next_b[s]
        vk.barrier()
        after = k + DEPTH
        for s in vk.unroll(2):
            next_a[s] = four_of_a(
                a, g, row, after + across(lane, s, A_ROWS), along(lane, s, A_ROWS), last_row, depth, ACC
            )
            next_b[s] = four_of_b(
                b, g, column, after + across(lane, s, not B_ROWS), along(lane, s, not B_ROWS), last_column, depth, ACC
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
def four_of_a(a, g, row, k, quad, last, depth, ACC):
    """Load four adjacent elements of column k of a tile of a, rows row + 4 quad to row + 4 quad + 3."""
    r, inside, p = row + quad * 4, k < depth, vk.min(k, depth - 1)
    x, y = ACC(a[g, vk.min(r, last), p]), ACC(a[g, vk.min(r + 1, last), p])
    z, w = ACC(a[g, vk.min(r + 2, last), p]), ACC(a[g, vk.min(r + 3, last), p])
    return vk.vec(ACC, 4)(
        vk.where(inside, x, 0), vk.where(inside, y, 0), vk.where(inside, z, 0), vk.where(inside, w, 0)
    )


@vk.func
def four_of_b(b, g, column, k, quad, last, depth, ACC):
    """Load four adjacent elements of row k of a tile of b, columns column + 4 quad to column + 4 quad + 3."""
    r, inside, p = column + quad * 4, k < depth, vk.min(k, depth - 1)
    x, y = ACC(b[g, p, vk.min(r, last)]), ACC(b[g, p, vk.min(r + 1, last)])
    z, w = ACC(b[g, p, vk.min(r + 2, last)]), ACC(b[g, p, vk.min(r + 3, last)])
    return vk.vec(ACC, 4)(
        vk.where(inside, x, 0), vk.where(inside, y, 0), vk.where(inside, z, 0), vk.where(inside, w, 0)
    )


@vk.func
def along(lane, step, depth_first):
    """Return the group of four rows (of a) or columns (of b) of a tile that an invocation loads in a step."""
    return vk.where(depth_first, lane // 16 + 16 * step, lane % 32)


@vk.func
def across(lane, step, depth_first):
    """Return the k within a tile that an invocation loads in a step. With `depth_first`, adjacent lanes load adjacent k."""
    return vk.where(depth_first, lane % 16, lane // 32 + 8 * step)


@vk.kernel(
    groups=lambda c, ROWS, COLUMNS, LANES: (
        vk.cdiv(c.shape[2], LANES * COLUMNS),
        vk.cdiv(c.shape[1], ROWS),
        c.shape[0],
    ),
    local=lambda LANES: LANES,
    debug=False,
)
def multiply_registers(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    ROWS: vk.Const[int],
    COLUMNS: vk.Const[int],
    LANES: vk.Const[int],
):
    """ROWS x COLUMNS results per invocation in registers, without shared memory.

    Elements of a are uniform across the workgroup; lanes are adjacent along a row of b. Rows and columns past the end repeat
    the last one and aren't stored.
    """
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


@vk.kernel(
    groups=lambda c, ROWS, COLUMNS, SIZE: (vk.cdiv(c.shape[2], SIZE * COLUMNS), vk.cdiv(c.shape[1], ROWS), c.shape[0]),
    local=lambda SIZE: SIZE,
    debug=False,
)
def multiply_broadcast(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    ROWS: vk.Const[int],
    COLUMNS: vk.Const[int],
    SIZE: vk.Const[int],
):
    """Like `multiply_registers`, with one subgroup of SIZE lanes per workgroup.

    Each lane loads the element of a for one of the ROWS rows, and a subgroup broadcast distributes it.
    """
    lanes = vk.subgroup()
    lane, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * ROWS, vk.i32(vk.group_id(0)) * (SIZE * COLUMNS) + lane
    last_row, last_column = vk.i32(c.shape[1]) - 1, vk.i32(c.shape[2]) - 1
    acc, right = vk.local(ACC, (ROWS, COLUMNS)), vk.local(ACC, COLUMNS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            acc[i, j] = ACC(0)
    my_row = vk.min(row + lane % ROWS, last_row)
    for k in range(vk.min(vk.i32(a.shape[2]), MOST_K)):
        for j in vk.unroll(COLUMNS):
            right[j] = ACC(b[g, k, vk.min(column + j * SIZE, last_column)])
        mine = ACC(a[g, my_row, k])
        for i in vk.unroll(ROWS):
            left = lanes.broadcast(mine, i)
            for j in vk.unroll(COLUMNS):
                acc[i, j] = acc[i, j] + left * right[j]
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            c.put(g, row + i, column + j * SIZE, R(acc[i, j]))


@vk.kernel(
    groups=lambda c, ROWS, PAIRS, SIZE: (vk.cdiv(c.shape[2], 2 * SIZE * PAIRS), vk.cdiv(c.shape[1], ROWS), c.shape[0]),
    local=lambda SIZE: SIZE,
    debug=False,
)
def multiply_pairs(
    a: vk.In[vk.u64, "G M H"],
    b: vk.In[vk.u64, "G K P"],
    c: vk.Out[R, "G M N"],
    ROWS: vk.Const[int],
    PAIRS: vk.Const[int],
    SIZE: vk.Const[int],
):
    """Like `multiply_broadcast`, for f32 loaded as 64-bit words of two: pairs along K of a, and along the rows of b."""
    lanes = vk.subgroup()
    lane, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * ROWS, vk.i32(vk.group_id(0)) * (SIZE * PAIRS) + lane
    last_row, last_pair = vk.i32(c.shape[1]) - 1, vk.i32(b.shape[2]) - 1
    acc, right = vk.local(vk.f32, (ROWS, 2 * PAIRS)), vk.local(vk.f32, 2 * PAIRS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(2 * PAIRS):
            acc[i, j] = vk.f32(0)
    my_row = vk.min(row + lane % ROWS, last_row)
    for h in range(vk.min(vk.i32(a.shape[2]), MOST_K // 2)):
        both = a[g, my_row, h]
        for half in vk.unroll(2):
            for j in vk.unroll(PAIRS):
                two = b[g, h * 2 + half, vk.min(column + j * SIZE, last_pair)]
                right[2 * j], right[2 * j + 1] = vk.bitcast(vk.f32, vk.u32(two)), vk.bitcast(vk.f32, vk.u32(two >> 32))
            mine = vk.bitcast(vk.f32, vk.u32(both >> (32 * half)))
            for i in vk.unroll(ROWS):
                left = lanes.broadcast(mine, i)
                for j in vk.unroll(2 * PAIRS):
                    acc[i, j] = acc[i, j] + left * right[j]
    for i in vk.unroll(ROWS):
        for j in vk.unroll(PAIRS):
            for half in vk.unroll(2):
                c.put(g, row + i, 2 * (column + j * SIZE) + half, R(acc[i, 2 * j + half]))


@variant("matmul", "gpu")
def _on_gpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    if multiply_in_parts(a, b, c, accumulate, parts_by_rule(c, a.shape[2]), multiply_whole):
        return
    multiply_whole(a, b, c, accumulate)


def multiply_whole(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Queue the product on a GPU without split-K: each result is computed by one workgroup."""
    if multiply_by_matrices(a, b, c):
        return
    a_rows = abs(a.strides[2]) <= abs(a.strides[1])
    b_rows = abs(b.strides[2]) <= abs(b.strides[1])
    tiles = c.shape[0] * vk.cdiv(c.shape[1], LARGE) * vk.cdiv(c.shape[2], LARGE)
    large = tiles >= MANY_TILES and accumulate is vk.f32
    if large and a.dtype is b.dtype is vk.f32 and multiply_vectors(a, b, c):
        return
    if large:
        multiply_large_tiles(a, b, c, accumulate, a_rows, b_rows)
    else:  # an explicit fma: drivers don't contract where signed zeros and infinities are preserved
        multiply_tiles(a, b, c, accumulate, a_rows, b_rows, vk.fma if accumulate.is_float else plain_mul_add)


@variant("matmul", "cpu")
def _on_cpu(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    caps = c.device.caps
    rows, columns, size = *c.shape[1:], caps.subgroup_size
    if caps.kind == "interpreter":  # the cost is in operations per iteration, not in invocations
        multiply_registers(a, b, c, accumulate, 1, 1, size)
    elif caps.kind == "llvm-cpu" or rows < 4 or "subgroup_shuffle" not in caps.features:
        multiply_registers(a, b, c, accumulate, min(rows, 8), 2 if columns > size else 1, size)
    elif accumulate is vk.f32 and in_pairs(a) and in_pairs(b):
        multiply_pairs(words(a), words(b), c, min(8, size), 2 if columns > 2 * size else 1, size)
    else:
        multiply_broadcast(a, b, c, accumulate, min(8, size), 4 if columns > 2 * size else 1, size)


def in_pairs(array: Any) -> bool:
    """True for arrays of f32 that can be read as 64-bit words of two adjacent elements of a row."""
    even = array.shape[2] % 2 == 0 and all(s % 2 == 0 for s in array.strides[:2]) and array.offset % 8 == 0
    return array.dtype is vk.f32 and even and array.strides[2] == 1


def words(array: Any) -> DeviceArray:
    """View an array for which `in_pairs` is true as 64-bit words of two elements."""
    shape = (*array.shape[:2], array.shape[2] // 2)
    return DeviceArray(array.buffer, array.offset, vk.u64, shape, (*(s // 2 for s in array.strides[:2]), 1))


def multiply(a: Any, b: Any, c: Any, accumulate: Any) -> None:
    """Queue the product on the device of c. On devices of class "cpu", K must be at most `MOST_K`."""
    if device_class(c.device) == "gpu" and multiply_reduced(a, b, c):
        return
    best_name = tuned_words(a, b, c)
    if best_name is not None:
        from vkjit.stdlib.matmul_variants import variants_of  # imported late: it imports this module

        for name, launch in variants_of(a, b, c, accumulate):
            if name == best_name:
                launch()
                return
    choose("matmul", c.device)(a, b, c, accumulate)
