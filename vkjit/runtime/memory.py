"""Device memory: blocks from the driver, cut into buffers by a caching sub-allocator.

Enters: sizes in bytes and a `Use`. Leaves: `Chunk`s with address, VkBuffer, offset and, where mapped, their bytes.
Holds: a block is one VkDeviceMemory with one VkBuffer over all of it, so making a buffer costs no driver call; chunks
start at multiples of 256 bytes; blocks stay reserved until `trim()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DeviceError, FeatureError, OutOfMemoryError
from ._vk import Functions, Vulkan
from .allocator import RangeAllocator
from .budget import Budget
from .cuda_clock import NVIDIA
from .handles import Handle
from .physical import Physical

__all__ = ["Block", "Chunk", "Memory", "Pool"]

Bytes = npt.NDArray[np.uint8]

DEVICE_LOCAL, HOST_VISIBLE, HOST_COHERENT, HOST_CACHED = 0x1, 0x2, 0x4, 0x8
_USAGE = 0x1 | 0x2 | 0x20 | 0x20000  # transfer source and target, storage, device address
_ADDRESSABLE = 0x2  # VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT
_CONCURRENT = 1  # VK_SHARING_MODE_CONCURRENT
OPAQUE_FD = 0x1  # VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
_EXTERNAL_BUFFER, _EXPORT_MEMORY, _GET_MEMORY_FD = 1000072000, 1000072002, 1000074002  # their sTypes
_BUFFER_INFO, _BUFFER_PROPERTIES = 1000071002, 1000071003
_DEDICATED_ONLY, _EXPORTABLE = 0x1, 0x2
_MIB = 1 << 20
_FIRST_BLOCK, _LARGEST_SHARED_BLOCK = 4 * _MIB, 256 * _MIB


@dataclass(frozen=True, slots=True)
class MemoryKind:
    """A memory type that we use, whether it is mapped, and whether other libraries can be given it (as a file descriptor)."""

    name: str
    type_index: int
    heap: int
    mapped: bool
    cached: bool
    exported: bool = False


class Block:
    """One allocation of the driver with a VkBuffer over all of it. `bytes` is None where it isn't mapped.

    `families`: the queue families that use it. `before_close`: what has to let go of it first.
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
        self._owner = self._create_buffer(vulkan, functions, device, size, families, kind.exported)
        self._memory: Handle | None = None
        self.buffer = self._owner.value
        try:
            self._memory = self._create_memory(vulkan, functions, device, kind)
            self._attach(vulkan, functions, device, kind)
        except BaseException:
            self.close()
            raise

    def _attach(self, vulkan: Vulkan, functions: Functions, device: Any, kind: MemoryKind) -> None:
        """Binds, asks for the address, and maps."""
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
        """Gives the memory back to the driver."""
        while self.before_close:
            self.before_close.pop()()
        self.bytes = None
        self._owner.close()
        if self._memory is not None:
            self._memory.close()

    def file_descriptor(self) -> tuple[int, int]:
        """A new file descriptor of the memory, which its receiver owns, and the bytes behind it.

        Raises FeatureError where the memory wasn't made for it.
        """
        if self._export is None:
            raise FeatureError("this device's memory can't be given to other libraries (VK_KHR_external_memory_fd)")
        return self._export()

    @staticmethod
    def _create_buffer(
        vulkan: Vulkan, functions: Functions, device: Any, size: int, families: tuple[int, ...], exported: bool
    ) -> Handle:
        fields: dict[str, Any] = {"size": size, "usage": _USAGE}
        if len(families) > 1:
            fields |= {
                "sharingMode": _CONCURRENT,
                "queueFamilyIndexCount": len(families),
                "pQueueFamilyIndices": vulkan.array("uint32_t", families),
            }
        if exported:
            fields["pNext"] = vulkan.struct(
                "VkExternalMemoryBufferCreateInfo", sType=_EXTERNAL_BUFFER, handleTypes=OPAQUE_FD
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


def _descriptor(vulkan: Vulkan, functions: Functions, device: Any, memory: Any) -> int:
    """A new file descriptor of memory that was made for it."""
    info = vulkan.struct("VkMemoryGetFdInfoKHR", sType=_GET_MEMORY_FD, memory=memory, handleType=OPAQUE_FD)
    out = vulkan.ffi.new("int *")
    vulkan.check(functions.vkGetMemoryFdKHR(device, info, out), "vkGetMemoryFdKHR")
    return int(out[0])


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a block: `nbytes` from `offset` on."""

    pool: Pool
    block: Block
    offset: int
    nbytes: int

    @property
    def address(self) -> int:
        return self.block.address + self.offset

    @property
    def bytes(self) -> Bytes:
        """The mapped bytes; only where the pool's kind is mapped."""
        if self.block.bytes is None:
            raise DeviceError("this memory isn't visible to the host")
        return self.block.bytes[self.offset : self.offset + self.nbytes]

    def release(self) -> None:
        """Returns the chunk to its pool; once, and only when the device is done with it."""
        self.pool.release(self)


class Pool:
    """All blocks of one kind of memory."""

    def __init__(
        self, kind: MemoryKind, make_block: Callable[[MemoryKind, int, int], Block], left: Callable[[int], int]
    ) -> None:
        self.kind = kind
        self._make_block = make_block
        self._left = left
        self._ranges = RangeAllocator()
        self._blocks: dict[int, Block] = {}
        self._numbers = 0
        self.allocated = self.peak = self.count = 0

    @property
    def reserved(self) -> int:
        """Bytes taken from the driver."""
        return sum(block.size for block in self._blocks.values())

    def free_sizes(self) -> list[int]:
        """The sizes of the free ranges in the blocks at hand."""
        return [size for _, _, size in self._ranges.free_ranges()]

    def find(self, nbytes: int) -> Chunk | None:
        """A chunk out of the blocks at hand, or None."""
        place = self._ranges.allocate(nbytes)
        if place is None:
            return None
        self.count += 1
        self.allocated += self._ranges.rounded(nbytes)
        self.peak = max(self.peak, self.allocated)
        return Chunk(self, self._blocks[place[0]], place[1], nbytes)

    def grow(self, nbytes: int) -> None:
        """Takes a block from the driver that has room for `nbytes`. Raises OutOfMemoryError."""
        need = self._ranges.rounded(nbytes)
        shared = min(max(_FIRST_BLOCK, self.reserved), _LARGEST_SHARED_BLOCK)
        try:
            self._add_block(max(shared, need))
        except OutOfMemoryError:
            if shared <= need:
                raise
            self._add_block(need)

    def release(self, chunk: Chunk) -> None:
        """Takes a chunk back."""
        self._ranges.release(chunk.block.number, chunk.offset, chunk.nbytes)
        self.allocated -= self._ranges.rounded(chunk.nbytes)
        self.count -= 1

    def trim(self) -> None:
        """Gives blocks without chunks back to the driver."""
        for number in [n for n in self._blocks if self._ranges.is_empty(n)]:
            self._ranges.remove_arena(number)
            self._blocks.pop(number).close()

    def close(self) -> None:
        """Gives all blocks back, whatever is in them."""
        for block in self._blocks.values():
            block.close()
        self._blocks.clear()

    def _add_block(self, size: int) -> None:
        left = self._left(self.kind.heap)
        if size > left:
            raise OutOfMemoryError(f"{size} bytes are past what this process may take, {max(left, 0)} more")
        self._numbers += 1
        self._blocks[self._numbers] = self._make_block(self.kind, size, self._numbers)
        self._ranges.add_arena(self._numbers, size)


class Memory:
    """The pools of a device.

    `main` holds buffers; `upload` is written by the host and read by the device; `download` the other way round;
    `arguments` is host-visible memory that kernels read directly. On unified memory all four are one pool.
    """

    def __init__(self, physical: Physical, functions: Functions, device: Any, families: tuple[int, ...] = ()) -> None:
        vulkan = physical.instance.vulkan
        types = [row.propertyFlags for row in physical.memory.memoryTypes[0 : physical.memory.memoryTypeCount]]
        heaps = [row.heapIndex for row in physical.memory.memoryTypes[0 : physical.memory.memoryTypeCount]]
        sizes = [heap.size for heap in physical.memory.memoryHeaps[0 : physical.memory.memoryHeapCount]]
        unified = physical.info.caps is not None and physical.info.caps.unified_memory
        chosen = _choose(types, [sizes[heap] for heap in heaps], unified)
        kinds = [replace(kind, heap=heaps[kind.type_index]) for kind in chosen]
        kinds[0] = replace(kinds[0], exported=_can_export(physical))
        pools: dict[int, Pool] = {}

        def make_block(kind: MemoryKind, size: int, number: int) -> Block:
            return Block(vulkan, functions, device, kind, size, number, families)

        self.budget = Budget(physical)
        for kind in kinds:
            pools.setdefault(kind.type_index, Pool(kind, make_block, self._left))
        self.main, self.upload, self.download, self.arguments = (pools[kind.type_index] for kind in kinds)
        self.pools = tuple(pools.values())

    def _left(self, heap: int) -> int:
        return self.budget.left(heap, sum(pool.reserved for pool in self.pools if pool.kind.heap == heap))

    def reset_peak(self) -> None:
        """Has `peak` begin anew at what is allocated now."""
        for pool in self.pools:
            pool.peak = pool.allocated

    def stats(self) -> dict[str, int]:
        """`allocated`, `reserved`, `peak` in bytes and the `count` of chunks in use, over all pools; the `limit` of the
        heap of `main`; of the reserved bytes the `free` ones, and the `largest_free` range among them.
        """
        ranges = [size for pool in self.pools for size in pool.free_sizes()]
        return {
            "limit": self.budget.limit(self.main.kind.heap),
            "free": sum(ranges),
            "largest_free": max(ranges, default=0),
            "allocated": sum(pool.allocated for pool in self.pools),
            "reserved": sum(pool.reserved for pool in self.pools),
            "peak": sum(pool.peak for pool in self.pools),
            "count": sum(pool.count for pool in self.pools),
        }

    def trim(self) -> None:
        for pool in self.pools:
            pool.trim()

    def close(self) -> None:
        for pool in self.pools:
            pool.close()


def _can_export(physical: Physical) -> bool:
    """Whether buffers' memory can be given to CUDA: NVIDIA's devices, where the driver has it without conditions."""
    if os.environ.get("VKJIT_SHARE_MEMORY", "0") in ("", "0"):
        return False
    if physical.info.vendor != NVIDIA or "VK_KHR_external_memory_fd" not in physical.extensions:
        return False
    vulkan, functions = physical.instance.vulkan, physical.instance.functions
    info = vulkan.struct("VkPhysicalDeviceExternalBufferInfo", sType=_BUFFER_INFO, usage=_USAGE, handleType=OPAQUE_FD)
    out = vulkan.struct("VkExternalBufferProperties", sType=_BUFFER_PROPERTIES)
    functions.vkGetPhysicalDeviceExternalBufferProperties(physical.handle, info, out)
    found = out.externalMemoryProperties.externalMemoryFeatures
    return bool(found & _EXPORTABLE) and not found & _DEDICATED_ONLY


def _choose(types: list[int], sizes: list[int], unified: bool) -> tuple[MemoryKind, MemoryKind, MemoryKind, MemoryKind]:
    """The memory types for (main, upload, download, arguments); sizes of their heaps by memory type."""
    visible = HOST_VISIBLE | HOST_COHERENT
    local = [i for i, flags in enumerate(types) if flags & DEVICE_LOCAL] or list(range(len(types)))
    largest = max(sizes[i] for i in local)

    def pick(candidates: list[int], wanted: int, unwanted: int = 0) -> int | None:
        fitting = [i for i in candidates if types[i] & wanted == wanted]
        fitting.sort(key=lambda i: ((types[i] & unwanted).bit_count(), -sizes[i], i))
        return fitting[0] if fitting else None

    everything = list(range(len(types)))
    host = pick(everything, visible, DEVICE_LOCAL)
    if host is None:
        raise DeviceError("the device has no host-visible, coherent memory: expected by every Vulkan driver")
    roomy = [i for i in local if 2 * sizes[i] >= largest]
    window = pick(roomy, visible | HOST_CACHED) if unified else None
    window = pick(roomy, visible) if window is None else window
    plain = pick(roomy, DEVICE_LOCAL, HOST_VISIBLE)
    main = next(i for i in (window, plain, local[0]) if i is not None)
    cached = pick(everything, visible | HOST_CACHED, DEVICE_LOCAL)
    if unified and types[main] & visible == visible:
        download = main if types[main] & HOST_CACHED or cached is None else cached
        chosen = (main, main, download, main)
    else:
        near = pick(local, visible)
        chosen = (main, host, host if cached is None else cached, host if near is None else near)

    def kind(name: str, index: int) -> MemoryKind:
        flags = types[index]
        return MemoryKind(name, index, 0, flags & visible == visible, bool(flags & HOST_CACHED))

    names = ("device", "upload", "download", "argument")
    first, second, third, fourth = (kind(name, index) for name, index in zip(names, chosen, strict=True))
    return first, second, third, fourth
