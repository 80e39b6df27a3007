"""Kernel reports (failed checks) on a Vulkan device: a ring of slots, one per launch of a kernel that can report.

A report slot has the layout of a report buffer (`artifact.REPORT_WORDS`). Each launch of a kernel with sites gets the
next slot, and the slot's address is written into the argument block at the field of role "report", which callers leave
zero. The slot thus identifies the launch, and a kernel needs to store only its own site number.

`Reports.check` raises KernelErrors in launch order. A slot that isn't in use is zero. Slots are read only when their
launches are complete, and each report becomes an error once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vkjit.errors import InternalError, KernelError
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact
from vkjit.runtime.reports import error_of_report

from .memory.buffer import Storage, VulkanBuffer
from .queue.queue import Queue

if TYPE_CHECKING:
    from .pipeline.pipeline import VulkanKernel

__all__ = ["Reports"]

SLOTS = 2048
SLOT_BYTES = 4 * REPORT_WORDS


class Reports:
    """The ring of one device. Slot numbers increase without bound; a slot's ring index is its number modulo SLOTS.

    The first launch that needs a slot allocates the ring. All methods except `check` are called under the queue's lock.
    """

    def __init__(self, queue: Queue, storage: Storage) -> None:
        self._queue = queue
        self._storage = storage
        self._slots: VulkanBuffer | None = None
        self._mirror: VulkanBuffer | None = None
        self._owners: list[KernelArtifact | None] = [None] * SLOTS
        self._first = self._next = 0
        self._errors: list[KernelError] = []
        self._watched: dict[VulkanBuffer, tuple[list[KernelArtifact], int]] = {}
        """Slots outside the ring that may hold reports: their launches' artifacts, and the sequence number of the
        watch.
        """
        self._watches = 0
        self._later: list[KernelError] = []
        """Errors from slots that were reused while a check waited: they may belong to another thread's launches."""

    @property
    def outstanding(self) -> bool:
        """True if something may have been reported since the last check."""
        return self._next > self._first or bool(self._errors) or bool(self._watched)

    def memory(self, nbytes: int) -> VulkanBuffer:
        """Return zeroed slots outside the ring, for `watch`."""
        slots = self._storage.buffer(None, self._storage.memory.main, nbytes)
        self._zero(slots, 0, nbytes)
        return slots

    def watch(self, slots: VulkanBuffer, owners: list[KernelArtifact]) -> None:
        """Include these slots in the next check. They belong to launches of these artifacts, one each."""
        self._watches += 1
        self._watched[slots] = owners, self._watches

    @property
    def address(self) -> int:
        """Address of the ring's first slot; allocates the ring if needed."""
        return self._ring().address

    def claim(self, kernel: VulkanKernel) -> int:
        """Return the address of the next slot, for a launch. Waits for the device if all slots are in use."""
        slots = self._ring()
        if self._next - self._first == SLOTS:
            self._drain()
        place = self._next % SLOTS
        self._owners[place] = kernel.artifact
        self._next += 1
        return slots.address + place * SLOT_BYTES

    def patch(self, kernel: VulkanKernel, block: bytes) -> bytes:
        """Return the argument block with the next slot's address filled in."""
        address = self.claim(kernel)
        offset = kernel.report_offset
        return block[:offset] + address.to_bytes(8, "little") + block[offset + 8 :]

    def check(self) -> None:
        """Wait for the device and raise the first error reported since the last check; the others are dropped.

        Launches that other threads make meanwhile are left to the next check, because this one doesn't wait for them.
        If other threads replay a graph whose slots are checked here, a slot doesn't tell whose report it holds: such an
        error is raised only if there is no other, and else kept for the next check.
        """
        with self._queue.lock:
            target, watched = self._next, dict(self._watched)
        self._queue.group.wait_all()  # launches of other queues; this queue copies the ring
        with self._queue.lock:
            self._prepare(target)
        self._queue.wait_all()
        with self._queue.lock:
            self._collect(target)
            if any(self._watched.get(slots, entry) != entry for slots, entry in watched.items()):
                self._queue.group.wait_all()  # for their newer uses; the lock admits no further ones
            self._collect_watched(watched)
            if self._errors or self._later:  # no calls from here on, so that no interrupt can come in between
                if self._errors:
                    first, self._errors = self._errors[0], self._later
                else:
                    first, self._errors = self._later[0], self._later[1:]
                self._later = []
                raise first

    def _drain(self) -> None:
        target = self._next
        self._queue.group.wait_all()
        self._prepare(target)
        self._queue.wait_all()
        self._collect(target)

    def _ring(self) -> VulkanBuffer:
        if self._slots is None:
            pool = self._storage.memory.main
            slots = self._storage.buffer(None, pool, SLOTS * SLOT_BYTES)
            self._zero(slots, 0, slots.nbytes)
            self._settle()
            if not (pool.kind.mapped and pool.kind.cached):
                self._mirror = self._storage.buffer(None, self._storage.memory.download, SLOTS * SLOT_BYTES)
            self._slots = slots
        return self._slots

    def _prepare(self, target: int) -> None:
        """Copy the slots in use up to `target` to host-readable memory, if needed."""
        if self._mirror is not None and self._slots is not None:
            self._slots.write_epoch = self._queue.epoch  # launches don't track the ring, as each has its own slot
            for start, count in self._ranges(target):
                offset, nbytes = start * SLOT_BYTES, count * SLOT_BYTES
                self._queue.copy(self._slots, offset, self._mirror, offset, nbytes)

    def _ranges(self, target: int) -> list[tuple[int, int]]:
        """Return the ring indices in use up to slot `target`, as (start, count), split at the ring's end."""
        count = target - self._first
        start = self._first % SLOTS
        head = min(count, SLOTS - start)
        return [(begin, length) for begin, length in ((start, head), (0, count - head)) if length > 0]

    def _collect(self, target: int) -> None:
        source = self._slots if self._mirror is None else self._mirror
        if source is None or source.bytes is None or target <= self._first:
            return
        table, cleared = source.bytes.view(np.uint32).reshape(SLOTS, REPORT_WORDS), False
        for start, count in self._ranges(target):
            for place in np.flatnonzero(table[start : start + count, 0]) + start:
                artifact = self._owners[place]
                if artifact is not None:
                    self._errors.append(error_of_report(artifact, table[place]))
                self._clear(int(place))
                cleared = True
            self._owners[start : start + count] = [None] * count
        self._first = target
        if cleared:
            self._settle()

    def _collect_watched(self, watched: dict[VulkanBuffer, tuple[list[KernelArtifact], int]]) -> None:
        """Collect the reports in these slots outside the ring; all of their uses are complete."""
        for slots, entry in watched.items():
            now = self._watched.get(slots)
            if now is None:
                continue  # another check has collected them
            found, owners = self._errors if now == entry else self._later, now[0]
            visible = slots
            if slots.bytes is None or not slots.chunk.pool.kind.cached:
                visible = self._storage.buffer(None, self._storage.memory.download, slots.nbytes)
                self._queue.copy(slots, 0, visible, 0, slots.nbytes)
                self._queue.wait_all()
            if visible.bytes is None:
                raise InternalError(
                    "the slots of a graph's reports can't be read: the memory for downloads isn't mapped"
                )
            table = visible.bytes.view(np.uint32).reshape(-1, REPORT_WORDS)
            for place in np.flatnonzero(table[: len(owners), 0]):
                found.append(error_of_report(owners[place], table[place]))
                self._zero(slots, int(place) * SLOT_BYTES, SLOT_BYTES)
            del self._watched[slots]

    def _clear(self, place: int) -> None:
        if self._slots is not None:
            self._zero(self._slots, place * SLOT_BYTES, SLOT_BYTES)

    def _settle(self) -> None:
        """Wait until the slots are zero: launches on any queue use them without synchronizing."""
        if self._slots is None or self._slots.bytes is None:
            self._queue.wait_all()

    def _zero(self, slots: VulkanBuffer, offset: int, nbytes: int) -> None:
        if slots.bytes is not None:
            slots.bytes[offset : offset + nbytes] = 0
        else:
            self._queue.fill(slots, offset, nbytes, 0)
            self._queue.wait_all()  # launches of any queue may follow, and they don't track their slots
