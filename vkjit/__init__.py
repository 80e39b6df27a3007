"""vkjit: GPU kernels written as Python functions, compiled to SPIR-V and run on any Vulkan device.

The package's public names. The kernel language and the launch API are imported eagerly. Tensors, layers and everything
above them load on first use, so `import vkjit` is fast and opens no driver. The redundant aliases (`X as X`) mark
re-exports for type checkers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .devices import (
    default_device as default_device,
)
from .devices import (
    device as device,
)
from .devices import (
    devices as devices,
)
from .devices import (
    set_default_device as set_default_device,
)
from .devices import (
    synchronize as synchronize,
)
from .devices import (
    use_device as use_device,
)
from .dtypes import (
    DType as DType,
)
from .dtypes import (
    Element as Element,
)
from .dtypes import (
    bf16 as bf16,
)
from .dtypes import (
    boolean as boolean,
)
from .dtypes import (
    f16 as f16,
)
from .dtypes import (
    f32 as f32,
)
from .dtypes import (
    f64 as f64,
)
from .dtypes import (
    i8 as i8,
)
from .dtypes import (
    i16 as i16,
)
from .dtypes import (
    i32 as i32,
)
from .dtypes import (
    i64 as i64,
)
from .dtypes import (
    index as index,
)
from .dtypes import (
    u8 as u8,
)
from .dtypes import (
    u16 as u16,
)
from .dtypes import (
    u32 as u32,
)
from .dtypes import (
    u64 as u64,
)
from .errors import (
    ArgumentError as ArgumentError,
)
from .errors import (
    AssumptionError as AssumptionError,
)
from .errors import (
    BoundsError as BoundsError,
)
from .errors import (
    CompileError as CompileError,
)
from .errors import (
    DeviceError as DeviceError,
)
from .errors import (
    DeviceLostError as DeviceLostError,
)
from .errors import (
    DeviceNotFoundError as DeviceNotFoundError,
)
from .errors import (
    DriverNotFoundError as DriverNotFoundError,
)
from .errors import (
    DTypeError as DTypeError,
)
from .errors import (
    FeatureError as FeatureError,
)
from .errors import (
    InternalError as InternalError,
)
from .errors import (
    KernelAssertionError as KernelAssertionError,
)
from .errors import (
    KernelError as KernelError,
)
from .errors import (
    KernelZeroDivisionError as KernelZeroDivisionError,
)
from .errors import (
    LoopLimitError as LoopLimitError,
)
from .errors import (
    OutOfMemoryError as OutOfMemoryError,
)
from .errors import (
    ShapeError as ShapeError,
)
from .errors import (
    VkjitError as VkjitError,
)
from .findings import (
    SanitizerError as SanitizerError,
)
from .findings import (
    SanitizerReport as SanitizerReport,
)
from .jit import (
    Kernel as Kernel,
)
from .jit import (
    func as func,
)
from .jit import (
    kernel as kernel,
)
from .lang import *  # noqa: F403  # the language's names are listed in lang/__init__.py

__version__ = "0.1.0"

_MODULES = ("array_api", "autograd", "data", "io", "linalg", "nn", "optim", "special", "stdlib", "tensor", "testing")
_FROM = {
    "checking": ("check",),
    "autograd": (
        "autocast", "enable_grad", "grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled",
    ),
    "graphs": ("Graph", "capture"),
    "inspection": ("Inspection", "inspect"),
    "memory": (
        "empty_cache", "live_buffers", "memory_stats", "memory_summary", "pinned_empty", "reset_peak_memory_stats",
        "trace_memory",
    ),
    "profiling": ("Cost", "Profile", "profile"),
    "stdlib.matmul_precision": ("get_matmul_precision", "set_matmul_precision"),
    "streams": ("Event", "Stream", "current_stream"),
}  # fmt: skip
"""Lazily imported names, by the module that defines them."""

if TYPE_CHECKING:
    from . import array_api as array_api
    from . import autograd as autograd
    from . import data as data
    from . import io as io
    from . import linalg as linalg
    from . import nn as nn
    from . import optim as optim
    from . import special as special
    from . import stdlib as stdlib
    from . import testing as testing
    from .autograd import (
        enable_grad as enable_grad,
    )
    from .autograd import (
        grad as grad,
    )
    from .autograd import (
        inference_mode as inference_mode,
    )
    from .autograd import (
        is_grad_enabled as is_grad_enabled,
    )
    from .autograd import (
        no_grad as no_grad,
    )
    from .autograd import (
        set_grad_enabled as set_grad_enabled,
    )
    from .autograd.autocast import (
        autocast as autocast,
    )
    from .checking import (
        check as check,
    )
    from .graphs import (
        Graph as Graph,
    )
    from .graphs import (
        capture as capture,
    )
    from .inspection import (
        Inspection as Inspection,
    )
    from .inspection import (
        inspect as inspect,
    )
    from .memory import (
        empty_cache as empty_cache,
    )
    from .memory import (
        live_buffers as live_buffers,
    )
    from .memory import (
        memory_stats as memory_stats,
    )
    from .memory import (
        memory_summary as memory_summary,
    )
    from .memory import (
        pinned_empty as pinned_empty,
    )
    from .memory import (
        reset_peak_memory_stats as reset_peak_memory_stats,
    )
    from .memory import (
        trace_memory as trace_memory,
    )
    from .profiling import (
        Cost as Cost,
    )
    from .profiling import (
        Profile as Profile,
    )
    from .profiling import (
        profile as profile,
    )
    from .stdlib.matmul_precision import (
        get_matmul_precision as get_matmul_precision,
    )
    from .stdlib.matmul_precision import (
        set_matmul_precision as set_matmul_precision,
    )
    from .streams import (
        Event as Event,
    )
    from .streams import (
        Stream as Stream,
    )
    from .streams import (
        current_stream as current_stream,
    )
    from .tensor.api import *  # noqa: F403  # the names are listed in tensor/api.py
    from .tensor.creation import tensor as tensor  # the package `tensor` is callable and behaves as this function


def __getattr__(name: str) -> Any:
    """Import the tensor layer and the packages above it on first access to one of their names."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module, names in _FROM.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    api = importlib.import_module(".tensor.api", __name__)
    if name in api.__all__:
        value = getattr(api, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
