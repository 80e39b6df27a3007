"""Driver statistics of compiled pipelines: registers, spills, instruction counts.

Requires a pipeline created with `CAPTURE_STATISTICS` and the feature "pipeline_executable_properties". Names and
meaning of the statistics differ from driver to driver.
"""

from __future__ import annotations

from typing import Any

from ..loader import Functions, Vulkan

__all__ = ["CAPTURE_STATISTICS", "read_statistics"]

CAPTURE_STATISTICS = 0x40
"""VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR."""

_MEMBERS = ("b32", "i64", "u64", "f64")
"""Member of the value union, indexed by VkPipelineExecutableStatisticFormatKHR."""


def read_statistics(vulkan: Vulkan, functions: Functions, device: Any, pipeline: Any) -> dict[str, int | float]:
    """Return all statistics of all executables of the pipeline. A repeated name is prefixed with its executable's name."""
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
