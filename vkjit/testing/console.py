"""What the commands of `vkjit.testing` have in common: where lines go, and which devices a run is on."""

from __future__ import annotations

from collections.abc import Sequence

from ..devices import devices
from ..runtime.physical import DeviceInfo

__all__ = ["devices_named", "say"]


def say(*lines: str) -> None:
    """Prints lines at once: runs are long, and are watched."""
    for line in lines:
        print(line, flush=True)  # noqa: T201  a command-line tool


def devices_named(names: Sequence[str] | None) -> list[DeviceInfo]:
    """The devices that have one of these texts in their name, in any case (None: all). Says so where there is none."""
    wanted = [name.lower() for name in names or [""]]
    chosen = [info for info in devices() if any(name in info.name.lower() for name in wanted)]
    if not chosen:
        say(f"no device has {' or '.join(wanted)} in its name; there are: {', '.join(d.name for d in devices())}")
    return chosen
