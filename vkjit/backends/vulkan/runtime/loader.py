"""Access to the Vulkan loader library: the only module that uses the `vulkan` package, loaded on first use.

Provides cffi structures, constants and raw function pointers, and maps failed VkResults to typed exceptions. The loader
library is opened once per process.

Only the package's compiled declarations are used (`vulkan._vulkancache`, loaded in a few milliseconds). Its wrappers
convert every argument on every call and open the loader at import, so they are not used.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import weakref
from typing import Any

from vkjit.errors import DeviceError, DeviceLostError, DriverNotFoundError, FeatureError, OutOfMemoryError
from vkjit.runtime.handles import new_lock

__all__ = ["Functions", "Vulkan", "install_hint", "load"]

LOADER_NAMES = {
    "linux": ("libvulkan.so.1", "libvulkan.so"),
    "win32": ("vulkan-1.dll",),
    "darwin": (
        "libvulkan.1.dylib",
        "libvulkan.dylib",
        "/usr/local/lib/libvulkan.1.dylib",
        "/opt/homebrew/lib/libvulkan.1.dylib",
        "libMoltenVK.dylib",
    ),
}

_INSTALL = {
    "linux": (
        "  Debian, Ubuntu: sudo apt-get install mesa-vulkan-drivers libvulkan1\n"
        "  Fedora:         sudo dnf install mesa-vulkan-drivers vulkan-loader\n"
        "  Arch:           sudo pacman -S vulkan-icd-loader vulkan-swrast (or vulkan-radeon, vulkan-intel)\n"
        "  NVIDIA GPUs:    the vendor's driver, with its Vulkan part (libnvidia-gl on Debian and Ubuntu)"
    ),
    "win32": "  Windows: a current driver from the GPU's vendor (it brings vulkan-1.dll)",
    "darwin": "  macOS: brew install molten-vk vulkan-loader",
}

_STYPES = {
    "VkApplicationInfo": "APPLICATION_INFO",
    "VkInstanceCreateInfo": "INSTANCE_CREATE_INFO",
    "VkValidationFeaturesEXT": "VALIDATION_FEATURES_EXT",
    "VkDebugUtilsMessengerCreateInfoEXT": "DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT",
    "VkPhysicalDeviceFeatures2": "PHYSICAL_DEVICE_FEATURES_2",
    "VkPhysicalDeviceProperties2": "PHYSICAL_DEVICE_PROPERTIES_2",
    "VkPhysicalDeviceVulkan11Features": "PHYSICAL_DEVICE_VULKAN_1_1_FEATURES",
    "VkPhysicalDeviceVulkan12Features": "PHYSICAL_DEVICE_VULKAN_1_2_FEATURES",
    "VkPhysicalDeviceVulkan13Features": "PHYSICAL_DEVICE_VULKAN_1_3_FEATURES",
    "VkPhysicalDeviceVulkan11Properties": "PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES",
    "VkPhysicalDeviceVulkan12Properties": "PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES",
    "VkPhysicalDeviceVulkan13Properties": "PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES",
    "VkPhysicalDeviceSubgroupSizeControlProperties": "PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES",
    "VkPhysicalDeviceMemoryProperties2": "PHYSICAL_DEVICE_MEMORY_PROPERTIES_2",
    "VkPhysicalDeviceMemoryBudgetPropertiesEXT": "PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT",
    "VkCooperativeMatrixPropertiesKHR": "COOPERATIVE_MATRIX_PROPERTIES_KHR",
    "VkDeviceQueueCreateInfo": "DEVICE_QUEUE_CREATE_INFO",
    "VkDeviceCreateInfo": "DEVICE_CREATE_INFO",
    "VkBufferCreateInfo": "BUFFER_CREATE_INFO",
    "VkMemoryAllocateInfo": "MEMORY_ALLOCATE_INFO",
    "VkMemoryAllocateFlagsInfo": "MEMORY_ALLOCATE_FLAGS_INFO",
    "VkBufferDeviceAddressInfo": "BUFFER_DEVICE_ADDRESS_INFO",
    "VkCommandPoolCreateInfo": "COMMAND_POOL_CREATE_INFO",
    "VkCommandBufferAllocateInfo": "COMMAND_BUFFER_ALLOCATE_INFO",
    "VkCommandBufferBeginInfo": "COMMAND_BUFFER_BEGIN_INFO",
    "VkFenceCreateInfo": "FENCE_CREATE_INFO",
    "VkSubmitInfo": "SUBMIT_INFO",
    "VkSemaphoreCreateInfo": "SEMAPHORE_CREATE_INFO",
    "VkSemaphoreTypeCreateInfo": "SEMAPHORE_TYPE_CREATE_INFO",
    "VkTimelineSemaphoreSubmitInfo": "TIMELINE_SEMAPHORE_SUBMIT_INFO",
    "VkMemoryBarrier": "MEMORY_BARRIER",
    "VkShaderModuleCreateInfo": "SHADER_MODULE_CREATE_INFO",
    "VkPipelineLayoutCreateInfo": "PIPELINE_LAYOUT_CREATE_INFO",
    "VkPipelineShaderStageCreateInfo": "PIPELINE_SHADER_STAGE_CREATE_INFO",
    "VkPipelineShaderStageRequiredSubgroupSizeCreateInfo": ("PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO"),
    "VkComputePipelineCreateInfo": "COMPUTE_PIPELINE_CREATE_INFO",
    "VkPipelineCacheCreateInfo": "PIPELINE_CACHE_CREATE_INFO",
    "VkQueryPoolCreateInfo": "QUERY_POOL_CREATE_INFO",
    "VkPipelineInfoKHR": "PIPELINE_INFO_KHR",
    "VkPipelineExecutablePropertiesKHR": "PIPELINE_EXECUTABLE_PROPERTIES_KHR",
    "VkPipelineExecutableInfoKHR": "PIPELINE_EXECUTABLE_INFO_KHR",
    "VkPipelineExecutableStatisticKHR": "PIPELINE_EXECUTABLE_STATISTIC_KHR",
}

_ERRORS: dict[str, type[DeviceError]] = {
    "VK_ERROR_OUT_OF_HOST_MEMORY": OutOfMemoryError,
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": OutOfMemoryError,
    "VK_ERROR_OUT_OF_POOL_MEMORY": OutOfMemoryError,
    "VK_ERROR_TOO_MANY_OBJECTS": OutOfMemoryError,
    "VK_ERROR_FRAGMENTATION": OutOfMemoryError,
    "VK_ERROR_DEVICE_LOST": DeviceLostError,
    "VK_ERROR_FEATURE_NOT_PRESENT": FeatureError,
    "VK_ERROR_EXTENSION_NOT_PRESENT": FeatureError,
    "VK_ERROR_LAYER_NOT_PRESENT": FeatureError,
    "VK_ERROR_INCOMPATIBLE_DRIVER": DriverNotFoundError,
}


def install_hint() -> str:
    """Return what to install on this platform, one option per line."""
    return _INSTALL.get(sys.platform, _INSTALL["linux"])


class Functions:
    """Raw function pointers of one level (loader, instance or device), looked up as attributes on first use."""

    def __init__(self, vulkan: Vulkan, get_address: Any, owner: Any) -> None:
        self._vulkan = vulkan
        self._get_address = get_address
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        address = self._get_address(self._owner, name.encode())
        if not address:
            raise DeviceError(f"the Vulkan driver has no function {name}: update the driver")
        pointer = self._vulkan.ffi.cast(f"PFN_{name}", address)
        setattr(self, name, pointer)
        return pointer


class Vulkan:
    """The opened loader: `ffi`, structures, constants, and the functions that need no instance."""

    def __init__(self, ffi: Any, library: Any) -> None:
        self.ffi = ffi
        self.library = library
        self.null = ffi.NULL
        self.functions = Functions(self, library.vkGetInstanceProcAddr, ffi.NULL)
        self._alive: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._results: dict[int, str] = dict(ffi.typeof("VkResult").elements)

    def constant(self, name: str) -> int:
        """Return the value of an enumerator."""
        return int(self.ffi.integer_const(name))

    def struct(self, name: str, **fields: Any) -> Any:
        """Return a new structure with its sType set. It keeps structures and arrays passed as fields alive."""
        if name in _STYPES:
            fields["sType"] = self.constant("VK_STRUCTURE_TYPE_" + _STYPES[name])
        pointer = self.ffi.new(name + "*", fields)
        self._alive[pointer] = fields
        return pointer

    def array(self, item: str, values: Any) -> Any:
        """Return a new array of `item`. It keeps the values alive."""
        pointer = self.ffi.new(item + "[]", values)
        self._alive[pointer] = values
        return pointer

    def words(self, stype: int, count: int) -> Any:
        """Return a structure that the package doesn't declare, as a uint32_t pointer: sType, pNext, then `count` u32
        words.

        The words start at index 4. The memory is kept alive as long as the returned pointer is referenced.
        """
        memory = self.ffi.new("uint64_t[]", 2 + (count + 1) // 2)
        words = self.ffi.cast("uint32_t *", memory)
        words[0] = stype
        self._alive[words] = memory
        return words

    def text(self, value: str) -> Any:
        """Return a C string that lives as long as the returned object."""
        return self.ffi.new("char[]", value.encode())

    def string(self, value: Any) -> str:
        """Return the text in a char array or behind a char pointer."""
        return str(self.ffi.string(value).decode("utf-8", "replace"))

    def instance_functions(self, instance: Any) -> Functions:
        """Return the functions of an instance."""
        return Functions(self, self.library.vkGetInstanceProcAddr, instance)

    def device_functions(self, instance: Functions, device: Any) -> Functions:
        """Return the functions of a device, which bypass the loader's dispatch."""
        return Functions(self, instance.vkGetDeviceProcAddr, device)

    def result_name(self, result: int) -> str:
        """Return the name of a VkResult."""
        return self._results.get(result, f"VkResult {result}")

    def check(self, result: int, call: str, subject: str = "") -> int:
        """Return `result` if it is not a failure; raise the matching exception otherwise."""
        if result >= 0:
            return result
        name = self.result_name(result)
        about = f" ({subject})" if subject else ""
        raise _ERRORS.get(name, DeviceError)(f"{call} failed with {name}{about}")

    def enumerate(self, item: str, call: Any, *arguments: Any, fill: str = "") -> Any:
        """Make both calls of a Vulkan enumeration and return an array of `item`. `fill` names the sType set in its
        elements.
        """
        count = self.ffi.new("uint32_t *")
        self.check(call(*arguments, count, self.null) or 0, f"enumeration of {item}")
        values = self.ffi.new(item + "[]", count[0])
        if fill:
            stype = self.constant("VK_STRUCTURE_TYPE_" + fill)
            for value in values:
                value.sType = stype
        self.check(call(*arguments, count, values) or 0, f"enumeration of {item}")
        if count[0] == len(values):
            return values
        part = values[0 : count[0]]
        self._alive[part] = values
        return part


