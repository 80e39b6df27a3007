"""A queue for copies and fills only, on a hardware copy engine if there is one, so that copies overlap with kernels."""

from __future__ import annotations

from typing import Any

from vkjit.runtime.observers import LaunchFields
from vkjit.runtime.streams import refuse

from ..loader import Vulkan
from .queue import Queue

__all__ = ["CopyQueue"]

_TRANSFER, _HOST = 0x1000, 0x4000
_READ, _WRITE, _HOST_READ = 0x800, 0x1000, 0x2000


class CopyQueue(Queue):
    """A `Queue` that refuses kernels."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.barriers = _barriers(self.vulkan)

    def dispatch(self, request: LaunchFields) -> None:
        refuse(request[0].artifact)

    def open_command_handle(self) -> int:
        return 0


def _barriers(vulkan: Vulkan) -> tuple[tuple[int, Any], tuple[int, Any], tuple[int, Any]]:
    """Return the equivalent of `memory_barriers` with only the stages that a transfer queue supports."""
    between = vulkan.struct("VkMemoryBarrier", srcAccessMask=_WRITE, dstAccessMask=_READ | _WRITE)
    end = vulkan.struct("VkMemoryBarrier", srcAccessMask=_WRITE, dstAccessMask=_READ | _WRITE | _HOST_READ)
    return (_TRANSFER, between), (_TRANSFER, between), (_TRANSFER | _HOST, end)
