"""A SPIR-V parser: decodes a module into instructions and answers queries about types, pointers and constants.

`instrument` modifies the list of instructions; `Reader.to_bytes` encodes it as a module again.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field

import numpy as np

from vkjit.errors import InternalError
from vkjit.spirv._gen_grammar import ENUMERANTS, INSTRUCTIONS, MAGIC
from vkjit.spirv.words import Layout, layout_of

__all__ = ["CHAINS", "Instruction", "Reader", "encode"]

HEADER_WORDS = 5
CHAINS = frozenset({"OpAccessChain", "OpInBoundsAccessChain"})
"""Instructions that compute a pointer to a part from a pointer to the whole and indices."""
_STORAGE = {row[0]: name for name, row in reversed(ENUMERANTS["StorageClass"].items())}
"""The names of storage classes by number; the first name in the grammar if there are several."""
_OFFSET = ENUMERANTS["Decoration"]["Offset"][0]


@functools.cache
def _by_opcode() -> dict[int, Layout]:
    return {row[0]: layout_of(name) for name, row in INSTRUCTIONS.items()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: the ids of its result type and result, 0 if it has none, and the words of its operands."""

    name: str
    type: int
    result: int
    operands: tuple[int, ...]


def encode(instruction: Instruction) -> list[int]:
    """Return the words of an instruction."""
    head = [number for number in (instruction.type, instruction.result) if number]
    words = [*head, *instruction.operands]
    return [(len(words) + 1) << 16 | layout_of(instruction.name).opcode, *words]


@dataclass(slots=True)
class Reader:
    """A parsed module.

    `header` are its first five words; the fourth is the smallest unused id. `definitions` maps an id to the instruction
    that defines it. `offsets` maps the id of a structure and a member's number to the member's offset in bytes.
    """

    header: list[int]
    instructions: list[Instruction]
    definitions: dict[int, Instruction] = field(default_factory=dict)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(code: bytes) -> Reader:
        """Parse a SPIR-V module. Raises InternalError if it is invalid."""
        words: list[int] = np.frombuffer(code, "<u4").tolist()
        if len(words) < HEADER_WORDS or words[0] != MAGIC:
            raise InternalError("these bytes aren't a SPIR-V module: the first word isn't the magic number")
        reader = Reader(words[:HEADER_WORDS], [])
        place = HEADER_WORDS
        while place < len(words):
            count, opcode = words[place] >> 16, words[place] & 0xFFFF
            layout = _by_opcode().get(opcode)
            if layout is None or count == 0:
                raise InternalError(f"the SPIR-V grammar has no instruction of opcode {opcode}")
            reader.add(layout, words[place + 1 : place + count])
            place += count
        return reader

    def add(self, layout: Layout, words: list[int]) -> None:
        """Decode and append an instruction; `words` are those after its first word."""
        first = layout.has_type + layout.has_result
        type_id = words[0] if layout.has_type else 0
        result = words[first - 1] if layout.has_result else 0
        instruction = Instruction(layout.name, type_id, result, tuple(words[first:]))
        self.instructions.append(instruction)
        if result:
            self.definitions[result] = instruction
        if instruction.name == "OpMemberDecorate" and instruction.operands[2] == _OFFSET:
            self.offsets[instruction.operands[0], instruction.operands[1]] = instruction.operands[3]

    # -- types

    def storage(self, pointer: int) -> str:
        """Return the name of the storage class of a pointer; "" if the id isn't a pointer."""
        kind = self.definitions[self.definitions[pointer].type] if self.definitions[pointer].type else None
        return _STORAGE[kind.operands[0]] if kind is not None and kind.name == "OpTypePointer" else ""

    def pointee(self, pointer: int) -> int:
        """Return the id of the type that a pointer points to."""
        return self.definitions[self.definitions[pointer].type].operands[1]

    def scalar_bytes(self, type_id: int) -> int:
        """Return the size of a scalar, or of a vector's component, in bytes."""
        kind = self.definitions[type_id]
        if kind.name in ("OpTypeInt", "OpTypeFloat"):
            return kind.operands[0] // 8
        if kind.name == "OpTypeVector":
            return self.scalar_bytes(kind.operands[0])
        raise InternalError(f"memory holds scalars and vectors of them; this access is to a {kind.name}")

    def size(self, type_id: int) -> int:
        """Return the size of a scalar or vector in bytes."""
        kind = self.definitions[type_id]
        return self.scalar_bytes(type_id) * (kind.operands[1] if kind.name == "OpTypeVector" else 1)

    def constant(self, value: int) -> int | None:
        """Return the value of an integer constant; None if the id isn't one."""
        definition = self.definitions.get(value)
        if (
            definition is None
            or definition.name != "OpConstant"
            or self.definitions[definition.type].name != "OpTypeInt"
        ):
            return None
        number = sum(word << 32 * place for place, word in enumerate(definition.operands))
        return number & ((1 << self.definitions[definition.type].operands[0]) - 1)

    def bits(self, value: int) -> int:
        """Return the width of an integer value in bits."""
        return self.definitions[self.definitions[value].type].operands[0]

    def to_bytes(self) -> bytes:
        """Encode the module with the current `instructions`."""
        words = [*self.header]
        for instruction in self.instructions:
            words += encode(instruction)
        return struct.pack(f"<{len(words)}I", *words)
