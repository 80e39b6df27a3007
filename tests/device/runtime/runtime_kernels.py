"""Hand-assembled kernels for runtime tests; they need only SPIR-V's numeric encodings."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.errors import Loc
from vkjit.runtime.artifact import ArgField, KernelArtifact, ReportSite

LOCAL_SIZE = 64
BLOCK = struct.Struct("<QQQQ")  # three addresses, then n; the third is the report slot in kernels that report
SITE = ReportSite("bounds", Loc("kernel.py", 7, 4, 8), "index {0} of {1}")

CAPABILITIES = (1, 11, 5347, 5345)  # Shader, Int64, PhysicalStorageBufferAddresses, VulkanMemoryModel
PUSH, PHYSICAL, INPUT, FUNCTION_CLASS = 9, 5349, 1, 7


class Assembler:
    """Collects instructions by section and allocates ids."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.marks: list[int] = []
        self.globals: list[int] = []
        self.body: list[int] = []
        self.bound = 1

    def id(self) -> int:
        self.bound += 1
        return self.bound - 1

    def put(self, section: list[int], opcode: int, *operands: int) -> None:
        section += [(len(operands) + 1) << 16 | opcode, *operands]

    def typed(self, opcode: int, *operands: int) -> int:
        """Add a type or another global declaration whose result id comes first."""
        result = self.id()
        self.put(self.globals, opcode, result, *operands)
        return result

    def constant(self, kind: int, value: int, words: int = 1) -> int:
        result = self.id()
        parts = [value & 0xFFFFFFFF, value >> 32][:words]
        self.put(self.globals, 43, kind, result, *parts)
        return result

    def op(self, opcode: int, kind: int, *operands: int) -> int:
        """Add an instruction with a result to the body."""
        result = self.id()
        self.put(self.body, opcode, kind, result, *operands)
        return result

    def module(self) -> bytes:
        words = [0x07230203, 0x00010500, 0, self.bound, 0, *self.heads, *self.marks, *self.globals, *self.body]
        return struct.pack(f"<{len(words)}I", *words)


