"""Hand-written compute modules shared by the tests of the SPIR-V writer; each builder returns a fresh module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vkjit.spirv import FunctionWriter, Module, OpenBlock


@dataclass(frozen=True, slots=True)
class Kernel:
    """A module with one entry point and a push-constant block of 64-bit addresses."""

    module: Module
    function: FunctionWriter
    block: OpenBlock
    addresses: tuple[int, ...]

    def pointer(self, block: OpenBlock, which: int, pointee: int, offset: int | None = None) -> int:
        """Emit a pointer at `offset` (u64, bytes) from an address."""
        m = self.module
        address = self.addresses[which]
        if offset is not None:
            address = block.emit("OpIAdd", m.type_int(64), address, offset)
        return block.emit("OpConvertUToPtr", m.type_pointer("PhysicalStorageBuffer", pointee), address)


def kernel(module: Module, count: int, local_size: tuple[int, int, int] = (64, 1, 1)) -> Kernel:
    """Create an entry point that loads `count` addresses in its first block."""
    m = module
    u32, u64 = m.type_int(32), m.type_int(64)
    block_type = m.type_struct((u64,) * count, tuple(8 * k for k in range(count)), name="Arguments", block=True)
    arguments = m.variable("PushConstant", block_type, "arguments")
    f = m.function(m.type_void(), name="kernel")
    m.entry_point(f, "main", local_size)
    block = f.block()
    pointer = m.type_pointer("PushConstant", u64)
    addresses = tuple(
        block.emit("OpLoad", u64, block.emit("OpAccessChain", pointer, arguments, m.constant(u32, k)))
        for k in range(count)
    )
    return Kernel(m, f, block, addresses)


def saxpy(version: tuple[int, int] = (1, 5), *, debug: bool = True) -> Module:
    """y[i] = a * x[i] + y[i] in a grid-stride loop, over buffer addresses."""
    m = Module(version, debug=debug)
    void, f32, u32, u64, boolean = m.type_void(), m.type_float(32), m.type_int(32), m.type_int(64), m.type_bool()
    uvec3 = m.type_vector(u32, 3)
    names = ("x", "y", "n", "a")
    block = m.type_struct((u64, u64, u32, f32), (0, 8, 16, 20), name="Arguments", member_names=names, block=True)
    arguments = m.variable("PushConstant", block, "arguments")
    address = m.type_pointer("PhysicalStorageBuffer", f32)
    f = m.function(void, name="saxpy")
    m.entry_point(f, "main", (64, 1, 1))
    entry = f.block()
    header, check, body, after, merge = (f.label() for _ in range(5))
    entry.line("saxpy.py", 3)

    def argument(index: int, type_id: int) -> int:
        pointer = entry.emit(
            "OpAccessChain", m.type_pointer("PushConstant", type_id), arguments, m.constant(u32, index)
        )
        return entry.emit("OpLoad", type_id, pointer)

    x, y, n, a = argument(0, u64), argument(1, u64), argument(2, u32), argument(3, f32)
    gid = entry.emit("OpLoad", uvec3, m.builtin("GlobalInvocationId", uvec3))
    groups = entry.emit("OpLoad", uvec3, m.builtin("NumWorkgroups", uvec3))
    first = entry.emit("OpCompositeExtract", u32, gid, 0)
    step = entry.emit("OpIMul", u32, entry.emit("OpCompositeExtract", u32, groups, 0), m.constant(u32, 64))
    before = entry.branch(header)

    head = f.block(header)
    i = head.phi(u32, first, before.label)
    head.loop_merge(merge, after)
    head.branch(check)
    test = f.block(check)
    test.branch_conditional(test.emit("OpULessThan", boolean, i.id, n), body, merge)

    b = f.block(body)
    b.line("saxpy.py", 4)
    offset = b.emit("OpIMul", u64, b.emit("OpUConvert", u64, i.id), m.constant(u64, 4))
    px = b.emit("OpConvertUToPtr", address, b.emit("OpIAdd", u64, x, offset))
    py = b.emit("OpConvertUToPtr", address, b.emit("OpIAdd", u64, y, offset))
    vx = b.emit("OpLoad", f32, px, "Aligned", 4)
    vy = b.emit("OpLoad", f32, py, "Aligned", 4)
    b.emit_void("OpStore", py, b.glsl("Fma", f32, a, vx, vy), "Aligned", 4)
    b.branch(after)
    c = f.block(after)
    following = c.emit("OpIAdd", u32, i.id, step)
    i.add(following, c.branch(header).label)
    f.block(merge).return_()
    return m


def shared_sum() -> Module:
    """Add pairs of values through shared memory, then add them atomically to a counter in global memory."""
    m = Module()
    u32 = m.type_int(32)
    k = kernel(m, 2)
    b = k.block
    shared = m.variable("Workgroup", m.type_array(u32, 64), "shared")
    element = m.type_pointer("Workgroup", u32)
    index = b.emit("OpLoad", u32, m.builtin("LocalInvocationIndex", u32))
    offset = b.emit("OpUConvert", m.type_int(64), b.emit("OpShiftLeftLogical", u32, index, m.constant(u32, 2)))
    value = b.emit("OpLoad", u32, k.pointer(b, 0, u32, offset), "Aligned", 4)
    mine = b.emit("OpAccessChain", element, shared, index)
    b.emit_void("OpStore", mine, value)
    workgroup = m.scope("Workgroup")
    b.emit_void("OpControlBarrier", workgroup, workgroup, m.semantics("AcquireRelease|WorkgroupMemory"))
    other = b.emit("OpBitwiseXor", u32, index, m.constant(u32, 1))
    theirs = b.emit("OpLoad", u32, b.emit("OpAccessChain", element, shared, other))
    total = b.emit("OpIAdd", u32, value, theirs)
    target = k.pointer(b, 1, u32)
    b.emit("OpAtomicIAdd", u32, target, m.scope("Device"), m.semantics("None"), total)
    visible = b.emit("OpLoad", u32, target, "Aligned|MakePointerVisible|NonPrivatePointer", 4, workgroup)
    b.emit_void("OpStore", target, visible, "Aligned|MakePointerAvailable|NonPrivatePointer", 4, workgroup)
    b.return_()
    return m


def half_copy(arithmetic: bool) -> Module:
    """Widen an f16 from memory to f32; with `arithmetic`, double it in f16 first."""
    m = Module()
    f16, f32 = m.type_float(16), m.type_float(32)
    k = kernel(m, 2)
    b = k.block
    value = b.emit("OpLoad", f16, k.pointer(b, 0, f16), "Aligned", 2)
    if arithmetic:
        value = b.emit("OpFAdd", f16, value, value)
    b.emit_void("OpStore", k.pointer(b, 1, f32), b.emit("OpFConvert", f32, value), "Aligned", 4)
    b.return_()
    return m


def byte_compare() -> Module:
    """Compare bytes: arithmetic on 8-bit values whose result isn't 8 bits wide."""
    m = Module()
    u8, u32 = m.type_int(8), m.type_int(32)
    k = kernel(m, 1)
    b = k.block
    value = b.emit("OpLoad", u8, k.pointer(b, 0, u8), "Aligned", 1)
    same = b.emit("OpIEqual", m.type_bool(), value, value)
    chosen = b.emit("OpSelect", u32, same, m.constant(u32, 1), m.constant(u32, 0))
    b.emit_void("OpStore", k.pointer(b, 0, u32), chosen, "Aligned", 4)
    b.return_()
    return m


