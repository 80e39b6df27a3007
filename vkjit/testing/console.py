"""Helpers of the command-line tools of `vkjit.testing`: output and device selection."""

from __future__ import annotations

from collections.abc import Sequence

from ..backends.selection import devices
from ..runtime.device_info import DeviceInfo

__all__ = ["devices_named", "say"]


def say(*lines: str) -> None:
    """Print lines and flush, so that long runs show progress."""
    for line in lines:
        print(line, flush=True)  # noqa: T201  a command-line tool


def devices_named(names: Sequence[str] | None) -> list[DeviceInfo]:
    """Return information on the devices whose name contains one of `names`, ignoring case (None: all devices).

    Prints a message if no device matches.
    """
    parts = [name.lower() for name in names or [""]]
    chosen = [info for info in devices() if any(name in info.name.lower() for name in parts)]
    if not chosen:
        say(f"no device has {' or '.join(parts)} in its name; there are: {', '.join(d.name for d in devices())}")
    return chosen