_lock = new_lock()
_loaded: list[Vulkan] = []


def load() -> Vulkan:
    """Return the loader, opened on the first call. Raises DriverNotFoundError, with what to install."""
    with _lock:
        if not _loaded:
            ffi = _declarations()
            _loaded.append(Vulkan(ffi, _open_loader(ffi)))
        return _loaded[0]


def _declarations() -> Any:
    """Return the package's compiled cffi declarations without importing the package itself."""
    name = "vulkan._vulkancache"
    if name in sys.modules:
        return sys.modules[name].ffi
    package = importlib.util.find_spec("vulkan")
    if package is None or not package.submodule_search_locations:
        raise DriverNotFoundError("the Python package `vulkan` isn't installed: pip install vulkan")
    path = os.path.join(package.submodule_search_locations[0], "_vulkancache.py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.exists(path):
        raise DriverNotFoundError(f"no Vulkan declarations at {path}: pip install --force-reinstall 'vulkan>=1.3.275'")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ffi


def _open_loader(ffi: Any) -> Any:
    names = LOADER_NAMES.get(sys.platform, LOADER_NAMES["linux"])
    for name in names:
        try:
            return ffi.dlopen(name)
        except OSError:
            continue
    raise DriverNotFoundError(f"no Vulkan loader: found none of {', '.join(names)}. Install one:\n{install_hint()}")
