"""Timeline semaphores: how queues of one device wait for each other without the host.

Enters: semaphores with values. Leaves: submissions that wait and signal. Holds: a signal covers everything that its queue
was given before; a wait covers the whole submission that has it.
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
    """A semaphore whose value starts at 0; `exported`: one that other libraries can be given."""
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
    """A new file descriptor of an exported semaphore, which its receiver owns."""
    info = vulkan.struct("VkSemaphoreGetFdInfoKHR", sType=_GET_DESCRIPTOR, semaphore=semaphore, handleType=_OPAQUE_FD)
    out = vulkan.ffi.new("int *")
    vulkan.check(functions.vkGetSemaphoreFdKHR(device, info, out), "vkGetSemaphoreFdKHR")
    return int(out[0])


def timeline_value(vulkan: Vulkan, functions: Functions, device: Any, semaphore: Any) -> int:
    """Where the semaphore is."""
    out = vulkan.ffi.new("uint64_t *")
    vulkan.check(functions.vkGetSemaphoreCounterValue(device, semaphore, out), "vkGetSemaphoreCounterValue")
    return int(out[0])


def with_semaphores(
    vulkan: Vulkan, submit: Any, waits: Sequence[tuple[Any, int]], signals: Sequence[tuple[Any, int]]
) -> Any:
    """A VkSubmitInfo with the command buffers of `submit`, and what it waits for and signals: (semaphore, value)."""
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
