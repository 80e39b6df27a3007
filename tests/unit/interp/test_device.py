"""Tests of the interpreter device: buffers, argument blocks, launches, reports, printing."""

from __future__ import annotations

import gc
import struct
import weakref
from typing import Any

import numpy as np
import pytest

from tests.unit.interp.kernels import kernel, run
from vkjit import dtypes
from vkjit.backends.interp.runtime.device import INTERPRETER_CAPS, InterpreterDevice
from vkjit.dtypes import DType
from vkjit.errors import (
    ArgumentError,
    BoundsError,
    DeviceError,
    FeatureError,
    InternalError,
    KernelAssertionError,
    KernelError,
    KernelZeroDivisionError,
    LoopLimitError,
)
from vkjit.ir import Module
from vkjit.runtime.artifact import ArgField, KernelArtifact
from vkjit.runtime.observers import LaunchRequest

SITES = """site 0 "assert", "{0} isn't below {1}" loc("user.py", 3, 4, 9)
site 1 "bounds", "index {0}" loc("user.py", 4, 0, 0)
site 2 "loop_limit", "too long" loc("user.py", 5, 0, 0)
site 3 "zero_division", "division by zero" loc("user.py", 6, 0, 0)
site 4 "print", "lane {0}: {1:.2f}\\n" loc("user.py", 7, 0, 0)
"""

Field = tuple[str, int, int, DType]


