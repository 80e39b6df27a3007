"""How much more memory may be taken from a heap.

Enters: a physical device. Leaves: bytes. Holds: of what the driver says is there for this process (VK_EXT_memory_budget), or of the
heap's size where it doesn't say, at most a fraction is used: 0.95, or VKJIT_MEMORY_FRACTION; the rest is for the driver and others.
"""

from __future__ import annotations

import os

from vkjit.errors import ArgumentError

from ..physical_device import Physical

__all__ = ["Budget", "fraction"]

_DEFAULT = 0.95


def fraction() -> float:
    """The part of the memory that may be used. Raises ArgumentError for a setting that is no number in (0, 1]."""
    text = os.environ.get("VKJIT_MEMORY_FRACTION", "")
    try:
        value = float(text) if text else _DEFAULT
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise ArgumentError(f"VKJIT_MEMORY_FRACTION={text!r}: expected a number above 0, at most 1")
    return value


class Budget:
    """The heaps of a device. Sizes in bytes."""

    def __init__(self, physical: Physical) -> None:
        self._physical = physical
        self._sizes = [int(h.size) for h in physical.memory.memoryHeaps[0 : physical.memory.memoryHeapCount]]
        self._fraction = fraction()
        self._known = "VK_EXT_memory_budget" in physical.extensions and physical.info.api_version[:2] >= (1, 1)

    def limit(self, heap: int) -> int:
        """What this process may have of the heap, all in all."""
        return int((self._ask()[0][heap] if self._known else self._sizes[heap]) * self._fraction)

    def left(self, heap: int, reserved: int) -> int:
        """What may still be taken from the heap; `reserved` is what this device object has of it (may be negative)."""
        if not self._known:
            return int(self._sizes[heap] * self._fraction) - reserved
        budgets, usages = self._ask()
        return int(budgets[heap] * self._fraction) - max(usages[heap], reserved)

    def _ask(self) -> tuple[list[int], list[int]]:
        """The driver's budgets and usages of this process, by heap; they change while others come and go."""
        vulkan = self._physical.instance.vulkan
        budget = vulkan.struct("VkPhysicalDeviceMemoryBudgetPropertiesEXT")
        properties = vulkan.struct("VkPhysicalDeviceMemoryProperties2", pNext=budget)
        self._physical.instance.functions.vkGetPhysicalDeviceMemoryProperties2(self._physical.handle, properties)
        count = len(self._sizes)
        return [int(b) for b in budget.heapBudget[0:count]], [int(u) for u in budget.heapUsage[0:count]]
