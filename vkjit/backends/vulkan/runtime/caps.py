"""Build the `DeviceCaps` of a physical device from its features and properties.

Compilers and library code base their decisions on these caps. Nothing is guessed: a capability that the driver doesn't
report is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vkjit.runtime.device import DeviceCaps, MatrixShape, without_int64
from vkjit.runtime.device_info import version_of

from .loader import Vulkan
from .quirks import quirks_of

__all__ = ["KINDS", "Properties", "caps_of", "missing_requirements", "query_matrices", "query_properties"]

KINDS = ("other", "integrated", "discrete", "virtual", "cpu")
"""Device kinds, indexed by VkPhysicalDeviceType."""

REQUIRED = ("buffer_device_address", "memory_model")
"""Features that every kernel needs."""

_COMPUTE_STAGE = 0x20
_SUBGROUP_OPERATIONS = (
    (0x1, "subgroup_basic"),
    (0x2, "subgroup_vote"),
    (0x4, "subgroup_arithmetic"),
    (0x8, "subgroup_ballot"),
    (0x10, "subgroup_shuffle"),
    (0x20, "subgroup_shuffle_relative"),
    (0x40, "subgroup_clustered"),
    (0x80, "subgroup_quad"),
)
_FLOAT_CONTROLS = (
    ("shaderSignedZeroInfNanPreserve", "signed_zero_inf_nan"),
    ("shaderRoundingModeRTE", "rte"),
    ("shaderDenormPreserve", "denorm_preserve"),
    ("shaderDenormFlushToZero", "denorm_flush"),
)
_COMPONENTS = {
    0: "f16",
    1: "f32",
    2: "f64",
    3: "i8",
    4: "i16",
    5: "i32",
    6: "i64",
    7: "u8",
    8: "u16",
    9: "u32",
    10: "u64",
    1000141000: "bf16",
}
"""Maps VkComponentTypeKHR to vkjit's type names."""

_SCOPES = {2: "workgroup", 3: "subgroup"}
_DEVICE_LOCAL, _HOST_VISIBLE, _HOST_COHERENT = 0x1, 0x2, 0x4


@dataclass(frozen=True, slots=True)
class Properties:
    """Property structures of a physical device. `v11` and `v12` are None before Vulkan 1.2, `v13` before Vulkan 1.3."""

    base: Any
    v11: Any
    v12: Any
    v13: Any

    @property
    def version(self) -> tuple[int, int]:
        number = self.base.apiVersion
        return (number >> 22) & 0x7F, (number >> 12) & 0x3FF


def query_properties(vulkan: Vulkan, instance: Any, device: Any) -> Properties:
    """Query the property structures; those newer than the device's version are None (all but `base` before Vulkan 1.2)."""
    head = vulkan.struct("VkPhysicalDeviceProperties2")
    instance.vkGetPhysicalDeviceProperties2(device, head)
    base = _Owned(head)
    version = Properties(base, None, None, None).version
    if version < (1, 2):
        return Properties(base, None, None, None)
    v13 = vulkan.struct("VkPhysicalDeviceVulkan13Properties") if version >= (1, 3) else None
    v12 = vulkan.struct("VkPhysicalDeviceVulkan12Properties", **({"pNext": v13} if v13 is not None else {}))
    v11 = vulkan.struct("VkPhysicalDeviceVulkan11Properties", pNext=v12)
    head.pNext = v11
    instance.vkGetPhysicalDeviceProperties2(device, head)
    return Properties(base, v11, v12, v13)


class _Owned:
    """View of VkPhysicalDeviceProperties2.properties that keeps the enclosing structure alive."""

    def __init__(self, head: Any) -> None:
        self._head = head

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head.properties, name)


def property_features(properties: Properties) -> set[str]:
    """Return the feature names that Vulkan reports in properties instead of feature structures."""
    found: set[str] = set()
    if properties.v11.subgroupSupportedStages & _COMPUTE_STAGE:
        operations = properties.v11.subgroupSupportedOperations
        found |= {name for bit, name in _SUBGROUP_OPERATIONS if operations & bit}
    for member, name in _FLOAT_CONTROLS:
        for bits in (16, 32, 64):
            if getattr(properties.v12, f"{member}Float{bits}"):
                found.add(f"{name}_f{bits}")
    return found


def missing_requirements(features: set[str], properties: Properties) -> tuple[str, ...]:
    """Return descriptions of the requirements that the device doesn't meet; () for a usable device."""
    if properties.v12 is None:
        major, minor = properties.version
        return (f"Vulkan 1.2 (it has {major}.{minor})",)
    return tuple(name for name in REQUIRED if name not in features)


