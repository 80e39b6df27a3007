"""What is known of a device before it is opened: an item of `vk.devices()`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .device import DeviceCaps

__all__ = ["DeviceInfo", "DeviceList", "version_of"]


@dataclass(frozen=True, slots=True, repr=False)
class DeviceInfo:
    """Description of a device, available without opening it.

    `index` is its number for `vk.device`. `missing` describes what it lacks to be usable (empty for a usable device).
    `caps` is None if it isn't known before the device is opened. `api_version` is (major, minor, patch).
    """

    index: int
    name: str
    kind: str
    driver: str = ""
    driver_version: str = ""
    api_version: tuple[int, int, int] = (0, 0, 0)
    vendor: int = 0
    uuid: str = ""
    caps: DeviceCaps | None = None
    missing: tuple[str, ...] = ()
    memory_bytes: int = 0

    def __repr__(self) -> str:
        """Return one line: number, name, kind, memory and driver. `caps` has the rest."""
        parts = [self.kind, f"{self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes else ""]
        parts += [self.driver_version, f"lacks {', '.join(self.missing)}" if self.missing else ""]
        return f"<device {self.index}: {self.name}, {', '.join(part for part in parts if part)}>"


class DeviceList(list[DeviceInfo]):
    """A list of devices, printed with one line for each."""

    def __repr__(self) -> str:
        return f"[{f',{chr(10)} '.join(map(repr, self))}]"


def version_of(driver_info: str) -> tuple[int, ...]:
    """Return the first dotted number in a driver's description as a tuple; () if there is none."""
    found = re.search(r"\d+(?:\.\d+)+", driver_info)
    return tuple(int(part) for part in found.group().split(".")) if found else ()
