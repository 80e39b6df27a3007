"""Output of `print` in kernels on a Vulkan device: one buffer per launch that may print, read when the host waits.

Applies to kernels with an argument field of role "print". Text goes to standard output in launch order; within a
launch, in order of workgroups and of the invocations in them. The prints of one invocation stay in order. Records that
don't fit into the buffer of `PRINT_BYTES` are counted, and their number is printed.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vkjit.runtime.artifact import PRINT_BYTES, PRINT_CAPACITY, PRINT_HEAD, KernelArtifact
from vkjit.runtime.handles import new_lock

if TYPE_CHECKING:
    from .memory.buffer import VulkanBuffer

__all__ = ["RECORD_HEAD", "Prints", "printed_text"]

RECORD_HEAD = 3
"""64-bit words of a record before its values."""

MAX_PENDING = 16
"""Maximum number of launches with unwritten output; the next launch that prints flushes them first."""

_Words = npt.NDArray[np.uint64]


class Prints:
    """The print buffers of one device.

    `allocate` returns a buffer of the given size in bytes, `fill` fills a range of a buffer with a 32-bit pattern, and
    `read` reads bytes of a buffer when its launch is complete.
    """

    def __init__(
        self,
        allocate: Callable[[int], VulkanBuffer],
        fill: Callable[[VulkanBuffer, int, int, int], None],
        read: Callable[[VulkanBuffer, int, npt.NDArray[np.uint8]], None],
    ) -> None:
        self._allocate = allocate
        self._fill = fill
        self._read = read
        self.pending: deque[tuple[KernelArtifact, VulkanBuffer]] = deque()  # launches with unwritten output
        self._lock = new_lock()

    def begin(self) -> VulkanBuffer:
        """Return an empty buffer for a launch. Append it to `pending` after the launch has been made."""
        if len(self.pending) >= MAX_PENDING:
            self.flush()
        buffer = self._allocate(PRINT_BYTES)
        self._fill(buffer, 0, 8 * PRINT_HEAD, 0)
        self._fill(buffer, 4, 4, PRINT_CAPACITY)
        return buffer

    def flush(self) -> None:
        """Write all pending output. Waits for the launches, and for another thread that is writing."""
        with self._lock:
            while self.pending:
                first = artifact, buffer = self.pending[0]
                text = printed_text(artifact, functools.partial(self._words, buffer))
                if self.pending and self.pending[0] is first:  # else a signal handler has written it
                    del self.pending[0]  # no call between this and the write: no interrupt can come in between
                    if sys.stdout is not None:
                        sys.stdout.write(text)

    def _words(self, buffer: VulkanBuffer, start: int, count: int) -> _Words:
        data = np.empty(8 * count, np.uint8)
        self._read(buffer, 8 * start, data)
        return data.view(np.uint64)


def printed_text(artifact: KernelArtifact, words: Callable[[int, int], _Words]) -> str:
    """Return the text of one launch. `words(start, count)` reads 64-bit words of its buffer."""
    wanted, limit, dropped, _ = (int(n) for n in words(0, PRINT_HEAD).view(np.uint32))
    used = min(wanted, limit)
    table = words(PRINT_HEAD, used) if used else np.empty(0, np.uint64)
    lines: list[tuple[tuple[int, ...], str]] = []
    place = 0
    while place < used:
        site = int(table[place]) - 1
        kinds = artifact.info["print_values"][site]
        count = sum(lanes for _, lanes in kinds)
        record = table[place : place + RECORD_HEAD + count]
        values = _values(record[RECORD_HEAD:], kinds)
        lines.append((_order(artifact, record), artifact.sites[site].message.format(*values)))
        place += RECORD_HEAD + count
    lines.sort(key=lambda line: line[0])
    text = "".join(line for _, line in lines)
    if dropped:
        text += f"[kernel {artifact.name}: {len(lines)} prints shown, {dropped} had no room]\n"
    return text


def _order(artifact: KernelArtifact, record: _Words) -> tuple[int, ...]:
    """Return the sort key of a record: the workgroup, then the invocation in it, with x varying fastest."""
    low, z = int(record[1]), int(record[2])
    ids = (z, low >> 32, low & 0xFFFFFFFF)
    sizes = tuple(reversed(artifact.info["print_local"]))
    groups = tuple(i // size for i, size in zip(ids, sizes, strict=True))
    return (*groups, *(i % size for i, size in zip(ids, sizes, strict=True)))


def _values(bits: _Words, kinds: tuple[tuple[str, int], ...]) -> list[Any]:
    """Return the values of a record; vectors as lists."""
    values: list[Any] = []
    place = 0
    for kind, lanes in kinds:
        raw = bits[place : place + lanes]
        numbers: list[Any] = raw.view(np.float64).tolist() if kind == "float" else raw.view(np.int64).tolist()
        if kind == "uint":
            numbers = raw.tolist()
        elif kind == "bool":
            numbers = [bool(n) for n in numbers]
        values.append(numbers if lanes > 1 else numbers[0])
        place += lanes
    return values
