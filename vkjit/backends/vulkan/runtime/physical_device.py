"""The physical devices of this process, best first.

Usable devices come first, in the order discrete, integrated, virtual, cpu, other; ties keep the loader's order. A
device that lacks what every kernel needs is listed last, with the reason, but can't be opened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from vkjit.runtime.device_info import DeviceInfo

from .caps import KINDS, Properties, caps_of, missing_requirements, query_matrices, query_properties
from .features import query_features
from .instance import Instance

__all__ = ["Physical", "physical_devices"]

ORDER = ("discrete", "integrated", "virtual", "cpu", "other")


@dataclass(frozen=True, slots=True)
class Physical:
    """A physical device: its handle and the data needed to open it."""

    instance: Instance
    handle: Any
    info: DeviceInfo
    features: frozenset[str]
    extensions: frozenset[str]
    memory: Any
    properties: Properties


def physical_devices(instance: Instance) -> list[Physical]:
    """Return all physical devices, best first, numbered in that order."""
    found = [_inspect(instance, handle) for handle in instance.physical_devices()]
    found.sort(key=lambda physical: (bool(physical.info.missing), ORDER.index(physical.info.kind)))
    return [_numbered(physical, index) for index, physical in enumerate(found)]


def _inspect(instance: Instance, handle: Any) -> Physical:
    vulkan, functions = instance.vulkan, instance.functions
    rows = vulkan.enumerate(
        "VkExtensionProperties", functions.vkEnumerateDeviceExtensionProperties, handle, vulkan.null
    )
    extensions = frozenset(vulkan.string(row.extensionName) for row in rows)
    properties = query_properties(vulkan, functions, handle)
    features = query_features(vulkan, functions.vkGetPhysicalDeviceFeatures2, handle, extensions, properties.version)
    memory = vulkan.ffi.new("VkPhysicalDeviceMemoryProperties *")
    functions.vkGetPhysicalDeviceMemoryProperties(handle, memory)
    missing = missing_requirements(features, properties)
    caps = None
    if properties.v12 is not None:
        matrices = query_matrices(vulkan, functions, handle, features)
        caps = caps_of(vulkan, features, properties, memory, matrices)
    base, number = properties.base, properties.base.apiVersion
    info = DeviceInfo(
        index=-1,
        name=vulkan.string(base.deviceName),
        kind=KINDS[base.deviceType] if base.deviceType < len(KINDS) else "other",
        driver=vulkan.string(properties.v12.driverName) if properties.v12 is not None else "",
        driver_version=vulkan.string(properties.v12.driverInfo) if properties.v12 is not None else "",
        api_version=((number >> 22) & 0x7F, (number >> 12) & 0x3FF, number & 0xFFF),
        vendor=base.vendorID,
        uuid=bytes(properties.v11.deviceUUID).hex() if properties.v11 is not None else "",
        caps=caps,
        missing=missing,
        memory_bytes=max((h.size for h in memory.memoryHeaps[0 : memory.memoryHeapCount] if h.flags & 1), default=0),
    )
    return Physical(instance, handle, info, frozenset(features), extensions, memory, properties)


def _numbered(physical: Physical, index: int) -> Physical:
    return replace(physical, info=replace(physical.info, index=index))
