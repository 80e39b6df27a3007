"""vkjit: GPU kernels written as Python functions, compiled to SPIR-V and run on any Vulkan device.

This module defines the package's public names. The kernel language and the launch API are imported eagerly. Tensors,
layers and everything above them are imported on first use, so `import vkjit` is fast and opens no driver. The redundant
aliases (`X as X`) mark re-exports for type checkers.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .backends.selection import (
    default_device as default_device,
    device as device,
    devices as devices,
    set_default_device as set_default_device,
    synchronize as synchronize,
    use_device as use_device,
)
from .dtypes import DType as DType, Element as Element
from .errors import (
    ArgumentError as ArgumentError,
    AssumptionError as AssumptionError,
    BoundsError as BoundsError,
    CompileError as CompileError,
    DeviceError as DeviceError,
    DeviceLostError as DeviceLostError,
    DeviceNotFoundError as DeviceNotFoundError,
    DriverNotFoundError as DriverNotFoundError,
    DTypeError as DTypeError,
    FeatureError as FeatureError,
    InternalError as InternalError,
    KernelAssertionError as KernelAssertionError,
    KernelError as KernelError,
    KernelZeroDivisionError as KernelZeroDivisionError,
    LoopLimitError as LoopLimitError,
    OutOfMemoryError as OutOfMemoryError,
    ShapeError as ShapeError,
    VkjitError as VkjitError,
)
from .lang import *  # noqa: F403  # the language's names are listed in one place, lang/__init__.py
from .launch.kernel import Kernel as Kernel, func as func, kernel as kernel
from .runtime.sanitizer_reports import SanitizerError as SanitizerError, SanitizerReport as SanitizerReport

if TYPE_CHECKING:
    from ._checked_types import (
        bf16 as bf16,
        boolean as boolean,
        f16 as f16,
        f32 as f32,
        f64 as f64,
        i8 as i8,
        i16 as i16,
        i32 as i32,
        i64 as i64,
        index as index,
        u8 as u8,
        u16 as u16,
        u32 as u32,
        u64 as u64,
    )
else:
    from .dtypes import bf16, boolean, f16, f32, f64, i8, i16, i32, i64, index, u8, u16, u32, u64

__version__ = "0.1.0"

_MODULES = ("array_api", "autograd", "data", "io", "linalg", "nn", "optim", "special", "stdlib", "tensor", "testing")
"""Subpackages that are imported on first access."""

_FROM = {
    "api.check": ("check",),
    "autograd": (
        "autocast", "enable_grad", "grad", "inference_mode", "is_grad_enabled", "no_grad", "set_grad_enabled",
    ),
    "api.graphs": ("Graph", "capture"),
    "api.inspection": ("Inspection", "inspect"),
    "api.memory": (
        "empty_cache", "live_buffers", "memory_stats", "memory_summary", "pinned_empty", "reset_peak_memory_stats",
        "trace_memory",
    ),
    "api.profiling": ("Cost", "Profile", "profile"),
    "stdlib.matmul.precision": ("get_matmul_precision", "set_matmul_precision"),
    "api.streams": ("Event", "Stream", "current_stream"),
}  # fmt: skip
"""Lazily imported names, by the module that defines them."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from . import (
        array_api as array_api,
        autograd as autograd,
        data as data,
        io as io,
        linalg as linalg,
        nn as nn,
        optim as optim,
        special as special,
        stdlib as stdlib,
        testing as testing,
    )
    from .api.check import check as check
    from .api.graphs import Graph as Graph, capture as capture
    from .api.inspection import Inspection as Inspection, inspect as inspect
    from .api.memory import (
        empty_cache as empty_cache,
        live_buffers as live_buffers,
        memory_stats as memory_stats,
        memory_summary as memory_summary,
        pinned_empty as pinned_empty,
        reset_peak_memory_stats as reset_peak_memory_stats,
        trace_memory as trace_memory,
    )
    from .api.profiling import Cost as Cost, Profile as Profile, profile as profile
    from .api.streams import Event as Event, Stream as Stream, current_stream as current_stream
    from .autograd import (
        enable_grad as enable_grad,
        grad as grad,
        inference_mode as inference_mode,
        is_grad_enabled as is_grad_enabled,
        no_grad as no_grad,
        set_grad_enabled as set_grad_enabled,
    )
    from .stdlib.matmul.precision import (
        get_matmul_precision as get_matmul_precision,
        set_matmul_precision as set_matmul_precision,
    )
    from .tensor.api import *  # noqa: F403  # the names are listed in tensor/api.py
    from .tensor.autograd.autocast import autocast as autocast
    from .tensor.ops.creation import tensor as tensor  # the package `tensor` is callable and behaves as this function


def _provide_services() -> None:
    """Register the functions of upper layers that lower layers call (see `launch.extensions`).

    The module of each function is imported when the function is first called.
    """
    from .backends.vulkan.pipeline_store import Keeper, keep_with
    from .launch.extensions import provide
    from .runtime import host_compiler

    def service(module: str, name: str) -> Callable[[], Callable[..., Any]]:
        """Return a function that imports a module of this package and returns the function `name` in it."""
        return lambda: getattr(importlib.import_module(f".{module}", __name__), name)

    provide("inspect", service("api.inspection", "inspect"))
    provide("tune", service("autotune.kernels", "tune_kernel"))
    provide("tuned settings", service("autotune.kernels", "tuned_settings"))
    provide("sanitized launch", service("sanitizer.launch", "launch"))
    # This service is a function, too: it returns the module.
    provide("array namespace", lambda: lambda: importlib.import_module(".array_api", __name__))
    # Machine code of launches is compiled by the CPU back end's LLVM and kept in the same cache.
    compile_functions = service("backends.cpu", "compile_functions")
    load_code, store_code = (
        service("compiler.cache", "load_machine_code"),
        service("compiler.cache", "store_machine_code"),
    )
    host_compiler.provide(
        host_compiler.Services(
            lambda text, *names: compile_functions()(text, *names),
            lambda name: load_code()(name),
            lambda name, data: store_code()(name, data),
        )
    )
    # Drivers' pipeline caches are loaded from and stored to the compiler's disk cache.
    load_pipelines = service("compiler.cache", "load_pipelines")
    store_pipelines = service("compiler.cache", "store_pipelines")
    keep_with(Keeper(lambda name: load_pipelines()(name), lambda name, data: store_pipelines()(name, data)))


_provide_services()


def __getattr__(name: str) -> Any:
    """Import a public name on first access: a subpackage, a name in `_FROM`, or one of `tensor.api`."""
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name.startswith("__"):  # Python and its tools look such names up; don't import the tensor modules for them
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for module, names in _FROM.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    api = importlib.import_module(".tensor.api", __name__)
    if "__all__" not in vars(api):  # this thread is still importing it
        raise VkjitError(
            f"vkjit.{name} isn't there yet: a signal handler has interrupted the import of vkjit's tensors; use one before "
            "installing the handler"
        )
    if name in api.__all__:
        value = getattr(api, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, those that are imported on first access included."""
    api = importlib.import_module(".tensor.api", __name__)
    unlisted = {"Any", "ModuleType", "TYPE_CHECKING", "annotations"}
    here = {name for name, value in globals().items() if not isinstance(value, ModuleType) and name not in unlisted}
    lazy = {name for names in _FROM.values() for name in names}
    return sorted({name for name in here if not name.startswith("_")} | lazy | {*_MODULES, *api.__all__, "__version__"})
