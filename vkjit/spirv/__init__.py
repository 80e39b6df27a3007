"""A SPIR-V assembler and disassembler. It is independent of the IR; the Vulkan code generator is built on it.

A caller adds types, constants and instructions by their SPIR-V names to a `Module`, which writes them section by
section. An example::

    m = Module()                                            # SPIR-V 1.5, Vulkan memory model
    u32, f32 = m.type_int(32), m.type_float(32)             # types and constants are ids (ints), each declared once
    uvec3 = m.type_vector(u32, 3)
    block = m.type_struct((m.type_int(64),), (0,), name="Arguments", block=True)
    arguments = m.variable("PushConstant", block)
    f = m.function(m.type_void(), name="double")
    m.entry_point(f, "main", (64, 1, 1))                    # the interface is filled in automatically
    b = f.block()                                           # OpenBlock; f.label() makes labels for later blocks
    b.line("kernel.py", 3)                                  # applies until the next line(); OpLine is emitted on change
    gid = b.emit("OpLoad", uvec3, m.builtin("GlobalInvocationId", uvec3))
    i = b.emit("OpCompositeExtract", u32, gid, 0)           # emit(name, result type, operands as in the grammar)
    inside = b.emit("OpULessThan", m.type_bool(), i, m.constant(u32, 1000))
    then, merge = f.label(), f.label()
    b.selection_merge(merge)                                # directly before its branch
    b.branch_conditional(inside, then, merge)               # a terminator closes the block and returns a ClosedBlock
    b = f.block(then)
    u64 = m.type_int(64)
    pointer = b.emit("OpAccessChain", m.type_pointer("PushConstant", u64), arguments, m.constant(u32, 0))
    offset = b.emit("OpUConvert", u64, b.emit("OpIMul", u32, i, m.constant(u32, 4)))
    address = b.emit("OpIAdd", u64, b.emit("OpLoad", u64, pointer), offset)
    x = b.emit("OpConvertUToPtr", m.type_pointer("PhysicalStorageBuffer", f32), address)
    value = b.emit("OpLoad", f32, x, "Aligned", 4)          # parameters of an enumerant or mask follow it
    b.emit_void("OpStore", x, b.emit("OpFAdd", f32, value, value), "Aligned", 4)
    b.branch(merge)
    f.block(merge).return_()
    code = m.to_bytes()                                     # checks blocks, labels and phis

The phi of a loop header is created by `p = header.phi(u32, start, before.label)`. The value for the next iteration is
added later, by `p.add(following, back.label)`. `f.variable(f32)` declares a function-scope variable. Scopes and memory
semantics are constants: `m.scope("Workgroup")`, `m.semantics("AcquireRelease|WorkgroupMemory")`.

Names of instructions and enumerants (the values of enumerations, in the terms of the SPIR-V specification) are checked
against `_gen_grammar`, tables generated from the Khronos grammar. Capabilities and extensions are derived from what was
emitted (`m.requirements()`); others are added with `m.require(capability)` and `m.extension(name)`.
"""

from __future__ import annotations

from .function import ClosedBlock, FunctionWriter, OpenBlock, Phi
from .module import Module
from .types import TypeInfo

__all__ = ["ClosedBlock", "FunctionWriter", "Module", "OpenBlock", "Phi", "TypeInfo"]
