"""vkjit: GPU kernels as Python functions, compiled straight to SPIR-V, run on any Vulkan device.

The public names. What kernels use and what launches them is here at once; tensors, layers and the rest are loaded when they
are first asked for, so that `import vkjit` stays quick and opens no driver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .dtypes import DType, Element, bf16, boolean, f16, f32, f64, i8, i16, i32, i64, index, u8, u16, u32, u64
from .errors import (
    ArgumentError,
    BoundsError,
    CompileError,
    DeviceError,
    DeviceLostError,
    DeviceNotFoundError,
    DriverNotFoundError,
    DTypeError,
    FeatureError,
    InternalError,
    KernelAssertionError,
    KernelError,
    KernelZeroDivisionError,
    LoopLimitError,
    OutOfMemoryError,
    ShapeError,
    VkjitError,
)
from .jit import Kernel, func, kernel
from .lang import *  # noqa: F403  # the language's names are listed in one place, lang/__init__.py
from .devices import default_device, device, devices, set_default_device, synchronize, use_device

__version__ = "0.1.0"

_MODULES = ("autograd", "io", "nn", "optim", "stdlib", "tensor", "testing")
_FROM_AUTOGRAD = ("enable_grad", "grad", "is_grad_enabled", "no_grad", "set_grad_enabled")

if TYPE_CHECKING:
    from . import autograd, nn, optim, stdlib, tensor, testing
    from .autograd import enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled
    from .tensor.api import *  # noqa: F403  # as above


def __getattr__(name: str) -> Any:
    """Loads the tensor layer and the packages above it when one of their names is first used."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _FROM_AUTOGRAD:
        return getattr(importlib.import_module(".autograd", __name__), name)
    api = importlib.import_module(".tensor.api", __name__)
    if name in api.__all__:
        value = getattr(api, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
