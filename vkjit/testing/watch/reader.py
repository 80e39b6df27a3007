"""A SPIR-V module taken apart into instructions, with what is asked about its types and pointers.

Enters: a module's bytes. Leaves: `Reader`. Holds: the instructions stand in the module's order, so that a changed list of
them is a changed module.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field

import numpy as np

from ...errors import InternalError
from ...spirv._gen_grammar import ENUMERANTS, INSTRUCTIONS, MAGIC
from ...spirv.words import Layout, layout_of

__all__ = ["CHAINS", "Instruction", "Reader", "encode"]

HEADER_WORDS = 5
CHAINS = frozenset({"OpAccessChain", "OpInBoundsAccessChain"})
_STORAGE = {row[0]: name for name, row in reversed(ENUMERANTS["StorageClass"].items())}
"""Names of storage classes; of several names of one, the first."""
_OFFSET = ENUMERANTS["Decoration"]["Offset"][0]


@functools.cache
def _by_opcode() -> dict[int, Layout]:
    return {row[0]: layout_of(name) for name, row in INSTRUCTIONS.items()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `type` and `result` are 0 where it has none; `operands` are the words after them."""

    name: str
    type: int
    result: int
    operands: tuple[int, ...]


def encode(instruction: Instruction) -> list[int]:
    """The words of an instruction."""
    head = [number for number in (instruction.type, instruction.result) if number]
    words = [*head, *instruction.operands]
    return [(len(words) + 1) << 16 | layout_of(instruction.name).opcode, *words]


@dataclass(slots=True)
class Reader:
    """A module. `definitions` holds the instruction of each id, `offsets` those of members of structures, in bytes."""

    header: list[int]
    instructions: list[Instruction]
    definitions: dict[int, Instruction] = field(default_factory=dict)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(code: bytes) -> Reader:
        """Reads a module. Raises InternalError for what isn't one."""
        words: list[int] = np.frombuffer(code, "<u4").tolist()
        if len(words) < HEADER_WORDS or words[0] != MAGIC:
            raise InternalError("these bytes aren't a SPIR-V module: the first word isn't the magic number")
        made = Reader(words[:HEADER_WORDS], [])
        place = HEADER_WORDS
        while place < len(words):
            count, opcode = words[place] >> 16, words[place] & 0xFFFF
            layout = _by_opcode().get(opcode)
            if layout is None or count == 0:
                raise InternalError(f"the SPIR-V grammar has no instruction of opcode {opcode}")
            made.add(layout, words[place + 1 : place + count])
            place += count
        return made

    def add(self, layout: Layout, words: list[int]) -> None:
        """The next instruction."""
        first = layout.has_type + layout.has_result
        type_id = words[0] if layout.has_type else 0
        result = words[first - 1] if layout.has_result else 0
        made = Instruction(layout.name, type_id, result, tuple(words[first:]))
        self.instructions.append(made)
        if result:
            self.definitions[result] = made
        if made.name == "OpMemberDecorate" and made.operands[2] == _OFFSET:
            self.offsets[made.operands[0], made.operands[1]] = made.operands[3]

    # -- types

    def storage(self, pointer: int) -> str:
        """The storage class of a pointer, by its id; "" where the id is no pointer."""
        kind = self.definitions[self.definitions[pointer].type] if self.definitions[pointer].type else None
        return _STORAGE[kind.operands[0]] if kind is not None and kind.name == "OpTypePointer" else ""

    def pointee(self, pointer: int) -> int:
        """The type that a pointer points to."""
        return self.definitions[self.definitions[pointer].type].operands[1]

    def scalar_bytes(self, type_id: int) -> int:
        """Bytes of a scalar, or of a vector's component."""
        kind = self.definitions[type_id]
        if kind.name in ("OpTypeInt", "OpTypeFloat"):
            return kind.operands[0] // 8
        if kind.name == "OpTypeVector":
            return self.scalar_bytes(kind.operands[0])
        raise InternalError(f"memory holds scalars and vectors of them; this access is to a {kind.name}")

    def size(self, type_id: int) -> int:
        """Bytes of a scalar or a vector."""
        kind = self.definitions[type_id]
        return self.scalar_bytes(type_id) * (kind.operands[1] if kind.name == "OpTypeVector" else 1)

    def constant(self, value: int) -> int | None:
        """The number that an integer constant is; None for what isn't one."""
        made = self.definitions.get(value)
        if made is None or made.name != "OpConstant" or self.definitions[made.type].name != "OpTypeInt":
            return None
        number = sum(word << 32 * place for place, word in enumerate(made.operands))
        return number & ((1 << self.definitions[made.type].operands[0]) - 1)

    def bits(self, value: int) -> int:
        """The width of an integer value."""
        return self.definitions[self.definitions[value].type].operands[0]

    def to_bytes(self) -> bytes:
        """The module, as `instructions` are now."""
        words = [*self.header]
        for instruction in self.instructions:
            words += encode(instruction)
        return struct.pack(f"<{len(words)}I", *words)
