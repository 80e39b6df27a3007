"""Timeline semaphores, with which the queues of a device wait for each other without the host.

A signal covers everything submitted to its queue before; a wait covers the whole submission that contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vkjit.runtime.handles import Handle

from ..loader import Functions, Vulkan

__all__ = ["create_timeline", "semaphore_descriptor", "timeline_value", "with_semaphores"]

_TIMELINE = 1  # VK_SEMAPHORE_TYPE_TIMELINE
_OPAQUE_FD = 0x1  # VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
_EXPORT, _GET_DESCRIPTOR = 1000077000, 1000079001  # sTypes
_ALL_COMMANDS = 0x10000


def create_timeline(vulkan: Vulkan, functions: Functions, device: Any, exported: bool = False) -> Handle:
    """Create a timeline semaphore with value 0. With `exported`, it can be exported to other libraries."""
    export = vulkan.null
    if exported:
        export = vulkan.struct("VkExportSemaphoreCreateInfo", sType=_EXPORT, handleTypes=_OPAQUE_FD)
    kind = vulkan.struct("VkSemaphoreTypeCreateInfo", pNext=export, semaphoreType=_TIMELINE, initialValue=0)
    info = vulkan.struct("VkSemaphoreCreateInfo", pNext=kind)
    out = vulkan.ffi.new("VkSemaphore *")
    vulkan.check(functions.vkCreateSemaphore(device, info, vulkan.null, out), "vkCreateSemaphore")
    destroy = functions.vkDestroySemaphore
    return Handle("semaphore", out[0], lambda handle: destroy(device, handle, vulkan.null))


def semaphore_descriptor(vulkan: Vulkan, functions: Functions, device: Any, semaphore: Any) -> int:
    """Return a new file descriptor of an exported semaphore, owned by the caller."""
    info = vulkan.struct("VkSemaphoreGetFdInfoKHR", sType=_GET_DESCRIPTOR, semaphore=semaphore, handleType=_OPAQUE_FD)
    out = vulkan.ffi.new("int *")
    vulkan.check(functions.vkGetSemaphoreFdKHR(device, info, out), "vkGetSemaphoreFdKHR")
    return int(out[0])


def timeline_value(vulkan: Vulkan, functions: Functions, device: Any, semaphore: Any) -> int:
    """Return the current value of the semaphore."""
    out = vulkan.ffi.new("uint64_t *")
    vulkan.check(functions.vkGetSemaphoreCounterValue(device, semaphore, out), "vkGetSemaphoreCounterValue")
    return int(out[0])


def with_semaphores(
    vulkan: Vulkan, submit: Any, waits: Sequence[tuple[Any, int]], signals: Sequence[tuple[Any, int]]
) -> Any:
    """Return a VkSubmitInfo with the command buffers of `submit`, plus waits and signals as (semaphore, value)."""
    values = vulkan.struct(
        "VkTimelineSemaphoreSubmitInfo",
        waitSemaphoreValueCount=len(waits),
        pWaitSemaphoreValues=vulkan.array("uint64_t", [value for _, value in waits]),
        signalSemaphoreValueCount=len(signals),
        pSignalSemaphoreValues=vulkan.array("uint64_t", [value for _, value in signals]),
    )
    return vulkan.struct(
        "VkSubmitInfo",
        pNext=values,
        waitSemaphoreCount=len(waits),
        pWaitSemaphores=vulkan.array("VkSemaphore", [semaphore for semaphore, _ in waits]),
        pWaitDstStageMask=vulkan.array("VkPipelineStageFlags", [_ALL_COMMANDS] * len(waits)),
        commandBufferCount=submit.commandBufferCount,
        pCommandBuffers=submit.pCommandBuffers,
        signalSemaphoreCount=len(signals),
        pSignalSemaphores=vulkan.array("VkSemaphore", [semaphore for semaphore, _ in signals]),
    )
