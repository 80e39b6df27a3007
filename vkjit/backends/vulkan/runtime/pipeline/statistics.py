"""What a driver tells of a pipeline that it compiled: registers, spills, instruction counts.

Enters: a pipeline made with `CAPTURE_STATISTICS`. Leaves: numbers under the driver's own names. Holds: only for devices
with "pipeline_executable_properties"; names and meaning differ from driver to driver.
"""

from __future__ import annotations

from typing import Any

from ..loader import Functions, Vulkan

__all__ = ["CAPTURE_STATISTICS", "read_statistics"]

CAPTURE_STATISTICS = 0x40
"""VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR."""

_MEMBERS = ("b32", "i64", "u64", "f64")
"""The member of the value union, by VkPipelineExecutableStatisticFormatKHR."""


def read_statistics(vulkan: Vulkan, functions: Functions, device: Any, pipeline: Any) -> dict[str, int | float]:
    """All statistics of all parts of the pipeline; a name that comes twice gets its part's name in front."""
    found: dict[str, int | float] = {}
    info = vulkan.struct("VkPipelineInfoKHR", pipeline=pipeline)
    call = functions.vkGetPipelineExecutablePropertiesKHR
    fill = "PIPELINE_EXECUTABLE_PROPERTIES_KHR"
    parts = vulkan.enumerate("VkPipelineExecutablePropertiesKHR", call, device, info, fill=fill)
    for index, part in enumerate(parts):
        which = vulkan.struct("VkPipelineExecutableInfoKHR", pipeline=pipeline, executableIndex=index)
        call = functions.vkGetPipelineExecutableStatisticsKHR
        fill = "PIPELINE_EXECUTABLE_STATISTIC_KHR"
        for row in vulkan.enumerate("VkPipelineExecutableStatisticKHR", call, device, which, fill=fill):
            name = vulkan.string(row.name)
            if name in found:
                name = f"{vulkan.string(part.name)}: {name}"
            found[name] = getattr(row.value, _MEMBERS[row.format])
    return found
