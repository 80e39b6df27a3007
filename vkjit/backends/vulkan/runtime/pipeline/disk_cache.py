"""Serialized form of a driver's pipeline cache, for reuse by later processes.

`wrap` puts a header in front of the data of `vkGetPipelineCacheData`. `unwrap` returns the data only if it is complete,
unaltered, and from the same device and driver, because drivers are known to crash on anything else.

Format: a magic line, the SHA-256 of the rest, the identity of device and driver, the length of the data (u64), the
data. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from ..caps import Properties

__all__ = ["Identity", "unwrap", "wrap"]

_MAGIC = b"vkjit pipelines 1\n"
_DIGEST = 32
_IDENTITY = struct.Struct("<III16s16s16s")
_LENGTH = struct.Struct("<Q")
_DRIVERS_HEADER = struct.Struct("<IIII16s")
"""VkPipelineCacheHeaderVersionOne: size, version 1, vendor, device, and the UUID of the driver's format."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of device and driver: cached pipelines are valid only if all fields match. UUIDs have 16 bytes."""

    vendor: int
    device: int
    driver_version: int
    device_uuid: bytes
    driver_uuid: bytes
    cache_uuid: bytes

    @staticmethod
    def of(properties: Properties) -> Identity:
        """Return the identity of a physical device."""
        base, v11 = properties.base, properties.v11
        return Identity(
            int(base.vendorID), int(base.deviceID), int(base.driverVersion),
            bytes(v11.deviceUUID), bytes(v11.driverUUID), bytes(base.pipelineCacheUUID),
        )  # fmt: skip

    def packed(self) -> bytes:
        """Return all fields as bytes."""
        return _IDENTITY.pack(
            self.vendor, self.device, self.driver_version, self.device_uuid, self.driver_uuid, self.cache_uuid
        )

    @property
    def name(self) -> str:
        """A name that is unique to this device and driver."""
        return hashlib.sha256(self.packed()).hexdigest()


def wrap(identity: Identity, data: bytes) -> bytes:
    """Return the data behind vkjit's header."""
    rest = identity.packed() + _LENGTH.pack(len(data)) + data
    return _MAGIC + hashlib.sha256(rest).digest() + rest


def unwrap(identity: Identity, kept: bytes) -> bytes:
    """Return the driver's data; empty if `kept` is damaged, truncated, of another device or driver, or of another
    format.
    """
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
    """True if the data begins with the header that Vulkan prescribes, for this device and the driver's current format."""
    if len(data) < _DRIVERS_HEADER.size:
        return False
    size, version, vendor, device, uuid = _DRIVERS_HEADER.unpack_from(data)
    expected = (1, identity.vendor, identity.device, identity.cache_uuid)
    return _DRIVERS_HEADER.size <= size <= len(data) and (version, vendor, device, uuid) == expected
