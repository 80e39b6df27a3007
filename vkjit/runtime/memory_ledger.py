"""Who holds a device's memory: looked up when it is asked for, so that allocating costs nothing.

Enters: a device. Leaves: its buffers, with the arrays that view them and, while tracing is on, the place in the program that made
each. Holds: what is listed is alive; nothing is kept alive by being listed.
"""

from __future__ import annotations

import gc
import traceback
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..settings import boolean_setting
from .device import Buffer, Device, DeviceArray

__all__ = ["LiveBuffer", "holders", "live_buffers", "note", "trace"]

_OWN = str(Path(__file__).resolve().parent.parent)
_FRAMES = 4
MAX_ROWS = 12

tracing = bool(boolean_setting("VKJIT_TRACE_MEMORY"))
_made: weakref.WeakKeyDictionary[Buffer, str] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class LiveBuffer:
    """A buffer that is alive: its bytes, the arrays that view it ("f32 (3, 4)"), and where it was made ("" without tracing)."""

    nbytes: int
    arrays: tuple[str, ...]
    made: str


def trace(enabled: bool = True) -> None:
    """Has the place noted at which each buffer is made from now on (VKJIT_TRACE_MEMORY=1 does so from the start)."""
    global tracing
    tracing = enabled


def note(buffer: Buffer) -> None:
    """Remembers the lines of the user's program that are under way."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_OWN)]
    _made[buffer] = " < ".join(f"{f.filename}:{f.lineno}" for f in reversed(frames[-_FRAMES:]))


def live_buffers(device: Device) -> list[LiveBuffer]:
    """The device's buffers, largest first. Takes a walk over all of the process's objects."""
    gc.collect()
    buffers: list[Buffer] = []
    views: dict[int, list[str]] = defaultdict(list)
    for item in gc.get_objects():
        kind = type(item)
        if kind is DeviceArray:
            views[id(item.buffer)].append(f"{item.dtype.name} {item.shape}")
        elif issubclass(kind, Buffer) and getattr(item, "device", None) is device and _is_open(item):
            buffers.append(item)
    found = [LiveBuffer(b.nbytes, tuple(sorted(set(views[id(b)]))), _made.get(b, "")) for b in buffers]
    return sorted(found, key=lambda row: -row.nbytes)


def _is_open(buffer: Any) -> bool:
    data = getattr(buffer, "data", None)  # the bytes themselves, on devices in host memory
    return getattr(buffer, "queue", buffer) is not None and (data is None or len(data) == buffer.nbytes)


def holders(device: Device | None) -> str:
    """A table of who holds how much, one line per kind of array and place, largest first."""
    if device is None:
        return ""
    groups: dict[tuple[tuple[str, ...], str], list[int]] = defaultdict(list)
    for row in live_buffers(device):
        groups[row.arrays, row.made].append(row.nbytes)
    rows = sorted(groups.items(), key=lambda group: -sum(group[1]))
    lines = [
        f"{_readable(sum(sizes)):>10} in {len(sizes)} x {' and '.join(arrays) or 'memory without an array'}"
        + (f"  made at {made}" if made else "")
        for (arrays, made), sizes in rows[:MAX_ROWS]
    ]
    if len(rows) > MAX_ROWS:
        lines.append(f"{_readable(_total(rows[MAX_ROWS:])):>10} in others")
    if not tracing:
        lines.append("(VKJIT_TRACE_MEMORY=1 shows where each was made)")
    return "\n".join(lines)


def _total(rows: Iterable[tuple[Any, list[int]]]) -> int:
    return sum(sum(sizes) for _, sizes in rows)


def _readable(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
