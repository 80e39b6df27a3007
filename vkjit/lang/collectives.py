"""Collective operations of a workgroup or a subgroup: reductions, scans, broadcasts, shuffles.

`wg = vk.workgroup()` and `sg = vk.subgroup()` share the methods of `Scope`; the workgroup or subgroup is called the
scope. All invocations of the scope must reach a collective together: it has to be in control flow that is uniform for
the scope. Kernels with `over=` can't use collectives. Floats are summed in one fixed order, a butterfly of ascending
strides, so that results don't depend on the size of subgroups.

A method with a parameter `value` combines one value from each invocation of the scope. An array slice such as
`x[r, :]`, or an elementwise expression of slices, is a lazy value: its elements are distributed over the scope, and all
of them are combined. If the value is a tile (see `tiles`), all its elements are combined, or those along `axis`. With
`keepdims`, that axis is kept with size 1.

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
    """The methods of both workgroups and subgroups."""

    @kernel_only
    def size(self) -> Any:
        """Return the number of invocations in the scope, an `index`."""

    @kernel_only
    def rank(self) -> Any:
        """Return the rank of this invocation, an `index`: its number in the scope, from 0, in order of local ids."""

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
        """Return where the first minimum is: the rank of an invocation or, in a lazy value or tile, an element's index.

        NaN counts as the minimum.
        """

    @kernel_only
    def argmax(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Return where the first maximum is: the rank of an invocation or, in a lazy value or tile, an element's index.

        NaN counts as the maximum.
        """

    @kernel_only
    def any(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """True if any of the values is true."""

    @kernel_only
    def all(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """True if all of the values are true."""

    @kernel_only
    def broadcast(self, value: Any, rank: Any = 0) -> Any:
        """Return the value of the invocation with rank `rank`, which must be the same in the whole scope."""

    @kernel_only
    def scan(self, value: Any, op: str = "add", *, exclusive: bool = False, axis: int | None = None) -> Any:
        """Return the cumulative result of `op` over the values of all invocations up to this one, in order of rank.

        With `exclusive`, this invocation's own value is left out. `op` is "add", "mul", "min", "max", "and", "or" or
        "xor". For a tile, the scan runs along its `axis`.
        """

    @kernel_only
    def store(self, target: Any, value: Any, atomic: str = "") -> Any:
        """Store `value` to the slice `target` of an array: `wg.store(y[r, :], e)`.

        The value is a lazy value, a tile, or a scalar that is the same in the whole scope. Elements of a tile that are
        outside of the array aren't stored. With `atomic` ("add", "min", "max", "and", "or" or "xor"), the elements of a
        tile are atomically combined with those in memory.
        """


class Workgroup(WorkgroupTiles, Scope):
    """The invocations of a workgroup: see `vk.workgroup`."""

    @kernel_only
    def barrier(self) -> Any:
        """Wait until all invocations of the workgroup reach this point; the same as `vk.barrier()`."""


class Subgroup(SubgroupMatrices, ScopeTiles, Scope):
    """Invocations of a workgroup that execute together, such as a warp. The device determines their number.

    See `vk.subgroup`.
    """

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
        """Return the value of the invocation whose rank is this one's XOR `mask`, a compile-time constant."""

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
