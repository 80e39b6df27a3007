"""Tests of artifacts: argument blocks, required features, and unsupported kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.device.language.codegen_kernels import GPU, INDEX, Build, block, linear
from vkjit import dtypes
from vkjit.backends.codegen.usage import usage_of
from vkjit.backends.vulkan import codegen
from vkjit.dtypes import DType
from vkjit.errors import FeatureError, InternalError, Loc, ReportSite
from vkjit.ir.core import Module, Region
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.runtime.artifact import KernelArtifact
from vkjit.spirv import tools
from vkjit.spirv.disassemble import disassemble

F32 = Scalar(dtypes.f32)


def emitted(module: Module, caps: Any = GPU) -> KernelArtifact:
    artifact = codegen.emit(module, caps)
    if tools.available():
        tools.validate(artifact.code)
    return artifact


def text_of(module: Module, caps: Any = GPU) -> str:
    return disassemble(emitted(module, caps).code)


def copy_kernel(dtype: DType, **attrs: Any) -> Module:
    b = Build("copy", {"x": linear(dtype, "in", restrict=True), "y": linear(dtype, "out", restrict=True)}, **attrs)
    i = b.gid()
    b.op("store", b.p["y"], i, b.emit("load", b.p["x"], i))
    return b.finish()


def _mixed() -> Module:
    matrix = Array(F32, 2, access="in")
    b = Build(
        "mixed",
        {
            "unused": dtypes.i32,
            "flag": dtypes.boolean,
            "h": dtypes.f16,
            "x": matrix,
            "y": linear(dtypes.f32),
            "s": dtypes.f64,
            "idle": linear(dtypes.f32),
        },
        arg_index=(0, 1, 3, 4, 6, 7, 8),
    )
    i = b.gid()
    rows = b.emit("extent", b.p["x"], axis=0)
    value = b.cast(b.emit("load", b.p["x"], i, rows), dtypes.f64)
    total = b.emit("add", value, b.emit("add", b.p["s"], b.cast(b.p["h"], dtypes.f64)))
    with b.when(b.p["flag"]):
        b.op("store", b.p["y"], i, b.cast(total, dtypes.f32))
    return b.finish()


def test_block_holds_what_is_used_without_gaps() -> None:
    fields, size, indirect = codegen.block_layout(_mixed(), GPU)
    rows = [(f.role, f.arg, f.axis, f.dtype.name, f.offset, f.size) for f in fields]
    assert rows == [
        ("address", 4, 0, "u64", 0, 8),
        ("extent", 4, 0, "i64", 8, 8),
        ("stride", 4, 0, "i64", 16, 8),
        ("stride", 4, 1, "i64", 24, 8),
        ("address", 6, 0, "u64", 32, 8),
        ("scalar", 7, 0, "f64", 40, 8),
        ("scalar", 3, 0, "f16", 48, 2),
        ("scalar", 1, 0, "bool", 50, 1),
    ]
    assert (size, indirect) == (56, False)
    artifact = emitted(_mixed())
    assert artifact.fields == fields
    assert (set(artifact.reads), set(artifact.writes)) == ({4}, {6})


def test_block_of_everything() -> None:
    fields, _, _ = codegen.block_layout(_mixed(), GPU, used_only=False)
    addressed = [f.arg for f in fields if f.role == "address"]
    assert addressed == [4, 6, 8]
    assert {f.arg for f in fields if f.role == "scalar"} == {0, 1, 3, 7}
    assert {(f.arg, f.axis) for f in fields if f.role == "extent"} == {(4, 0), (4, 1), (6, 0), (8, 0)}


def test_narrow_kernels_pass_extents_in_32_bits() -> None:
    b = Build("narrow", {"x": Array(F32, 1), "y": linear(dtypes.i32)}, narrow=True)
    b.op("store", b.p["y"], b.i32(0), b.cast(b.emit("extent", b.p["x"], axis=0), dtypes.i32))
    fields, size, _ = codegen.block_layout(b.finish(), GPU)
    assert [(f.role, f.arg, f.dtype.name) for f in fields] == [("address", 1, "u64"), ("extent", 0, "i32")]
    assert size == 16


def test_a_long_block_goes_by_address() -> None:
    b = Build("long", {**{f"a{i}": dtypes.f64 for i in range(40)}, "y": linear(dtypes.f64)})
    for i in range(40):
        b.op("store", b.p["y"], b.i32(i), b.p[f"a{i}"])
    artifact = emitted(b.finish())
    assert artifact.indirect
    assert artifact.block_size == 41 * 8


def test_cut_kernels_have_bases_and_reports_an_address() -> None:
    b = Build("cut", {"y": linear(dtypes.i32)}, cut=True)
    site = b.module.add_site(ReportSite("assert", Loc("k.py", 1), "{0}"))
    b.op("report", b.emit("lt", b.gid(), b.emit("num_groups", dim=1)), b.const(1.5, dtypes.f32), site=site)
    artifact = emitted(b.finish())
    assert [(f.role, f.axis) for f in artifact.fields] == [
        ("report", 0),
        ("base", 0),
        ("base", 1),
        ("base", 2),
        ("groups", 1),
    ]
    assert artifact.sites == (ReportSite("assert", Loc("k.py", 1), "{0}"),)
    assert artifact.info["report_values"] == {0: ("float",)}


def test_floats_are_reported_without_f64_too() -> None:
    b = Build("soft", {"x": linear(dtypes.f32, "in")})
    site = b.module.add_site(ReportSite("assert", Loc("k.py", 1), "{0}"))
    x = b.emit("load", b.p["x"], b.gid())
    b.op("report", b.emit("lt", x, b.const(0.0, dtypes.f32)), x, site=site)
    caps = dataclasses.replace(GPU, dtypes=GPU.dtypes - {"f64"}, features=GPU.features - {"float64"})
    assert "Float64" not in text_of(b.finish(), caps)


@pytest.mark.parametrize(
    ("dtype", "feature"),
    [
        (dtypes.boolean, "storage_8bit"),
        (dtypes.bf16, "storage_16bit"),
        (dtypes.f16, "storage_16bit"),
        (dtypes.i8, "storage_8bit"),
        (dtypes.f64, "float64"),
    ],
    ids=str,
)
def test_copies_need_storage_only(dtype: DType, feature: str) -> None:
    """Copying a small type needs no arithmetic feature for it."""
    base = {"int64", "buffer_device_address", "memory_model"}
    features = {name for name in emitted(copy_kernel(dtype)).features if "_f" not in name}
    assert features == {*base, feature}


def test_missing_features_are_named() -> None:
    caps = dataclasses.replace(GPU, features=GPU.features - {"float64"})
    with pytest.raises(FeatureError, match=r"kernel copy needs f64 \(float64\), which this device lacks"):
        codegen.emit(copy_kernel(dtypes.f64), caps)


def test_workgroups_have_to_fit() -> None:
    with pytest.raises(FeatureError, match=r"a workgroup of \(2048, 1, 1\) is too large"):
        codegen.emit(copy_kernel(dtypes.f32, local=2048), GPU)


def test_shared_memory_has_to_fit() -> None:
    b = Build("large", {"y": linear(dtypes.f32)})
    tile = b.emit("shared", type=block(dtypes.f32, 20000))
    b.op("store", b.p["y"], b.i32(0), b.emit("load", tile, b.i32(0)))
    with pytest.raises(FeatureError, match="80000 bytes of shared memory; this device has 49152"):
        codegen.emit(b.finish(), GPU)


def test_subgroups_have_to_be_full() -> None:
    b = Build("partial", {"y": linear(dtypes.f32)}, local=48, subgroups=True)
    b.op("store", b.p["y"], b.gid(), b.emit("sg_reduce", b.const(1.0, dtypes.f32), op="add"))
    with pytest.raises(FeatureError, match="workgroup size 48 has to be a multiple"):
        codegen.emit(b.finish(), GPU)


def test_subgroup_kernels_are_one_dimensional() -> None:
    b = Build("lanes", {"y": linear(dtypes.f32)}, local=(8, 4, 2), subgroups=True)
    b.op("store", b.p["y"], b.gid(), b.emit("sg_reduce", b.const(1.0, dtypes.f32), op="add"))
    artifact = emitted(b.finish())
    assert (artifact.local_size, artifact.subgroup_size) == ((64, 1, 1), 32)
    assert "LocalSize 64 1 1" in disassemble(artifact.code)


def _sum(**attrs: Any) -> Module:
    b = Build("sum", {"x": linear(dtypes.f32, "in"), "y": linear(dtypes.f32)}, **attrs)
    x = b.emit("load", b.p["x"], b.gid())
    product = b.emit("mul", x, x)
    b.op("store", b.p["y"], b.gid(), b.emit("add", product, x))
    return b.finish()


def test_strict_kernels_forbid_contraction() -> None:
    assert text_of(_sum(strict=True)).count("NoContraction") == 2
    assert "NoContraction" not in text_of(_sum())


def test_exact_operations_forbid_contraction() -> None:
    module = _sum()
    next(op for op in module.kernel.body.ops if op.name == "add").attrs["exact"] = True
    assert emit_text(module).count("NoContraction") == 1


def emit_text(module: Module) -> str:
    return disassemble(codegen.emit(module, GPU).code)


def test_float_controls_follow_the_device_and_fast_math() -> None:
    assert {"SignedZeroInfNanPreserve", "RoundingModeRTE", "DenormPreserve"} <= set(text_of(_sum()).split())
    assert not {"SignedZeroInfNanPreserve", "RoundingModeRTE", "DenormPreserve"} & set(
        text_of(_sum(fast_math=True)).split()
    )
    bare = dataclasses.replace(GPU, features=frozenset(name for name in GPU.features if not name.endswith("_f32")))
    assert "Preserve" not in text_of(_sum(), bare)


def test_fast_math_takes_native_float_reductions() -> None:
    def kernel(**attrs: Any) -> str:
        b = Build("lanes", {"y": linear(dtypes.f32)}, subgroups=True, **attrs)
        b.op("store", b.p["y"], b.gid(), b.emit("sg_reduce", b.const(1.0, dtypes.f32), op="add"))
        return text_of(b.finish())

    assert "OpGroupNonUniformFAdd" in kernel(fast_math=True)
    assert kernel().count("OpGroupNonUniformShuffleXor") == 5


def test_barriers_order_buffers_only_where_the_kernel_communicates_through_them() -> None:
    def kernel(**flags: Any) -> str:
        b = Build("sync", {"x": linear(dtypes.f32, "in", **flags), "y": linear(dtypes.f32, "out", **flags)})
        b.op("store", b.p["y"], b.gid(), b.emit("load", b.p["x"], b.gid()))
        b.op("barrier")
        return text_of(b.finish())

    shared_only, both = 0x8 | 0x100 | 0x2000 | 0x4000, 0x8 | 0x40 | 0x100 | 0x2000 | 0x4000
    separate, overlapping = kernel(restrict=True), kernel()
    assert f"OpControlBarrier %uint_2 %uint_2 %uint_{shared_only}" in separate
    assert "NonPrivatePointer" not in separate
    assert f"OpControlBarrier %uint_2 %uint_2 %uint_{both}" in overlapping
    assert overlapping.count("Aligned|NonPrivatePointer 4") == 2


def test_aligned_operands_are_the_largest_that_are_sure() -> None:
    b = Build("wide", {"x": linear(dtypes.f32), "y": linear(dtypes.f32)})
    vec4 = Vector(dtypes.f32, 4)
    x = b.emit("linear", b.p["x"], type=linear(vec4))
    y = b.emit("linear", b.p["y"], type=linear(vec4), align=4)
    b.op("store", y, b.gid(), b.emit("load", x, b.gid()))
    text = text_of(b.finish(verified=False))
    assert "Aligned 16" in text
    assert "Aligned 4" in text


def test_device_scope_needs_its_feature() -> None:
    b = Build("count", {"y": linear(dtypes.i32)})
    b.op("atomic", b.p["y"], b.i32(0), b.i32(1), op="add", order="relaxed", scope="device")
    module = b.finish()
    assert "VulkanMemoryModelDeviceScope" in text_of(module)
    caps = dataclasses.replace(GPU, features=GPU.features - {"memory_model_device_scope"})
    assert "VulkanMemoryModelDeviceScope" not in text_of(module, caps)


def test_source_lines_and_names_can_be_left_out() -> None:
    module = copy_kernel(dtypes.f32)
    for op in module.kernel.body.walk():
        op.loc = Loc("kernel.py", 7, 4, 9)
    full, bare = (disassemble(codegen.emit(module, GPU, debug=debug).code) for debug in (True, False))
    assert '= OpString "kernel.py"' in full
    assert "OpLine" in full
    assert "OpLine" not in bare
    assert "OpName" not in bare


def test_what_had_to_be_lowered_is_named() -> None:
    b = Build("high", {"y": linear(dtypes.i32)})
    b.op("store", b.p["y"], b.gid(), b.emit("floordiv", b.i32(5), b.i32(2)))
    with pytest.raises(InternalError, match="floordiv at .* has to be lowered before emission"):
        codegen.emit(b.finish(), GPU)


def test_usage_sees_through_views_and_into_loops() -> None:
    b = Build("usage", {"x": linear(dtypes.f32, "in"), "y": linear(dtypes.f32), "n": dtypes.i32})
    view = b.emit("linear", b.p["x"], type=linear(dtypes.u32, "in"))
    body, _ = b.repeat(b.i32(0), b.p["n"], b.i32(1), [])
    with b.at(body):
        b.emit("load", view, body.args[0])
        b.op("continue")
    usage = usage_of(b.finish())
    assert (usage.reads, usage.writes, usage.scalars) == ({0}, set(), {2})


@pytest.mark.parametrize(("dtype", "counted"), [(dtypes.i32, True), (INDEX.dtype, False)], ids=str)
def test_bounds_far_from_the_end_need_no_counter(dtype: DType, counted: bool) -> None:
    """Adding the step to an extent can't overflow in 64 bits, but can in 32 bits."""
    b = Build("steps", {"x": Array(F32, 1, access="in"), "y": linear(dtypes.f32)}, narrow=True)
    high = b.cast(b.emit("extent", b.p["x"], axis=0), dtype)
    body = Region([Scalar(dtype)])
    b.op("for", b.const(0, dtype), high, b.const(4, dtype), types=[], regions=[body])
    with b.at(body):
        b.op("store", b.p["y"], body.args[0], b.const(1.0, dtypes.f32))
        b.op("continue")
    assert text_of(b.finish()).count("OpPhi") == (2 if counted else 1)