def caps_of(
    vulkan: Vulkan,
    features: set[str],
    properties: Properties,
    memory: Any,
    matrices: tuple[MatrixShape, ...],
) -> DeviceCaps:
    """Build the caps. `memory` is a VkPhysicalDeviceMemoryProperties."""
    limits, v12 = properties.base.limits, properties.v12
    info = vulkan.string(v12.driverInfo)
    quirks = quirks_of(v12.driverID, version_of(info))
    kind = KINDS[properties.base.deviceType] if properties.base.deviceType < len(KINDS) else "other"
    names = frozenset(features | property_features(properties))
    caps = DeviceCaps(
        kind=kind,
        subgroup_sizes=_subgroup_sizes(names, properties),
        max_invocations=limits.maxComputeWorkGroupInvocations,
        max_local_size=_triple(limits.maxComputeWorkGroupSize),
        max_groups=_triple(limits.maxComputeWorkGroupCount),
        shared_bytes=limits.maxComputeSharedMemorySize,
        push_constant_bytes=limits.maxPushConstantsSize,
        dtypes=_dtypes(names),
        features=names,
        loop_cap=quirks.loop_cap,
        quirks=quirks.names,
        unified_memory=_unified(kind, memory),
        driver=f"{vulkan.string(v12.driverName)} {info}".strip(),
        vendor=properties.base.vendorID,
        matrices=matrices,
    )
    return caps if "int64" in names else without_int64(caps)


def query_matrices(vulkan: Vulkan, instance: Any, device: Any, features: set[str]) -> tuple[MatrixShape, ...]:
    """Return the supported cooperative matrix shapes, restricted to element types and scopes that vkjit knows."""
    shapes: list[MatrixShape] = []
    if "cooperative_matrix" in features:
        call = instance.vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR
        fill = "COOPERATIVE_MATRIX_PROPERTIES_KHR"
        for row in vulkan.enumerate("VkCooperativeMatrixPropertiesKHR", call, device, fill=fill):
            types = (row.AType, row.BType, row.CType, row.ResultType)
            size = (row.MSize, row.NSize, row.KSize)
            shapes += _shape(size, types, row.scope, bool(row.saturatingAccumulation), 0)
    if "cooperative_matrix2" in features:
        shapes += _flexible_matrices(vulkan, instance, device)
    return tuple(shapes)


def _flexible_matrices(vulkan: Vulkan, instance: Any, device: Any) -> list[MatrixShape]:
    """Return the shapes of VK_NV_cooperative_matrix2.

    The `vulkan` package doesn't declare its structures, so they are read as raw words.
    """
    name = b"vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV"
    address = vulkan.library.vkGetInstanceProcAddr(instance._owner, name)
    if not address:
        return []
    call = vulkan.ffi.cast("VkResult(*)(VkPhysicalDevice, uint32_t *, void *)", address)
    count = vulkan.ffi.new("uint32_t *")
    vulkan.check(call(device, count, vulkan.null), name.decode())
    stride = 14  # sType, padding, pNext (2), then ten 32-bit words
    rows = vulkan.ffi.new("uint64_t[]", stride // 2 * count[0])
    words = vulkan.ffi.cast("uint32_t *", rows)
    for row in range(count[0]):
        words[row * stride] = 1000593001
    vulkan.check(call(device, count, words), name.decode())
    shapes: list[MatrixShape] = []
    for row in range(count[0]):
        m, n, k, a, b, c, result, saturating, scope, invocations = words[row * stride + 4 : row * stride + 14]
        shapes += _shape((m, n, k), (a, b, c, result), scope, bool(saturating), invocations)
    return shapes


def _shape(
    size: tuple[int, int, int], types: tuple[int, ...], scope: int, saturating: bool, invocations: int
) -> list[MatrixShape]:
    if scope not in _SCOPES or not all(component in _COMPONENTS for component in types):
        return []
    a, b, c, result = (_COMPONENTS[component] for component in types)
    flexible = invocations > 0
    return [MatrixShape(*size, a, b, c, result, _SCOPES[scope], saturating, flexible, invocations)]


def _subgroup_sizes(features: frozenset[str], properties: Properties) -> tuple[int, ...]:
    """Return the subgroup sizes that a kernel may require; the default size is last."""
    default = int(properties.v11.subgroupSize)
    v13 = properties.v13
    if v13 is None or "subgroup_size_control" not in features or not v13.requiredSubgroupSizeStages & _COMPUTE_STAGE:
        return (default,)
    size, others = int(v13.minSubgroupSize), []
    while size <= v13.maxSubgroupSize:
        if size != default:
            others.append(size)
        size *= 2
    return (*others, default)


def _dtypes(features: frozenset[str]) -> frozenset[str]:
    names = {"bool", "i32", "u32", "f32", "i64", "u64"}  # without 64-bit integers, pairs of words
    if {"int8", "storage_8bit"} <= features:
        names |= {"i8", "u8"}
    if {"int16", "storage_16bit"} <= features:
        names |= {"i16", "u16"}
    if {"float16", "storage_16bit"} <= features:
        names.add("f16")
    if "float64" in features:
        names.add("f64")
    return frozenset(names)


def _unified(kind: str, memory: Any) -> bool:
    """True if the device is integrated or a CPU and has a memory type that is device-local, host-visible and coherent."""
    wanted = _DEVICE_LOCAL | _HOST_VISIBLE | _HOST_COHERENT
    types = [memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount)]
    return kind in ("integrated", "cpu") and any(flags & wanted == wanted for flags in types)


def _triple(values: Any) -> tuple[int, int, int]:
    return int(values[0]), int(values[1]), int(values[2])