def text(value: str) -> list[int]:
    data = value.encode() + b"\0"
    data += b"\0" * (-len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


class Kernel(Assembler):
    """A one-dimensional kernel: argument block, invocation id, and a guard `i < n` around the body.

    With `indirect`, the push constant is the address of the argument block.
    """

    def __init__(self, indirect: bool) -> None:
        super().__init__()
        self.void = self.typed(19)
        self.boolean = self.typed(20)
        self.u32 = self.typed(21, 32, 0)
        self.u64 = self.typed(21, 64, 0)
        self.vector = self.typed(23, self.u32, 3)
        self.block = self.typed(30, self.u64, self.u64, self.u64, self.u64)
        for member in range(4):
            self.put(self.marks, 72, self.block, member, 35, 8 * member)  # Offset
        self.put(self.marks, 71, self.block, 2)  # Block
        self.element = self.typed(32, PHYSICAL, self.u32)
        self.indices = [self.constant(self.u32, value) for value in range(5)]
        self.indirect = indirect
        self.push = self._argument_variable()
        self.invocation = self.typed_variable(INPUT, self.vector)
        self.put(self.marks, 71, self.invocation, 11, 28)  # BuiltIn GlobalInvocationId
        self.main = self.id()
        self._head()
        signature = self.typed(33, self.void)
        self.constants: dict[int, int] = {}
        self.vec4 = self.constant(self.u64, 4, 2)
        self.signature = signature

    def typed_variable(self, storage: int, kind: int) -> int:
        pointer = self.typed(32, storage, kind)
        result = self.id()
        self.put(self.globals, 59, pointer, result, storage)
        return result

    def _argument_variable(self) -> int:
        if not self.indirect:
            self.word_pointer = self.typed(32, PUSH, self.u64)
            return self.typed_variable(PUSH, self.block)
        self.holder = self.typed(30, self.u64)
        self.put(self.marks, 72, self.holder, 0, 35, 0)
        self.put(self.marks, 71, self.holder, 2)
        self.address_pointer = self.typed(32, PUSH, self.u64)
        self.block_pointer = self.typed(32, PHYSICAL, self.block)
        self.word_pointer = self.typed(32, PHYSICAL, self.u64)
        return self.typed_variable(PUSH, self.holder)

    def _head(self) -> None:
        for capability in CAPABILITIES:
            self.put(self.heads, 17, capability)
        self.put(self.heads, 14, PHYSICAL - 1, 3)  # MemoryModel PhysicalStorageBuffer64 Vulkan
        interface = [self.push, self.invocation]
        self.put(self.heads, 15, 5, self.main, *text("main"), *interface)  # EntryPoint GLCompute
        self.put(self.heads, 16, self.main, 17, LOCAL_SIZE, 1, 1)  # LocalSize

    def number(self, value: int) -> int:
        """Return a u32 constant."""
        if value not in self.constants:
            self.constants[value] = self.constant(self.u32, value)
        return self.constants[value]

    def argument(self, member: int) -> int:
        """Load one 64-bit word of the argument block."""
        if not self.indirect:
            pointer = self.op(65, self.word_pointer, self.push, self.indices[member])
            return self.op(61, self.u64, pointer)
        holder = self.op(65, self.address_pointer, self.push, self.indices[0])
        block = self.op(120, self.block_pointer, self.op(61, self.u64, holder))  # ConvertUToPtr
        pointer = self.op(65, self.word_pointer, block, self.indices[member])
        return self.op(61, self.u64, pointer, 2, 8)  # Aligned 8

    def pointer(self, base: int, index: int) -> int:
        """Return the address base + 4 * index as a pointer to u32; index is a u32."""
        wide = self.op(113, self.u64, index)  # UConvert
        offset = self.op(132, self.u64, wide, self.vec4)
        return self.op(120, self.element, self.op(128, self.u64, base, offset))

    def load(self, base: int, index: int) -> int:
        return self.op(61, self.u32, self.pointer(base, index), 2, 4)

    def store(self, base: int, index: int, value: int) -> None:
        self.put(self.body, 62, self.pointer(base, index), value, 2, 4)

    def build(self, body: Callable[[int, int], None]) -> bytes:
        """Return the module; `body` takes the ids of i and n."""
        for value in range(8):
            self.number(value)
        self.put(self.body, 54, self.void, self.main, 0, self.signature)
        self.put(self.body, 248, self.id())
        i = self.op(81, self.u32, self.op(61, self.vector, self.invocation), 0)
        n = self.op(113, self.u32, self.argument(3))
        inside, end = self.id(), self.id()
        condition = self.op(176, self.boolean, i, n)
        self.put(self.body, 247, end, 0)
        self.put(self.body, 250, condition, inside, end)
        self.put(self.body, 248, inside)
        body(i, n)
        self.put(self.body, 249, end)
        self.put(self.body, 248, end)
        self.put(self.body, 253)
        self.put(self.body, 56)
        return self.module()


def artifact(name: str, code: bytes, indirect: bool = False, **more: Any) -> KernelArtifact:
    u64 = dtypes.by_name["u64"]
    roles = ("address", "address", "report" if more.get("sites") else "address", "scalar")
    fields = tuple(ArgField(role, k, 0, u64, 8 * k, 8) for k, role in enumerate(roles))
    reads, writes = frozenset({0, 1}), frozenset({2})
    return KernelArtifact(name, code, "main", (LOCAL_SIZE, 1, 1), fields, BLOCK.size, indirect, reads, writes, **more)


def add(indirect: bool = False) -> KernelArtifact:
    """c[i] = a[i] + b[i] over u32; block (a, b, c, n)."""
    k = Kernel(indirect)

    def body(i: int, _n: int) -> None:
        k.store(k.argument(2), i, k.op(128, k.u32, k.load(k.argument(0), i), k.load(k.argument(1), i)))

    return artifact("add", k.build(body), indirect)


def shift() -> KernelArtifact:
    """y[i] = x[(i + 1) % n] + 1; block (x, -, y, n). Two of these in a row reveal a missing barrier."""
    k = Kernel(False)

    def body(i: int, n: int) -> None:
        following = k.op(137, k.u32, k.op(128, k.u32, i, k.number(1)), n)  # UMod
        k.store(k.argument(2), i, k.op(128, k.u32, k.load(k.argument(0), following), k.number(1)))

    return artifact("shift", k.build(body))


def report(indirect: bool = False) -> KernelArtifact:
    """Invocation 5 reports site 1 with i and n if n is above 5; block (-, -, report, n)."""
    k = Kernel(indirect)

    def body(i: int, n: int) -> None:
        inside, end = k.id(), k.id()
        condition = k.op(170, k.boolean, i, k.number(5))
        k.put(k.body, 247, end, 0)
        k.put(k.body, 250, condition, inside, end)
        k.put(k.body, 248, inside)
        slot = k.argument(2)
        for place, value in ((0, k.number(1)), (1, i), (4, i), (6, n)):
            k.store(slot, k.number(place), value)
        k.put(k.body, 249, end)
        k.put(k.body, 248, end)

    return artifact("report", k.build(body), indirect, sites=(SITE,))


def groups(n: int) -> tuple[int, int, int]:
    return max(1, -(-n // LOCAL_SIZE)), 1, 1


def upload(device: Any, values: np.ndarray[Any, Any]) -> Any:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    buffer = device.allocate(data.nbytes)
    device.write(buffer, 0, data)
    return buffer


def download(device: Any, buffer: Any, dtype: Any = np.uint32) -> np.ndarray[Any, Any]:
    out = np.empty(buffer.nbytes, np.uint8)
    device.read(buffer, 0, out)
    return out.view(dtype)
