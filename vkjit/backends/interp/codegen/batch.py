"""A batch of workgroups that run in lockstep: their ids, shared memory, reports and printed lines.

A batch is a part of a grid, given by the workgroups' linear numbers in execution order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import errors
from vkjit.errors import KernelError, Loc, ReportSite
from vkjit.ir.ops import OpName

from .values import Accumulator, Lanes, Mask

__all__ = ["Batch", "Grid", "Log"]

_ERRORS: dict[str, type[KernelError]] = {
    "loop_limit": errors.LoopLimitError,
    "bounds": errors.BoundsError,
    "assert": errors.KernelAssertionError,
    "assume": errors.AssumptionError,
    "zero_division": errors.KernelZeroDivisionError,
}

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Grid:
    """The workgroups of a launch: `groups` of them, the first of which is `base` of a whole grid of `total`."""

    groups: Triple
    local_size: Triple
    subgroup_size: int
    base: Triple = (0, 0, 0)
    total: Triple | None = None

    @property
    def invocations(self) -> int:
        """Invocations of one workgroup."""
        x, y, z = self.local_size
        return x * y * z

    @property
    def num_groups(self) -> Triple:
        """What the operation `num_groups` gives."""
        return self.total or self.groups

    def global_id(self, group: int, local: int) -> Triple:
        """The global id of invocation `local` of the workgroup with linear number `group`."""
        group_id = _unravel(group, self.groups)
        local_id = _unravel(local, self.local_size)
        x, y, z = ((self.base[d] + group_id[d]) * self.local_size[d] + local_id[d] for d in range(3))
        return x, y, z


def _unravel(number: int, extents: Triple) -> Triple:
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)


@dataclass(slots=True)
class Log:
    """What a launch tells the host: the report of the first invocation that made one, and the lines printed."""

    kernel: str
    sites: tuple[ReportSite, ...] = ()
    first: tuple[int, KernelError] | None = None
    lines: list[tuple[int, int, str]] = field(default_factory=list)

    def text(self) -> list[str]:
        """What was printed, in the order of invocations; a template says itself where its lines end."""
        return [line for _, _, line in sorted(self.lines)]

    def print(self, order: int, line: str) -> None:
        """Takes a line from the invocation with number `order`."""
        self.lines.append((order, len(self.lines), line))

    def report(self, grid: Grid, order: int, invocation: tuple[int, int], site: int, values: list[Any]) -> None:
        """Keeps a report unless an invocation of lower number (or this one) has made one already."""
        if self.first is not None and self.first[0] <= order:
            return
        entry = self.sites[site]
        kind = _ERRORS.get(entry.kind, KernelError)
        message = entry.message.format(*values)
        where = grid.global_id(*invocation)
        self.first = (order, kind(message, kernel=self.kernel, loc=entry.loc, invocation=where))


class Batch:
    """The workgroups that run together. `log` outlives the batch; shared memory and ids don't.

    `ids` are the values of id operations found by an earlier batch of the same workgroups.
    """

    __slots__ = ("_ids", "count", "grid", "lanes", "log", "numbers", "returned", "shared", "size")

    def __init__(
        self, grid: Grid, numbers: npt.NDArray[np.int64], log: Log, ids: dict[tuple[str, int], Lanes] | None = None
    ) -> None:
        self.grid = grid
        self.numbers = numbers
        self.log = log
        self.count = len(numbers)
        self.size = grid.invocations
        self.lanes = self.count * self.size
        self.shared: dict[Any, Any] = {}
        self.returned = Accumulator()
        self._ids: dict[tuple[str, int], Lanes] = {} if ids is None else ids

    def id(self, name: OpName, dim: int = 0) -> Lanes:
        """The value of one of the id operations."""
        found = self._ids.get((name, dim))
        if found is None:
            found = self._ids[name, dim] = self._make(name, dim)
        return found

    def _make(self, name: OpName, dim: int) -> Lanes:
        grid = self.grid
        if name == "global_id":
            start: Lanes = self.id("group_id", dim) * np.int64(grid.local_size[dim])
            return start + self.id("local_id", dim)
        if name == "group_id":
            x, y, z = grid.groups
            along = (self.numbers % x, self.numbers // x % y, self.numbers // (x * y) % max(z, 1))[dim]
            return _collapsed(along + grid.base[dim])[:, None]
        if name in ("local_id", "lane_id", "subgroup_id"):
            return _collapsed(self._local(name, dim))[None, :]
        sizes: dict[OpName, int] = {
            "num_groups": grid.num_groups[dim],
            "local_size": grid.local_size[dim],
            "subgroup_size": grid.subgroup_size,
            "num_subgroups": -(-self.size // grid.subgroup_size),
        }
        return np.full((1, 1), sizes[name], dtype=np.int64)

    def _local(self, name: OpName, dim: int) -> npt.NDArray[np.int64]:
        linear = np.arange(self.size, dtype=np.int64)
        if name == "lane_id":
            return linear % self.grid.subgroup_size
        if name == "subgroup_id":
            return linear // self.grid.subgroup_size
        x, y, _ = self.grid.local_size
        return (linear % x, linear // x % y, linear // (x * y))[dim]

    def full(self, lanes: Lanes) -> Lanes:
        """A value or mask with one element per invocation (read only)."""
        return np.broadcast_to(lanes, (*lanes.shape[:-2], self.count, self.size))

    def active(self, mask: Mask, condition: Lanes | None = None) -> list[tuple[int, int]]:
        """Row and column of the invocations of the mask (where a condition holds), in lane order."""
        keep = np.ones((1, 1), dtype=np.bool_) if condition is None else condition
        if mask is not None:
            keep = keep & mask
        rows, columns = np.nonzero(self.full(keep))
        return list(zip(rows.tolist(), columns.tolist(), strict=True))

    def order(self, row: int, column: int) -> int:
        """The number of an invocation in the launch, independent of batches and of the workgroups' order."""
        return int(self.numbers[row]) * self.size + column

    def invocation(self, row: int, column: int) -> Triple:
        """The global id of an invocation."""
        return self.grid.global_id(int(self.numbers[row]), column)

    def pick(self, value: Lanes, row: int, column: int) -> Any:
        """The Python number (or list of components) that one invocation holds."""
        picked: Any = self.full(value)[..., row, column].tolist()
        return picked

    def error(self, kind: type[KernelError], message: str, loc: Loc, bad: Lanes) -> KernelError:
        """An error about the first invocation where `bad` holds."""
        row, column = self.active(None, bad)[0]
        return kind(message, kernel=self.log.kernel, loc=loc, invocation=self.invocation(row, column))


def _collapsed(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """One element where all are equal."""
    return values[:1] if len(values) and (values == values[0]).all() else values