def atomics() -> Module:
    """Atomics on u64, f32 and f64."""
    m = Module()
    u64, f32, f64 = m.type_int(64), m.type_float(32), m.type_float(64)
    k = kernel(m, 1)
    b = k.block
    device, relaxed = m.scope("Device"), m.semantics("None")
    b.emit("OpAtomicUMax", u64, k.pointer(b, 0, u64), device, relaxed, m.constant(u64, 1 << 40))
    b.emit_void("OpAtomicStore", k.pointer(b, 0, u64), device, relaxed, m.constant(u64, -1))
    b.emit("OpAtomicFAddEXT", f32, k.pointer(b, 0, f32), device, relaxed, m.constant(f32, 1.5))
    b.emit("OpAtomicFMaxEXT", f64, k.pointer(b, 0, f64), device, relaxed, m.constant(f64, 1e300))
    b.return_()
    return m


def subgroups() -> Module:
    """Subgroup arithmetic, shuffle, ballot and vote."""
    m = Module()
    u32, boolean = m.type_int(32), m.type_bool()
    k = kernel(m, 1)
    b = k.block
    scope = m.scope("Subgroup")
    lane = b.emit("OpLoad", u32, m.builtin("SubgroupLocalInvocationId", u32))
    total = b.emit("OpGroupNonUniformIAdd", u32, scope, "Reduce", lane)
    other = b.emit("OpGroupNonUniformShuffleXor", u32, scope, total, m.constant(u32, 1))
    votes = b.emit("OpGroupNonUniformBallot", m.type_vector(u32, 4), scope, m.constant(boolean, True))
    count = b.emit("OpGroupNonUniformBallotBitCount", u32, scope, "Reduce", votes)
    b.emit_void("OpStore", k.pointer(b, 0, u32), b.emit("OpIAdd", u32, other, count), "Aligned", 4)
    b.return_()
    return m


def packed_dot() -> Module:
    """Dot product of four bytes packed in 32 bits."""
    m = Module()
    u32, i32 = m.type_int(32), m.type_int(32, signed=True)
    k = kernel(m, 1)
    b = k.block
    value = b.emit("OpLoad", u32, k.pointer(b, 0, u32), "Aligned", 4)
    dot = b.emit("OpSDot", i32, value, value, "PackedVectorFormat4x8Bit")
    b.emit_void("OpStore", k.pointer(b, 0, i32), dot, "Aligned", 4)
    b.return_()
    return m


