"""Memory and order shared with CUDA, for libraries that run on CUDA devices (see `vkjit.interop`)."""

from __future__ import annotations

from vkjit.runtime.device import Device

from .runtime.cuda.driver import driver
from .runtime.cuda.share import CudaShare, Loan

__all__ = ["CudaShare", "Loan", "gpu_uuid", "share_of"]


def gpu_uuid(ordinal: int) -> str:
    """Return the UUID of a CUDA device, as in `DeviceInfo`. Raises FeatureError if CUDA isn't available."""
    return driver().uuid_of(ordinal).hex()


def share_of(device: Device) -> CudaShare | None:
    """Return a Vulkan device's connection to CUDA, None for other devices. Raises FeatureError if there is no CUDA."""
    from .runtime.device import VulkanDevice  # many modules, which `import vkjit` needn't load

    return device.cuda if isinstance(device, VulkanDevice) else None
