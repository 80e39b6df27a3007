"""Launches with checked memory accesses: each invalid access that a driver may tolerate gives a line of output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.table import target_of
from vkjit.compiler.driver import emit_module
from vkjit.errors import DeviceError, InternalError
from vkjit.ir.parser import parse_module
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline
from vkjit.spirv import tools
from vkjit.testing.fuzz import Checker, Options, check, execute, generate
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret, watched_launch
from vkjit.testing.fuzz.generate import TILES
from vkjit.testing.fuzz.program import Layout, Memory, Program
from vkjit.testing.fuzz.watch import Watcher, watched

FOUR = Layout((4,), (1,), 0, 4, fill="small")


def needs_spirv(device: Any) -> None:
    if not target_of(device.caps).spirv:
        pytest.skip("the device runs no SPIR-V")


def program(
    body: str, layouts: tuple[Layout, ...], element: str = "f32", traits: str = "", kind: str = "in"
) -> Program:
    """Return a kernel of four invocations over arrays of one type: %x is read, %y written."""
    rank = len(layouts[0].shape)
    kinds = f"%x: array<{element}, {rank}, {kind}>, %y: array<{element}, {len(layouts[1].shape)}, inout>"
    attrs = f"attrs {{arg_index = (0, 1), local_size = (4, 1, 1){traits}}}"
    text = f"kernel @k({kinds}) {attrs} {{\n%i = global_id {{dim = 0}} : index\n{body}\nreturn\n}}\n"
    return Program(parse_module(text), (1, 1, 1), layouts, 1)


def lines_of(device: Any, made: Program, level: int = 2) -> list[str]:
    """Return the lines of a watched run; without lines, its results must match the interpreter's."""
    memory = Memory.of(made)
    lowered = pipeline.run(clone_module(made.module), device.caps, level)
    found, lines = watched_launch(made, memory, emit_module(lowered, device.caps), device)
    if not lines:
        assert difference(made, found, interpret(made, memory)) == ""
    return lines


COPY = "%v = load %x, %i : f32\nstore %y, %i, %v"


def test_a_watcher_needs_spirv(device: Any) -> None:
    if target_of(device.caps).spirv:
        pytest.skip("the device runs SPIR-V")
    with pytest.raises(DeviceError, match="runs no SPIR-V"), Watcher(device):
        pass


@pytest.mark.parametrize("level", [0, 2])
def test_right_accesses_leave_no_line(device: Any, level: int) -> None:
    needs_spirv(device)
    assert lines_of(device, program(COPY, (FOUR, FOUR)), level) == []


def test_an_access_past_the_end(device: Any) -> None:
    needs_spirv(device)
    short = Layout((3,), (1,), 0, 8, fill="small")
    (line,) = lines_of(device, program(COPY, (short, FOUR)))
    assert "OpLoad of 4 bytes, parameter 0, 12 bytes from its lowest: outside" in line
    (line,) = lines_of(device, program(COPY, (FOUR, short)))
    assert "OpStore of 4 bytes, parameter 1, 12 bytes from its lowest: outside" in line


def names_a_negative_index(text: str) -> bool:
    """True if the text reports a negative index, or an invalid address on a driver with unsigned indices."""
    return "by a negative index" in text or "outside of what may be accessed" in text


