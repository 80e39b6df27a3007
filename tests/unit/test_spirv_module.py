from __future__ import annotations

from vkjit.spirv import tools
from vkjit.spirv.module import Module


def saxpy() -> bytes:
    """y[i] = a * x[i] + y[i] in a grid-stride loop, over buffer addresses."""
    m = Module()
    void, f32, u32, u64, boolean = m.type_void(), m.type_float(32), m.type_int(32), m.type_int(64), m.type_bool()
    uvec3 = m.type_vector(u32, 3)
    block = m.type_struct(
        (u64, u64, u32, f32), (0, 8, 16, 20), name="Arguments", block=True, member_names=("x", "y", "n", "a")
    )
    arguments = m.variable("PushConstant", block, "arguments")
    address = m.type_pointer("PhysicalStorageBuffer", f32)
    zero, one, two, three = (m.constant(u32, k) for k in range(4))
    four = m.constant(u64, 4)

    f = m.function(void, name="saxpy")
    m.entry_point(f, "main", (64, 1, 1))
    entry = f.block()
    header, body, cont, merge = (f.label() for _ in range(4))
    entry.line("saxpy.py", 3)

    def argument(index: int, type_id: int) -> int:
        pointer = entry.emit("OpAccessChain", m.type_pointer("PushConstant", type_id), arguments, index)
        return entry.emit("OpLoad", type_id, pointer)

    x, y, n, a = argument(zero, u64), argument(one, u64), argument(two, u32), argument(three, f32)
    gid = entry.emit("OpLoad", uvec3, m.builtin("GlobalInvocationId", uvec3))
    groups = entry.emit("OpLoad", uvec3, m.builtin("NumWorkgroups", uvec3))
    first = entry.emit("OpCompositeExtract", u32, gid, 0)
    count = entry.emit("OpCompositeExtract", u32, groups, 0)
    step = entry.emit("OpIMul", u32, count, m.constant(u32, 64))
    before = entry.branch(header)

    head = f.block(header)
    i = head.phi(u32, first, before.label)
    check = f.label()
    head.loop_merge(merge, cont)
    head.branch(check)
    test = f.block(check)
    test.branch_conditional(test.emit("OpULessThan", boolean, i.id, n), body, merge)

    b = f.block(body)
    b.line("saxpy.py", 4)
    offset = b.emit("OpIMul", u64, b.emit("OpUConvert", u64, i.id), four)
    px = b.emit("OpConvertUToPtr", address, b.emit("OpIAdd", u64, x, offset))
    py = b.emit("OpConvertUToPtr", address, b.emit("OpIAdd", u64, y, offset))
    vx = b.emit("OpLoad", f32, px, "Aligned", 4)
    vy = b.emit("OpLoad", f32, py, "Aligned", 4)
    b.emit_void("OpStore", py, b.glsl("Fma", f32, a, vx, vy), "Aligned", 4)
    b.branch(cont)
    c = f.block(cont)
    following = c.emit("OpIAdd", u32, i.id, step)
    i.add(following, c.branch(header).label)
    f.block(merge).return_()
    return m.to_bytes()


def test_saxpy() -> None:
    tools.validate(saxpy())
    print(tools.spirv_dis(saxpy()))
