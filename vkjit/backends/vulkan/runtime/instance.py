"""The Vulkan instance: one per process, created on first use.

`VKJIT_VALIDATE=1` enables the validation layer, including synchronization validation; `VKJIT_VALIDATE_LOG` names a file
to which its messages are appended. An instance is never shared with a forked child.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from vkjit.errors import DeviceError, DriverNotFoundError
from vkjit.runtime.handles import Handle, close_at_exit, new_lock, on_fork
from vkjit.settings import boolean_setting

from . import loader

__all__ = ["Instance", "get_instance", "validation_messages"]

API_VERSION = (1 << 22) | (3 << 12)
"""Vulkan 1.3, the version that vkjit is written for; Vulkan 1.2 devices are used with what they support."""

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
_DEBUG_UTILS = "VK_EXT_debug_utils"
_FEATURES = "VK_EXT_validation_features"
_SYNCHRONISATION = 4  # VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
_PORTABILITY = "VK_KHR_portability_enumeration"

_log = logging.getLogger("vkjit.validation")
_messages: list[str] = []


def validation_messages() -> list[str]:
    """Return the validation layer's messages so far, oldest first. This is the live list: clear it to start over."""
    return _messages


class Instance:
    """An open Vulkan instance. Raises DriverNotFoundError if there is no loader or no driver."""

    def __init__(self) -> None:
        self.vulkan = loader.load()
        self.validating = False
        self._callback: Any = None
        self._messenger: Handle | None = None
        self.devices: list[Handle] = []
        """The devices that were opened and not yet destroyed."""
        self._handle = self._create()
        self.functions = self.vulkan.instance_functions(self._handle.value)
        if self.validating:
            self._messenger = self._listen()
        close_at_exit(self)

    @property
    def handle(self) -> Any:
        return self._handle.value

    def physical_devices(self) -> list[Any]:
        """Return the handles of the physical devices, in the loader's order."""
        call = self.functions.vkEnumeratePhysicalDevices
        return list(self.vulkan.enumerate("VkPhysicalDevice", call, self.handle))

    def close(self) -> None:
        """Destroy the instance, unless a device of it is in use. May be called repeatedly."""
        if not all(device.closed for device in self.devices):
            return
        if self._messenger is not None:
            self._messenger.close()
        self._handle.close()

    def _create(self) -> Handle:
        vulkan = self.vulkan
        layers = self._layers()
        extensions = self._extensions()
        names = [vulkan.text(name) for name in (*layers, *extensions)]
        application = vulkan.struct("VkApplicationInfo", pEngineName=vulkan.text("vkjit"), apiVersion=API_VERSION)
        features = vulkan.null
        if _FEATURES in extensions:
            enabled = vulkan.array("VkValidationFeatureEnableEXT", [_SYNCHRONISATION])
            features = vulkan.struct(
                "VkValidationFeaturesEXT", enabledValidationFeatureCount=1, pEnabledValidationFeatures=enabled
            )
        info = vulkan.struct(
            "VkInstanceCreateInfo",
            pNext=features,
            flags=1 if _PORTABILITY in extensions else 0,
            pApplicationInfo=application,
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=vulkan.array("char *", names[: len(layers)]),
            enabledExtensionCount=len(extensions),
            ppEnabledExtensionNames=vulkan.array("char *", names[len(layers) :]),
        )
        out = vulkan.ffi.new("VkInstance *")
        result = vulkan.functions.vkCreateInstance(info, vulkan.null, out)
        if vulkan.result_name(result) == "VK_ERROR_INCOMPATIBLE_DRIVER":
            raise DriverNotFoundError(
                f"a Vulkan loader is installed, but no driver behind it. Install one:\n{loader.install_hint()}"
            )
        vulkan.check(result, "vkCreateInstance")
        instance = out[0]
        destroy = vulkan.instance_functions(instance).vkDestroyInstance
        return Handle("instance", instance, lambda handle: destroy(handle, vulkan.null))

    def _layers(self) -> list[str]:
        if not boolean_setting("VKJIT_VALIDATE"):
            return []
        call = self.vulkan.functions.vkEnumerateInstanceLayerProperties
        present = self.vulkan.enumerate("VkLayerProperties", call)
        if VALIDATION_LAYER not in {self.vulkan.string(layer.layerName) for layer in present}:
            _log.warning("VKJIT_VALIDATE is set, but %s isn't installed: nothing is validated", VALIDATION_LAYER)
            return []
        self.validating = True
        return [VALIDATION_LAYER]

    def _extensions(self) -> list[str]:
        vulkan = self.vulkan
        call = vulkan.functions.vkEnumerateInstanceExtensionProperties
        present = {vulkan.string(e.extensionName) for e in vulkan.enumerate("VkExtensionProperties", call, vulkan.null)}
        if self.validating:
            layer = vulkan.text(VALIDATION_LAYER)
            present |= {vulkan.string(e.extensionName) for e in vulkan.enumerate("VkExtensionProperties", call, layer)}
        wanted = [_PORTABILITY, *([_DEBUG_UTILS, _FEATURES] if self.validating else [])]
        return [name for name in wanted if name in present]

    def _listen(self) -> Handle:
        """Register a callback that collects and logs the layer's warnings and errors."""
        vulkan = self.vulkan
        signature = (
            "VkBool32(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,"
            " const VkDebugUtilsMessengerCallbackDataEXT *, void *)"
        )

        def receive(severity: int, _kind: int, data: Any, _user: Any) -> int:
            text = vulkan.string(data.pMessage)
            _messages.append(text)
            _append(os.environ.get("VKJIT_VALIDATE_LOG"), text)
            _log.log(logging.ERROR if severity >= 0x1000 else logging.WARNING, "%s", text)
            return 0

        self._callback = vulkan.ffi.callback(signature, receive)
        info = vulkan.struct(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=0x1100,  # warnings and errors
            messageType=0x7,  # general, validation, performance
            pfnUserCallback=self._callback,
        )
        out = vulkan.ffi.new("VkDebugUtilsMessengerEXT *")
        call = self.functions.vkCreateDebugUtilsMessengerEXT
        vulkan.check(call(self.handle, info, vulkan.null, out), "vkCreateDebugUtilsMessengerEXT")
        destroy, instance = self.functions.vkDestroyDebugUtilsMessengerEXT, self.handle
        return Handle("debug messenger", out[0], lambda handle: destroy(instance, handle, vulkan.null))


def _append(path: str | None, text: str) -> None:
    """Append a message to the log file, which several validating processes may share."""
    if not path:
        return
    line = json.dumps({"process": os.getpid(), "program": sys.argv[:1], "message": text})
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


_lock = new_lock()  # reentrant: signal handlers may open devices
_instances: list[Instance] = []
_inherited = False


def get_instance() -> Instance:
    """Return the process's instance.

    Raises DriverNotFoundError without a driver, DeviceError in a forked child whose parent had an instance.
    """
    if _inherited:
        raise DeviceError(
            "Vulkan was in use before this process was forked, and drivers don't survive a fork: "
            "start processes with multiprocessing's 'spawn' method, or use devices only after the fork"
        )
    with _lock:
        if not _instances:
            _instances.append(Instance())
        return _instances[0]


def _forget() -> None:
    global _inherited
    _inherited = _inherited or bool(_instances)


on_fork(_forget)
