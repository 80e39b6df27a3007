"""Tiles: blocks of elements that a workgroup (or a subgroup) holds and processes together.

The methods below are those of `wg = vk.workgroup()`, and mostly also of `sg = vk.subgroup()`. A tile has a shape that
is known at compile time, with up to four axes. Operators and elementwise functions apply to each element, with NumPy's
broadcasting; `t[:, None]` and `t[None, :]` add axes, `t.T` transposes, `vk.f16(t)` converts, `vk.where(m, a, b)`
selects. Scalars in operations on tiles must be the same in the whole workgroup or subgroup. At the edges of an array,
loads pad tiles with the value `pad`, and stores skip the elements outside of the array.

Example, the sums of 16 rows::

    tile = wg.load(x[i : i + 16, 0:64])
    wg.store(y[i : i + 16], wg.sum(tile, axis=1))
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["ScopeTiles", "WorkgroupTiles"]


class ScopeTiles:
    """The methods of workgroups and subgroups for tiles."""

    @kernel_only
    def zeros(self, shape: Any, dtype: Any) -> Any:
        """Return a tile of zeros; `shape` is a tuple, or an int for one axis."""

    @kernel_only
    def full(self, shape: Any, value: Any, dtype: Any) -> Any:
        """Return a tile filled with `value`."""

    @kernel_only
    def arange(self, size: int, dtype: Any = None) -> Any:
        """Return the one-dimensional tile 0, 1, ..., size - 1 of type `dtype`, by default i32."""

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any) -> Any:
        """Return acc + a @ b for slices or tiles `a` (BM x BK) and `b` (BK x BN) and a tile `acc` (BM x BN), in the
        type of `acc`.

        Elements of `a` and `b` are multiplied in the type of `acc`; the device chooses the order of the additions.
        Slices are padded with zeros at the edges of arrays; `wg.store(c[i:i+BM, j:j+BN], acc)` skips elements outside.
        """

    @kernel_only
    def transpose(self, value: Any, axes: Any = None) -> Any:
        """Return a tile or a slice with its axes in the order `axes`, by default reversed."""

    @kernel_only
    def reshape(self, value: Any, shape: Any) -> Any:
        """Return the same elements in C order with another shape; one size may be -1."""

    @kernel_only
    def cumsum(self, value: Any, axis: int = -1) -> Any:
        """Return the cumulative sums along an axis of a tile."""

    @kernel_only
    def gather(self, array: Any, index: Any, pad: Any = 0) -> Any:
        """Return the elements of an array at the indices in a tile of integers, with `pad` for indices outside of the
        array.

        For an array with several axes, `index` is a tuple with a tile, or a scalar, for each axis.
        """

    @kernel_only
    def scatter(self, array: Any, index: Any, value: Any, atomic: str = "") -> Any:
        """Store each element of `value` to an array, at the index in the corresponding element of the tile `index`.

        Elements with an index outside of the array are skipped. If several elements have the same index, one of them is
        stored. With `atomic` ("add", "min", "max", "and", "or", "xor" or "exchange"), all of them are combined with the
        element in memory.
        """


class WorkgroupTiles(ScopeTiles):
    """The methods for tiles that only workgroups have, or that have other parameters for subgroups."""

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any, prefetch: str = "") -> Any:
        """Return acc + a @ b for slices or tiles `a` (BM x BK) and `b` (BK x BN) and a tile `acc` (BM x BN), in the
        type of `acc`.

        Elements of `a` and `b` are multiplied in the type of `acc`; the device chooses the order of the additions.
        Slices are padded with zeros at the edges of arrays; `wg.store(c[i:i+BM, j:j+BN], acc)` skips elements outside.

        `prefetch` selects software pipelining of a product in a loop; it doesn't change results:

        - "early" and "late": load the slices of the next iteration into registers while those of the current iteration
          are multiplied. The slices of the current iteration are in shared memory, and a barrier precedes their use;
          "early" issues the loads before this barrier, "late" after it. No effect on devices without shared memory.
        - "overlap" and "overlap late": on devices with cooperative matrices, add pipeline stages. While one slice is
          multiplied, the following ones are also stored to shared memory and loaded into matrices. If shared memory is
          too small, one operand is staged in parts. On other devices, the same as "early" and "late".
        """

    @kernel_only
    def load(self, source: Any, pad: Any = 0) -> Any:
        """Load a slice as a tile: `wg.load(a[i:i+BM, j:j+BN])`, with `pad` for elements outside of the array.

        The size of the slice along each axis must be known at compile time, as in `start:start+SIZE`. The source may
        also be an elementwise expression of slices.
        """
