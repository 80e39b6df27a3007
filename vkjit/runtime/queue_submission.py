"""A command buffer with its fence, and the barriers that go into command buffers.

Enters: the open loader. Leaves: `Submission`s for a queue to use again and again, and `memory_barriers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ._vk import Vulkan
from .handles import Handle

__all__ = ["Prepared", "Submission", "memory_barriers"]

_COMPUTE, _TRANSFER, _HOST = 0x800, 0x1000, 0x4000
_SHADER_READ, _SHADER_WRITE, _TRANSFER_READ, _TRANSFER_WRITE, _HOST_READ = 0x20, 0x40, 0x800, 0x1000, 0x2000


class Submission:
    """A command buffer with its pool and its fence, used again and again."""

    __slots__ = ("command", "done", "fence", "fences", "info", "number", "pool", "serial", "waiters")

    def __init__(self, vulkan: Vulkan, pool: Handle, command: Any, fence: Handle) -> None:
        self.pool = pool
        self.command = command
        self.number = int(vulkan.ffi.cast("uintptr_t", command))
        self.fence = fence
        self.fences = vulkan.array("VkFence", [fence.value])
        self.info = vulkan.struct(
            "VkSubmitInfo", commandBufferCount=1, pCommandBuffers=vulkan.array("VkCommandBuffer", [command])
        )
        self.serial = 0
        self.waiters = 0
        self.done = False

    def close(self) -> None:
        """Destroys it all; the device must be done with it, or lost."""
        self.fence.close()
        self.pool.close()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command buffer that is submitted more than once: its owner, what submits it `alone`, and what submits it `after`
    another, which is put first into the array `both`.
    """

    owner: Handle
    alone: Any
    after: Any
    both: Any


def memory_barriers(vulkan: Vulkan) -> tuple[tuple[int, Any], tuple[int, Any], tuple[int, Any]]:
    """(stages, barrier) between kernels, between kernels and copies, and at the end of a submission."""
    shader = _SHADER_READ | _SHADER_WRITE
    transfer = _TRANSFER_READ | _TRANSFER_WRITE
    everything = shader | transfer
    writes = _SHADER_WRITE | _TRANSFER_WRITE
    both = _COMPUTE | _TRANSFER
    return (
        (both, vulkan.struct("VkMemoryBarrier", srcAccessMask=_SHADER_WRITE, dstAccessMask=everything)),
        (both, vulkan.struct("VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=everything)),
        (both | _HOST, vulkan.struct("VkMemoryBarrier", srcAccessMask=writes, dstAccessMask=everything | _HOST_READ)),
    )
