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
"""Number of words before the first instruction of a module."""
CHAINS = frozenset({"OpAccessChain", "OpInBoundsAccessChain"})
"""Instructions that compute a pointer to a part of a composite, from a pointer to the composite and indices."""
_STORAGE = {row[0]: name for name, row in reversed(ENUMERANTS["StorageClass"].items())}
"""The names of storage classes by number; the first name in the grammar if there are several."""
_OFFSET = ENUMERANTS["Decoration"]["Offset"][0]


@functools.cache
def _by_opcode() -> dict[int, Layout]:
    """Map opcodes to the layouts of instructions."""
    return {row[0]: layout_of(name) for name, row in INSTRUCTIONS.items()}


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction.

    `type` and `result` are the ids of its result type and of its result, 0 if it has none. `operands` are the words of
    its other operands.
    """

    name: str
    type: int
    result: int
    operands: tuple[int, ...]


def encode(instruction: Instruction) -> list[int]:
    """Return the words of an instruction."""
    ids = [number for number in (instruction.type, instruction.result) if number]
    words = [*ids, *instruction.operands]
    # the first word has the number of words and the opcode
    return [(len(words) + 1) << 16 | layout_of(instruction.name).opcode, *words]


@dataclass(slots=True)
class Reader:
    """A parsed module.

    `header` are its first five words; the fourth is the smallest unused id. `definitions` maps an id to the instruction
    that defines the id. `offsets` maps a structure's id and a member's number to the offset of the member in bytes.
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
        position = HEADER_WORDS
        while position < len(words):
            count, opcode = words[position] >> 16, words[position] & 0xFFFF
            layout = _by_opcode().get(opcode)
            if layout is None or count == 0:
                raise InternalError(f"the SPIR-V grammar has no instruction of opcode {opcode}")
            reader.add(layout, words[position + 1 : position + count])
            position += count
        return reader

    def add(self, layout: Layout, words: list[int]) -> None:
        """Decode and append an instruction; `words` are those after its first word."""
        first_operand = layout.has_type + layout.has_result
        type_id = words[0] if layout.has_type else 0
        result = words[first_operand - 1] if layout.has_result else 0
        instruction = Instruction(layout.name, type_id, result, tuple(words[first_operand:]))
        self.instructions.append(instruction)
        if result:
            self.definitions[result] = instruction
        if instruction.name == "OpMemberDecorate" and instruction.operands[2] == _OFFSET:
            self.offsets[instruction.operands[0], instruction.operands[1]] = instruction.operands[3]

    # -- types

    def storage(self, pointer: int) -> str:
        """Return the name of the storage class of a pointer; "" if the id isn't a pointer."""
        type_definition = self.definitions[self.definitions[pointer].type] if self.definitions[pointer].type else None
        return (
            _STORAGE[type_definition.operands[0]]
            if type_definition is not None and type_definition.name == "OpTypePointer"
            else ""
        )

    def pointee(self, pointer: int) -> int:
        """Return the id of the type that a pointer points to."""
        return self.definitions[self.definitions[pointer].type].operands[1]

    def scalar_bytes(self, type_id: int) -> int:
        """Return the size of a scalar, or of a vector's component, in bytes."""
        type_definition = self.definitions[type_id]
        if type_definition.name in ("OpTypeInt", "OpTypeFloat"):
            return type_definition.operands[0] // 8
        if type_definition.name == "OpTypeVector":
            return self.scalar_bytes(type_definition.operands[0])
        raise InternalError(f"memory holds scalars and vectors of them; this access is to a {type_definition.name}")

    def size(self, type_id: int) -> int:
        """Return the size of a scalar or vector in bytes."""
        type_definition = self.definitions[type_id]
        return self.scalar_bytes(type_id) * (
            type_definition.operands[1] if type_definition.name == "OpTypeVector" else 1
        )

    def constant(self, value: int) -> int | None:
        """Return the value of an integer constant; None if the id isn't one."""
        definition = self.definitions.get(value)
        if (
            definition is None
            or definition.name != "OpConstant"
            or self.definitions[definition.type].name != "OpTypeInt"
        ):
            return None
        number = sum(word << 32 * index for index, word in enumerate(definition.operands))
        # SPIR-V sign-extends constants of less than 32 bits
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
