"""Inventory of a device's live buffers, for memory debugging.

Lists the buffers with the arrays that view them and, if tracing is on, the source locations that allocated them.
Buffers are found on demand through the garbage collector, so that allocation has no overhead, and listing keeps none
alive.
"""

from __future__ import annotations

import contextlib
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
    """A live buffer: its size, the arrays that view it ("f32 (3, 4)"), and its allocation site ("" without tracing)."""

    nbytes: int
    arrays: tuple[str, ...]
    made: str


def trace(enabled: bool = True) -> None:
    """Record the source location of each allocation from now on. VKJIT_TRACE_MEMORY=1 enables this from the start."""
    global tracing
    tracing = enabled


def note(buffer: Buffer) -> None:
    """Record the innermost frames of the user's program as the source location of a buffer."""
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_OWN)]
    _made[buffer] = " < ".join(f"{f.filename}:{f.lineno}" for f in reversed(frames[-_FRAMES:]))


def live_buffers(device: Device) -> list[LiveBuffer]:
    """Return the device's buffers, largest first. Visits all objects that the garbage collector tracks."""
    gc.collect()
    buffers: list[Buffer] = []
    views: dict[int, set[str]] = defaultdict(set)
    for item in _instances(DeviceArray, *_subclasses(Buffer)):
        with contextlib.suppress(AttributeError):  # another thread is making it
            if type(item) is DeviceArray:
                views[id(item.buffer)].add(f"{item.dtype.name} {item.shape}")
            elif item.device is device and _is_open(item):
                buffers.append(item)
    found = [LiveBuffer(b.nbytes, tuple(sorted(views[id(b)])), _made.get(b, "")) for b in buffers]
    return sorted(found, key=lambda row: -row.nbytes)


def _subclasses(kind: type[Any]) -> list[type[Any]]:
    return [item for below in type.__subclasses__(kind) for item in (below, *_subclasses(below))]


def _instances(*kinds: type[Any]) -> list[Any]:
    """Return all objects of these types, without subclasses, that the garbage collector tracks.

    Instances refer to their type, and few other objects do. `gc.get_objects` isn't usable: it also returns the tuples
    that other threads are filling, and CPython raises SystemError there if anyone else refers to such a tuple.
    """
    return [item for item in gc.get_referrers(*kinds) if type(item) in kinds]


def _is_open(buffer: Any) -> bool:
    data = getattr(buffer, "data", None)  # the bytes, on devices that use host memory
    return buffer.queue is not None and (data is None or len(data) == buffer.nbytes)


def holders(device: Device | None) -> str:
    """Return a table of memory use as text: a line per combination of arrays and source location, largest first."""
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
