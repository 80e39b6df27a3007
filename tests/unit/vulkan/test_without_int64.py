"""Kernels for devices without 64-bit integers: what their modules declare, large arrays, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.codegen_kernels import GPU
from vkjit.backends.vulkan import codegen
from vkjit.ir.core import Module
from vkjit.ir.parser import parse_module
from vkjit.passes import pipeline
from vkjit.runtime.device import DeviceCaps, without_int64
from vkjit.spirv import tools
from vkjit.spirv.disassemble import disassemble
from vkjit.testing.masks import MASKS, masked, masked_caps

GOLDEN = Path(__file__).parents[2] / "golden"
CAPS = masked_caps(GPU, MASKS["raspberry_pi_5"])
FORBIDDEN = ("Int64", "Int8", "Int16", "Float16", "Float64", "Int64Atomics")


def emitted(text: str, caps: DeviceCaps, level: int) -> str:
    """Compile a kernel in the text form of the IR; return the disassembled module."""
    module = pipeline.run(parse_module(text, "kernel.ir"), caps, level)
    artifact = codegen.emit(module, caps)
    if tools.available():
        tools.validate(artifact.code, "vulkan1.2")
    return disassemble(artifact.code, header=False, indent=False)


def kernel(body: str, attrs: str = "", params: str = "%x: array<i64, 1, in>, %y: array<i64, 1, out>") -> str:
    return f"kernel @k({params}) attrs {{local_size = (32, 1, 1){attrs}}} {{\n{body}\n  return\n}}\n"


COPY = "  %i = global_id {dim = 0} : index\n  %v = load %x, %i : i64\n  store %y, %i, %v"
LOOP = """  %i = global_id {dim = 0} : index
  %n = load %x, %i : i64
  %one = const 1 : i64
  %three = const 3 : i64
  %s = for %one, %n, %three, %one : i64 (%k: i64, %t: i64) {
    %u = mul %t, %k : i64
    %w = floordiv %u, %n : i64
    continue %w
  }
  store %y, %i, %s"""
KERNELS = {
    "small": kernel(COPY, ", narrow = true"),
    "large": kernel(COPY),
    "cut": kernel(COPY, ", cut = true"),
    "backward": kernel(COPY, ", narrow = true, backward = true"),
    "bytes": kernel(
        COPY.replace("i64", "bool"),
        ", narrow = true, backward = true",
        "%x: array<bool, 1, in>, %y: array<bool, 1, out>",
    ),
    "loop": kernel(LOOP),
}


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", KERNELS)
def test_no_capability_for_missing_types(name: str, level: int) -> None:
    text = emitted(KERNELS[name], CAPS, level)
    declared = {line.split()[1] for line in text.splitlines() if line.startswith("OpCapability")}
    assert not declared & set(FORBIDDEN)
    assert "OpTypeInt 64" not in text


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("spirv/[alrs]*.ir")), ids=lambda path: path.stem)
def test_kernels_of_all_kinds(path: Path) -> None:
    source = path.read_text(encoding="utf-8").partition("// SPIR-V")[0]
    text = emitted(source, without_int64(GPU), 2)
    assert "OpCapability Int64" not in text and "OpTypeInt 64" not in text


def test_devices_with_64_bit_integers_keep_them() -> None:
    assert "OpCompositeConstruct" not in emitted(KERNELS["large"], GPU, 2)


def test_the_caps_keep_the_integers_and_lose_what_needs_instructions() -> None:
    caps = without_int64(GPU)
    assert {"i64", "u64", "i8", "f16"} <= caps.dtypes and "f64" not in caps.dtypes
    assert not caps.features & {"int64", "int64_atomics", "float64", "rte_f64"} and "rte_f32" in caps.features


@vk.kernel(over="x")
def largest(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "M"]):
    vk.atomic.max(y, 0, x[vk.global_id(0)])


@vk.kernel(over="x")
def old_sum(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "M"], z: vk.Out[vk.i64, "N"]):
    i = vk.global_id(0)
    z[i] = vk.atomic.add(y, 0, x[i])


@vk.kernel(over="x")
def totals(x: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "M"], z: vk.InOut[vk.u64, "M"]):
    i = vk.global_id(0)
    vk.atomic.add(y, i % y.shape[0], x[i])
    vk.atomic.xor(z, i % y.shape[0], vk.u64(x[i]))


@pytest.fixture(params=["interpreter", 0], ids=["interpreter", "vulkan"])
def device(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == 0 and vk.devices()[0].kind in ("interpreter", "llvm-cpu"):
        pytest.skip("no Vulkan device on this machine")
    with masked("without=i64", request.param) as smaller:
        yield smaller


def test_atomics_that_need_both_words_at_once_are_refused(device: Any) -> None:
    x = np.arange(5)
    for kernel_, arguments in ((largest, (x, x.copy())), (old_sum, (x, x.copy(), x.copy()))):
        with pytest.raises(vk.CompileError, match="this device has no 64-bit integers, and atomic .* of i64") as caught:
            kernel_(*arguments)
        assert caught.value.loc.line > 0


def test_sums_by_atomics_carry(device: Any) -> None:
    x = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 2000)
    y, z = np.arange(3), np.zeros(3, np.uint64)
    totals(x, y, z)
    device.synchronize()
    sums, parities = np.arange(3), np.zeros(3, np.uint64)
    np.add.at(sums, np.arange(2000) % 3, x)
    np.bitwise_xor.at(parities, np.arange(2000) % 3, x.view(np.uint64))
    np.testing.assert_array_equal(y, sums)
    np.testing.assert_array_equal(z, parities)


def test_large_arrays_are_addressed_in_64_bits(device: Any) -> None:
    """Kernels that aren't `narrow`: offsets are added to addresses as pairs of words, also to addresses of bytes."""
    from tests.device.language.codegen_kernels import on_device

    x = np.arange(32, dtype=np.int64) * 2**40 - 5
    for text, values in ((KERNELS["large"], x), (KERNELS["large"].replace("i64", "bool"), x % 3 == 0)):
        module: Module = pipeline.run(parse_module(text, "kernel.ir"), device.caps, 2)
        from vkjit.compiler import driver

        artifact = driver.emit_module(module, device.caps)
        found = on_device(device, module, 1, [values, np.zeros_like(values)], artifact)
        np.testing.assert_array_equal(found[1], values)
