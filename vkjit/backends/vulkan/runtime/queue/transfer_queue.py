"""A queue on hardware that only copies, beside which kernels go on running.

Enters: copies and fills. Leaves: what any queue leaves (see `queue`). Holds: no kernel gets here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vkjit.runtime.streams import refuse

from ..loader import Vulkan
from .queue import Queue

if TYPE_CHECKING:
    from ..memory.buffer import VulkanBuffer
    from ..pipeline.pipeline import VulkanKernel

__all__ = ["CopyQueue"]

_TRANSFER, _HOST = 0x1000, 0x4000
_READ, _WRITE, _HOST_READ = 0x800, 0x1000, 0x2000


class CopyQueue(Queue):
    """As `Queue`, but for kernels."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.barriers = _barriers(self.vulkan)

    def dispatch(
        self,
        kernel: VulkanKernel,
        groups: tuple[int, int, int],
        block: bytes,
        reads: Sequence[VulkanBuffer],
        writes: Sequence[VulkanBuffer],
    ) -> None:
        refuse(kernel.artifact)

    def open_command_handle(self) -> int:
        return 0


def _barriers(vulkan: Vulkan) -> tuple[tuple[int, Any], tuple[int, Any], tuple[int, Any]]:
    """As `memory_barriers`, with the stages of such a queue alone."""
    between = vulkan.struct("VkMemoryBarrier", srcAccessMask=_WRITE, dstAccessMask=_READ | _WRITE)
    end = vulkan.struct("VkMemoryBarrier", srcAccessMask=_WRITE, dstAccessMask=_READ | _WRITE | _HOST_READ)
    return (_TRANSFER, between), (_TRANSFER, between), (_TRANSFER | _HOST, end)
