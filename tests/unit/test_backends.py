"""The table of back ends and what reads it: enumeration, selection, opening, and the code generator of a kind of device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit import errors
from vkjit.api.inspection import guess_signature
from vkjit.backends.codegen.ir_artifact import ir_artifact
from vkjit.backends.selection import Devices
from vkjit.backends.table import BACKENDS, Backend, Target, target_of
from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.caps import KINDS
from vkjit.compiler import driver
from vkjit.frontend import ArrayArg
from vkjit.ir.core import Module
from vkjit.launch.plan import LaunchPlan
from vkjit.runtime.array import DeviceArray
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import Buffer, Device, DeviceCaps, LoadedKernel
from vkjit.runtime.device_info import DeviceInfo
from vkjit.runtime.meta import meta_device
from vkjit.runtime.observers import LaunchFields

VULKAN, CPU, INTERPRETER, META = BACKENDS


# -- a kind of device of the least size, with a code generator that takes one kernel: y[i] = x[i] + x[i]

STUB_CAPS = DeviceCaps(
    kind="stub",
    subgroup_sizes=(1,),
    max_invocations=256,
    max_local_size=(256, 1, 1),
    max_groups=(65535, 1, 1),
    shared_bytes=0,
    push_constant_bytes=256,
    dtypes=frozenset({"f32", "i32", "i64"}),
    features=frozenset({"int64"}),
)


class StubBuffer(Buffer):
    def __init__(self, device: StubDevice, nbytes: int) -> None:
        self.device, self.nbytes, self.data = device, nbytes, np.zeros(nbytes, np.uint8)
        self.address = int(self.data.ctypes.data)

    def close(self) -> None:
        self.data = np.zeros(0, np.uint8)


class StubKernel(LoadedKernel):
    def __init__(self, artifact: KernelArtifact) -> None:
        self.artifact = artifact


class StubDevice(Device):
    """Runs launches at once: `launch` is complete when it returns."""

    def __init__(self, info: DeviceInfo) -> None:
        self.name, self.caps, self.index = info.name, STUB_CAPS, info.index

    def allocate(self, nbytes: int) -> Buffer:
        return StubBuffer(self, nbytes)

    def write(self, buffer: Any, offset: int, data: npt.NDArray[np.uint8]) -> None:
        buffer.data[offset : offset + len(data)] = data

    def read(self, buffer: Any, offset: int, out: npt.NDArray[np.uint8]) -> None:
        out[:] = buffer.data[offset : offset + len(out)]

    def copy(self, source: Any, source_offset: int, target: Any, target_offset: int, nbytes: int) -> None:
        self.write(target, target_offset, source.data[source_offset : source_offset + nbytes])

    def fill(self, buffer: Any, offset: int, nbytes: int, pattern: int) -> None:
        buffer.data[offset : offset + nbytes].view(np.uint32)[:] = pattern

    def load(self, artifact: KernelArtifact) -> LoadedKernel:
        return StubKernel(artifact)

    def launch(self, request: LaunchFields) -> None:
        kernel, _, _, reads, writes, _ = request
        run: Callable[[Any, Any], None] = kernel.artifact.code
        run(*reads, *writes)

    def synchronize(self) -> None: ...

    def close(self) -> None: ...

    @property
    def report_address(self) -> int:
        return 0

    def memory_stats(self) -> dict[str, int]:
        return {"allocated": 0, "reserved": 0, "peak": 0, "count": 0}

    def reset_peak_memory(self) -> None: ...


def emit_stub(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """Compile a kernel that doubles its first array: "generated code" is a Python function of the buffers."""
    ops = [op.name for op in module.kernel.body.walk()]
    if ops.count("add") != 1 or ops.count("store") != 1:
        raise errors.FeatureError(f"kernel {module.kernel.name}: the stub only doubles arrays, found {', '.join(ops)}")

    def run(x: StubBuffer, y: StubBuffer) -> None:
        y.data.view(np.float32)[:] = x.data.view(np.float32) * 2

    return replace(ir_artifact(module, caps), code=run)


def stub(name: str = "stub", kind: str = "stub", **fields: Any) -> Backend:
    return Backend(
        name,
        ranks={kind: 9},
        target=Target(emit_stub, cached=False),
        devices=lambda: [DeviceInfo(-1, name, kind, driver="test", caps=STUB_CAPS)],
        **{"open": StubDevice, **fields},
    )


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + x[i]


@pytest.fixture(autouse=True)
def no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VKJIT_DEVICE", raising=False)


def test_a_kind_of_device_is_a_row() -> None:
    table = (*BACKENDS, stub())
    devices = Devices(table)
    assert [info.name for info in devices.devices()] == [*(info.name for info in vk.devices()), "stub"]
    device = devices.open("stub")
    assert isinstance(device, StubDevice) and device.index == len(devices.devices()) - 1
    assert devices.open(device.index) is device and devices.open("STU") is device
    assert devices.open().name != "stub", "it has the last rank"

    spec = double.expanded_spec
    signature = guess_signature(double, STUB_CAPS, {}, (64,))
    plan = LaunchPlan(device, driver.compile_kernel(spec, signature, STUB_CAPS, backends=table))
    x, y = (DeviceArray(device.allocate(4 * 64), 0, vk.f32, (64,), (1,)) for _ in range(2))
    device.write(x.buffer, 0, np.arange(64, dtype=np.float32).view(np.uint8))
    plan.launch((1, 1, 1), [x, y])
    device.synchronize()
    out = np.empty(4 * 64, np.uint8)
    device.read(y.buffer, 0, out)
    assert np.array_equal(out.view(np.float32), 2 * np.arange(64))
    assert all(isinstance(argument, ArrayArg) for argument in signature.args)


def test_a_row_in_front_of_others_renumbers_their_devices() -> None:
    before, devices = vk.devices(), Devices((stub(), *BACKENDS))
    assert [replace(info, index=info.index - 1) for info in devices.devices()[1:]] == before
    usable = [info for info in devices.devices() if not info.missing]
    assert [devices.open(info.index).index for info in usable] == [info.index for info in usable]


def test_the_code_generator_follows_from_the_kind() -> None:
    for kind, backend in {"discrete": VULKAN, "cpu": VULKAN, "llvm-cpu": CPU, "interpreter": INTERPRETER}.items():
        assert target_of(replace(STUB_CAPS, kind=kind)) is backend.target
    with pytest.raises(errors.InternalError, match=r"no back end compiles for devices of kind 'stub'.*`ranks`"):
        target_of(STUB_CAPS)
    mine = stub()
    assert target_of(STUB_CAPS, (*BACKENDS, mine)) is mine.target


def test_names_and_kinds_are_unique() -> None:
    assert len({backend.name for backend in BACKENDS}) == len(BACKENDS)
    kinds = [kind for backend in BACKENDS for kind in backend.ranks]
    assert len(set(kinds)) == len(kinds)
    assert set(KINDS) == set(VULKAN.ranks) and all(info.kind in kinds for info in vk.devices())


def test_an_unavailable_back_end_has_no_devices_and_is_not_asked_for_any() -> None:
    def fail() -> Any:
        raise AssertionError("asked")

    here = stub("here", unavailable=lambda: None)
    away = replace(stub("away", unavailable=lambda: errors.FeatureError("not here")), devices=fail)
    devices = Devices((away, here))
    assert [(info.index, info.name) for info in devices.devices()] == [(0, "here")]
    with pytest.raises(errors.DeviceNotFoundError, match=r"(?s)no device 'away', asked for.*0: here \(stub\)$"):
        devices.open("away")


def test_an_unlisted_device_is_opened_by_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vk.device("meta") is meta_device() and "meta" not in [info.name for info in vk.devices()]
    for other in ("Meta", "met"):
        with pytest.raises(errors.DeviceNotFoundError):
            vk.device(other)
    monkeypatch.setenv("VKJIT_DEVICE", "meta")
    with pytest.raises(errors.DeviceNotFoundError, match="named by VKJIT_DEVICE"):
        Devices(BACKENDS).open()


def test_a_closed_device_is_opened_again() -> None:
    devices = Devices((INTERPRETER,))
    first = devices.open()
    assert devices.open("interpreter") is first
    first.close()
    assert devices.open() is not first


# -- without a driver


@pytest.fixture
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a process in which no driver is found."""

    def fail() -> Any:
        raise errors.DriverNotFoundError("no driver here")

    monkeypatch.setattr(enumeration, "get_instance", fail)
    monkeypatch.setattr(enumeration, "_physical", None)
    monkeypatch.setattr(enumeration, "_driver_error", None)


