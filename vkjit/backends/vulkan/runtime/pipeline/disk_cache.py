"""A driver's compiled pipelines from process to process: a header of our own before its data.

Enters: what `vkGetPipelineCacheData` gave, and later the same bytes from wherever they were kept. Leaves: data that may be
handed to the driver: whole, unaltered, and of this very device and driver. Drivers are known to crash over anything else.

Form: a magic line, the SHA-256 of the rest, the device's and the driver's identity, the length of the data (u64), the data.
All numbers are little endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from dataclasses import dataclass

from ..caps import Properties

__all__ = ["Identity", "Keeper", "keep_with", "keeper", "unwrap", "wrap"]

_MAGIC = b"vkjit pipelines 1\n"
_DIGEST = 32
_IDENTITY = struct.Struct("<III16s16s16s")
_LENGTH = struct.Struct("<Q")
_DRIVERS_HEADER = struct.Struct("<IIII16s")
"""VkPipelineCacheHeaderVersionOne: its size, version 1, vendor, device, the UUID of the driver's format."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What has to be the same for a pipeline to be of use. UUIDs have 16 bytes."""

    vendor: int
    device: int
    driver_version: int
    device_uuid: bytes
    driver_uuid: bytes
    cache_uuid: bytes

    @staticmethod
    def of(properties: Properties) -> Identity:
        """That of a physical device."""
        base, v11 = properties.base, properties.v11
        return Identity(
            int(base.vendorID), int(base.deviceID), int(base.driverVersion),
            bytes(v11.deviceUUID), bytes(v11.driverUUID), bytes(base.pipelineCacheUUID),
        )  # fmt: skip

    def packed(self) -> bytes:
        """All of it, in bytes."""
        return _IDENTITY.pack(
            self.vendor, self.device, self.driver_version, self.device_uuid, self.driver_uuid, self.cache_uuid
        )

    @property
    def name(self) -> str:
        """A name that no other device or driver has."""
        return hashlib.sha256(self.packed()).hexdigest()


def wrap(identity: Identity, data: bytes) -> bytes:
    """The data behind our header."""
    rest = identity.packed() + _LENGTH.pack(len(data)) + data
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def unwrap(identity: Identity, kept: bytes) -> bytes:
    """The driver's data; empty where it is damaged, cut off, of another device or driver, or no such data."""
    start = len(_MAGIC) + _DIGEST
    rest = kept[start:]
    if not kept.startswith(_MAGIC) or hashlib.sha256(rest).digest() != kept[len(_MAGIC) : start]:
        return b""
    head = _IDENTITY.size + _LENGTH.size
    if len(rest) < head or rest[: _IDENTITY.size] != identity.packed():
        return b""
    data = rest[head:]
    if _LENGTH.unpack_from(rest, _IDENTITY.size)[0] != len(data):
        return b""
    return data if _is_drivers_own(identity, data) else b""


def _is_drivers_own(identity: Identity, data: bytes) -> bool:
    """Whether the header that Vulkan prescribes is there and names this device and the driver's present format."""
    if len(data) < _DRIVERS_HEADER.size:
        return False
    size, version, vendor, device, uuid = _DRIVERS_HEADER.unpack_from(data)
    expected = (1, identity.vendor, identity.device, identity.cache_uuid)
    return _DRIVERS_HEADER.size <= size <= len(data) and (version, vendor, device, uuid) == expected


@dataclass(frozen=True, slots=True)
class Keeper:
    """Where data is kept: `load(name)` gives what `save(name, data)` got, or anything else that lies there, or nothing."""

    load: Callable[[str], bytes]
    save: Callable[[str, bytes], None]


_NOBODY = Keeper(lambda _name: b"", lambda _name, _data: None)
_keeper = _NOBODY


def keep_with(chosen: Keeper) -> None:
    """Has devices that are opened from now on keep their pipelines there."""
    global _keeper
    _keeper = chosen


def keeper() -> Keeper:
    """Where data is kept; without `keep_with`, nowhere."""
    return _keeper
