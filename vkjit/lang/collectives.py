"""Collective operations of a workgroup or a subgroup: reductions, scans, broadcasts, shuffles.

`wg = vk.workgroup()` and `sg = vk.subgroup()` have the same methods. All invocations of the scope must reach a
collective together: it has to be in control flow that is uniform for the scope. Kernels with `over=` can't use
collectives. Floats are summed in one fixed order, a butterfly of ascending strides, so that results don't depend on the
size of subgroups.

A method that takes a value combines one value from each invocation of the scope. A lazy slice (`x[r, :]`) is
distributed over the scope instead, and all its elements are combined. For a tile, all elements are combined, or those
along `axis`; with `keepdims` that axis stays with size 1.

Example::

    wg, r = vk.workgroup(), vk.group_id(0)
    mean = wg.sum(x[r, :]) / x.shape[1]
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only
from .matrices import SubgroupMatrices
from .tiles import ScopeTiles, WorkgroupTiles

__all__ = ["Scope", "Subgroup", "Workgroup", "subgroup", "workgroup"]


class Scope:
    """The methods that workgroups and subgroups share."""

    @kernel_only
    def size(self) -> Any:
        """Return the number of invocations in the scope, an `index`."""

    @kernel_only
    def rank(self) -> Any:
        """Return the number of this invocation in the scope, an `index`: from 0, in the order of the linear local id."""

    @kernel_only
    def sum(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the sum, in every invocation. Bools count as i32."""

    @kernel_only
    def prod(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the product, in every invocation."""

    @kernel_only
    def min(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the minimum, in every invocation. NaN propagates."""

    @kernel_only
    def max(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the maximum, in every invocation. NaN propagates."""

    @kernel_only
    def argmin(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the index of the minimum: the lowest rank that has it or, for a slice, the lowest position. NaN counts
        as the minimum.
        """

    @kernel_only
    def argmax(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return the index of the maximum: the lowest rank that has it or, for a slice, the lowest position. NaN counts
        as the maximum.
        """

    @kernel_only
    def any(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """True if any of the values is true."""

    @kernel_only
    def all(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """True if all of the values are true."""

    @kernel_only
    def broadcast(self, value: Any, rank: Any = 0) -> Any:
        """Return the value of the invocation with that rank. The rank must be the same in the whole scope."""

    @kernel_only
    def scan(self, value: Any, op: str = "add", *, exclusive: bool = False, axis: int | None = None) -> Any:
        """Return the cumulative combination of the values of all ranks up to and including this one; without it if
        `exclusive`.

        `op` is "add", "mul", "min", "max", "and", "or" or "xor". For a tile, the scan runs along its `axis`.
        """

    @kernel_only
    def store(self, target: Any, value: Any, atomic: str = "") -> Any:
        """Store a lazy value, a tile, or a value that is the same everywhere, to a slice: `wg.store(y[r, :], e)`.

        Elements of a tile that lie outside of the array aren't stored. With `atomic` ("add", "min", "max", "and", "or",
        "xor"), the elements of a tile are atomically combined with those in memory.
        """


class Workgroup(WorkgroupTiles, Scope):
    """The invocations of a workgroup: see `vk.workgroup`."""

    @kernel_only
    def barrier(self) -> Any:
        """Wait for the whole workgroup; the same as `vk.barrier()`."""


class Subgroup(SubgroupMatrices, ScopeTiles, Scope):
    """Invocations of a workgroup that run in lockstep; the device determines their number. See `vk.subgroup`."""

    @kernel_only
    def id(self) -> Any:
        """Return the number of this subgroup in its workgroup, an `index`."""

    @kernel_only
    def count(self) -> Any:
        """Return the number of subgroups in the workgroup, an `index`."""

    @kernel_only
    def shuffle(self, value: Any, rank: Any) -> Any:
        """Return the value of the invocation with rank `rank`, which may differ between invocations."""

    @kernel_only
    def shuffle_xor(self, value: Any, mask: int) -> Any:
        """Return the value of the invocation whose rank is this one's xor `mask`. The mask is a compile-time constant."""

    @kernel_only
    def ballot(self, value: Any) -> Any:
        """Return the bit mask (u64) of the ranks where the value is true."""

    @kernel_only
    def elect(self) -> Any:
        """True in exactly one of the active invocations."""


@kernel_only
def workgroup() -> Any:
    """Return this workgroup as a `Workgroup`, whose methods are collective operations."""


@kernel_only
def subgroup() -> Any:
    """Return this subgroup as a `Subgroup`, whose methods are collective operations."""
