"""The table of back ends and what reads it: enumeration, selection, opening, and the code generator of a kind of device."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vkjit as vk
from vkjit import errors
from vkjit.api.inspection import guess_signature
from vkjit.backends.codegen.ir_artifact import ir_artifact
from vkjit.backends.host import HostBuffer, ImmediateDevice, bytes_at
from vkjit.backends.interp import InterpreterKernel
from vkjit.backends.selection import Devices
from vkjit.backends.table import BACKENDS, Backend, Target, target_of
from vkjit.backends.vulkan.runtime import enumeration
from vkjit.backends.vulkan.runtime.caps import KINDS
from vkjit.compiler import driver
from vkjit.ir.core import Module
from vkjit.launch.plan import LaunchPlan
from vkjit.runtime import memory_ledger
from vkjit.runtime.array import DeviceArray
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import Device, DeviceCaps, LoadedKernel
from vkjit.runtime.device_info import DeviceInfo
from vkjit.runtime.meta import meta_device

VULKAN, CPU, INTERPRETER = (
    next(backend for backend in BACKENDS if backend.name == name) for name in ("vulkan", "cpu", "interpreter")
)


# -- a kind of device of the least size, with a code generator that takes one kernel: y[i] = x[i] + x[i]

SAMPLE_CAPS = DeviceCaps(
    kind="least",
    subgroup_sizes=(4,),
    max_invocations=256,
    max_local_size=(256, 1, 1),
    max_groups=(65535, 1, 1),
    shared_bytes=0,
    push_constant_bytes=256,
    dtypes=frozenset({"f32", "i32", "i64"}),
    features=frozenset({"int64"}),
)


class Doubling(LoadedKernel):
    """A kernel whose "machine code" is a Python function of arrays."""

    def __init__(self, artifact: KernelArtifact) -> None:
        self.artifact = artifact

    def run(self, groups: tuple[int, int, int], block: bytes, find: Any) -> tuple[list[str], errors.KernelError | None]:
        """Run the workgroups; return the printed text and the first error."""
        arrays = []
        for field in self.artifact.fields:
            if field.role == "address":
                data, offset = find(int.from_bytes(block[field.offset : field.offset + field.size], "little"))
                arrays.append(data[offset:].view(np.float32))
        self.artifact.code(*arrays)
        return [], None


class LeastDevice(ImmediateDevice):
    """Runs kernels by an executor, which the row of the table may pass to it."""

    def __init__(self, info: DeviceInfo, executor: Callable[[KernelArtifact], LoadedKernel] = Doubling) -> None:
        super().__init__(info.name, SAMPLE_CAPS, info.index)
        self._executor = executor

    def load(self, artifact: KernelArtifact) -> LoadedKernel:
        self.check_open()
        return self._executor(artifact)

    def run(self, kernel: Any, groups: tuple[int, int, int], block: bytes, buffers: Sequence[HostBuffer]) -> None:
        self.note(*kernel.run(groups, block, partial(bytes_at, buffers)))


def emit_least(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """Compile a kernel that doubles its first array."""
    ops = [op.name for op in module.kernel.body.walk()]
    if ops.count("add") != 1 or ops.count("store") != 1:
        raise errors.FeatureError(f"kernel {module.kernel.name}: only doubles arrays, found {', '.join(ops)}")

    def run(x: npt.NDArray[np.float32], y: npt.NDArray[np.float32]) -> None:
        y[:] = x * 2

    return replace(ir_artifact(module, caps), code=run)


def least(name: str = "least", kind: str = "least", **fields: Any) -> Backend:
    return Backend(
        name,
        ranks={kind: 9},
        **{
            "devices": lambda: [DeviceInfo(-1, name, kind, driver="test", caps=SAMPLE_CAPS)],
            "open": LeastDevice,
            "target": Target(emit_least, cached=False),
            **fields,
        },
    )


def interpreting() -> Backend:
    """A row that passes the interpreter to its device."""
    return least(open=lambda info: LeastDevice(info, InterpreterKernel.load), target=Target(ir_artifact, cached=False))


def planned(kernel: Any, device: Device, row: Backend) -> LaunchPlan:
    signature = guess_signature(kernel, SAMPLE_CAPS, {}, (64,))
    return LaunchPlan(device, driver.compile_kernel(kernel.expanded_spec, signature, SAMPLE_CAPS, backends=(row,)))


@vk.kernel(over="y")
def double(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + x[i]


@pytest.fixture(autouse=True)
def no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VKJIT_DEVICE", raising=False)


@vk.kernel(over="y", debug=True)
def tells(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i == 1:
        print("here")
        y[i + 1000] = x[i]


def array(device: Device) -> DeviceArray:
    return DeviceArray(device.allocate(4 * 64), 0, vk.f32, (64,), (1,))


@pytest.mark.parametrize("row", [least(), interpreting()], ids=["code of its own", "interpreted"])
def test_a_kind_of_device_is_a_row(row: Backend) -> None:
    devices = Devices((*BACKENDS, row))
    assert [info.name for info in devices.devices()] == [*(info.name for info in vk.devices()), "least"]
    device = devices.open("least")
    assert isinstance(device, LeastDevice) and device.index == len(devices.devices()) - 1
    assert devices.open(device.index) is device and devices.open("LEA") is device
    assert devices.open().name != "least", "it has the last rank"

    x, y = array(device), array(device)
    device.write(x.buffer, 0, np.arange(64, dtype=np.float32).view(np.uint8))
    planned(double, device, row).launch((1, 1, 1), [x, y])
    device.synchronize()
    out = np.empty(4 * 64, np.uint8)
    device.read(y.buffer, 0, out)
    assert np.array_equal(out.view(np.float32), 2 * np.arange(64))


def test_what_kernels_print_and_report_surfaces(capsys: pytest.CaptureFixture[str]) -> None:
    device, row = LeastDevice(least().devices()[0], InterpreterKernel.load), interpreting()
    planned(tells, device, row).launch((1, 1, 1), [array(device), array(device)])
    assert capsys.readouterr().out == ""
    with pytest.raises(errors.BoundsError):
        device.synchronize()
    device.synchronize()
    assert capsys.readouterr().out == "here\n"


def test_the_base_class_has_the_duties_of_a_device() -> None:
    device = LeastDevice(least().devices()[0])
    plan, arrays = planned(double, device, least()), [array(device), array(device)]
    assert all(x.layout is not None for x in arrays), "calls with them are cached"
    assert device.memory_stats() == {"allocated": 512, "reserved": 512, "peak": 512, "count": 2}
    memory_ledger.trace()
    try:
        traced = device.allocate(12)
        assert [row.made for row in memory_ledger.live_buffers(device) if row.nbytes == 12][0].startswith(__file__)
    finally:
        memory_ledger.trace(False)
    traced.close()
    traced.close()
    assert device.memory_stats()["count"] == 2
    with pytest.raises(errors.OutOfMemoryError, match="no memory for a buffer of"):
        device.allocate(1 << 62)
    device.stream, first = device.open_stream(copies=True), device.stream
    with pytest.raises(errors.ArgumentError, match="stream for copies"):
        plan.launch((1, 1, 1), arrays)
    device.stream = first
    with pytest.raises(errors.DeviceError, match="another device"):
        plan.launch((1, 1, 1), [arrays[0], array(LeastDevice(least().devices()[0]))])
    arrays[0].buffer.close()
    with pytest.raises(errors.DeviceError, match="buffer was closed"):
        plan.launch((1, 1, 1), arrays)
    with pytest.raises(errors.DeviceError, match="buffer was closed"):
        device.host_view(arrays[0].buffer)
    device.close()
    again: Callable[[], Any] = lambda: plan.launch((1, 1, 1), arrays)
    make: Callable[[], Any] = lambda: device.allocate(4)
    for call in (again, make, device.synchronize):
        with pytest.raises(errors.DeviceError, match="device least was closed: open it again"):
            call()
    assert device.closed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", ["interpreter", "cpu"])
def test_a_child_of_a_fork_has_nothing_to_tell(name: str, tmp_path: Path) -> None:
    if name not in [info.name for info in vk.devices()]:
        pytest.skip(f"no device {name}")
    script = tmp_path / "forked.py"
    script.write_text(
        "import os, sys, numpy as np, vkjit as vk\n"
        "@vk.kernel(groups=1, local=1, debug=True)\n"
        "def tells(x: vk.InOut[vk.i32, 'N']):\n"
        "    print('here')\n"
        "    x[vk.global_id(0) + 5] = 1\n"
        "x = vk.zeros(3, dtype=vk.i32)\n"
        "tells(x)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    x.device.synchronize()\n"
        "    sys.stdout.flush()\n"
        "    os._exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "try:\n"
        "    x.device.synchronize()\n"
        "except vk.BoundsError:\n"
        "    print('reported')\n"
    )
    command = [sys.executable, "-W", "ignore", str(script)]
    environment = {**os.environ, "VKJIT_DEVICE": name}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.stderr) == ("7\nhere\nreported\n", "")


def test_devices_with_the_same_name_are_told_apart() -> None:
    infos = [DeviceInfo(-1, "twin", "least", uuid=uuid, caps=SAMPLE_CAPS) for uuid in ("1", "2")]
    devices = Devices((least(devices=lambda: infos),))
    first, second = devices.open(0), devices.open(1)
    assert (str(first), str(second), repr(second)) == ("twin", "twin:1", "<device 1: twin:1>")
    assert [devices.open(spec) for spec in ("twin", "TWIN:1", "least")] == [first, second, first]
    with pytest.raises(errors.DeviceNotFoundError, match="no device 'twin:2'"):
        devices.open("twin:2")


def test_devices_are_printed_with_a_line_each() -> None:
    lines = str(vk.devices()).splitlines()
    assert len(lines) == len(vk.devices()) and max(map(len, lines)) < 120
    for number, (line, info) in enumerate(zip(lines, vk.devices(), strict=True)):
        assert f"<device {number}: {info.name}, {info.kind}" in line
        if not info.missing:
            assert vk.device(str(vk.device(info))) is vk.device(info)


def test_a_row_in_front_of_others_renumbers_their_devices() -> None:
    before, devices = vk.devices(), Devices((least(), *BACKENDS))
    assert [replace(info, index=info.index - 1) for info in devices.devices()[1:]] == before
    usable = [info for info in devices.devices() if not info.missing]
    assert [devices.open(info.index).index for info in usable] == [info.index for info in usable]


def test_the_code_generator_follows_from_the_kind() -> None:
    for kind, backend in {"discrete": VULKAN, "cpu": VULKAN, "llvm-cpu": CPU, "interpreter": INTERPRETER}.items():
        assert target_of(replace(SAMPLE_CAPS, kind=kind)) is backend.target
    with pytest.raises(errors.InternalError, match=r"no back end compiles for devices of kind 'least'.*`ranks`"):
        target_of(SAMPLE_CAPS)
    mine = least()
    assert target_of(SAMPLE_CAPS, (*BACKENDS, mine)) is mine.target


def test_names_and_kinds_are_unique() -> None:
    assert len({backend.name for backend in BACKENDS}) == len(BACKENDS)
    kinds = [kind for backend in BACKENDS for kind in backend.ranks]
    assert len(set(kinds)) == len(kinds)
    assert set(KINDS) == set(VULKAN.ranks) and all(info.kind in kinds for info in vk.devices())


def test_an_unavailable_back_end_has_no_devices_and_is_not_asked_for_any() -> None:
    def fail() -> Any:
        raise AssertionError("asked")

    here = least("here", unavailable=lambda: None)
    away = replace(least("away", unavailable=lambda: errors.FeatureError("not here")), devices=fail)
    devices = Devices((away, here))
    assert [(info.index, info.name) for info in devices.devices()] == [(0, "here")]
    with pytest.raises(errors.DeviceNotFoundError, match=r"(?s)no device 'away', asked for.*0: here \(least\)$"):
        devices.open("away")


def test_an_unlisted_device_is_opened_by_its_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert vk.device("meta") is meta_device() and "meta" not in [info.name for info in vk.devices()]
    for other in ("Meta", "met"):
        with pytest.raises(errors.DeviceNotFoundError):
            vk.device(other)
    monkeypatch.setenv("VKJIT_DEVICE", "meta")
    with pytest.raises(errors.DeviceNotFoundError, match="named by VKJIT_DEVICE"):
        Devices(BACKENDS).open()


def test_an_unlisted_device_is_opened_once() -> None:
    devices = Devices((least(listed=False),))
    first = devices.open("least")
    assert devices.open("least") is first and devices.devices() == []
    first.close()
    assert devices.open("least") is not first


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
        return LeastDevice(info)

    devices = Devices((VULKAN, least("interpreter", "interpreter", open=opening)))
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
    devices = Devices((replace(VULKAN, devices=lambda: found, open=LeastDevice, unavailable=lambda: None),))
    assert devices.open().index == 1
    assert devices.open("cpu").index == 2
    assert devices.open("geforce").index == 1
    assert devices.open("0").index == 0


@pytest.mark.parametrize("name", ["vulkan", "cpu", "interp"])
def test_importing_vkjit_loads_no_runtime_of_a_back_end(name: str) -> None:
    code = f"import sys, vkjit; print([m for m in sys.modules if m.startswith('vkjit.backends.{name}.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [module for module in done.stdout.split("'") if ".runtime" in module or ".codegen" in module]


@pytest.mark.parametrize("name", ["interpreter", "cpu", "meta", None])
def test_all_kinds_of_device_flush(name: str | None) -> None:
    device = vk.device(name)
    x = vk.ones(3, device=device)
    device.flush()
    assert name == "meta" or (x + 1).tolist() == [2, 2, 2]
