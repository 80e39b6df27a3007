"""Tests of the CPU device in unusual environments: full address spaces, older CPUs, Arm, old llvmlite, float modes."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import errors
from vkjit.backends import cpu
from vkjit.compiler import driver
from vkjit.ir.core import Module

pytest.importorskip("llvmlite", reason="the CPU device needs llvmlite")

from vkjit.backends.cpu.codegen import lower  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime import cancellation, cpu_count, llvm as machine  # noqa: E402  after the skip
from vkjit.backends.cpu.runtime.device import CpuDevice, cpu_caps  # noqa: E402
from vkjit.passes import pipeline  # noqa: E402

HOST = machine.host()


def run(script: Path, **settings: str) -> str:
    """Run a program, assert that it succeeds, and return its output."""
    command = [sys.executable, "-W", "ignore", str(script)]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- placement of code in memory

FULL = """
import ctypes, mmap, sys
from vkjit.backends.cpu.runtime import llvm as machine
c = ctypes.CDLL(None, use_errno=True)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
c.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
GIB, RESERVED = 1 << 30, 0x4022  # private, anonymous, no memory behind it
numbers = ", ".join(f"float {k}.0" for k in range(1, 9))
code = machine.compile_text(f'''
define void @scale(ptr %p) {{
  %v = load <8 x float>, ptr %p, align 4
  %w = fmul <8 x float> %v, <{numbers}>
  store <8 x float> %w, ptr %p, align 4
  ret void
}}''')
machine.link(code, "scale")
for _ in range(40):  # stretches of 3 GiB, each with a hole of one page in its middle
    place = c.mmap(None, 3 * GIB, 0, RESERVED, -1, 0)
    if place is None or place == ctypes.c_void_p(-1).value:
        print("unable")
        sys.exit()
    c.munmap(place + 3 * GIB // 2, mmap.PAGESIZE)
last = c.mmap(None, mmap.PAGESIZE, 0, RESERVED, -1, 0)
for _ in range(100_000):  # until no page is left but those in the holes
    place = c.mmap(None, mmap.PAGESIZE, 0, RESERVED, -1, 0)
    if last - place > GIB:
        c.munmap(place, mmap.PAGESIZE)
        break
    last = place
kept = []
for _ in range(20):
    kept.append(machine.link(code, "scale"))
    values = (ctypes.c_float * 8)(*[1.0] * 8)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(kept[-1].addresses["scale"])(ctypes.addressof(values))
    assert list(values) == [1, 2, 3, 4, 5, 6, 7, 8], list(values)
print("linked")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for address space")
def test_code_reaches_its_constants_in_a_full_process(tmp_path: Path) -> None:
    """Code and its constants must be placed together even if no two adjacent pages within 2 GiB are free."""
    script = tmp_path / "full.py"
    script.write_text(FULL)
    found = run(script)
    if found == "unable":
        pytest.skip("the system gives this process no 120 GiB of address space")
    assert found == "linked"


# -- CPU detection

CONVERSIONS = """
import numpy as np, vkjit as vk
from vkjit.backends.cpu.runtime import llvm as machine
assert machine.host().lanes == 4 and "f16c" not in machine.host().features
vk.set_default_device("cpu")

@vk.kernel(over="y")
def widen(x: vk.In[vk.f16, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f32(x[i])

@vk.kernel(over="y")
def narrow(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f16, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f16(x[i])

@vk.kernel(over="y")
def twice(x: vk.In[vk.f16, "N"], y: vk.Out[vk.f16, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] + x[i]

@vk.kernel(over="y")
def functions(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.exp(x[i]) + vk.floor(x[i]) + vk.fma(x[i], x[i], x[i]) + vk.rsqrt(x[i] + 2)

every = np.arange(65536, dtype=np.uint16).view(np.float16)
with np.errstate(all="ignore"):
    wide = every.astype(np.float32)
    np.testing.assert_array_equal(widen(every), wide)
    near = np.concatenate([wide, np.nextafter(wide, np.float32(np.inf)), np.nextafter(wide, np.float32(-np.inf))])
    ordinary = np.sort(wide[np.isfinite(wide)])
    middles = (ordinary[1:] + ordinary[:-1]) / 2
    steps = np.random.default_rng(1).integers(0, 1 << 32, 40_000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    for x in (near, middles, np.nextafter(middles, np.float32(9e9)), steps):
        expected, found = x.astype(np.float16), narrow(x)
        np.testing.assert_array_equal(found, expected)
        kept = ~np.isnan(expected)
        np.testing.assert_array_equal(found.view(np.uint16)[kept], expected.view(np.uint16)[kept])
    np.testing.assert_array_equal(twice(every), every + every)
x = np.linspace(-1, 4, 1001).astype(np.float32)
expected = np.exp(x.astype(float)) + np.floor(x) + (x * x.astype(float) + x) + (x + 2.0) ** -0.5
np.testing.assert_allclose(functions(x), expected, rtol=1e-5, atol=1e-5)
print("right")
"""
LEAST = {"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2", "x87"}


@pytest.mark.skipif(HOST.family != "x86_64", reason="takes features of x86 away")
def test_the_least_processor_converts_f16_and_has_all_functions(tmp_path: Path) -> None:
    """Without F16C, LLVM calls conversion functions that may not exist in any loaded library."""
    script = tmp_path / "least.py"
    script.write_text(CONVERSIONS)
    assert run(script, VKJIT_CPU_FEATURES=",".join(f"-{f}" for f in sorted(HOST.features - LEAST))) == "right"


@pytest.mark.parametrize(
    ("features", "lanes"),
    [
        ({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2"}, 16),
        ({"avx512f", "avx2"}, 8),
        ({"avx2"}, 8),
        ({"avx"}, 4),
        ({"neon"}, 4),
        (set(), 4),
    ],
)
def test_vectors_are_as_wide_as_the_processor_has_them(features: set[str], lanes: int) -> None:
    assert dataclasses.replace(HOST, features=frozenset(features)).lanes == lanes


def test_features_are_only_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_CPU_FEATURES", "+avx1024")
    with pytest.raises(errors.ArgumentError, match="takes features away"):
        machine.host.__wrapped__()


@pytest.mark.skipif(HOST.family != "x86_64", reason="names features of x86")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-AVX521F", "did you mean -avx512f or "),
        ("-avx2, -nonsense", "'nonsense' here; there are 64bit, adx, "),
        ("-", "'-'"),
    ],
)
def test_features_that_nobody_knows(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_CPU_FEATURES", text)
    with pytest.raises(errors.ArgumentError, match="VKJIT_CPU_FEATURES has") as caught:
        machine.host.__wrapped__()
    assert said in str(caught.value)


def test_a_folder_for_dumps_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "define void @f() {\n  ret void\n}\n"
    file = tmp_path / "file"
    file.write_text("")
    for folder in (tmp_path / "none", file):
        monkeypatch.setenv("VKJIT_CPU_DUMP", str(folder))
        with pytest.raises(errors.ArgumentError, match="VKJIT_CPU_DUMP is .* name a folder that exists"):
            machine.compile_text(text)
    monkeypatch.setenv("VKJIT_CPU_DUMP", str(tmp_path))
    assert machine.compile_text(text) and len(list(tmp_path.glob("kernel*"))) == 3


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_dumps_replace_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "dumps"
    folder.mkdir()
    monkeypatch.setattr(machine, "_numbers", itertools.count())
    (folder / "kernel0.in.ll").symlink_to(victim)
    monkeypatch.setenv("VKJIT_CPU_DUMP", str(folder))
    assert machine.compile_text("define void @f() {\n  ret void\n}\n")
    assert victim.read_text() == "precious" and "@f" in (folder / "kernel0.in.ll").read_text()


@vk.kernel(local=64)
def mixture(
    n: vk.i32, x: vk.In[vk.f32, "N"], h: vk.InOut[vk.f16, "N"], d: vk.InOut[vk.f64, "N"], total: vk.InOut[vk.i32, "K"]
):
    memory = vk.shared(vk.f32, 64)
    i, place = vk.global_id(0), vk.local_id(0)
    value = x.get(i, pad=0)
    memory[place] = vk.exp(value) + vk.rsqrt(value + 2) + vk.sin(value)
    vk.barrier()
    for k in range(n):
        value += memory[(place + k) % 64]
        if value > 10:
            break
    if i < x.shape[0]:
        h[i] = h[i] * vk.f16(value)
        d[i] = vk.exp(d[i]) + vk.f64(h[i])
        vk.atomic.add(total, 0, vk.i32(value))
        vk.atomic.max(total, 1, i)


@vk.kernel(local=64)
def lanes(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    sg = vk.subgroup()
    i = vk.global_id(0)
    y[i] = sg.sum(x[i]) + sg.scan(x[i]) + sg.shuffle(x[i], 3)


ARM = machine.Host("generic", "+fp-armv8,+neon", frozenset({"fp-armv8", "neon"}), HOST.llvm, "aarch64")


def arm_text(monkeypatch: pytest.MonkeyPatch, launch: Any) -> str:
    """Return the LLVM IR, for an Arm CPU, of the kernel that `launch` launches."""
    modules: list[Module] = []
    caps = dataclasses.replace(cpu_caps(), subgroup_sizes=(4,), features=cpu_caps().features - {"native_exp"})

    def optimise(module: Module, *_others: Any, **_options: Any) -> tuple[Module, None]:
        modules.append(pipeline.run(module, caps, 2))
        raise StopIteration

    monkeypatch.setattr(driver, "_optimize", optimise)
    monkeypatch.setenv("VKJIT_CACHE", "0")
    monkeypatch.setattr(machine, "host", lambda: ARM)
    with pytest.raises(StopIteration):
        launch()
    return lower.text_of(modules[0], caps)


@pytest.mark.parametrize("which", ["mixture", "lanes"])
def test_code_for_arm(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    n = 128
    x = np.ones(n, np.float32)
    with vk.use_device(vk.device("cpu")):
        if which == "lanes":
            text = arm_text(monkeypatch, lambda: lanes[2](x, x.copy()))
        else:
            arrays = (x, np.ones(n, np.float16), np.ones(n), np.zeros(2, np.int32))
            text = arm_text(monkeypatch, lambda: mixture[2](3, *arrays))
    assert "llvm.x86" not in text and "fpcr" in text
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM has no code generator for Arm")
    made = target.create_target_machine(cpu=ARM.name, features=ARM.flags, opt=2, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(text)
    module.triple = "aarch64-unknown-linux-gnu"
    builder = llvm.create_pass_builder(made, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    called = set(re.findall(r"\bbl\s+(\S+)", made.emit_assembly(module)))
    assert {name for name in called if not name.startswith("report")} <= {"groups", "poll", "memcpy", "memset"}


# -- llvmlite versions


@pytest.fixture
def copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder in which the import system looks for llvmlite instead of the installed package."""
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite" / "__init__.py").write_text("")
    spec = type("Spec", (), {"origin": str(tmp_path / "llvmlite" / "__init__.py")})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    cpu.obstacle.cache_clear()
    yield tmp_path
    cpu.obstacle.cache_clear()


@pytest.mark.parametrize(
    ("version", "fits"), [("0.44.0", False), ("0.9.1", False), ("0.45.0rc1", True), ("0.50.0", True), ("1.2.0", True)]
)
def test_an_old_llvmlite_is_as_none(copies: Path, version: str, fits: bool) -> None:
    (copies / f"llvmlite-{version}.dist-info").mkdir()
    assert cpu.available() is fits
    assert fits or (version in cpu.obstacle() and "pip install --upgrade llvmlite" in cpu.obstacle())


def test_an_llvmlite_without_a_record_is_tried(copies: Path) -> None:
    assert cpu.available()


# -- floating-point modes

SETTER = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define i32 @mode(i32 %new) {
  %place = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %old = load i32, ptr %place
  store i32 %new, ptr %place
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret i32 %old
}"""


@vk.kernel(over="y", strict=True)
def third(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] / 3


@pytest.mark.skipif(HOST.family != "x86_64", reason="sets a register of x86")
@pytest.mark.parametrize(
    ("mode", "meaning"), [(0x9FC0, "subnormals are zero"), (0x7F80, "towards zero"), (0x1F00, "traps")]
)
def test_the_callers_mode_of_floats_does_not_matter(mode: int, meaning: str) -> None:
    """Libraries change the floating-point mode of the calling thread."""
    import ctypes

    linked = machine.link(machine.compile_text(SETTER), "mode")
    set_mode = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_uint32)(linked.addresses["mode"])
    x = np.linspace(1e-39, 2, 1000, dtype=np.float32)
    x[:500] *= np.float32(1e-38)
    expected = x / np.float32(3)
    out = np.zeros_like(x)
    device = CpuDevice(0, threads=1)
    with vk.use_device(device):
        third(x, out)
        out[:] = 0
        usual = set_mode(mode)
        try:
            third(x, out)
        finally:
            left = set_mode(usual)
    device.close()
    np.testing.assert_array_equal(out, expected)
    assert left & 0xFFC0 == mode & 0xFFC0  # the low six bits are exception flags


# -- CPU count


@pytest.mark.parametrize(
    ("files", "lines", "expected"),
    [
        ({}, "0::/\n", None),
        ({"a/b/cpu.max": "200000 100000\n"}, "0::/a/b\n", 2.0),
        ({"a/b/cpu.max": "max 100000\n", "a/cpu.max": "150000 100000\n"}, "0::/a/b\n", 1.5),
        ({"cpu/c/cpu.cfs_quota_us": "50000", "cpu/c/cpu.cfs_period_us": "100000"}, "3:cpu,cpuacct:/c\n", 0.5),
        ({"cpu/c/cpu.cfs_quota_us": "-1", "cpu/c/cpu.cfs_period_us": "100000"}, "3:cpu:/c\n2:cpuset:/c\n", None),
    ],
)
def test_quotas_of_control_groups(files: dict[str, str], lines: str, expected: float | None, tmp_path: Path) -> None:
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "groups").write_text(lines)
    assert cpu_count.cpu_count(tmp_path / "groups", tmp_path / "mount") == expected
    assert 1 <= cpu_count.processors() <= (os.cpu_count() or 1)


@pytest.mark.skipif("avx" not in HOST.features, reason="registers of 256 bits are AVX's")
def test_asking_whether_to_go_on_keeps_whole_registers() -> None:
    body = f"define i1 @ask(ptr %watch) {{\n  %stop = {cancellation.poll_call(HOST.features)}\n  ret i1 %stop\n}}\n"
    code = machine.texts_of(f"{cancellation.poll_text(HOST.features)}\n{body}")[1]
    assert "%ymm15, " in code and ", %ymm15" in code and "vzeroupper" not in code
