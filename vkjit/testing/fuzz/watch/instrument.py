"""Instrumentation of SPIR-V modules: adds a check to every memory access.

`watched` takes a module, the fields of its argument block, the accessible byte range of each array and the address of a
report buffer. It returns the modified module and a `Site` per check. At run time, the modified module writes a record
into the report buffer for each site with an error (see `helpers`).

- An access to a buffer is valid if its address is a multiple of the instruction's `Aligned` operand and of the
  element's size, if all its bytes are inside the array's byte range, and if its pointer isn't computed with a negative
  index (drivers differ in how they extend such an index).
- For a load or store of a cooperative matrix, the first and the last line are checked, with the alignment that SPIR-V
  requires of matrix pointers and strides. A line is a contiguous row, or a column of a matrix in column-major order.
- An access to an array in workgroup, private or function memory is valid if its index is less than the array's length.
- An invalid access is redirected: to scratch memory for buffers, to index 0 for other arrays. Invalid matrix accesses
  to workgroup memory are only reported.
- If an instruction uses a buffer pointer in an unknown way, `watched` raises InternalError instead of omitting a check.
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
_UNCHECKED = frozenset({"OpConvertPtrToU", "OpFunction", "OpVariable", "OpLine", "OpCopyObject", "OpBitcast"})
"""Instructions without checks: they may use a buffer pointer, but access no memory, or their first operand is no id."""
_MATRIX = frozenset({"OpCooperativeMatrixLoadKHR", "OpCooperativeMatrixStoreKHR"})
_MATRIX_ALIGNMENT = 16
"""Required alignment of matrix pointers and strides in bytes; for shorter lines, their size in bytes is sufficient."""


@dataclass(frozen=True, slots=True)
class Site:
    """One check.

    `name` is the instruction that is checked, or "index". `target` is what the instruction accesses, such as
    "parameter 3", "report" or "workgroup array of 8". `size` and `align` are the size and required alignment of the
    access in bytes, 0 for indices. `room` is the largest valid distance from the start of the accessible range;
    negative if no access can be valid. `line` is the source line, "" if unknown.
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

    `fields` describe the argument block; if `indirect` is True, the kernel receives the address of the block. `spans`
    are the accessible byte ranges, keyed by the role and the parameter index of an address in the block, such as
    ("address", 2) for parameter 2. `report` is the address of the report buffer.

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
        # the indices in `out` at which the decorations and the declarations end; -1: not reached yet
        decorations_end = -1
        declarations_end = -1
        for instruction in self.reader.instructions:
            if decorations_end < 0 and instruction.name.startswith(("OpType", "OpConstant", "OpVariable")):
                decorations_end = len(self.out)
            if declarations_end < 0 and instruction.name == "OpFunction":
                declarations_end = len(self.out)
            self._lines(instruction)
            if declarations_end < 0:
                self.out.append(instruction)
            else:
                self._one(instruction)
        if not 0 <= decorations_end < declarations_end:
            raise InternalError("the module has no declarations before its first function, or no function")
        self.out[declarations_end:declarations_end] = self.helpers.declarations
        self.out[decorations_end:decorations_end] = self.helpers.annotations
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
        """Append one instruction of a function to the new module, with the checks that it needs."""
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
            # a pointer is the first operand of an instruction, except in OpPhi
            if name not in _UNCHECKED and any(
                map(self._points_into_buffer, instruction.operands if name == "OpPhi" else (first,))
            ):
                raise InternalError(f"{name} takes a pointer into a buffer; nothing is known here about such accesses")
            self.out.append(instruction)

    def _points_into_buffer(self, value: int) -> bool:
        """True if a value is a pointer to buffer memory."""
        return value in self.reader.definitions and self.reader.storage(value) == _BUFFER

    @staticmethod
    def _replaced(instruction: Instruction, pointer: int) -> Instruction:
        """Return the access with another pointer as its first operand."""
        return Instruction(instruction.name, instruction.type, instruction.result, (pointer, *instruction.operands[1:]))

    def _checked(self, instruction: Instruction) -> int:
        """Emit the check of a load, store or atomic whose first operand is a buffer pointer.

        Returns the id of the pointer to use instead. It points to the same address, or to the scratch memory if the
        access is invalid.
        """
        pointer, reader, h = instruction.operands[0], self.reader, self.helpers
        root = self.roots.of(pointer)
        if root.field is None:
            return pointer  # constant offsets in the argument block
        stated = _stated_alignment(instruction)
        element_type = reader.pointee(pointer)
        size, align = reader.size(element_type), max(stated, reader.scalar_bytes(element_type))
        span = self._span(root)
        room = span[1] - span[0] - size
        site = self.site(instruction.name, _target(root), size, align, room)
        # true if every access is invalid, since the range is too short, or if an index is negative
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
        """Append an access chain to the new module, with checks of its indices.

        For a chain into a buffer, record if an index is negative. For a chain into another array, replace invalid
        indices by 0.
        """
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
        """Return an access chain into a variable in which checked indices replace the indices of arrays."""
        reader = self.reader
        type_id = reader.pointee(instruction.operands[0])
        indices = []
        for index in instruction.operands[1:]:
            composite = reader.definitions[type_id]
            if composite.name == "OpTypeArray":
                length = reader.constant(composite.operands[1])
                assert length is not None
                indices.append(self._index(index, length, reader.storage(instruction.operands[0])))
                type_id = composite.operands[0]
            else:
                indices.append(index)
                # the type of a component of a vector, or of a member of a structure, whose index is always constant
                type_id = (
                    composite.operands[0]
                    if composite.name == "OpTypeVector"
                    else composite.operands[reader.constant(index) or 0]
                )
        return Instruction(instruction.name, instruction.type, instruction.result, (instruction.operands[0], *indices))

    def _index(self, index: int, length: int, storage: str) -> int:
        """Emit the check of an array index.

        Returns the id of the index to use instead, whose value is 0 if the index is out of range. `storage` is the name
        of the storage class of the array.
        """
        h, reader = self.helpers, self.reader
        constant = reader.constant(index)
        if constant is not None and constant < length:
            return index
        index_type, bits = reader.definitions[index].type, reader.bits(index)
        site = self.site("index", f"{storage.lower()} array of {length}", 0, 0, length - 1)
        wrong = self.put("OpUGreaterThanEqual", h.bool_type, index, h.constant(index_type, length))
        value = index if bits == 64 else self.put("OpSConvert", h.ulong, index)
        self.put("OpFunctionCall", h.void, h.note, wrong, value, site)
        return self.put("OpSelect", index_type, wrong, h.constant(index_type, 0), index)

    # -- matrices

    def _matrix(self, instruction: Instruction) -> None:
        """Append a cooperative matrix load or store to the new module, with checks of its first and last line."""
        is_load = instruction.name == "OpCooperativeMatrixLoadKHR"
        # the operands are: pointer, matrix (of a store only), layout, stride; `matrix_type` is the type of the matrix
        pointer, arguments = instruction.operands[0], instruction.operands[1 if is_load else 2 :]
        matrix_type = self.reader.definitions[instruction.type or self.reader.definitions[instruction.operands[1]].type]
        # the operands of the type are: component type, scope, rows, columns, use
        rows, columns = (self.reader.constant(matrix_type.operands[operand_index]) for operand_index in (2, 3))
        assert rows is not None and columns is not None
        by_row = self.reader.constant(arguments[0]) == COOPERATIVE_ROW
        lines, width = (rows, columns) if by_row else (columns, rows)
        line_bytes = width * self.reader.scalar_bytes(matrix_type.operands[0])
        if self.reader.storage(pointer) == _BUFFER:
            pointer, stride = self._matrix_in_buffer(instruction, lines, line_bytes, arguments[1])
            stride_index = 2 if is_load else 3
            operands = (
                pointer,
                *instruction.operands[1:stride_index],
                stride,
                *instruction.operands[stride_index + 1 :],
            )
            instruction = Instruction(instruction.name, instruction.type, instruction.result, operands)
        else:
            self._matrix_in_variable(instruction, lines, line_bytes, arguments[1])
        self.out.append(instruction)

    def _matrix_in_buffer(self, instruction: Instruction, lines: int, line_bytes: int, stride: int) -> tuple[int, int]:
        """Emit the checks of a matrix in a buffer, with `lines` lines of `line_bytes` bytes (see the module docstring).

        `stride` is the id of the number of elements from one line to the next. Returns the ids of the pointer and of
        the stride to use instead. For an invalid access, these are the scratch memory and the stride of lines without
        gaps.
        """
        h, reader, pointer = self.helpers, self.reader, instruction.operands[0]
        root = self.roots.of(pointer)
        span, element_bytes = self._span(root), reader.size(reader.pointee(pointer))
        align = max(min(_MATRIX_ALIGNMENT, line_bytes), _stated_alignment(instruction))
        largest_distance = span[1] - span[0] - line_bytes
        site = self.site(instruction.name, _target(root), line_bytes, align, largest_distance)
        low, room = self._low(root, span), h.long(max(largest_distance, 0))
        flag = (
            h.constant(h.bool_type, 1)
            if largest_distance < 0
            else self.negative.get(pointer, h.constant(h.bool_type, 0))
        )
        first = self.put("OpConvertPtrToU", h.ulong, pointer)
        wide = self.put("OpUConvert", h.ulong, stride)
        last = self.put(
            "OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, wide, h.long(element_bytes * (lines - 1)))
        )
        wrong = h.constant(h.bool_type, 0)
        # the `Aligned` operand, which `align` includes, is about the first line only
        for address, mask in ((first, align - 1), (last, min(_MATRIX_ALIGNMENT, line_bytes) - 1)):
            checked = self._call(address, low, room, mask, flag, site)
            differs = self.put("OpINotEqual", h.bool_type, checked, address)
            wrong = self.put("OpLogicalOr", h.bool_type, wrong, differs)
        safe = self.put("OpSelect", h.ulong, wrong, h.long(h.report), first)
        stride_type = reader.definitions[stride].type
        safe_stride = self.put(
            "OpSelect", stride_type, wrong, h.constant(stride_type, max(line_bytes // element_bytes, 1)), stride
        )
        return self.put("OpConvertUToPtr", reader.definitions[pointer].type, safe), safe_stride

    def _matrix_in_variable(self, instruction: Instruction, lines: int, line_bytes: int, stride: int) -> None:
        """Emit the check of a matrix in a workgroup array. The parameters are those of `_matrix_in_buffer`.

        Errors are only reported: the access stays unchanged, since there is no scratch memory for variables.
        """
        h, reader = self.helpers, self.reader
        chain = reader.definitions[instruction.operands[0]]
        array_type = reader.definitions[reader.pointee(chain.operands[0])]
        length, index = reader.constant(array_type.operands[1]), chain.operands[-1]
        assert length is not None
        element_bytes = reader.size(array_type.operands[0])
        align = min(_MATRIX_ALIGNMENT, line_bytes)
        site = self.site(
            instruction.name, f"workgroup array of {length}", line_bytes, align, length * element_bytes - line_bytes
        )
        wide = [
            value if reader.bits(value) == 64 else self.put("OpUConvert", h.ulong, value) for value in (index, stride)
        ]
        first, step = (self.put("OpIMul", h.ulong, value, h.long(element_bytes)) for value in wide)
        last = self.put("OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, step, h.long(lines - 1)))
        end = h.long(length * element_bytes - line_bytes)
        out_of_range = self.put("OpUGreaterThan", h.bool_type, last, end)
        remainder = self.put("OpBitwiseAnd", h.ulong, self.put("OpBitwiseOr", h.ulong, first, step), h.long(align - 1))
        misaligned = self.put("OpINotEqual", h.bool_type, remainder, h.long(0))
        invalid = self.put("OpLogicalOr", h.bool_type, out_of_range, misaligned)
        self.put("OpFunctionCall", h.void, h.note, invalid, last, site)


def _stated_alignment(instruction: Instruction) -> int:
    """Return the `Aligned` memory operand; 1 if the instruction has none."""
    # the index of the memory operands
    operand_indices = {"OpLoad": 1, "OpStore": 2, "OpCooperativeMatrixLoadKHR": 3, "OpCooperativeMatrixStoreKHR": 4}
    operand_index = operand_indices.get(instruction.name)
    if (
        operand_index is None
        or len(instruction.operands) <= operand_index
        or not instruction.operands[operand_index] & _ALIGNED
    ):
        return 1
    return instruction.operands[operand_index + 1]


def _target(root: Root) -> str:
    """Describe the array whose address is `root`."""
    assert root.field is not None
    return f"parameter {root.field.arg}" if root.field.role == "address" else root.field.role
