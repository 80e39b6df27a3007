"""Compute pipelines, created from kernel artifacts whose code is SPIR-V.

Kernels with push-constant blocks of the same size share a pipeline layout. Shader modules live only while their
pipeline is created. A kernel's pipeline is destroyed only when the device is done with it.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from vkjit.backends.vulkan.pipeline_store import keeper
from vkjit.errors import DeviceError, FeatureError
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import DeviceCaps, LoadedKernel
from vkjit.runtime.handles import Handle

from ..loader import Functions, Vulkan
from ..queue.group import Awaited, Releasable
from ..queue.queue import Queue
from ..record import Record
from .disk_cache import Identity, unwrap, wrap
from .statistics import CAPTURE_STATISTICS, read_statistics

__all__ = ["Pipelines", "VulkanKernel", "check_artifact"]

_COMPUTE_STAGE = 0x20
_FULL_SUBGROUPS = 0x2  # VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT
_SPIRV_MAGIC = b"\x03\x02\x23\x07"
_ADDRESS_BYTES = 8
_EMPTY_CACHE = 32
"""Size in bytes of a driver's cache that contains only its header."""
_SAVED_EVERY = 32
"""Number of new pipelines after which the cache is saved, in case the process doesn't exit normally."""


class VulkanKernel(LoadedKernel):
    """A pipeline ready to bind.

    `report_offset` and `print_offset` are the offsets in the argument block of the addresses of a launch's report slot
    and print buffer; -1 if the kernel has none.
    """

    __slots__ = (
        "_owner",
        "artifact",
        "grid",
        "last_use",
        "layout",
        "nbytes",
        "pipeline",
        "print_offset",
        "queue",
        "records",
        "report_offset",
        "user",
    )

    def __init__(self, queue: Queue, artifact: KernelArtifact, owner: Handle, layout: Any) -> None:
        self.queue: Queue | None = queue
        self.artifact = artifact
        self._owner = owner
        self.pipeline = owner.value
        self.layout = layout
        self.last_use = 0
        self.nbytes = 0
        self.grid: tuple[int, int, int] | None = None  # of the last launch, and of those in fast-path records
        self.records: weakref.WeakValueDictionary[int, Record] = weakref.WeakValueDictionary()
        self.user: Queue | None = None  # the queue whose serial `last_use` is
        queue.group.kernels.add(self)
        reports = [field.offset for field in artifact.fields if field.role == "report"]
        self.report_offset = reports[0] if reports and artifact.sites else -1
        self.print_offset = next((field.offset for field in artifact.fields if field.role == "print"), -1)

    def close(self) -> None:
        """Destroy the pipeline when the device is done with it. May be called repeatedly."""
        queue, self.queue = self.queue, None
        if queue is None:
            return
        dropped: Releasable = _Dropped(self._owner)
        if len(queue.group.queues) > 1:  # it isn't tracked which of them used it
            dropped = Awaited(dropped, queue.group.last())
        queue.dropped.append((self.last_use, dropped))

    def __del__(self, _finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # late in interpreter shutdown this module's globals are gone, and the device is closed
        if not _finalizing() and getattr(self, "queue", None) is not None:
            self.close()


class _Dropped:
    """A pipeline to be destroyed when the device is done with it."""

    __slots__ = ("_owner",)
    nbytes = 0

    def __init__(self, owner: Handle) -> None:
        self._owner = owner

    def release(self) -> None:
        self._owner.close()


class Pipelines:
    """Creates kernels. Owns the pipeline layouts and the driver's pipeline cache.

    The cache starts with the data that earlier processes saved.
    """

    def __init__(self, vulkan: Vulkan, functions: Functions, device: Any, caps: DeviceCaps, identity: Identity) -> None:
        self._vulkan = vulkan
        self._functions = functions
        self._device = device
        self._caps = caps
        self.flags = 0  # create flags of kernel pipelines
        self._layouts: dict[int, Handle] = {}
        self._identity = identity
        self._keeper = keeper()
        self._known = unwrap(identity, self._keeper.load(identity.name))
        self._cache = self._create_cache(self._known)
        self._unsaved = 0
        self._owners: list[Handle] = []

    def load(self, queue: Queue, artifact: KernelArtifact) -> VulkanKernel:
        """Compile the artifact.

        Raises FeatureError if the device lacks what the artifact needs, DeviceError if the driver refuses it.
        """
        check_artifact(artifact, self._caps)
        layout = self._layout(_ADDRESS_BYTES if artifact.indirect else artifact.block_size)
        owner = self._create_pipeline(artifact, layout, self.flags)
        self._owners = [known for known in self._owners if not known.closed]
        self._owners.append(owner)
        self._unsaved += 1
        if self._unsaved >= _SAVED_EVERY:
            self.save()
        return VulkanKernel(queue, artifact, owner, layout)

    def statistics(self, artifact: KernelArtifact) -> dict[str, int | float]:
        """Return the driver's statistics of the artifact's pipeline (see `read_statistics`); {} if the device lacks the
        feature.
        """
        if "pipeline_executable_properties" not in self._caps.features:
            return {}
        check_artifact(artifact, self._caps)
        layout = self._layout(_ADDRESS_BYTES if artifact.indirect else artifact.block_size)
        owner = self._create_pipeline(artifact, layout, CAPTURE_STATISTICS)
        try:
            return read_statistics(self._vulkan, self._functions, self._device, owner.value)
        finally:
            owner.close()

    def restore_cache(self, kept: bytes) -> bool:
        """Replace the cache by one initialized with the data of an earlier `cache_data`.

        Returns False, without any effect, if that is damaged or from another device or driver.
        """
        data = unwrap(self._identity, kept)
        if not data:
            return False
        former, self._cache = self._cache, self._create_cache(data)
        former.close()
        return True

    def cache_data(self) -> bytes:
        """Return the driver's pipeline cache behind vkjit's header, for a later `restore_cache` of the same device."""
        return wrap(self._identity, self._drivers_data())

    def save(self) -> None:
        """Save the pipeline cache for other processes, if it has new pipelines and the driver returns its data."""
        if self._unsaved == 0:
            return
        self._unsaved = 0
        try:
            data = self._drivers_data()
        except DeviceError:
            return
        if len(data) > _EMPTY_CACHE and data != self._known:
            self._known = data
            self._keeper.save(self._identity.name, wrap(self._identity, data))

    def _drivers_data(self) -> bytes:
        size = self._vulkan.ffi.new("size_t *")
        call = self._functions.vkGetPipelineCacheData
        self._vulkan.check(call(self._device, self._cache.value, size, self._vulkan.null), "vkGetPipelineCacheData")
        data = self._vulkan.ffi.new("char[]", max(size[0], 1))
        self._vulkan.check(call(self._device, self._cache.value, size, data), "vkGetPipelineCacheData")
        return bytes(self._vulkan.ffi.buffer(data, size[0]))

    def close(self) -> None:
        """Destroy everything. The device must be idle."""
        for owner in (*self._owners, *self._layouts.values(), self._cache):
            owner.close()
        self._owners.clear()
        self._layouts.clear()

    def _create_cache(self, initial: bytes) -> Handle:
        vulkan, functions, device = self._vulkan, self._functions, self._device
        data = vulkan.ffi.from_buffer(initial) if initial else vulkan.null
        info = vulkan.struct("VkPipelineCacheCreateInfo", initialDataSize=len(initial), pInitialData=data)
        out = vulkan.ffi.new("VkPipelineCache *")
        vulkan.check(functions.vkCreatePipelineCache(device, info, vulkan.null, out), "vkCreatePipelineCache")
        destroy = functions.vkDestroyPipelineCache
        return Handle("pipeline cache", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def _layout(self, size: int) -> Any:
        size = (size + 3) & ~3
        if size not in self._layouts:
            vulkan, functions, device = self._vulkan, self._functions, self._device
            ranges = vulkan.ffi.new("VkPushConstantRange[1]", [{"stageFlags": _COMPUTE_STAGE, "size": size}])
            info = vulkan.struct(
                "VkPipelineLayoutCreateInfo", pushConstantRangeCount=1 if size else 0, pPushConstantRanges=ranges
            )
            out = vulkan.ffi.new("VkPipelineLayout *")
            vulkan.check(functions.vkCreatePipelineLayout(device, info, vulkan.null, out), "vkCreatePipelineLayout")
            destroy = functions.vkDestroyPipelineLayout
            self._layouts[size] = Handle("pipeline layout", out[0], lambda handle: destroy(device, handle, vulkan.null))
        return self._layouts[size].value

    def _create_module(self, artifact: KernelArtifact) -> Handle:
        vulkan, functions, device = self._vulkan, self._functions, self._device
        words = vulkan.ffi.new("uint32_t[]", len(artifact.code) // 4)
        vulkan.ffi.memmove(words, artifact.code, len(artifact.code))
        # NVIDIA's pipeline caches (driver 580) are keyed by the module but not by these flags: a pipeline that any
        # process created without the flags would be reused, and each part of a split grid would start at workgroup 0.
        # So the flags also go into the module, in its generator word.
        words[2] ^= self.flags
        info = vulkan.struct("VkShaderModuleCreateInfo", codeSize=len(artifact.code), pCode=words)
        out = vulkan.ffi.new("VkShaderModule *")
        result = functions.vkCreateShaderModule(device, info, vulkan.null, out)
        vulkan.check(result, "vkCreateShaderModule", f"kernel {artifact.name}")
        destroy = functions.vkDestroyShaderModule
        return Handle("shader module", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def _create_pipeline(self, artifact: KernelArtifact, layout: Any, flags: int) -> Handle:
        vulkan, functions, device = self._vulkan, self._functions, self._device
        module = self._create_module(artifact)
        try:
            stage = self._stage(artifact, module)  # keeps the structures that it points to alive
            info = vulkan.struct(
                "VkComputePipelineCreateInfo",
                flags=flags,
                stage=stage[0],
                layout=layout,
            )
            out = vulkan.ffi.new("VkPipeline *")
            call = functions.vkCreateComputePipelines
            result = call(device, self._cache.value, 1, info, vulkan.null, out)
            vulkan.check(result, "vkCreateComputePipelines", f"kernel {artifact.name}")
            if result != 0 or not out[0]:
                raise DeviceError(
                    f"the driver made no pipeline for kernel {artifact.name} ({vulkan.result_name(result)})"
                )
        finally:
            module.close()
        destroy = functions.vkDestroyPipeline
        return Handle("pipeline", out[0], lambda handle: destroy(device, handle, vulkan.null))

    def _stage(self, artifact: KernelArtifact, module: Handle) -> Any:
        vulkan = self._vulkan
        fields: dict[str, Any] = {
            "stage": _COMPUTE_STAGE,
            "module": module.value,
            "pName": vulkan.text(artifact.entry),
        }
        if artifact.subgroup_size is not None and "subgroup_size_control" in self._caps.features:
            if len(self._caps.subgroup_sizes) > 1 or "full_subgroups" in self._caps.features:
                name = "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo"
                fields["pNext"] = vulkan.struct(name, requiredSubgroupSize=artifact.subgroup_size)
            full = artifact.local_size[0] % artifact.subgroup_size == 0
            if full and "full_subgroups" in self._caps.features:
                fields["flags"] = _FULL_SUBGROUPS
        return vulkan.struct("VkPipelineShaderStageCreateInfo", **fields)


def check_artifact(artifact: KernelArtifact, caps: DeviceCaps) -> None:
    """Raise FeatureError if a device with these caps can't run the artifact, DeviceError if it is malformed."""
    code, name = artifact.code, artifact.name
    if not isinstance(code, bytes) or len(code) < 20 or len(code) % 4 or code[:4] != _SPIRV_MAGIC:
        raise DeviceError(f"kernel {name}: its code is no SPIR-V in little-endian words")
    lacking = sorted(artifact.features - caps.features)
    if lacking:
        raise FeatureError(f"kernel {name} needs what this device lacks: {', '.join(lacking)}")
    pushed = _ADDRESS_BYTES if artifact.indirect else artifact.block_size
    if pushed > caps.push_constant_bytes:
        raise FeatureError(
            f"kernel {name} pushes {pushed} bytes of arguments, this device takes {caps.push_constant_bytes}: "
            "compile it with an indirect argument block"
        )
    if artifact.shared_bytes > caps.shared_bytes:
        raise FeatureError(
            f"kernel {name} needs {artifact.shared_bytes} bytes of shared memory, this device has {caps.shared_bytes}"
        )
    x, y, z = artifact.local_size
    limit = caps.max_local_size
    if x * y * z > caps.max_invocations or x > limit[0] or y > limit[1] or z > limit[2]:
        raise FeatureError(
            f"kernel {name} has workgroups of {x} x {y} x {z}; this device takes at most {limit[0]} x {limit[1]} x "
            f"{limit[2]} and {caps.max_invocations} in all"
        )
    if artifact.subgroup_size is not None and artifact.subgroup_size not in caps.subgroup_sizes:
        sizes = ", ".join(str(size) for size in sorted(caps.subgroup_sizes))
        raise FeatureError(f"kernel {name} needs subgroups of {artifact.subgroup_size}; this device has {sizes}")
