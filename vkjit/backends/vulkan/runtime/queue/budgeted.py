"""A queue with a time budget per submission, for drivers with a timeout after which the device is lost.

Grids are split into parts, and a submission is sent as soon as its recorded work is expected to use up the budget.
Every workgroup runs once and sees its id in the whole grid. The time per workgroup is measured for each kernel and
combination of scalars and extents: the first launch starts with a few workgroups and increases their number while they
are fast. A single workgroup can't be split. Graph replays aren't split, nor are kernels that read the number of
workgroups, because they would see that of a part.

`VKJIT_TIME_BUDGET` sets the budget in seconds; 0 disables it. The default is half a second for AMD and Intel GPUs and,
on Windows, for all GPUs, where drivers are known to have timeouts, and no budget elsewhere.
"""

from __future__ import annotations

import os
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vkjit.errors import ArgumentError
from vkjit.runtime.device import DeviceCaps
from vkjit.runtime.observers import LaunchFields

from .queue import Queue

if TYPE_CHECKING:
    from ..memory.buffer import VulkanBuffer
    from ..pipeline.pipeline import VulkanKernel

__all__ = ["DISPATCH_BASE", "BudgetedQueue", "parts", "time_budget"]

DISPATCH_BASE = 0x10  # VK_PIPELINE_CREATE_DISPATCH_BASE_BIT
FIRST_PART = 64
"""Number of workgroups of the first part of a launch with unknown cost. Grids of up to this size are never split."""

_MAX_COSTS = 4096
"""Number of costs of one kernel, by extents and scalars, at which they are discarded."""
_GROWTH = 16
_KNOWN_FROM = 0.1
"""The fraction of the budget that a part must take for its measured cost to be used for larger parts."""

_AMD, _INTEL = 0x1002, 0x8086
_DECORATE, _BUILT_IN, _NUM_WORKGROUPS = 71, 11, 24

Grid = tuple[int, int, int]


def time_budget(caps: DeviceCaps) -> float:
    """Return the time budget of a submission in seconds; 0 for none.

    Raises ArgumentError if VKJIT_TIME_BUDGET isn't a number of at least 0.
    """
    text = os.environ.get("VKJIT_TIME_BUDGET", "")
    if not text:
        watched = caps.kind in ("discrete", "integrated") and (caps.vendor in (_AMD, _INTEL) or sys.platform == "win32")
        return 0.5 if watched else 0.0
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0.0:
        raise ArgumentError(f"VKJIT_TIME_BUDGET={text!r}: expected seconds, 0 for no limit")
    return seconds


