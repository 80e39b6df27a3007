"""Matrix multiplication on the device "cpu" (LLVM): packed panels of b in cache, blocks of results in registers.

`by_rule` launches the kernels. Arrays have three axes and any strides. T, U and R are the element types of a, b and c.
Products are accumulated in the type ACC and converted once. A workgroup is one SIMD vector of SIZE invocations.
`debug=False` omits the bounds checks that devices on the CPU make by default.

In `multiply_panels`, the lanes lie along a row of c, and products are added in the order of k. Each invocation keeps a
block of ROWS x COLUMNS results in registers. It packs a panel of b, DEPTH rows of its columns, and computes from it
BLOCKS blocks one after another. This is Goto's loop order (Goto and van de Geijn, Anatomy of High-Performance Matrix
Multiplication) without packing of a, whose elements are broadcast directly from memory.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["multiply_dots", "multiply_panels"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
R = TypeVar("R", bound=vk.Element)

DEPTH = 256
"""Rows of a panel of b: 256 rows of four 64-byte vectors stay in the L2 cache."""


@vk.kernel(
    groups=lambda c, SIZE, ROWS, COLUMNS, BLOCKS: (
        vk.cdiv(c.shape[2], SIZE * COLUMNS), vk.cdiv(c.shape[1], ROWS * BLOCKS), c.shape[0],
    ),
    local=lambda SIZE: SIZE,
    debug=False,
)  # fmt: skip
def multiply_panels(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    SIZE: vk.Const[int],
    ROWS: vk.Const[int],
    COLUMNS: vk.Const[int],
    BLOCKS: vk.Const[int],
):
    """Compute c = a @ b; each invocation computes BLOCKS blocks of ROWS x COLUMNS results.

    The columns of an invocation are SIZE apart, so that the lanes access adjacent elements. Rows past the end repeat
    the last one and columns past the end are 0; neither is stored. ACC is the accumulator type.
    """
    lane, g = vk.local_id(0), vk.group_id(2)
    row, first = vk.group_id(1) * (ROWS * BLOCKS), vk.group_id(0) * (SIZE * COLUMNS)
    rows, columns, depth = c.shape[1], c.shape[2], a.shape[2]
    blocks = vk.min(vk.cdiv(rows - row, ROWS), BLOCKS)
    # `total` are the sums over all panels so far, for all blocks; `acc` are those of the current block
    total, panel = vk.local(ACC, (BLOCKS * ROWS, COLUMNS)), vk.local(ACC, (DEPTH, COLUMNS))
    acc = vk.local(ACC, (ROWS, COLUMNS))
    for i in range(blocks * ROWS):
        for j in vk.unroll(COLUMNS):
            total[i, j] = ACC(0)
    for start in range(0, depth, DEPTH):
        count = vk.min(depth - start, DEPTH)
        if first + SIZE * COLUMNS <= columns:
            for k in range(count):
                for j in vk.unroll(COLUMNS):
                    panel[k, j] = ACC(b[g, start + k, first + j * SIZE + lane])
        else:
            for k in range(count):
                for j in vk.unroll(COLUMNS):
                    panel[k, j] = ACC(b.get(g, start + k, first + j * SIZE + lane, pad=0))
        for block in range(blocks):
            for i in vk.unroll(ROWS):
                for j in vk.unroll(COLUMNS):
                    acc[i, j] = total[block * ROWS + i, j]
            for k in range(count):
                for i in vk.unroll(ROWS):
                    left = ACC(a[g, vk.min(row + block * ROWS + i, rows - 1), start + k])
                    for j in vk.unroll(COLUMNS):
                        acc[i, j] = acc[i, j] + left * panel[k, j]
            for i in vk.unroll(ROWS):
                for j in vk.unroll(COLUMNS):
                    total[block * ROWS + i, j] = acc[i, j]
    for block in range(blocks):
        for i in vk.unroll(ROWS):
            for j in vk.unroll(COLUMNS):
                c.put(g, row + block * ROWS + i, first + j * SIZE + lane, R(total[block * ROWS + i, j]))


@vk.kernel(groups=lambda c, ROWS: (1, vk.cdiv(c.shape[1], ROWS), c.shape[0]), local=lambda SIZE: SIZE, debug=False)
def multiply_dots(
    a: vk.In[T, "G M K"],
    b: vk.In[U, "G K N"],
    c: vk.Out[R, "G M N"],
    ACC: vk.Const[Any],
    SIZE: vk.Const[int],
    ROWS: vk.Const[int],
    COLUMNS: vk.Const[int],
):
    """Compute c = a @ b for few columns by dot products, with the lanes along K, where a is contiguous.

    Each workgroup of SIZE lanes computes ROWS rows of c and sums over its lanes at the end. COLUMNS is the number of
    columns of c. Rows past the end repeat the last one and aren't stored. ACC is the accumulator type.
    """
    sg = vk.subgroup()
    lane, g, row = vk.local_id(0), vk.group_id(2), vk.group_id(1) * ROWS
    rows, depth = c.shape[1], a.shape[2]
    acc = vk.local(ACC, (ROWS, COLUMNS))
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            acc[i, j] = ACC(0)
    for k in range(lane, depth, SIZE):
        for i in vk.unroll(ROWS):
            left = ACC(a[g, vk.min(row + i, rows - 1), k])
            for j in vk.unroll(COLUMNS):
                acc[i, j] = acc[i, j] + left * ACC(b[g, k, j])
    for i in vk.unroll(ROWS):
        for j in vk.unroll(COLUMNS):
            total = sg.sum(acc[i, j])
            if lane == 0 and row + i < rows:
                c[g, row + i, j] = R(total)