@pytest.mark.usefixtures("no_driver")
def test_without_driver_and_other_kinds_opening_says_why() -> None:
    devices = Devices((VULKAN,))
    assert devices.devices() == []
    assert isinstance(devices.driver_error(), errors.DriverNotFoundError)
    with pytest.raises(errors.DriverNotFoundError, match="no driver here"):
        devices.open()


@pytest.mark.usefixtures("no_driver")
def test_other_kinds_serve_as_last_resort(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []

    def opening(info: DeviceInfo) -> Device:
        opened.append(info.index)
        return StubDevice(info)

    devices = Devices((VULKAN, stub("interpreter", "interpreter", open=opening)))
    assert [(info.index, info.name, info.kind) for info in devices.devices()] == [(0, "interpreter", "interpreter")]
    device = devices.open()
    assert devices.open("INTERP") is device
    assert devices.open(0) is device
    monkeypatch.setenv("VKJIT_DEVICE", "0")
    assert devices.open() is device
    assert opened == [0]
    monkeypatch.setenv("VKJIT_DEVICE", "radeon")
    with pytest.raises(errors.DeviceNotFoundError, match="(?s)'radeon', named by VKJIT_DEVICE.*0: interpreter"):
        devices.open()
    with pytest.raises(errors.DeviceNotFoundError, match="no driver here"):
        devices.open(5)
    for blank in ("", "  "):
        with pytest.raises(errors.DeviceNotFoundError, match=f"(?s)no device '{blank}', asked for.*0: interpreter"):
            devices.open(blank)
        monkeypatch.setenv("VKJIT_DEVICE", blank)
        assert devices.open() is device


def test_the_default_is_the_first_usable_device() -> None:
    found = [
        DeviceInfo(0, "Old GPU", "discrete", missing=("int64",)),
        DeviceInfo(1, "GeForce", "discrete"),
        DeviceInfo(2, "llvmpipe", "cpu"),
    ]
    devices = Devices((replace(VULKAN, devices=lambda: found, open=StubDevice, unavailable=lambda: None),))
    assert devices.open().index == 1
    assert devices.open("cpu").index == 2
    assert devices.open("geforce").index == 1
    assert devices.open("0").index == 0


@pytest.mark.parametrize("name", ["vulkan", "cpu", "interp"])
def test_importing_vkjit_loads_no_runtime_of_a_back_end(name: str) -> None:
    code = f"import sys, vkjit; print([m for m in sys.modules if m.startswith('vkjit.backends.{name}.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [module for module in done.stdout.split("'") if ".runtime" in module or ".codegen" in module]