def cooperative_matrix(component: str = "f16") -> Module:
    """A 16x16x16 product of KHR cooperative matrices, accumulated in f32."""
    m = Module((1, 6))
    narrow = m.type_float(16) if component == "f16" else m.type_bfloat16()
    f32, u32 = m.type_float(32), m.type_int(32)
    k = kernel(m, 2, (32, 1, 1))
    b = k.block
    a_type = m.type_cooperative_matrix(narrow, "Subgroup", 16, 16, "MatrixAKHR")
    b_type = m.type_cooperative_matrix(narrow, "Subgroup", 16, 16, "MatrixBKHR")
    c_type = m.type_cooperative_matrix(f32, "Subgroup", 16, 16, "MatrixAccumulatorKHR")
    row_major, stride = m.constant(u32, 0), m.constant(u32, 16)
    source = k.pointer(b, 0, narrow)
    left = b.emit("OpCooperativeMatrixLoadKHR", a_type, source, row_major, stride, "Aligned", 16)
    right = b.emit("OpCooperativeMatrixLoadKHR", b_type, source, row_major, stride, "Aligned", 16)
    product = b.emit("OpCooperativeMatrixMulAddKHR", c_type, left, right, m.constant_null(c_type))
    target = k.pointer(b, 1, f32)
    b.emit_void("OpCooperativeMatrixStoreKHR", target, product, row_major, stride, "Aligned", 16)
    b.return_()
    return m


def tensor_load() -> Module:
    """A workgroup-scope matrix loaded through a tensor layout (NV cooperative matrix 2)."""
    m = Module((1, 6))
    f16, u32 = m.type_float(16), m.type_int(32)
    k = kernel(m, 2, (128, 1, 1))
    b = k.block
    layout_type = m.type_opaque("OpTypeTensorLayoutNV", m.constant(u32, 2), m.constant(u32, 0))
    matrix = m.type_cooperative_matrix(f16, "Workgroup", 64, 64, "MatrixAccumulatorKHR")
    size, zero, block = m.constant(u32, 1024), m.constant(u32, 0), m.constant(u32, 64)
    layout = b.emit("OpCreateTensorLayoutNV", layout_type)
    layout = b.emit("OpTensorLayoutSetDimensionNV", layout_type, layout, size, size)
    layout = b.emit("OpTensorLayoutSliceNV", layout_type, layout, zero, block, zero, block)
    source, target = k.pointer(b, 0, f16), k.pointer(b, 1, f16)
    blank = m.constant_null(matrix)
    loaded = b.emit("OpCooperativeMatrixLoadTensorNV", matrix, source, blank, layout, "Aligned", 16, "None")
    b.emit_void("OpCooperativeMatrixStoreTensorNV", target, loaded, layout, "Aligned", 16, "None")
    b.return_()
    return m


def strict_math() -> Module:
    """Float controls, no contraction, a helper function with a variable, and a switch over 64 bits."""
    m = Module((1, 4))
    f32, i64 = m.type_float(32), m.type_int(64, signed=True)
    helper = m.function(f32, (f32,), name="helper", control="DontInline")
    h = helper.block()
    total = h.emit("OpFMul", f32, helper.parameters[0], helper.parameters[0])
    m.decorate(total, "NoContraction")
    local = helper.variable(f32, "local")
    h.emit_void("OpStore", local, total)
    h.return_value(h.emit("OpLoad", f32, local))
    k = kernel(m, 1)
    m.execution_mode(k.function, "SignedZeroInfNanPreserve", 32)
    m.execution_mode(k.function, "RoundingModeRTE", 32)
    b = k.block
    selector = b.emit("OpBitcast", i64, k.addresses[0])
    one, two, merge = (k.function.label() for _ in range(3))
    b.selection_merge(merge, "DontFlatten")
    before = b.switch(selector, merge, [(-1, one), (1 << 40, two)])
    from_one = k.function.block(one).branch(merge)
    from_two = k.function.block(two).branch(merge)
    end = k.function.block(merge)
    x = end.phi(f32, m.constant(f32, 0.0), before.label)
    x.add(m.constant(f32, -0.0), from_one.label)
    x.add(m.constant(f32, 0.1), from_two.label)
    result = end.emit("OpFunctionCall", f32, helper.id, x.id)
    end.emit_void("OpStore", k.pointer(end, 0, f32), result, "Aligned", 4)
    end.return_()
    return m


SAMPLES: dict[str, Callable[[], Module]] = {
    "saxpy": saxpy,
    "shared_sum": shared_sum,
    "half_storage": lambda: half_copy(arithmetic=False),
    "half_arithmetic": lambda: half_copy(arithmetic=True),
    "byte_compare": byte_compare,
    "atomics": atomics,
    "subgroups": subgroups,
    "packed_dot": packed_dot,
    "cooperative_f16": cooperative_matrix,
    "cooperative_bf16": lambda: cooperative_matrix("bf16"),
    "tensor_load": tensor_load,
    "strict_math": strict_math,
}
