"""The table of back ends: which kinds of devices there are, how each is opened, and which code generator compiles for it.

Device selection (`selection`) and the compilation driver read this table; nothing is registered elsewhere. The functions
of a row import the back end when they are called, so no driver and no compiler is loaded before a device is requested.
To add a kind of device, see CONTRIBUTING.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import DeviceError, DeviceNotFoundError, InternalError
from ..runtime.device import Device, DeviceCaps
from ..runtime.device_info import DeviceInfo

if TYPE_CHECKING:
    from ..ir.core import Module
    from ..runtime.artifact import KernelArtifact
    from .codegen.listing import Listing

__all__ = ["BACKENDS", "Backend", "Target", "backend_of", "target_of"]


@dataclass(frozen=True, slots=True)
class Target:
    """A code generator, and what the compilation driver needs to know about its code.

    `emit` compiles a lowered module; `listings` returns the code as text. `spirv` is True if the code is SPIR-V, and
    `cached` if it can be stored in the disk cache. `sources` are folders of the package whose files affect the code,
    in addition to those of `compiler.cache.COMPILER`.
    """

    emit: Callable[[Module, DeviceCaps], KernelArtifact]
    listings: Callable[[Module, DeviceCaps, KernelArtifact], Sequence[Listing]] = lambda *_: ()
    spirv: bool = False
    cached: bool = True
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backend:
    """A row of the table: a code generator and the devices that run its code.

    `ranks` has the values of `DeviceCaps.kind` of its devices; the default device is the one whose kind has the lowest
    rank. `unavailable` returns None if the back end can be used here, else an error that says why not and what to do.
    `devices` is called only if it returned None; it may leave the `index` of its descriptions at -1, since
    `vk.devices()` numbers them across all back ends. `open` opens a device, given its description with that number.
    Devices that aren't `listed` are left out of `vk.devices()` and opened only by the exact name of the back end, with
    the description as `devices` returns it.
    """

    name: str
    ranks: Mapping[str, int]
    target: Target
    devices: Callable[[], list[DeviceInfo]]
    open: Callable[[DeviceInfo], Device]
    unavailable: Callable[[], DeviceError | None] = lambda: None
    listed: bool = True


# -- Vulkan


def _emit_spirv(module: Module, caps: DeviceCaps) -> KernelArtifact:
    from .vulkan.codegen import emit

    return emit(module, caps)


def _list_spirv(module: Module, caps: DeviceCaps, artifact: KernelArtifact) -> Sequence[Listing]:
    from .vulkan.codegen.listing import listings

    return listings(module, caps, artifact)


def _vulkan_devices() -> list[DeviceInfo]:
    from .vulkan.runtime import enumeration

    return enumeration.devices()


def _open_vulkan(info: DeviceInfo) -> Device:
    from .vulkan.runtime import enumeration

    return enumeration.open_device(info)


def _driver_error() -> DeviceError | None:
    from .vulkan.runtime import enumeration

    return enumeration.driver_error()


# -- CPU, through LLVM


def _emit_object_code(module: Module, caps: DeviceCaps) -> KernelArtifact:
    from .cpu.codegen.lower import emit

    return emit(module, caps)


def _list_llvm(module: Module, caps: DeviceCaps, artifact: KernelArtifact) -> Sequence[Listing]:
    from .cpu.codegen.listing import listings

    return listings(module, caps, artifact)


def _open_cpu(info: DeviceInfo) -> Device:
    from .cpu.runtime.device import CpuDevice

    return CpuDevice(info.index)


def _llvm_error() -> DeviceError | None:
    from . import cpu

    return DeviceNotFoundError(cpu.obstacle()) if cpu.obstacle() else None


# -- interpreter


def _emit_ir(module: Module, caps: DeviceCaps) -> KernelArtifact:
    from .codegen.ir_artifact import ir_artifact

    return ir_artifact(module, caps)


def _interpreters() -> list[DeviceInfo]:
    from .interp import INTERPRETER_CAPS

    return [DeviceInfo(-1, "interpreter", "interpreter", driver="vkjit", caps=INTERPRETER_CAPS)]


def _open_interpreter(info: DeviceInfo) -> Device:
    from .interp import InterpreterDevice

    return InterpreterDevice(info.index)


# -- meta


def _open_meta(_info: DeviceInfo) -> Device:
    from ..runtime.meta import meta_device

    return meta_device()


_SPIRV = Target(_emit_spirv, _list_spirv, spirv=True)

BACKENDS: tuple[Backend, ...] = (
    Backend(
        "vulkan",
        ranks={"discrete": 0, "integrated": 0, "virtual": 0, "cpu": 2, "other": 2},  # "cpu": a software driver
        target=_SPIRV,
        devices=_vulkan_devices,
        open=_open_vulkan,
        unavailable=_driver_error,
    ),
    Backend(
        "cpu",
        ranks={"llvm-cpu": 1},
        target=Target(_emit_object_code, _list_llvm, sources=("backends/cpu",)),
        devices=lambda: [DeviceInfo(-1, "cpu", "llvm-cpu", driver="vkjit")],
        open=_open_cpu,
        unavailable=_llvm_error,
    ),
    Backend(
        "interpreter",
        ranks={"interpreter": 3},
        target=Target(_emit_ir, cached=False),  # the disk cache can't store modules
        devices=_interpreters,
        open=_open_interpreter,
    ),
    Backend(
        "meta",
        ranks={"meta": 3},
        target=_SPIRV,  # compiled as for Vulkan; `load` then raises the error that meta tensors have no data
        devices=lambda: [DeviceInfo(-1, "meta", "meta", driver="vkjit")],
        open=_open_meta,
        listed=False,
    ),
)
"""All back ends, in the order of `vk.devices()`."""


def backend_of(kind: str, backends: Sequence[Backend] = BACKENDS) -> Backend:
    """Return the back end of a kind of device. Raises InternalError for an unknown kind."""
    for backend in backends:
        if kind in backend.ranks:
            return backend
    raise InternalError(
        f"no back end compiles for devices of kind {kind!r}: no row of backends/table.py names it in `ranks`"
    )


def target_of(caps: DeviceCaps, backends: Sequence[Backend] = BACKENDS) -> Target:
    """Return the code generator for a device with these capabilities. Raises InternalError for an unknown kind."""
    return backend_of(caps.kind, backends).target