def artifact_of(module: Module, fields: list[Field], **rest: Any) -> KernelArtifact:
    made, offset = [], 0
    for role, arg, axis, dtype in fields:
        offset = -(-offset // dtype.itemsize) * dtype.itemsize
        made.append(ArgField(role, arg, axis, dtype, offset, dtype.itemsize))
        offset += dtype.itemsize
    return KernelArtifact(
        "k", module, "k", (64, 1, 1), tuple(made), -(-offset // 8) * 8, False, frozenset(), frozenset(),
        sites=tuple(module.sites), **rest,
    )  # fmt: skip


def pack(artifact: KernelArtifact, values: list[Any]) -> bytes:
    block = bytearray(artifact.block_size)
    for field, value in zip(artifact.fields, values, strict=True):
        block[field.offset : field.offset + field.size] = field.dtype.numpy.type(value).tobytes()
    return bytes(block)


def as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def test_buffers_hold_what_is_written() -> None:
    device = InterpreterDevice(3)
    buffer, other = device.allocate(64), device.allocate(64)
    device.fill(buffer, 0, 64, 0xDEADBEEF)
    device.write(buffer, 4, np.arange(8, dtype=np.uint8))
    device.copy(buffer, 2, other, 40, 12)
    out = np.zeros(12, np.uint8)
    device.read(other, 40, out)
    assert out.tobytes() == struct.pack("<I", 0xDEADBEEF)[2:] + bytes(range(8)) + struct.pack("<I", 0xDEADBEEF)[:2]
    device.copy(buffer, 0, buffer, 4, 60)
    device.read(buffer, 8, out)
    assert out[:8].tolist() == list(range(8))
    view = device.host_view(buffer)
    assert view is not None
    view[:4] = 7
    device.read(buffer, 0, out[:4])
    assert out[:4].tolist() == [7] * 4
    assert device.allocate(0).nbytes == 0


def test_addresses_are_unique_and_found() -> None:
    device = InterpreterDevice()
    buffers = [device.allocate(size) for size in (0, 1, 255, 256, 257, 1 << 20)]
    spans = sorted((b.address, b.address + b.nbytes) for b in buffers)
    assert all(end < start for (_, end), (start, _) in zip(spans, spans[1:], strict=False))
    assert all(b.address % 256 == 0 for b in buffers)
    data, offset = device.find(buffers[3].address + 17)
    assert data is buffers[3].data
    assert offset == 17
    gone = buffers[2].address
    del buffers[2]
    gc.collect()
    with pytest.raises(DeviceError, match="lies in no buffer"):
        device.find(gone)
    buffers[0].close()
    buffers[0].close()
    with pytest.raises(DeviceError, match="lies in no buffer"):
        device.find(buffers[0].address)


def test_misuse_is_refused() -> None:
    device, other = InterpreterDevice(), InterpreterDevice()
    buffer = device.allocate(16)
    with pytest.raises(DeviceError, match="another device"):
        other.read(buffer, 0, np.zeros(1, np.uint8))
    with pytest.raises(ArgumentError):
        device.write(buffer, 15, np.zeros(2, np.uint8))
    with pytest.raises(ArgumentError):
        device.read(buffer, -1, np.zeros(1, np.uint8))
    with pytest.raises(ArgumentError):
        device.copy(buffer, 0, buffer, 10, 8)
    with pytest.raises(DeviceError):
        device.fill(buffer, 2, 4, 0)
    with pytest.raises(DeviceError):
        device.allocate(-1)
    with pytest.raises(FeatureError, match="runs IR"):
        device.load(KernelArtifact("k", b"", "k", (1, 1, 1), (), 0, False, frozenset(), frozenset()))
    buffer.close()
    with pytest.raises(DeviceError, match="closed"):
        device.write(buffer, 0, np.zeros(1, np.uint8))
    device.close()
    device.close()
    with pytest.raises(DeviceError, match="closed"):
        device.allocate(4)


SAXPY = kernel(
    "%a: f32, %x: array<f32, 2, in>, %y: array<f32, 2, inout>, %flag: bool",
    """%j = global_id {dim = 0} : index
    %i = global_id {dim = 1} : index
    %w = extent %y {axis = 1} : index
    %c = lt %j, %w : bool
    %d = and %c, %flag : bool
    if %d {
      %v = load %x, %i, %j : f32
      %u = load %y, %i, %j : f32
      %p = mul %a, %v : f32
      %q = add %p, %u : f32
      store %y, %i, %j, %q
      yield
    } else {
      yield
    }
    return""",
)


@pytest.mark.parametrize("count", [dtypes.i32, dtypes.i64])
def test_launch_reads_the_block(count: DType) -> None:
    device = InterpreterDevice()
    x = np.arange(600, dtype=np.float32)
    y = np.ones((3, 100), np.float32)
    bx, by = device.allocate(x.nbytes), device.allocate(y.nbytes)
    device.write(bx, 0, as_bytes(x))
    device.write(by, 0, as_bytes(y))
    # user parameters 1, 2, 4, 5: parameter 3 is a compile-time constant
    SAXPY.kernel.attrs["arg_index"] = (1, 2, 4, 5)
    fields: list[Field] = [("scalar", 1, 0, dtypes.f32), ("address", 2, 0, dtypes.u64)]
    fields += [(role, 2, axis, count) for role in ("extent", "stride") for axis in range(2)]
    fields += [("address", 4, 0, dtypes.u64)] + [("extent", 4, axis, count) for axis in range(2)]
    fields += [("scalar", 5, 0, dtypes.boolean), ("report", -1, 0, dtypes.u64)]
    artifact = artifact_of(SAXPY, fields)
    loaded = device.load(artifact)
    view = x[599:299:-1].reshape(3, 100)  # negative stride, starting at the last element
    values = [2.0, bx.address + 599 * 4, 3, 100, -100, -1, by.address, 3, 100, True, device.report_address]
    device.launch(LaunchRequest(loaded, (2, 3, 1), pack(artifact, values), [bx], [by]))
    device.synchronize()
    out = np.zeros(y.nbytes, np.uint8)
    device.read(by, 0, out)
    np.testing.assert_array_equal(out.view(np.float32).reshape(3, 100), 2 * view + 1)
    device.launch(LaunchRequest(loaded, (2, 3, 0), pack(artifact, values), [bx], [by]))
    values[9] = False
    device.launch(LaunchRequest(loaded, (2, 3, 1), pack(artifact, values), [bx], [by]))
    again = np.zeros(y.nbytes, np.uint8)
    device.read(by, 0, again)
    np.testing.assert_array_equal(again, out)
    with pytest.raises(InternalError, match="bytes of arguments"):
        device.launch(LaunchRequest(loaded, (2, 3, 1), b"", [bx], [by]))


def test_a_cut_grid_knows_its_place() -> None:
    module = kernel(
        "%y: array<i32, 2, out>",
        """%i = global_id {dim = 0} : index
        %g = group_id {dim = 0} : index
        %n = num_groups {dim = 0} : index
        %c0 = const 0 : index
        %c1 = const 1 : index
        %a = cast %g : i32
        %b = cast %n : i32
        store %y, %i, %c0, %a
        store %y, %i, %c1, %b
        return""",
    )
    device = InterpreterDevice()
    buffer = device.allocate(64 * 10 * 8)
    fields: list[Field] = [("address", 0, 0, dtypes.u64), ("base", -1, 0, dtypes.i64), ("groups", -1, 0, dtypes.i64)]
    artifact = artifact_of(module, fields + [("extent", 0, 0, dtypes.i64), ("extent", 0, 1, dtypes.i64)])
    loaded = device.load(artifact)
    for base, count in ((0, 4), (4, 6)):
        device.launch(
            LaunchRequest(loaded, (count, 1, 1), pack(artifact, [buffer.address, base, 10, 640, 2]), [], [buffer])
        )
    found = device.host_view(buffer)
    assert found is not None
    pairs = found.view(np.int32).reshape(640, 2)
    np.testing.assert_array_equal(pairs[:, 0], np.arange(640) // 64)
    assert (pairs[:, 1] == 10).all()


def test_linear_parameters_reach_the_whole_buffer_and_no_more() -> None:
    module = kernel(
        "%x: array<i32, 1, inout, linear>, %d: index",
        "%i = global_id {dim = 0} : index\n%j = add %i, %d : index\n%v = load %x, %j : i32\nstore %x, %i, %v\nreturn",
    )
    device = InterpreterDevice()
    buffer = device.allocate(4 * 128)
    view = device.host_view(buffer)
    assert view is not None
    view.view(np.int32)[:] = np.arange(128)
    artifact = artifact_of(module, [("address", 0, 0, dtypes.u64), ("scalar", 1, 0, dtypes.i64)])
    loaded = device.load(artifact)
    device.launch(LaunchRequest(loaded, (1, 1, 1), pack(artifact, [buffer.address + 256, -64]), [], [buffer]))
    device.synchronize()
    np.testing.assert_array_equal(view.view(np.int32), np.arange(128) % 64)
    device.launch(LaunchRequest(loaded, (1, 1, 1), pack(artifact, [buffer.address + 256, -65]), [], [buffer]))
    with pytest.raises(BoundsError, match="offset -65 is outside x"):
        device.read(buffer, 0, np.zeros(4, np.uint8))
    device.synchronize()  # an error is raised only once


def test_subgroup_size_of_the_artifact() -> None:
    module = kernel(
        "%y: array<i32, 1, out>",
        "%i = global_id {dim = 0} : index\n%s = subgroup_size : index\n%v = cast %s : i32\nstore %y, %i, %v\nreturn",
    )
    device = InterpreterDevice()
    buffer = device.allocate(256)
    for asked, wanted in ((None, 32), (8, 8), (128, 128)):
        artifact = artifact_of(
            module, [("address", 0, 0, dtypes.u64), ("extent", 0, 0, dtypes.i32)], subgroup_size=asked
        )
        device.launch(
            LaunchRequest(device.load(artifact), (1, 1, 1), pack(artifact, [buffer.address, 64]), [], [buffer])
        )
        assert set(buffer.data.view(np.int32).tolist()) == {wanted}
    assert INTERPRETER_CAPS.subgroup_size == 32


REPORTING = """%i = global_id {dim = 0} : index
    %v = load %x, %i : i32
    %c0 = const 0 : i32
    %bad = lt %v, %c0 : bool
    report %bad, %v, %i {site = SITE}
    return"""


@pytest.mark.parametrize(
    ("site", "kind"),
    [(0, KernelAssertionError), (1, BoundsError), (2, LoopLimitError), (3, KernelZeroDivisionError), (4, KernelError)],
)
def test_reports_raise_the_error_of_their_kind(site: int, kind: type[KernelError]) -> None:
    module = kernel("%x: array<i32, 1, in>", REPORTING.replace("SITE", str(site)), before=SITES)
    x = np.ones(256, np.int32)
    run(module, 4, x)
    x[[70, 200, 90]] = -5
    for options in ({}, {"order": "reverse"}, {"order": 3, "lanes_per_batch": 64}):
        with pytest.raises(kind) as caught:
            run(module, 4, x, **options)
        assert caught.value.invocation == (70, 0, 0)
        assert caught.value.kernel == "k"
        assert caught.value.loc.line == 3 + site
    if site == 0:
        assert "-5 isn't below 70" in str(caught.value)


def test_a_report_comes_before_the_access_it_warned_of() -> None:
    module = kernel(
        "%x: array<i32, 1, inout>",
        """%i = global_id {dim = 0} : index
        %n = extent %x {axis = 0} : index
        %bad = ge %i, %n : bool
        report %bad, %i {site = 1}
        %v = load %x, %i : i32
        store %x, %i, %v
        return""",
        before=SITES,
    )
    with pytest.raises(BoundsError, match="index 60") as caught:
        run(module, 1, np.zeros(60, np.int32))
    assert caught.value.loc.line == 4


def test_printing_is_in_the_order_of_invocations(capsys: pytest.CaptureFixture[str]) -> None:
    module = kernel(
        "%x: array<f32, 1, in>",
        """%i = global_id {dim = 0} : index
        %v = load %x, %i : f32
        %c0 = const 0.0 : f32
        %two = const 2.0 : f32
        %some = gt %v, %c0 : bool
        if %some {
          print %i, %v {site = 4}
          %w = mul %v, %two : f32
          print %i, %w {site = 4}
          yield
        } else {
          yield
        }
        return""",
        before=SITES,
    )
    x = np.zeros(128, np.float32)
    x[[100, 3]] = 1.5, 0.25
    wanted = ["lane 3: 0.25\n", "lane 3: 0.50\n", "lane 100: 1.50\n", "lane 100: 3.00\n"]
    for options in ({}, {"order": "reverse"}, {"lanes_per_batch": 64}):
        assert run(module, 2, x, **options) == wanted
    device = InterpreterDevice()
    buffer = device.allocate(x.nbytes)
    device.write(buffer, 0, as_bytes(x))
    artifact = artifact_of(module, [("address", 0, 0, dtypes.u64), ("extent", 0, 0, dtypes.i32)])
    device.launch(LaunchRequest(device.load(artifact), (2, 1, 1), pack(artifact, [buffer.address, 128]), [buffer], []))
    assert capsys.readouterr().out == ""
    device.synchronize()
    assert capsys.readouterr().out == "".join(wanted)


@pytest.mark.parametrize("debug", [False, True])
def test_assume_uniform_is_checked_in_debug(debug: bool) -> None:
    module = kernel(
        "%x: array<i32, 1, inout>",
        """%i = global_id {dim = 0} : index
        %v = load %x, %i : i32
        %u = assume_uniform %v : i32
        store %x, %i, %u
        return""",
    )
    module.kernel.attrs["debug"] = debug
    x = np.repeat(np.arange(3, dtype=np.int32), 64)
    run(module, 3, x)
    x[130] = 9
    if not debug:
        run(module, 3, x)
        return
    with pytest.raises(KernelError, match="assume_uniform") as caught:
        run(module, 3, x)
    assert caught.value.invocation == (130, 0, 0)


def test_a_device_that_nobody_uses_is_freed_with_its_buffers() -> None:
    own = InterpreterDevice()
    buffer = own.allocate(100)
    dropped, weak = weakref.ref(own), weakref.ref(buffer)
    report = own.report_address
    assert report
    del own, buffer
    gc.collect()
    assert dropped() is None and weak() is None