class BudgetedQueue(Queue):
    """A `Queue` whose submissions take at most about `seconds`."""

    def __init__(self, *parts: Any, seconds: float) -> None:
        super().__init__(*parts)
        self._seconds = seconds
        self._expected = 0.0  # of the open submission
        self._costs: weakref.WeakKeyDictionary[VulkanKernel, dict[bytes, float]] = weakref.WeakKeyDictionary()
        self._whole: weakref.WeakKeyDictionary[VulkanKernel, bool] = weakref.WeakKeyDictionary()

    def open_command_handle(self) -> int:
        return 0  # no fast path: every launch must be estimated

    def dispatch(self, request: LaunchFields) -> None:
        kernel: VulkanKernel
        kernel, groups, block, reads, writes, _ = request  # type: ignore[assignment]  # `Device.launch` checks
        total = groups[0] * groups[1] * groups[2]
        if self._whole.setdefault(kernel, _reads_num_workgroups(kernel.artifact.code)) or total <= FIRST_PART:
            super().dispatch(request)
            return
        with self.lock:
            self.check()
            costs, key = self._costs.setdefault(kernel, {}), _cost_key(kernel, block)
            if len(costs) > _MAX_COSTS:
                costs.clear()
            cost = costs.get(key)
            if cost is None:
                self.wait_all()  # so that only this launch is measured
            most = [FIRST_PART if cost is None else self._fitting(cost)]
            for base, size in parts(groups, lambda: most[0]):
                count = size[0] * size[1] * size[2]
                begun = time.perf_counter()
                self._record_part(kernel, base, size, block, reads, writes)  # type: ignore[arg-type]  # as in `Queue`
                if cost is not None:
                    self._expect(count * cost)
                    continue
                self.wait_all()
                taken = time.perf_counter() - begun
                if taken >= _KNOWN_FROM * self._seconds:
                    cost = costs[key] = taken / count
                    most[0] = self._fitting(cost)
                else:
                    most[0] = min(count * _GROWTH, max(count, self._fitting(taken / count)))
            if cost is None:
                costs[key] = taken / count
            kernel.grid = groups

    def _fitting(self, cost: float) -> int:
        """Return the number of workgroups of this cost, in seconds, that fit the budget; at least 1."""
        return max(1, int(self._seconds / max(cost, 1e-12)))

    def _expect(self, seconds: float) -> None:
        """Add to the expected time of the open submission, and send it when that reaches the budget."""
        self._expected += seconds
        if self._expected >= self._seconds:
            self.submit()

    def _begin(self) -> Any:
        self._expected = 0.0
        return super()._begin()

    def _plan(self, budget: int) -> None:
        super()._plan(budget)
        self.budget, self._planned = budget, 0  # no longer submissions: not all recorded work has a known cost

    def _record_part(
        self, kernel: VulkanKernel, base: Grid, size: Grid, block: bytes, reads: Sequence[VulkanBuffer],
        writes: Sequence[VulkanBuffer],
    ) -> None:  # fmt: skip
        command = self._order(reads, writes).command
        self.bound = None  # set only after the call, which may be interrupted
        self.functions.vkCmdBindPipeline(command, 1, kernel.pipeline)
        self.bound = kernel
        if block:
            self.functions.vkCmdPushConstants(command, kernel.layout, 0x20, 0, len(block), block)
        kernel.last_use, kernel.user, kernel.grid = self.serial, self, size  # before the call, which may be interrupted
        self.functions.vkCmdDispatchBase(command, *base, *size)
        self._count()


def parts(groups: Grid, most: Callable[[], int]) -> Iterator[tuple[Grid, Grid]]:
    """Split a grid into (base, size) boxes of at most `most()` workgroups each; `most` is called again for each box."""
    x, y, z = groups
    at_z = 0
    while at_z < z:
        if most() >= x * y:
            deep = min(most() // (x * y), z - at_z)
            yield (0, 0, at_z), (x, y, deep)
            at_z += deep
            continue
        at_y = 0
        while at_y < y:
            if most() >= x:
                high = min(most() // x, y - at_y)
                yield (0, at_y, at_z), (x, high, 1)
                at_y += high
                continue
            at_x = 0
            while at_x < x:
                wide = min(max(most(), 1), x - at_x)
                yield (at_x, at_y, at_z), (wide, 1, 1)
                at_x += wide
            at_y += 1
        at_z += 1


def _cost_key(kernel: VulkanKernel, block: bytes) -> bytes:
    """Return the packed scalars and extents of a launch, which determine its cost; b"" if the block is indirect."""
    if kernel.artifact.indirect:
        return b""
    fields = [f for f in kernel.artifact.fields if f.role in ("scalar", "extent")]
    return b"".join(block[f.offset : f.offset + f.size] for f in fields)


def _reads_num_workgroups(code: bytes) -> bool:
    """Return True if a SPIR-V module declares the NumWorkgroups built-in."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    at = 5
    while at < len(words):
        length, operation = words[at] >> 16, words[at] & 0xFFFF
        if operation == _DECORATE and length > 3 and words[at + 2 : at + 4] == (_BUILT_IN, _NUM_WORKGROUPS):
            return True
        at += max(length, 1)
    return False
