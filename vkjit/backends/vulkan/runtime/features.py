"""Table of optional Vulkan features: the structure and extension of each, and vkjit's name for it.

`query_features` returns the names that a physical device supports; `enabling_chain` builds the pNext chain that enables
them. A device is opened with all of its supported features enabled, so a name in `DeviceCaps.features` may be used.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .loader import Vulkan

__all__ = ["EXTENSION_FEATURES", "FeatureGroup", "enabling_chain", "extensions_for", "query_features"]

Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FeatureGroup:
    """A feature structure. `fields` pairs Vulkan's member names with vkjit's names.

    It may be chained if the device's version is at least `core`, or if it has `extension`. `stype` is set for
    structures newer than the `vulkan` package's declarations, whose members are read by position.
    """

    struct: str
    fields: tuple[tuple[str, str], ...]
    extension: str | None = None
    core: Version | None = None
    stype: int = 0


_CORE = (("shaderInt64", "int64"), ("shaderInt16", "int16"), ("shaderFloat64", "float64"))

_GROUPS = (
    FeatureGroup(
        "VkPhysicalDeviceVulkan11Features",
        (("storageBuffer16BitAccess", "storage_16bit"), ("storagePushConstant16", "push_constant_16bit")),
        core=(1, 2),
    ),
    FeatureGroup(
        "VkPhysicalDeviceVulkan12Features",
        (
            ("storageBuffer8BitAccess", "storage_8bit"),
            ("storagePushConstant8", "push_constant_8bit"),
            ("shaderBufferInt64Atomics", "int64_atomics"),
            ("shaderSharedInt64Atomics", "int64_shared_atomics"),
            ("shaderFloat16", "float16"),
            ("shaderInt8", "int8"),
            ("scalarBlockLayout", "scalar_block_layout"),
            ("shaderSubgroupExtendedTypes", "subgroup_extended_types"),
            ("timelineSemaphore", "timeline_semaphore"),
            ("hostQueryReset", "host_query_reset"),
            ("bufferDeviceAddress", "buffer_device_address"),
            ("vulkanMemoryModel", "memory_model"),
            ("vulkanMemoryModelDeviceScope", "memory_model_device_scope"),
        ),
        core=(1, 2),
    ),
    FeatureGroup(
        "VkPhysicalDeviceVulkan13Features",
        (
            ("subgroupSizeControl", "subgroup_size_control"),
            ("computeFullSubgroups", "full_subgroups"),
            ("synchronization2", "synchronization2"),
            ("shaderZeroInitializeWorkgroupMemory", "zero_initialize_workgroup_memory"),
            ("shaderIntegerDotProduct", "integer_dot_product"),
            ("maintenance4", "maintenance4"),
        ),
        core=(1, 3),
    ),
    FeatureGroup(
        "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT",
        (
            ("shaderBufferFloat32Atomics", "float32_atomics"),
            ("shaderBufferFloat32AtomicAdd", "float32_atomic_add"),
            ("shaderBufferFloat64Atomics", "float64_atomics"),
            ("shaderBufferFloat64AtomicAdd", "float64_atomic_add"),
            ("shaderSharedFloat32Atomics", "float32_shared_atomics"),
            ("shaderSharedFloat32AtomicAdd", "float32_shared_atomic_add"),
            ("shaderSharedFloat64Atomics", "float64_shared_atomics"),
            ("shaderSharedFloat64AtomicAdd", "float64_shared_atomic_add"),
        ),
        extension="VK_EXT_shader_atomic_float",
    ),
    FeatureGroup(
        "VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT",
        (
            ("shaderBufferFloat16Atomics", "float16_atomics"),
            ("shaderBufferFloat16AtomicAdd", "float16_atomic_add"),
            ("shaderBufferFloat16AtomicMinMax", "float16_atomic_min_max"),
            ("shaderBufferFloat32AtomicMinMax", "float32_atomic_min_max"),
            ("shaderBufferFloat64AtomicMinMax", "float64_atomic_min_max"),
            ("shaderSharedFloat32AtomicMinMax", "float32_shared_atomic_min_max"),
        ),
        extension="VK_EXT_shader_atomic_float2",
    ),
    FeatureGroup(
        "VkPhysicalDeviceCooperativeMatrixFeaturesKHR",
        (("cooperativeMatrix", "cooperative_matrix"),),
        extension="VK_KHR_cooperative_matrix",
    ),
    FeatureGroup(
        "VkPhysicalDeviceCooperativeMatrix2FeaturesNV",
        (
            ("cooperativeMatrixWorkgroupScope", "cooperative_matrix_workgroup_scope"),
            ("cooperativeMatrixFlexibleDimensions", "cooperative_matrix_flexible_dimensions"),
            ("cooperativeMatrixReductions", "cooperative_matrix_reductions"),
            ("cooperativeMatrixConversions", "cooperative_matrix_conversions"),
            ("cooperativeMatrixPerElementOperations", "cooperative_matrix_per_element_operations"),
            ("cooperativeMatrixTensorAddressing", "cooperative_matrix_tensor_addressing"),
            ("cooperativeMatrixBlockLoads", "cooperative_matrix_block_loads"),
        ),
        extension="VK_NV_cooperative_matrix2",
        stype=1000593000,
    ),
    FeatureGroup(
        "VkPhysicalDeviceShaderBfloat16FeaturesKHR",
        (
            ("shaderBFloat16Type", "bfloat16"),
            ("shaderBFloat16DotProduct", "bfloat16_dot_product"),
            ("shaderBFloat16CooperativeMatrix", "bfloat16_cooperative_matrix"),
        ),
        extension="VK_KHR_shader_bfloat16",
        stype=1000141000,
    ),
    FeatureGroup(
        "VkPhysicalDeviceShaderMaximalReconvergenceFeaturesKHR",
        (("shaderMaximalReconvergence", "maximal_reconvergence"),),
        extension="VK_KHR_shader_maximal_reconvergence",
        stype=1000434000,
    ),
    FeatureGroup(
        "VkPhysicalDeviceShaderSubgroupUniformControlFlowFeaturesKHR",
        (("shaderSubgroupUniformControlFlow", "subgroup_uniform_control_flow"),),
        extension="VK_KHR_shader_subgroup_uniform_control_flow",
    ),
    FeatureGroup(
        "VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR",
        (
            ("workgroupMemoryExplicitLayout", "workgroup_memory_explicit_layout"),
            ("workgroupMemoryExplicitLayoutScalarBlockLayout", "workgroup_memory_scalar_block_layout"),
            ("workgroupMemoryExplicitLayout8BitAccess", "workgroup_memory_8bit"),
            ("workgroupMemoryExplicitLayout16BitAccess", "workgroup_memory_16bit"),
        ),
        extension="VK_KHR_workgroup_memory_explicit_layout",
    ),
    FeatureGroup(
        "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR",
        (("pipelineExecutableInfo", "pipeline_executable_properties"),),
        extension="VK_KHR_pipeline_executable_properties",
    ),
)

_STYPES = {
    "VkPhysicalDeviceShaderAtomicFloatFeaturesEXT": 1000260000,
    "VkPhysicalDeviceShaderAtomicFloat2FeaturesEXT": 1000273000,
    "VkPhysicalDeviceCooperativeMatrixFeaturesKHR": 1000506000,
    "VkPhysicalDeviceShaderSubgroupUniformControlFlowFeaturesKHR": 1000323000,
    "VkPhysicalDeviceWorkgroupMemoryExplicitLayoutFeaturesKHR": 1000336000,
    "VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR": 1000269000,
}

EXTENSION_FEATURES = {
    "VK_EXT_memory_budget": "memory_budget",
    "VK_EXT_external_memory_host": "external_memory_host",
    "VK_KHR_external_memory_fd": "external_memory_fd",
    "VK_KHR_external_semaphore_fd": "external_semaphore_fd",
}
"""Extensions without a feature structure: each is a feature by itself."""

_ALWAYS = ("VK_KHR_portability_subset",)  # the specification requires enabling it if it is present
_FLEXIBLE = frozenset({"cooperative_matrix_workgroup_scope", "cooperative_matrix_flexible_dimensions"})


def _usable(extensions: frozenset[str], version: Version) -> list[FeatureGroup]:
    return [
        group
        for group in _GROUPS
        if (group.core is not None and version >= group.core) or (group.extension in extensions)
    ]


class _Chain:
    """Feature structures chained to a VkPhysicalDeviceFeatures2."""

    def __init__(self, vulkan: Vulkan, groups: Iterable[FeatureGroup]) -> None:
        self._vulkan = vulkan
        self.head = vulkan.struct("VkPhysicalDeviceFeatures2")
        self._members: list[tuple[FeatureGroup, Any]] = []
        last = vulkan.ffi.cast("VkBaseOutStructure *", self.head)
        for group in groups:
            member = self._new(group)
            last.pNext = vulkan.ffi.cast("VkBaseOutStructure *", member)
            last = last.pNext
            self._members.append((group, member))

    def _new(self, group: FeatureGroup) -> Any:
        if group.stype:
            return self._vulkan.words(group.stype, len(group.fields))
        if group.struct in _STYPES:
            return self._vulkan.struct(group.struct, sType=_STYPES[group.struct])
        return self._vulkan.struct(group.struct)

    def read(self) -> set[str]:
        """Return the names of the members that are set."""
        found = {name for member, name in _CORE if getattr(self.head.features, member)}
        for group, structure in self._members:
            for position, (member, name) in enumerate(group.fields):
                if structure[4 + position] if group.stype else getattr(structure, member):
                    found.add(name)
        return found

    def write(self, names: frozenset[str]) -> None:
        """Set the members named in `names` and clear all others."""
        for member, name in _CORE:
            setattr(self.head.features, member, name in names)
        for group, structure in self._members:
            for position, (member, name) in enumerate(group.fields):
                if group.stype:
                    structure[4 + position] = name in names
                else:
                    setattr(structure, member, name in names)


def query_features(vulkan: Vulkan, call: Any, device: Any, extensions: frozenset[str], version: Version) -> set[str]:
    """Return the names of the features that the physical device supports. `call` is vkGetPhysicalDeviceFeatures2."""
    chain = _Chain(vulkan, _usable(extensions, version))
    call(device, chain.head)
    found = chain.read()
    found |= {name for extension, name in EXTENSION_FEATURES.items() if extension in extensions}
    if found >= _FLEXIBLE:
        found.add("cooperative_matrix2")
    return found


def enabling_chain(vulkan: Vulkan, names: frozenset[str], extensions: frozenset[str], version: Version) -> Any:
    """Return a list that owns a VkDeviceCreateInfo chain enabling the named features; its first item is the chain's
    head.
    """
    groups = [g for g in _usable(extensions, version) if any(name in names for _, name in g.fields)]
    chain = _Chain(vulkan, groups)
    chain.write(names)
    return [chain.head, chain]


def extensions_for(names: frozenset[str], extensions: frozenset[str], version: Version) -> list[str]:
    """Return the device extensions to enable.

    These are those that the named features need, and the present ones of `EXTENSION_FEATURES` and `_ALWAYS`.
    """
    needed = [
        group.extension
        for group in _usable(extensions, version)
        if group.extension in extensions
        and not (group.core is not None and version >= group.core)
        and any(name in names for _, name in group.fields)
    ]
    needed += [extension for extension in (*EXTENSION_FEATURES, *_ALWAYS) if extension in extensions]
    return [name for name in needed if name is not None]