def test_a_negative_index_that_no_attribute_states(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Access chains with negative indices lose the device on a driver that zero-extends them."""
    needs_spirv(device)
    transposed = Layout((4,), (-1,), 3, 4, fill="small")
    with pytest.raises(ValueError, match="backward"):
        lines_of(device, program(COPY, (transposed, FOUR)))
    assert lines_of(device, program(COPY, (transposed, FOUR), traits=", backward = true")) == []
    monkeypatch.setattr(execute, "violated_attributes", lambda *_: [])
    (line,) = lines_of(device, program(COPY, (transposed, FOUR)))
    assert "OpLoad" in line
    assert names_a_negative_index(line)


def test_an_address_that_isnt_aligned(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel compiled for aligned arrays, with an array that isn't aligned."""
    needs_spirv(device)
    body = """
        %four = const 4 : index
        %first = mul %i, %four : index
        %one = const 1 : index
        %second = add %first, %one : index
        %a = load %x, %first : f32
        %b = load %x, %second : f32
        %v = add %a, %b : f32
        store %y, %i, %v"""
    monkeypatch.setattr(execute, "violated_attributes", lambda *_: [])
    aligned, skewed = (Layout((16,), (1,), first, 20, fill="small") for first in (4, 1))
    traits = ", aligned = true"
    assert lines_of(device, program(body, (aligned, FOUR), traits=traits, kind="in, contiguous")) == []
    (line,) = lines_of(device, program(body, (skewed, FOUR), traits=traits, kind="in, contiguous"))
    assert "OpLoad of 8 bytes" in line
    assert "not a multiple of 8" in line


def test_an_index_into_shared_memory(device: Any) -> None:
    needs_spirv(device)
    body = """
        %s = shared : shared<f32, 4>
        %one = const 1 : index
        %next = add %i, %one : index
        %v = load %x, %i : f32
        store %s, %NEXT, %v
        barrier
        %w = load %s, %i : f32
        store %y, %i, %w"""
    assert lines_of(device, program(body.replace("NEXT", "i"), (FOUR, FOUR))) == []
    (line,) = lines_of(device, program(body.replace("NEXT", "next"), (FOUR, FOUR)))
    assert line.startswith("index 4 into a workgroup array of 4")


def test_atomics(device: Any) -> None:
    needs_spirv(device)
    body = """
        %v = load %x, %i : i32
        atomic %y, %i, %v {op = "add", order = "relaxed", scope = "device"} : i32"""
    body = body.replace("atomic %y", "%old = atomic %y")
    assert lines_of(device, program(body, (FOUR, FOUR), "i32")) == []
    (line,) = lines_of(device, program(body, (FOUR, Layout((3,), (1,), 0, 8, fill="small")), "i32"))
    assert "OpAtomicIAdd of 4 bytes, parameter 1" in line


def test_an_empty_array_has_nothing_to_access(device: Any) -> None:
    needs_spirv(device)
    (line,) = lines_of(device, program(COPY, (Layout((0,), (1,), 0, 8, fill="small"), FOUR)))
    assert "OpLoad" in line


def test_modules_stay_valid(device: Any) -> None:
    """spirv-val accepts instrumented programs with reports, indirect blocks, shared memory and tiles."""
    needs_spirv(device)
    if not tools.available():
        pytest.skip("spirv-val isn't installed")
    for seed in (3, 17, 1_000_012, TILES + 5):
        made = generate(seed)
        artifact = emit_module(pipeline.run(clone_module(made.module), device.caps, 2), device.caps)
        numbers = made.module.kernel.attrs.get("arg_index", range(len(made.layouts)))
        spans = {("address", number): (-64, 64) for number in numbers}
        spans |= {("report", -1): (0, 256), ("print", -1): (0, 1 << 20)}
        module = watched(artifact.code, artifact.fields, spans, 1 << 40, indirect=artifact.indirect)
        assert module.sites
        tools.validate(module.code)
        with pytest.raises(InternalError, match="isn't given"):
            watched(artifact.code, artifact.fields, {}, 1 << 40, indirect=artifact.indirect)


@vk.kernel(local=4, debug=False)
def shifted(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], by: vk.i32) -> None:
    i = vk.global_id(0)
    y[i] = x[i + by]


def test_all_launches_of_a_device(device: Any) -> None:
    """For kernels of the language, accesses anywhere in a whole buffer are valid."""
    needs_spirv(device)
    with vk.use_device(device), Watcher(device) as watcher:
        x, y = vk.tensor(np.arange(4, dtype=np.float32)), vk.zeros(4)
        shifted[1](x, y, 0)
        assert (y.numpy() == x.numpy()).all()
        assert watcher.launches >= 1
        assert watcher.lines == []
        shifted[1](x, y, 1 << 20)
        device.synchronize()
        assert "outside" in watcher.lines[0]
    assert "launch" not in vars(device)


def test_the_fuzzer_finds_what_a_generator_leaves_out(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated tile programs once had undeclared negative strides, which made a driver lose the device."""
    needs_spirv(device)
    programs = [p for p in (generate(TILES + seed, 1) for seed in range(12)) if "backward" in p.module.kernel.attrs][:4]
    for made in programs:
        del made.module.kernel.attrs["backward"]
    checker = Checker([device], Options(chains=False, variants=False, watch=True))
    stages = {finding and finding.stage for finding in map(checker.check, programs)}
    assert stages == {"generator"}
    for module in (execute, check):
        monkeypatch.setattr(module, "violated_attributes", lambda *_: [])
    found = [finding for finding in map(checker.check, programs) if finding is not None]
    assert found
    assert all(finding.stage.startswith("accesses, level") for finding in found)
    assert all(names_a_negative_index(finding.text) for finding in found)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_programs_on_tiles(device: Any, seed: int) -> None:
    """A sample of `python -m vkjit.testing.fuzz --tiles --watch`."""
    needs_spirv(device)
    options = Options(chains=False, variants=False, watch=True)
    finding = Checker([device], options).check(generate(TILES + 1_000_010 + seed, 4))
    assert finding is None, finding
