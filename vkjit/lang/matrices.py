"""Cooperative matrices: products of small matrices that all invocations of a subgroup compute together.

`sg = vk.subgroup()` has the methods below. A matrix is a value that the whole subgroup holds in a layout that only the
device knows: it is loaded from and stored to slices, multiplied, added, scaled and converted, never indexed. Which
shapes and types there are differs from device to device: `vk.device().caps.matrices` lists them, and a kernel that asks
for others is a FeatureError that says what the device has.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["SubgroupMatrices"]


class SubgroupMatrices:
    """The methods of a subgroup that make and use cooperative matrices."""

    @kernel_only
    def matrix(self, shape: tuple[int, int], dtype: Any, value: Any = 0, use: str = "acc") -> Any:
        """A matrix of `shape` (rows, columns) that holds `value` everywhere, for `use` "a", "b" or "acc".

        The value is the same in the whole subgroup.
        """

    @kernel_only
    def load(self, source: Any, use: str = "", layout: str = "row", dtype: Any = None, pad: Any = 0) -> Any:
        """A tile of the subgroup, as `wg.load` makes one; with a `use` the matrix in a slice of two dimensions, as in
        `sg.load(a[i:i+16, k:k+16], "a")`.

        `use` is "a" (the left factor), "b" (the right one) or "acc". With `layout="column"` the slice holds the matrix
        transposed: its rows are the matrix' columns. `dtype` says what the bytes are where the array's elements are
        something else, such as vectors: a row of two `vk.vec(vk.u32, 4)` is a row of 16 `vk.f16`.

        The slice lies in a global array that is contiguous, or in shared memory, and inside it: edges aren't padded. Rows
        begin at multiples of 16 bytes, and so does the slice in its row (or at multiples of what a row of it takes, if
        that is less).
        """

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any) -> Any:
        """acc + a @ b for matrices of m x k, k x n and m x n elements, in the type of `acc`.

        Floats are multiplied and added in an order, and rounded in places, that the device chooses; integers wrap.
        """
