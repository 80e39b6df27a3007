"""Tiles: blocks of elements that a workgroup (or a subgroup) holds and processes together.

A tile has a shape that is known at compile time, with up to four axes. Operators and elementwise functions apply to
each element, with NumPy's broadcasting. `t[:, None]` and `t[None, :]` add axes, `t.T` transposes, `vk.f16(t)` converts,
and `vk.where(m, a, b)` selects. Scalars in operations on tiles must be the same in the whole workgroup or subgroup. At
the edges of an array, loads pad tiles with the value `pad`, and stores skip the elements outside of the array.

`vk.workgroup()` has the methods of `WorkgroupTiles`, and `vk.subgroup()` those of `ScopeTiles`. The `load` and `mma` of
subgroups are in `matrices`, as they also take cooperative matrices. Both scopes have the reductions, scans and `store`
of `collectives.Scope`, which also take tiles.

A "slice" below is a subscript of an array with a range, such as `a[i : i + 16, 0:64]`. It isn't loaded by itself.

Example, the sums of the 64 elements in each of 16 rows::

    wg = vk.workgroup()
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
        """Return the matrix product acc + a @ b in the type of `acc`.

        `acc` is a tile of shape (BM, BN). `a` has shape (BM, BK) and `b` (BK, BN); both are tiles or slices. A slice is
        padded with zeros at the edges of its array. Elements of `a` and `b` are multiplied in the type of `acc`; the
        device chooses the order of the additions.
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
        """Return a tile of the elements of an array at the indices in `index`, a tile of integers.

        For indices outside of the array, the element is `pad`. For an array with several axes, `index` is a tuple with
        a tile or a scalar for each axis.
        """

    @kernel_only
    def scatter(self, array: Any, index: Any, value: Any, atomic: str = "") -> Any:
        """Store each element of `value` to an array, at the index in the corresponding element of the tile `index`.

        Elements with an index outside of the array are skipped. If several elements have the same index, one of them is
        stored. With `atomic` ("add", "min", "max", "and", "or", "xor" or "exchange"), all of them are combined with the
        element in memory.
        """


class WorkgroupTiles(ScopeTiles):
    """The methods of workgroups for tiles that subgroups don't have, or have with other parameters."""

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any, prefetch: str = "") -> Any:
        """Return acc + a @ b as `ScopeTiles.mma` does, optionally with software pipelining.

        `prefetch` selects the pipelining of a product in a loop. It doesn't change results:

        - "early" and "late": load the operands of the next iteration into registers while those of the current
          iteration are multiplied. The latter are in shared memory, and a barrier precedes their use: "early" issues
          the loads before this barrier, "late" after it. No effect on devices without shared memory.
        - "overlap" and "overlap late": the same as "early" and "late", with two more stages on devices with cooperative
          matrices. The operands of the next iteration are also stored to shared memory during the current iteration,
          and cooperative matrices are loaded from there one step along K before they are multiplied. If shared memory
          is too small for both operands, one of them is stored in several parts, one after the other.
        """

    @kernel_only
    def load(self, source: Any, pad: Any = 0) -> Any:
        """Load a slice as a tile, as in `wg.load(a[i:i+BM, j:j+BN])`, with `pad` for elements outside of the array.

        The size of the slice along each axis must be known at compile time, as in `start:start+SIZE`. `source` may also
        be an elementwise expression of slices, such as `a[i:i+BM] * b[i:i+BM] + 1`, which is evaluated per element.
        """
