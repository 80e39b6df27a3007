"""Conway's game of life on a torus: two-dimensional indices, modulo, double buffering."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk


@vk.kernel(over="new")
def generation(old: vk.In[vk.u8, "H W"], new: vk.InOut[vk.u8, "H W"]):
    row, column = vk.index()
    height, width = old.shape
    alive = vk.i32(0)
    for dy in vk.unroll(-1, 2):
        for dx in vk.unroll(-1, 2):
            if dy != 0 or dx != 0:
                alive += vk.i32(old[(row + dy) % height, (column + dx) % width])
    survives = alive == 3 or (alive == 2 and old[row, column] == 1)
    new[row, column] = vk.u8(survives)


def reference(board: Any) -> Any:
    """Compute one generation with NumPy's roll."""
    alive = sum(np.roll(board, (dy, dx), (0, 1)).astype(np.int32) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if dy or dx)
    return ((alive == 3) | ((alive == 2) & (board == 1))).astype(np.uint8)


def main(size: int = 97, generations: int = 20) -> None:
    board = (np.random.default_rng(4).random((size, size)) < 0.3).astype(np.uint8)
    expected, other = board.copy(), np.empty_like(board)
    for _ in range(generations):
        generation(board, other)
        board, other = other, board
        expected = reference(expected)
    np.testing.assert_array_equal(board, expected)
    print(f"life on {size}x{size} after {generations} generations: {int(board.sum())} alive, as NumPy has it")


if __name__ == "__main__":
    main()
