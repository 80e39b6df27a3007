"""What the invocations of a workgroup or a subgroup do together.

`wg = vk.workgroup()` and `sg = vk.subgroup()` have the same methods. All invocations of the scope must come to a
collective together, so that it stands in control flow that is uniform for the scope; kernels with `over=` have none.
Sums of floats have one fixed order, a butterfly of ascending strides, so that results don't depend on the size of
subgroups.

Where a method takes a value, each invocation of the scope brings one. A lazy slice (`x[r, :]`) is spread over the
scope instead: the method combines all its elements. Of a tile it combines all elements, or those along an `axis`,
which stays with size 1 where `keepdims` says so.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only
from .matrices import SubgroupMatrices
from .tiles import ScopeTiles, WorkgroupTiles

__all__ = ["Scope", "Subgroup", "Workgroup", "subgroup", "workgroup"]


class Scope:
    """The methods that workgroup and subgroup share."""

    @kernel_only
    def size(self) -> Any:
        """The number of invocations, an `index`."""

    @kernel_only
    def rank(self) -> Any:
        """The number of this invocation in the scope, an `index`: from 0, in the order of the linear local id."""

    @kernel_only
    def sum(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The sum, in every invocation; bools count as i32."""

    @kernel_only
    def prod(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The product, in every invocation."""

    @kernel_only
    def min(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The minimum, in every invocation; NaN passes on."""

    @kernel_only
    def max(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """The maximum, in every invocation; NaN passes on."""

    @kernel_only
    def argmin(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Where the minimum is: the least rank (the least position in a slice) that has it, an `index`. NaN counts as
        least.
        """

    @kernel_only
    def argmax(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Where the maximum is: the least rank (the least position in a slice) that has it, an `index`. NaN counts as
        greatest.
        """

    @kernel_only
    def any(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Whether it is true anywhere."""

    @kernel_only
    def all(self, value: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        """Whether it is true everywhere."""

    @kernel_only
    def broadcast(self, value: Any, rank: Any = 0) -> Any:
        """The value of the invocation with that rank; the rank is the same in the whole scope."""

    @kernel_only
    def scan(self, value: Any, op: str = "add", *, exclusive: bool = False, axis: int | None = None) -> Any:
        """The combination of the values of all ranks up to this one (below it, with `exclusive`).

        `op` is "add", "mul", "min", "max", "and", "or" or "xor". Of a tile: the combinations along its `axis`.
        """

    @kernel_only
    def store(self, target: Any, value: Any, atomic: str = "") -> Any:
        """Writes a lazy value, a tile, or what is the same everywhere, to a slice: `wg.store(y[r, :], e)`.

        Of a tile, what lies outside the array is left out. With `atomic` ("add", "min", "max", "and", "or", "xor") the
        elements of a tile are combined with those in memory, atomically.
        """


class Workgroup(WorkgroupTiles, Scope):
    """The invocations of a workgroup."""

    @kernel_only
    def barrier(self) -> Any:
        """`vk.barrier()`."""


class Subgroup(SubgroupMatrices, ScopeTiles, Scope):
    """The invocations that run in lockstep; the device decides how many."""

    @kernel_only
    def id(self) -> Any:
        """The number of the subgroup in its workgroup, an `index`."""

    @kernel_only
    def count(self) -> Any:
        """The number of subgroups in the workgroup, an `index`."""

    @kernel_only
    def shuffle(self, value: Any, rank: Any) -> Any:
        """The value of a rank that each invocation chooses."""

    @kernel_only
    def shuffle_xor(self, value: Any, mask: int) -> Any:
        """The value of the rank that differs by xor with `mask`, known at compile time."""

    @kernel_only
    def ballot(self, value: Any) -> Any:
        """The bit mask (u64) of the ranks where the value is true."""

    @kernel_only
    def elect(self) -> Any:
        """True in one invocation of those that are active."""


@kernel_only
def workgroup() -> Any:
    """The invocations of this workgroup, a `Workgroup`."""


@kernel_only
def subgroup() -> Any:
    """The invocations of this subgroup, a `Subgroup`."""
