"""Memory blocks: allocations made by the driver, or host memory imported into it.

A block is one VkDeviceMemory with one VkBuffer over all of it. It has a device address (imported blocks have none) and,
if mapped, host-visible `bytes`. Closing it releases both, once.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import DeviceError, FeatureError
from vkjit.runtime.handles import Handle

from ..loader import Functions, Vulkan

__all__ = [
    "HOST_ALIGNMENT",
    "OPAQUE_FD",
    "USAGE",
    "HostBlock",
    "MemoryBlock",
    "MemoryKind",
    "host_memory_types",
    "host_pages",
]

Bytes = npt.NDArray[np.uint8]

USAGE = 0x1 | 0x2 | 0x20 | 0x20000  # transfer source and target, storage, device address
_COPIED = 0x1 | 0x2  # transfer source and target
_ADDRESSABLE = 0x2  # VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
_CONCURRENT = 1  # VK_SHARING_MODE_CONCURRENT
OPAQUE_FD, HOST_MEMORY = 0x1, 0x80  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_..._BIT
HOST_ALIGNMENT = 64 << 10
"""Alignment, in bytes, that is at least what any driver requires of imported host memory."""

_EXTERNAL_BUFFER, _EXPORT_MEMORY, _GET_MEMORY_FD = 1000072000, 1000072002, 1000074002  # their sTypes
_IMPORT_HOST, _HOST_PROPERTIES = 1000178000, 1000178001


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """A memory type in use. `exported`: it can be given to other libraries as a file descriptor."""

    name: str
    type_index: int
    heap: int
    mapped: bool
    cached: bool
    exported: bool = False
    imported: bool = False
    """True for host memory of this process that is imported into the device."""


class MemoryBlock:
    """One allocation with a VkBuffer over all of it. `bytes` is None if it isn't mapped.

    `families` lists the queue families that use it. `before_close` holds callbacks that run before the block is closed.
    """

    __slots__ = ("_export", "_memory", "_owner", "address", "before_close", "buffer", "bytes", "number", "size")

    def __init__(
        self,
        vulkan: Vulkan,
        functions: Functions,
        device: Any,
        kind: MemoryKind,
        size: int,
        number: int,
        families: tuple[int, ...],
    ):
        self.size = size
        self.number = number
        self.bytes: Bytes | None = None
        self.before_close: list[Callable[[], None]] = []
        self._export: Callable[[], tuple[int, int]] | None = None
        self._owner = self._create_buffer(vulkan, functions, device, families, kind)
        self._memory: Handle | None = None
        self.buffer = self._owner.value
        try:
            self._memory = self._create_memory(vulkan, functions, device, kind)
            self._attach(vulkan, functions, device, kind)
        except BaseException:
            self.close()
            raise

    def _attach(self, vulkan: Vulkan, functions: Functions, device: Any, kind: MemoryKind) -> None:
        """Bind the memory to the buffer, query its address, and map it."""
        memory = self._memory.value if self._memory is not None else vulkan.null
        vulkan.check(functions.vkBindBufferMemory(device, self.buffer, memory, 0), "vkBindBufferMemory")
        info = vulkan.struct("VkBufferDeviceAddressInfo", buffer=self.buffer)
        self.address = int(functions.vkGetBufferDeviceAddress(device, info))
        if kind.mapped:
            pointer = vulkan.ffi.new("void **")
            result = functions.vkMapMemory(device, memory, 0, self.size, 0, pointer)
            vulkan.check(result, "vkMapMemory", f"{self.size} bytes")
            self.bytes = np.frombuffer(vulkan.ffi.buffer(pointer[0], self.size), dtype=np.uint8)

    def close(self) -> None:
        """Run the `before_close` callbacks and return the memory to the driver."""
        while self.before_close:
            self.before_close.pop()()
        self.bytes = None
        self._owner.close()
        if self._memory is not None:
            self._memory.close()

    def file_descriptor(self) -> tuple[int, int]:
        """Return a new file descriptor of the memory, owned by the caller, and the memory's size in bytes.

        Raises FeatureError if the memory wasn't allocated as exportable.
        """
        if self._export is None:
            raise FeatureError(
                "this memory can't be given to CUDA: set VKJIT_SHARE_MEMORY=1, or import torch before the first use of the device; "
                "else use torch.from_numpy(x.numpy())"
            )
        return self._export()

    def _create_buffer(
        self, vulkan: Vulkan, functions: Functions, device: Any, families: tuple[int, ...], kind: MemoryKind
    ) -> Handle:
        size = self.size
        fields: dict[str, Any] = {"size": size, "usage": _COPIED if kind.imported else USAGE}
        if len(families) > 1:
            fields |= {
                "sharingMode": _CONCURRENT,
                "queueFamilyIndexCount": len(families),
                "pQueueFamilyIndices": vulkan.array("uint32_t", families),
            }
        if kind.exported or kind.imported:
            handle = HOST_MEMORY if kind.imported else OPAQUE_FD
            fields["pNext"] = vulkan.struct(
                "VkExternalMemoryBufferCreateInfo", sType=_EXTERNAL_BUFFER, handleTypes=handle
            )
        info = vulkan.struct("VkBufferCreateInfo", **fields)
        out = vulkan.ffi.new("VkBuffer *")
        vulkan.check(functions.vkCreateBuffer(device, info, vulkan.null, out), "vkCreateBuffer", f"{size} bytes")
        destroy = functions.vkDestroyBuffer
        return Handle("block buffer", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def _create_memory(self, vulkan: Vulkan, functions: Functions, device: Any, kind: MemoryKind) -> Handle:
        needs = vulkan.ffi.new("VkMemoryRequirements *")
        functions.vkGetBufferMemoryRequirements(device, self.buffer, needs)
        if not needs.memoryTypeBits & (1 << kind.type_index):
            raise DeviceError(f"memory type {kind.type_index} ({kind.name}) can't hold storage buffers on this device")
        export = vulkan.null
        if kind.exported:
            export = vulkan.struct("VkExportMemoryAllocateInfo", sType=_EXPORT_MEMORY, handleTypes=OPAQUE_FD)
        flags = vulkan.struct("VkMemoryAllocateFlagsInfo", pNext=export, flags=_ADDRESSABLE)
        info = vulkan.struct(
            "VkMemoryAllocateInfo", pNext=flags, allocationSize=needs.size, memoryTypeIndex=kind.type_index
        )
        out = vulkan.ffi.new("VkDeviceMemory *")
        result = functions.vkAllocateMemory(device, info, vulkan.null, out)
        vulkan.check(result, "vkAllocateMemory", f"{needs.size} bytes of {kind.name} memory")
        free = functions.vkFreeMemory
        if kind.exported:
            memory, size = out[0], int(needs.size)
            self._export = lambda: (_descriptor(vulkan, functions, device, memory), size)
        return Handle("memory", out[0], lambda handle: free(device, handle, vulkan.null))


class HostBlock(MemoryBlock):
    """Host memory of this process with a VkBuffer over it, for copies at the full speed of the bus.

    It has no device address. The host memory outlives the device: arrays that view it stay valid.
    """

    __slots__ = ("_host",)

    def _create_memory(self, vulkan: Vulkan, functions: Functions, device: Any, kind: MemoryKind) -> Handle:
        self._host = host_pages(self.size)
        pointer = vulkan.ffi.cast("void *", self._host.ctypes.data)
        source = vulkan.struct(
            "VkImportMemoryHostPointerInfoEXT", sType=_IMPORT_HOST, handleType=HOST_MEMORY, pHostPointer=pointer
        )
        info = vulkan.struct(
            "VkMemoryAllocateInfo", pNext=source, allocationSize=self.size, memoryTypeIndex=kind.type_index
        )
        out = vulkan.ffi.new("VkDeviceMemory *")
        result = functions.vkAllocateMemory(device, info, vulkan.null, out)
        vulkan.check(result, "vkAllocateMemory", f"{self.size} bytes of {kind.name} memory")
        free = functions.vkFreeMemory
        return Handle("memory", out[0], lambda handle: free(device, handle, vulkan.null))

    def _attach(self, vulkan: Vulkan, functions: Functions, device: Any, kind: MemoryKind) -> None:
        memory = self._memory.value if self._memory is not None else vulkan.null
        vulkan.check(functions.vkBindBufferMemory(device, self.buffer, memory, 0), "vkBindBufferMemory")
        self.address = 0
        self.bytes = self._host


def host_pages(size: int) -> Bytes:
    """Return new memory of this process, aligned to `HOST_ALIGNMENT`, in huge pages if the system has them."""
    pages = mmap.mmap(-1, size + HOST_ALIGNMENT)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # the kernel has no huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(pages, dtype=np.uint8)
    start = -whole.ctypes.data % HOST_ALIGNMENT
    return whole[start : start + size]


def host_memory_types(vulkan: Vulkan, functions: Functions, device: Any) -> int:
    """Return a bit mask of the memory types as which host memory can be imported."""
    pages = host_pages(HOST_ALIGNMENT)
    found = vulkan.struct("VkMemoryHostPointerPropertiesEXT", sType=_HOST_PROPERTIES)
    pointer = vulkan.ffi.cast("void *", pages.ctypes.data)
    result = functions.vkGetMemoryHostPointerPropertiesEXT(device, HOST_MEMORY, pointer, found)
    vulkan.check(result, "vkGetMemoryHostPointerPropertiesEXT")
    return int(found.memoryTypeBits)


def _descriptor(vulkan: Vulkan, functions: Functions, device: Any, memory: Any) -> int:
    """Return a new file descriptor of exportable memory."""
    info = vulkan.struct("VkMemoryGetFdInfoKHR", sType=_GET_MEMORY_FD, memory=memory, handleType=OPAQUE_FD)
    out = vulkan.ffi.new("int *")
    vulkan.check(functions.vkGetMemoryFdKHR(device, info, out), "vkGetMemoryFdKHR")
    return int(out[0])
