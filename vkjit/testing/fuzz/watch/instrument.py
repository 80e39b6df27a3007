"""Instrumentation of SPIR-V modules: adds a check to every memory access.

`watched` takes a module, the fields of its argument block, the accessible byte range of each array and the address of a
report buffer. It returns the modified module and a `Site` per check. At run time, the modified module writes a record
into the report buffer for each site with an error (see `helpers`).

- An access to a buffer is valid if its address is a multiple of the instruction's `Aligned` operand and of the
  element's size, if all its bytes are inside the array's byte range, and if no index of an access chain leading to it
  is negative (drivers differ in how they extend such an index). For a load or store of a cooperative matrix, the first
  and last row (or column) are checked, with the alignment that SPIR-V requires of matrix pointers and strides.
- An access to an array in workgroup, private or function memory is valid if its index is less than the array's length.
- An invalid access is redirected: to scratch memory for buffers, to index 0 for other arrays. Invalid matrix accesses
  to workgroup memory are only reported.
- An instruction that uses a buffer pointer in an unknown way raises InternalError; it is never skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vkjit.errors import InternalError
from vkjit.runtime.artifact import ArgField
from vkjit.spirv._gen_grammar import ENUMERANTS

from .addresses import Root, Roots
from .helpers import COOPERATIVE_ROW, Helpers
from .reader import CHAINS, Instruction, Reader

__all__ = ["Site", "Span", "Watched", "watched"]

Span = tuple[int, int]
"""The accessible byte range [first, end), relative to an array's address."""

_ALIGNED = ENUMERANTS["MemoryAccess"]["Aligned"][0]
_BUFFER = "PhysicalStorageBuffer"
_VARIABLES = frozenset({"Workgroup", "Private", "Function"})
"""Storage classes of arrays that are variables of the module."""
_FREE = frozenset({"OpConvertPtrToU", "OpFunction", "OpVariable", "OpLine", "OpCopyObject", "OpBitcast"})
"""Instructions that may use a buffer pointer without accessing memory, or whose first operand isn't an id."""
_MATRIX = frozenset({"OpCooperativeMatrixLoadKHR", "OpCooperativeMatrixStoreKHR"})
_MATRIX_ALIGNMENT = 16
"""Required alignment of matrix pointers and strides in bytes; less for rows that are shorter."""


@dataclass(frozen=True, slots=True)
class Site:
    """One check.

    `name` is the instruction, or "index"; `target` is what it accesses ("parameter 3", "report", "workgroup array of
    8"). `size` and `align` are in bytes (0 for indices). `room` is the largest valid distance from the start of the
    accessible range (negative if the access can't be valid). `line` is the source line ("" if unknown).
    """

    name: str
    target: str
    size: int
    align: int
    room: int
    line: str


@dataclass(frozen=True, slots=True)
class Watched:
    """A module with checks, as SPIR-V, and its sites in the order of their records."""

    code: bytes
    sites: tuple[Site, ...]


def watched(
    code: bytes,
    fields: Sequence[ArgField],
    spans: Mapping[tuple[str, int], Span],
    report: int,
    *,
    indirect: bool = False,
) -> Watched:
    """Add checks to the SPIR-V module `code`.

    `fields` describe the argument block; with `indirect`, the kernel receives the block by address. `spans` are the
    accessible byte ranges, by role and parameter index of the address in the block, such as ("address", 2) for
    parameter 2. `report` is the address of the report buffer.

    Raises InternalError for a pointer that can't be traced to an address in the block, or whose span isn't given.
    """
    reader = Reader.of(code)
    instrumenter = _Instrument(reader, Roots(reader, fields, indirect), Helpers(reader, report), spans)
    instrumenter.all()
    return Watched(reader.to_bytes(), tuple(instrumenter.sites))


