"""Provenance of buffer pointers: finds the address in the argument block from which a pointer is computed.

The argument block holds a kernel's arguments: the addresses of its arrays, and scalars. The block is passed in push
constants, or in a buffer whose address is the only push constant. Code that vkjit emits makes a pointer by converting
an address from the block, or the sum of such an address and an offset. Access chains derive other pointers from this
pointer. So `Roots` follows the operands of these instructions back to the load of the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vkjit.errors import InternalError
from vkjit.runtime.artifact import ArgField

from .reader import CHAINS, Instruction, Reader

__all__ = ["Root", "Roots"]

_ADDRESSES = ("address", "report", "print")
"""The roles of fields (see `ArgField`) that are addresses."""
_ADDRESS_PRESERVING = frozenset({"OpConvertUToPtr", "OpBitcast", "OpCopyObject"})
"""Instructions whose result is the same address as their operand."""


@dataclass(frozen=True, slots=True)
class Root:
    """An address from which pointers are computed.

    `field` is its field in the argument block; None for the address of the block itself. `value` is the id of the
    loaded address.
    """

    field: ArgField | None
    value: int


class Roots:
    """Finds the `Root` of each pointer in a module.

    `fields` describe the argument block. If `indirect` is True, the block is in a buffer, and the only push constant is
    the address of the block.
    """

    def __init__(self, reader: Reader, fields: Sequence[ArgField], indirect: bool) -> None:
        self.reader = reader
        self.indirect = indirect
        self.fields = {item.offset: item for item in fields if item.role in _ADDRESSES}
        self._cached_roots: dict[int, Root | None] = {}

    def of(self, pointer: int) -> Root:
        """Return the root of a pointer. Raises InternalError if it can't be traced."""
        root = self._find(pointer)
        if root is None:
            definition = self.reader.definitions[pointer]
            raise InternalError(
                f"no address of the argument block is found behind pointer {pointer}, made by {definition.name}"
            )
        return root

    def _find(self, value: int) -> Root | None:
        """Return the root of a pointer or address; None if it isn't computed from exactly one root. Cached."""
        if value not in self._cached_roots:
            self._cached_roots[value] = self._follow(self.reader.definitions[value])
        return self._cached_roots[value]

    def _follow(self, definition: Instruction) -> Root | None:
        """Return the root of the result of an instruction, without the cache."""
        if definition.name in CHAINS or definition.name in _ADDRESS_PRESERVING:
            return self._find(definition.operands[0])
        if definition.name == "OpIAdd":
            sides = [self._find(operand) for operand in definition.operands]
            roots = [side for side in sides if side is not None]
            return roots[0] if len(roots) == 1 else None
        return self._loaded(definition) if definition.name == "OpLoad" else None

    def _loaded(self, load: Instruction) -> Root | None:
        """Return the root of a value loaded from the argument block if it is an address, else None."""
        chain = self.reader.definitions[load.operands[0]]
        if chain.name not in CHAINS:
            return None
        base = chain.operands[0]
        in_push_constants = self.reader.storage(base) == "PushConstant"
        if not in_push_constants and self.reader.storage(base) != "PhysicalStorageBuffer":
            return None
        if in_push_constants and self.indirect:
            return Root(None, load.result)
        if not in_push_constants and self.of(base).field is not None:
            return None  # a value loaded from an array
        member = self.reader.constant(chain.operands[1])
        offset = None if member is None else self.reader.offsets.get((self.reader.pointee(base), member))
        return Root(self.fields[offset], load.result) if offset in self.fields else None
