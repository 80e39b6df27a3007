"""Cooperative matrices: small matrices that all invocations of a subgroup hold and multiply together.

`sg = vk.subgroup()` has the methods of `SubgroupMatrices`. A matrix is distributed over the subgroup in a layout that
only the device knows. It can be loaded from and stored to slices, multiplied, added, scaled and converted, but not
indexed. The supported shapes and types depend on the device: `vk.device().caps.matrices` lists them. A kernel that uses
any other shape or type raises FeatureError, which says what the device supports.

Example, a product of f16 matrices for one 16 x 16 block of the result::

    acc = sg.matrix((16, 16), vk.f32)
    for k in range(0, a.shape[1], 16):
        acc = sg.mma(sg.load(a[i : i + 16, k : k + 16], "a"), sg.load(b[k : k + 16, j : j + 16], "b"), acc)
    sg.store(c[i : i + 16, j : j + 16], acc)
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["SubgroupMatrices"]


class SubgroupMatrices:
    """The methods of a subgroup for cooperative matrices."""

    @kernel_only
    def matrix(self, shape: tuple[int, int], dtype: Any, value: Any = 0, use: str = "acc") -> Any:
        """Return a matrix of `shape` (rows, columns) filled with `value`; `use` is "a", "b" or "acc".

        The value must be the same in the whole subgroup.
        """

    @kernel_only
    def load(self, source: Any, use: str = "", layout: str = "row", dtype: Any = None, pad: Any = 0) -> Any:
        """Load a matrix from a two-dimensional slice, as in `sg.load(a[i:i+16, k:k+16], "a")`.

        Without a `use`, load a tile of the subgroup instead, as `wg.load` does. `pad` is for tiles only.

        `use` is "a" (left operand), "b" (right operand) or "acc" (accumulator). With `layout="column"`, the rows of the
        slice are the columns of the matrix. `dtype` is the type of the matrix's elements. It may differ from that of
        the array's elements, which may also be vectors: a row of two `vk.vec(vk.u32, 4)` is a row of 16 `vk.f16`.

        The slice must be inside a shared array or a contiguous global array; edges aren't padded. The rows of the array
        must start at multiples of 16 bytes. Within a row, the slice must start at a multiple of 16 bytes. If the rows
        of the slice are shorter than 16 bytes, it must start at a multiple of their size.
        """

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any) -> Any:
        """Return acc + a @ b for matrices of m x k, k x n and m x n elements, in the type of `acc`.

        The device determines the order of float additions and where the sums are rounded; integers wrap. The arguments
        may also be tiles of the subgroup (see `ScopeTiles.mma` in `tiles`).
        """
