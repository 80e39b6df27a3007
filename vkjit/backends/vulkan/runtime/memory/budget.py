"""Memory budget: how many more bytes may be allocated from a heap.

At most a fraction of the memory available to this process is used: 0.95, or VKJIT_MEMORY_FRACTION. The rest is left to
the driver and other processes. The available memory is the driver's figure (VK_EXT_memory_budget), or the heap's size
if the driver doesn't report it.
"""

from __future__ import annotations

import os

from vkjit.errors import ArgumentError

from ..physical_device import Physical

__all__ = ["Budget", "fraction"]

_DEFAULT = 0.95


def fraction() -> float:
    """Return the usable fraction of the memory. Raises ArgumentError unless the setting is a number in (0, 1]."""
    text = os.environ.get("VKJIT_MEMORY_FRACTION", "")
    try:
        value = float(text) if text else _DEFAULT
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise ArgumentError(f"VKJIT_MEMORY_FRACTION={text!r}: expected a number above 0, at most 1")
    return value


class Budget:
    """Budgets of a device's heaps, in bytes."""

    def __init__(self, physical: Physical) -> None:
        self._physical = physical
        self._sizes = [int(h.size) for h in physical.memory.memoryHeaps[0 : physical.memory.memoryHeapCount]]
        self._fraction = fraction()
        self._known = "VK_EXT_memory_budget" in physical.extensions and physical.info.api_version[:2] >= (1, 1)

    def limit(self, heap: int) -> int:
        """Return how many bytes of the heap this process may use in total."""
        return int((self._ask()[0][heap] if self._known else self._sizes[heap]) * self._fraction)

    def left(self, heap: int, reserved: int) -> int:
        """Return how many more bytes may be taken from the heap (may be negative).

        `reserved` is the number of bytes that this device has of it.
        """
        if not self._known:
            return int(self._sizes[heap] * self._fraction) - reserved
        budgets, usages = self._ask()
        return int(budgets[heap] * self._fraction) - max(usages[heap], reserved)

    def _ask(self) -> tuple[list[int], list[int]]:
        """Query the driver's budgets and this process's usages, by heap; they change as other processes allocate."""
        vulkan = self._physical.instance.vulkan
        budget = vulkan.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
        properties = vulkan.struct("VkPhysicalDeviceMemoryProperties2", pNext=budget)
        self._physical.instance.functions.vkGetPhysicalDeviceMemoryProperties2(self._physical.handle, properties)
        count = len(self._sizes)
        return [int(b) for b in budget.heapBudget[0:count]], [int(u) for u in budget.heapUsage[0:count]]
