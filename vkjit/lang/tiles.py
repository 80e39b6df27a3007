"""Tiles: blocks of elements that a workgroup (or a subgroup) holds together and works on as a whole.

`wg = vk.workgroup()` has the methods below, and so has `sg = vk.subgroup()`. A tile has a shape that is known at compile
time and up to four axes. Operators and the functions of numbers work on tiles element by element, with NumPy's
broadcasting; `t[:, None]` and `t[None, :]` add axes, `t.T` swaps them, `vk.f16(t)` converts, `vk.where(m, a, b)` chooses.
Numbers that go into a tile's operation have to be the same in the whole scope. Elements are never lost at the edges of an
array: loads give `pad` there, stores leave them out.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["ScopeTiles", "WorkgroupTiles"]


class ScopeTiles:
    """The methods of a scope that make, read, write and combine tiles."""

    @kernel_only
    def zeros(self, shape: Any, dtype: Any) -> Any:
        """A tile of zeros; `shape` is a tuple, or the size of a row."""

    @kernel_only
    def full(self, shape: Any, value: Any, dtype: Any) -> Any:
        """A tile that holds `value` everywhere."""

    @kernel_only
    def arange(self, size: int, dtype: Any = None) -> Any:
        """The row 0, 1, 2... of that size; i32 unless `dtype` says something else."""

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any) -> Any:
        """acc + a @ b for slices or tiles a (BM x BK) and b (BK x BN) and a tile acc, in the type of `acc`.

        Elements of `a` and `b` are multiplied in the type of `acc`; the order of the additions is the device's. Edges of
        arrays are padded with zeros; `wg.store(c[i:i+BM, j:j+BN], acc)` clips.
        """

    @kernel_only
    def transpose(self, value: Any, axes: Any = None) -> Any:
        """A tile, or a slice, with its axes in another order: reversed, or as `axes` says."""

    @kernel_only
    def reshape(self, value: Any, shape: Any) -> Any:
        """The same elements in C order with another shape; one size may be -1."""

    @kernel_only
    def cumsum(self, value: Any, axis: int = -1) -> Any:
        """The sums of all elements up to each one, along an axis of a tile."""

    @kernel_only
    def gather(self, array: Any, index: Any, pad: Any = 0) -> Any:
        """The elements at the positions that a tile of integers holds; `pad` for positions outside the array.

        Arrays with several axes take a tuple with a tile, or a number, for each.
        """

    @kernel_only
    def scatter(self, array: Any, index: Any, value: Any, atomic: str = "") -> Any:
        """Writes each element to the position that a tile of integers holds, where that lies inside the array.

        Where several go to one position, one of them stays; with `atomic` ("add", "min", "max", "and", "or", "xor",
        "exchange") all take part.
        """


class WorkgroupTiles(ScopeTiles):
    """What a workgroup has besides: a subgroup's `load` also makes cooperative matrices."""

    @kernel_only
    def mma(self, a: Any, b: Any, acc: Any, prefetch: str = "") -> Any:
        """acc + a @ b for slices or tiles a (BM x BK) and b (BK x BN) and a tile acc, in the type of `acc`.

        Elements of `a` and `b` are multiplied in the type of `acc`; the order of the additions is the device's. Edges of
        arrays are padded with zeros; `wg.store(c[i:i+BM, j:j+BN], acc)` clips.

        `prefetch` ("early" or "late"): in a loop, on devices with shared memory, the slices of its next round are loaded while
        this one's are multiplied, their loads before or after the wait for this one's. "overlap" and "overlap late": on
        devices with matrices the next slices are in shared memory and on their way into matrices by then as well, and a
        factor that there is no room for is there a part at a time; elsewhere as "early" and "late". Results are the same.
        """

    @kernel_only
    def load(self, source: Any, pad: Any = 0) -> Any:
        """The elements of a slice as a tile, held from now on: `wg.load(a[i:i+BM, j:j+BN])`; `pad` outside the array.

        The sizes of the slice are known at compile time, as in `start:start+SIZE`. An expression of slices loads too.
        """
