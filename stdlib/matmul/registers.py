"""Batched matrix multiplication with results in registers, for devices of class "cpu": no shared memory, no barriers.

Computes c[g, i, j] = sum over k of a[g, i, k] * b[g, k, j]; `by_rule` launches the kernels. Arrays have three axes and
any strides (transposed views, broadcast batches). T, U and R are the element types of a, b and c. Products are
accumulated in the type ACC, in the order of k, and converted once.

Each invocation computes ROWS rows and COLUMNS columns of results. The invocations of a workgroup, LANES or SIZE of
them, compute the same rows; their columns are interleaved, so that lanes access adjacent elements of b and c. Rows and
columns past the end repeat the last one and aren't stored. `debug=False` omits the bounds checks that devices on the
CPU make by default.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

__all__ = ["MAX_K", "as_pairs", "multiply_broadcast", "multiply_pairs", "multiply_registers", "readable_as_pairs"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

MAX_K = 16384
"""Maximum K of the kernels, so that drivers don't stop the loop over it; the caller splits longer products."""


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
    """Compute c = a @ b; all invocations of a workgroup load the same elements of a.

    The parameters are described in the module docstring.
    """
    lane, g = vk.local_id(0), vk.group_id(2)
    row, column = vk.group_id(1) * ROWS, vk.group_id(0) * (LANES * COLUMNS) + lane
    last_row, last_column = c.shape[1] - 1, c.shape[2] - 1
    acc = vk.local(ACC, (ROWS, COLUMNS))
    right = vk.local(ACC, COLUMNS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            acc[i, j] = ACC(0)
    for k in range(vk.min(a.shape[2], MAX_K)):
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
    """Variant of `multiply_registers` that distributes the elements of a by subgroup broadcasts.

    A workgroup is one subgroup of SIZE lanes, at least ROWS. For each k, lane i loads the element of a in row i of the
    block and broadcasts it. ACC, ROWS and COLUMNS are described in the module docstring.
    """
    sg = vk.subgroup()
    lane, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * ROWS, vk.i32(vk.group_id(0)) * (SIZE * COLUMNS) + lane
    last_row, last_column = vk.i32(c.shape[1]) - 1, vk.i32(c.shape[2]) - 1
    acc, right = vk.local(ACC, (ROWS, COLUMNS)), vk.local(ACC, COLUMNS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            acc[i, j] = ACC(0)
    my_row = vk.min(row + lane % ROWS, last_row)
    for k in range(vk.min(vk.i32(a.shape[2]), MAX_K)):
        for j in vk.unroll(COLUMNS):
            right[j] = ACC(b[g, k, vk.min(column + j * SIZE, last_column)])
        my_a = ACC(a[g, my_row, k])
        for i in vk.unroll(ROWS):
            left = sg.broadcast(my_a, i)
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
    """Variant of `multiply_broadcast` for f32, loaded as 64-bit words of two adjacent elements of a row (`as_pairs`).

    A word of a holds the elements for two adjacent k, a word of b those of two columns: H = K / 2, P = N / 2. A
    workgroup is one subgroup of SIZE lanes, at least ROWS. Each lane computes ROWS rows and PAIRS pairs of columns.
    """
    sg = vk.subgroup()
    lane, g = vk.i32(vk.local_id(0)), vk.group_id(2)
    row, column = vk.i32(vk.group_id(1)) * ROWS, vk.i32(vk.group_id(0)) * (SIZE * PAIRS) + lane
    last_row, last_pair = vk.i32(c.shape[1]) - 1, vk.i32(b.shape[2]) - 1
    acc, right = vk.local(vk.f32, (ROWS, 2 * PAIRS)), vk.local(vk.f32, 2 * PAIRS)
    for i in vk.unroll(ROWS):
        for j in vk.unroll(2 * PAIRS):
            acc[i, j] = vk.f32(0)
    my_row = vk.min(row + lane % ROWS, last_row)
    for pair_index in range(vk.min(vk.i32(a.shape[2]), MAX_K // 2)):
        a_pair = a[g, my_row, pair_index]
        for half in vk.unroll(2):
            for j in vk.unroll(PAIRS):
                b_pair = b[g, pair_index * 2 + half, vk.min(column + j * SIZE, last_pair)]
                right[2 * j], right[2 * j + 1] = (
                    vk.bitcast(vk.f32, vk.u32(b_pair)),
                    vk.bitcast(vk.f32, vk.u32(b_pair >> 32)),
                )
            my_a = vk.bitcast(vk.f32, vk.u32(a_pair >> (32 * half)))
            for i in vk.unroll(ROWS):
                left = sg.broadcast(my_a, i)
                for j in vk.unroll(2 * PAIRS):
                    acc[i, j] = acc[i, j] + left * right[j]
    for i in vk.unroll(ROWS):
        for j in vk.unroll(PAIRS):
            for half in vk.unroll(2):
                c.put(g, row + i, 2 * (column + j * SIZE) + half, R(acc[i, 2 * j + half]))


def readable_as_pairs(array: Any) -> bool:
    """True if an array of f32 can be read as 64-bit words of two adjacent elements of a row; False for other types."""
    even = array.shape[2] % 2 == 0 and all(s % 2 == 0 for s in array.strides[:2]) and array.offset % 8 == 0
    return array.dtype is vk.f32 and even and array.strides[2] == 1


def as_pairs(array: Any) -> DeviceArray:
    """View an array for which `readable_as_pairs` is true as 64-bit words of two adjacent elements of a row."""
    shape = (*array.shape[:2], array.shape[2] // 2)
    return DeviceArray(array.buffer, array.offset, vk.u64, shape, (*(s // 2 for s in array.strides[:2]), 1))
