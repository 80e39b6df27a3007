"""Reusable submissions (a command buffer with its fence), and memory barriers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from vkjit.runtime.handles import Handle

from ..loader import Vulkan

__all__ = ["Prepared", "Submission", "memory_barriers", "noted"]

_COMPUTE, _TRANSFER, _HOST = 0x800, 0x1000, 0x4000
_SHADER_READ, _SHADER_WRITE, _TRANSFER_READ, _TRANSFER_WRITE, _HOST_READ = 0x20, 0x40, 0x800, 0x1000, 0x2000


class Submission:
    """A reusable command buffer with its pool and its fence.

    `ended` and `sent` hold the driver's results (see `noted`) after the command buffer was ended and submitted.
    """

    __slots__ = ("command", "done", "ended", "fence", "fences", "info", "number", "pool", "sent", "serial", "waiters")

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
        self.ended: list[int] = []
        self.sent: list[int] = []
        self.waiters = 0
        self.done = False

    def begin(self, serial: int) -> None:
        """Reset the state and set the serial of the next submission."""
        self.ended.clear()
        self.sent.clear()
        self.serial = serial

    def close(self) -> None:
        """Destroy the fence and the pool. The submission must be complete or the device lost."""
        self.fence.close()
        self.pool.close()


def noted(results: list[int], call: Callable[..., int], *arguments: Any) -> int:
    """Call a driver function, store its result in `results`, and return it.

    If there is a result already, don't call again. Signal handlers run between bytecode instructions, so that Ctrl-C
    could come after a call and before its result is stored. Here, both are one instruction.
    """
    if not results:
        results.extend(map(call, *[(argument,) for argument in arguments]))
    return results[0]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A command buffer that is submitted repeatedly.

    `alone` is the VkSubmitInfo for the command buffer alone, `after` that for submitting it after another one, which
    the caller stores as the first item of the array `both`.
    """

    owner: Handle
    alone: Any
    after: Any
    both: Any


def memory_barriers(vulkan: Vulkan) -> tuple[tuple[int, Any], tuple[int, Any], tuple[int, Any]]:
    """Return (stages, barrier) between kernels, between kernels and copies, and at the end of a submission."""
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