@dataclass(slots=True)
class _Instrument:
    """The instrumentation of one module.

    `out` are the instructions of the new module so far. `negative` maps the id of a pointer to the id of a boolean that
    is true if an index of an access chain leading to the pointer is negative. `line` is the current source line, and
    `strings` maps ids to the file names of source lines.
    """

    reader: Reader
    roots: Roots
    helpers: Helpers
    spans: Mapping[tuple[str, int], Span]
    sites: list[Site] = field(default_factory=list)
    out: list[Instruction] = field(default_factory=list)
    negative: dict[int, int] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    line: str = ""

    def all(self) -> None:
        """Instrument the module."""
        head = declared = -1  # positions in `out` of the ends of the decorations and of the declarations
        for instruction in self.reader.instructions:
            if head < 0 and instruction.name.startswith(("OpType", "OpConstant", "OpVariable")):
                head = len(self.out)
            if declared < 0 and instruction.name == "OpFunction":
                declared = len(self.out)
            self._lines(instruction)
            if declared < 0:
                self.out.append(instruction)
            else:
                self._one(instruction)
        if not 0 <= head < declared:
            raise InternalError("the module has no declarations before its first function, or no function")
        self.out[declared:declared] = self.helpers.declarations
        self.out[head:head] = self.helpers.annotations
        self.reader.instructions = [*self.out, *self.helpers.functions]

    def _lines(self, instruction: Instruction) -> None:
        """Update the current source line from debug instructions."""
        if instruction.name == "OpString":
            text = b"".join(word.to_bytes(4, "little") for word in instruction.operands)
            self.strings[instruction.result] = text.split(b"\0", 1)[0].decode()
        elif instruction.name == "OpLine":
            self.line = f"{self.strings.get(instruction.operands[0], '')}:{instruction.operands[1]}"
        elif instruction.name in ("OpNoLine", "OpFunction"):
            self.line = ""

    def put(self, name: str, type_id: int, *operands: int | str) -> int:
        """Append an instruction to the new module. Return the id of its result, or 0 if it has none."""
        return self.helpers.put(self.out, name, type_id, *operands)

    def site(self, name: str, target: str, size: int, align: int, room: int) -> int:
        """Add a site (see `Site`). Return the id of a constant with its number."""
        self.sites.append(Site(name, target, size, align, room, self.line))
        return self.helpers.word(len(self.sites) - 1)

    # -- instructions

    def _one(self, instruction: Instruction) -> None:
        """Copy one instruction of a function, adding the checks that it needs."""
        name, first = instruction.name, instruction.operands[0] if instruction.operands else 0
        if name in CHAINS:
            self._chain(instruction)
        elif name in _MATRIX:
            self._matrix(instruction)
        elif name in ("OpLoad", "OpStore") or name.startswith("OpAtomic"):
            if self._points_into_buffer(first):
                instruction = self._replaced(instruction, self._checked(instruction))
            self.out.append(instruction)
        else:
            if name not in _FREE and any(
                map(self._points_into_buffer, instruction.operands if name == "OpPhi" else (first,))
            ):
                raise InternalError(f"{name} takes a pointer into a buffer; nothing is known here about such accesses")
            self.out.append(instruction)

    def _points_into_buffer(self, value: int) -> bool:
        return value in self.reader.definitions and self.reader.storage(value) == _BUFFER

    @staticmethod
    def _replaced(instruction: Instruction, pointer: int) -> Instruction:
        """Return the access with another pointer as its first operand."""
        return Instruction(instruction.name, instruction.type, instruction.result, (pointer, *instruction.operands[1:]))

    def _checked(self, instruction: Instruction) -> int:
        """Emit the check of an access through the first operand.

        Return the id of the pointer to use instead: the same address, or the scratch memory if it is invalid.
        """
        pointer, reader, h = instruction.operands[0], self.reader, self.helpers
        root = self.roots.of(pointer)
        if root.field is None:
            return pointer  # constant offsets in the argument block
        stated = _stated_alignment(instruction)
        kind = reader.pointee(pointer)
        size, align = reader.size(kind), max(stated, reader.scalar_bytes(kind))
        span = self._span(root)
        room = span[1] - span[0] - size
        site = self.site(instruction.name, _target(root), size, align, room)
        flag = h.constant(h.bool_type, 1) if room < 0 else self.negative.get(pointer, h.constant(h.bool_type, 0))
        address = self.put("OpConvertPtrToU", h.ulong, pointer)
        safe = self._call(address, self._low(root, span), h.long(max(room, 0)), align - 1, flag, site)
        return self.put("OpConvertUToPtr", reader.definitions[pointer].type, safe)

    def _span(self, root: Root) -> Span:
        """Return the accessible byte range of the array whose address is `root`."""
        assert root.field is not None
        key = (root.field.role, root.field.arg)
        if key not in self.spans:
            raise InternalError(f"what {_target(root)} may access isn't given")
        return self.spans[key]

    def _low(self, root: Root, span: Span) -> int:
        """Emit the address of a span's first byte."""
        if not span[0]:
            return root.value
        return self.put("OpIAdd", self.helpers.ulong, root.value, self.helpers.long(span[0]))

    def _call(self, address: int, low: int, room: int, mask: int, flag: int, site: int) -> int:
        """Emit a call of the check function that `Helpers._check` defines. All parameters except `mask` are ids."""
        h = self.helpers
        return self.put("OpFunctionCall", h.ulong, h.check, address, low, room, h.word(mask), flag, site)

    # -- access chains

    def _chain(self, instruction: Instruction) -> None:
        """Copy an access chain. Into buffers, track negative indices; into other arrays, replace invalid ones by 0."""
        base, storage = instruction.operands[0], self.reader.storage(instruction.operands[0])
        if storage in _VARIABLES:
            self.out.append(self._bounded(instruction))
            return
        self.out.append(instruction)
        if storage != _BUFFER:
            return
        flags = [self.negative[base]] if base in self.negative else []
        for index in instruction.operands[1:]:
            constant = self.reader.constant(index)
            if constant is None:
                zero = self.helpers.constant(self.reader.definitions[index].type, 0)
                flags.append(self.put("OpSLessThan", self.helpers.bool_type, index, zero))
            elif constant >> (self.reader.bits(index) - 1):  # the sign bit is set
                flags.append(self.helpers.constant(self.helpers.bool_type, 1))
        for flag in flags:
            previous = self.negative.get(instruction.result)
            combined = flag if previous is None else self.put("OpLogicalOr", self.helpers.bool_type, previous, flag)
            self.negative[instruction.result] = combined

    def _bounded(self, instruction: Instruction) -> Instruction:
        """Return an access chain into a variable with its array indices replaced by checked ones."""
        reader = self.reader
        kind = reader.pointee(instruction.operands[0])
        indices = []
        for index in instruction.operands[1:]:
            composite = reader.definitions[kind]
            if composite.name == "OpTypeArray":
                length = reader.constant(composite.operands[1])
                assert length is not None
                indices.append(self._index(index, length, reader.storage(instruction.operands[0])))
                kind = composite.operands[0]
            else:
                indices.append(index)
                kind = (
                    composite.operands[0]
                    if composite.name == "OpTypeVector"
                    else composite.operands[reader.constant(index) or 0]
                )
        return Instruction(instruction.name, instruction.type, instruction.result, (instruction.operands[0], *indices))

    def _index(self, index: int, length: int, storage: str) -> int:
        """Emit the check of an array index. Return the id of the index to use instead; 0 if it is out of range."""
        h, reader = self.helpers, self.reader
        constant = reader.constant(index)
        if constant is not None and constant < length:
            return index
        kind, bits = reader.definitions[index].type, reader.bits(index)
        site = self.site("index", f"{storage.lower()} array of {length}", 0, 0, length - 1)
        wrong = self.put("OpUGreaterThanEqual", h.bool_type, index, h.constant(kind, length))
        value = index if bits == 64 else self.put("OpSConvert", h.ulong, index)
        self.put("OpFunctionCall", h.void, h.note, wrong, value, site)
        return self.put("OpSelect", kind, wrong, h.constant(kind, 0), index)

    # -- matrices

    def _matrix(self, instruction: Instruction) -> None:
        """Check the first and last row (or column) of a cooperative matrix load or store."""
        is_load = instruction.name == "OpCooperativeMatrixLoadKHR"
        pointer, arguments = instruction.operands[0], instruction.operands[1 if is_load else 2 :]
        kind = self.reader.definitions[instruction.type or self.reader.definitions[instruction.operands[1]].type]
        rows, columns = (self.reader.constant(kind.operands[place]) for place in (2, 3))
        assert rows is not None and columns is not None
        by_row = self.reader.constant(arguments[0]) == COOPERATIVE_ROW
        lines, width = (rows, columns) if by_row else (columns, rows)
        line_bytes = width * self.reader.scalar_bytes(kind.operands[0])
        if self.reader.storage(pointer) == _BUFFER:
            pointer, stride = self._matrix_in_buffer(instruction, lines, line_bytes, arguments[1])
            place = 2 if is_load else 3
            operands = (pointer, *instruction.operands[1:place], stride, *instruction.operands[place + 1 :])
            instruction = Instruction(instruction.name, instruction.type, instruction.result, operands)
        else:
            self._matrix_in_variable(instruction, lines, line_bytes, arguments[1])
        self.out.append(instruction)

    def _matrix_in_buffer(self, instruction: Instruction, lines: int, line_bytes: int, stride: int) -> tuple[int, int]:
        """Emit the checks of a matrix with `lines` rows (or columns) of `line_bytes` bytes in a buffer.

        `stride` is the id of the number of elements between rows. Return the pointer and the stride to use instead; for
        an invalid access, the scratch memory and the stride of adjacent rows.
        """
        h, reader, pointer = self.helpers, self.reader, instruction.operands[0]
        root = self.roots.of(pointer)
        span, item = self._span(root), reader.size(reader.pointee(pointer))
        align = max(min(_MATRIX_ALIGNMENT, line_bytes), _stated_alignment(instruction))
        space = span[1] - span[0] - line_bytes
        site = self.site(instruction.name, _target(root), line_bytes, align, space)
        low, room = self._low(root, span), h.long(max(space, 0))
        flag = h.constant(h.bool_type, 1) if space < 0 else self.negative.get(pointer, h.constant(h.bool_type, 0))
        first = self.put("OpConvertPtrToU", h.ulong, pointer)
        wide = self.put("OpUConvert", h.ulong, stride)
        last = self.put("OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, wide, h.long(item * (lines - 1))))
        wrong = h.constant(h.bool_type, 0)
        for address, mask in ((first, align - 1), (last, min(_MATRIX_ALIGNMENT, line_bytes) - 1)):
            checked = self._call(address, low, room, mask, flag, site)
            differs = self.put("OpINotEqual", h.bool_type, checked, address)
            wrong = self.put("OpLogicalOr", h.bool_type, wrong, differs)
        safe = self.put("OpSelect", h.ulong, wrong, h.long(h.report), first)
        kind = reader.definitions[stride].type
        safe_stride = self.put("OpSelect", kind, wrong, h.constant(kind, max(line_bytes // item, 1)), stride)
        return self.put("OpConvertUToPtr", reader.definitions[pointer].type, safe), safe_stride

    def _matrix_in_variable(self, instruction: Instruction, lines: int, line_bytes: int, stride: int) -> None:
        """Emit the check of a matrix in a workgroup array, with the parameters of `_matrix_in_buffer`.

        Errors are only reported: the access stays unchanged, since there is no scratch memory for variables.
        """
        h, reader = self.helpers, self.reader
        chain = reader.definitions[instruction.operands[0]]
        array_type = reader.definitions[reader.pointee(chain.operands[0])]
        length, index = reader.constant(array_type.operands[1]), chain.operands[-1]
        assert length is not None
        item = reader.size(array_type.operands[0])
        align = min(_MATRIX_ALIGNMENT, line_bytes)
        site = self.site(
            instruction.name, f"workgroup array of {length}", line_bytes, align, length * item - line_bytes
        )
        wide = [
            value if reader.bits(value) == 64 else self.put("OpUConvert", h.ulong, value) for value in (index, stride)
        ]
        first, step = (self.put("OpIMul", h.ulong, value, h.long(item)) for value in wide)
        last = self.put("OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, step, h.long(lines - 1)))
        end = h.long(length * item - line_bytes)
        out_of_range = self.put("OpUGreaterThan", h.bool_type, last, end)
        remainder = self.put("OpBitwiseAnd", h.ulong, self.put("OpBitwiseOr", h.ulong, first, step), h.long(align - 1))
        misaligned = self.put("OpINotEqual", h.bool_type, remainder, h.long(0))
        invalid = self.put("OpLogicalOr", h.bool_type, out_of_range, misaligned)
        self.put("OpFunctionCall", h.void, h.note, invalid, last, site)


def _stated_alignment(instruction: Instruction) -> int:
    """Return the `Aligned` memory operand; 1 if the instruction has none."""
    places = {"OpLoad": 1, "OpStore": 2, "OpCooperativeMatrixLoadKHR": 3, "OpCooperativeMatrixStoreKHR": 4}
    place = places.get(instruction.name)
    if place is None or len(instruction.operands) <= place or not instruction.operands[place] & _ALIGNED:
        return 1
    return instruction.operands[place + 1]


def _target(root: Root) -> str:
    """Describe the array whose address is `root`."""
    assert root.field is not None
    return f"parameter {root.field.arg}" if root.field.role == "address" else root.field.role
