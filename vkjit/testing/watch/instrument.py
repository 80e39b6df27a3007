"""Adds a check to every access that a SPIR-V module makes.

Enters: a module's bytes, the fields of its argument block, the bytes that each of its arrays may touch, the address of a
report buffer. Leaves: `Watched`: the changed module, and a `Site` per check. Holds:

- An access to a buffer is right where its address is a multiple of what the instruction states (`Aligned`), and of the
  element's size; where all of it lies in the array's bytes; and where no index of an access chain on the way was negative
  (drivers differ in how they extend such a one). Matrices: each line, by the rules for their pointers and strides.
- An access to an array in workgroup, private or function memory is right where its index is below the array's length.
- A wrong one goes to scratch memory instead, and its site's record says what was wrong.
- An instruction that uses a pointer into a buffer in a way that isn't known here is an InternalError, never skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import InternalError
from ...runtime.artifact import ArgField
from ...spirv._gen_grammar import ENUMERANTS
from .addresses import Root, Roots
from .helpers import COOPERATIVE_ROW, Helpers
from .reader import CHAINS, Instruction, Reader

__all__ = ["Site", "Span", "Watched", "watched"]

Span = tuple[int, int]
"""First byte, and the one past the last, that may be accessed, from an array's address on."""

_ALIGNED = ENUMERANTS["MemoryAccess"]["Aligned"][0]
_BUFFER = "PhysicalStorageBuffer"
_VARIABLES = frozenset({"Workgroup", "Private", "Function"})
_FREE = frozenset({"OpConvertPtrToU", "OpFunction", "OpVariable", "OpLine", "OpCopyObject", "OpBitcast"})
"""What may be done with a pointer into a buffer without an access; or the first operand is a number, no id."""
_MATRIX = frozenset({"OpCooperativeMatrixLoadKHR", "OpCooperativeMatrixStoreKHR"})
_MATRIX_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class Site:
    """One check: the instruction, or "index"; what it accesses ("parameter 3", "report", "workgroup array of 8"); bytes and
    alignment (0 for indices); the greatest distance from the start of what may be accessed (-1 where none is); and the line
    of source that it stands for ("" where nothing says)."""

    name: str
    target: str
    size: int
    align: int
    room: int
    line: str


@dataclass(frozen=True, slots=True)
class Watched:
    """A module with checks, and its sites by number."""

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
    """Adds the checks. `spans`: by role and number of an address in the block ("address" of parameter 2).

    Raises InternalError for a pointer that can't be followed to such an address, or whose span isn't given.
    """
    reader = Reader.of(code)
    made = _Instrument(reader, Roots(reader, fields, indirect), Helpers(reader, report), spans)
    made.all()
    return Watched(reader.to_bytes(), tuple(made.sites))


@dataclass(slots=True)
class _Instrument:
    """One module. `negative`: by pointer, the id that says whether an index on the way to it is below zero."""

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
        """Goes through the module."""
        head = declared = -1  # where decorations end, and where declarations do
        for made in self.reader.instructions:
            if head < 0 and made.name.startswith(("OpType", "OpConstant", "OpVariable")):
                head = len(self.out)
            if declared < 0 and made.name == "OpFunction":
                declared = len(self.out)
            self._lines(made)
            if declared < 0:
                self.out.append(made)
            else:
                self._one(made)
        if not 0 <= head < declared:
            raise InternalError("the module has no declarations before its first function, or no function")
        self.out[declared:declared] = self.helpers.declarations
        self.out[head:head] = self.helpers.annotations
        self.reader.instructions = [*self.out, *self.helpers.functions]

    def _lines(self, made: Instruction) -> None:
        if made.name == "OpString":
            text = b"".join(word.to_bytes(4, "little") for word in made.operands)
            self.strings[made.result] = text.split(b"\0", 1)[0].decode()
        elif made.name == "OpLine":
            self.line = f"{self.strings.get(made.operands[0], '')}:{made.operands[1]}"
        elif made.name in ("OpNoLine", "OpFunction"):
            self.line = ""

    def put(self, name: str, type_id: int, *operands: int | str) -> int:
        """Appends an instruction; gives its result."""
        return self.helpers.put(self.out, name, type_id, *operands)

    def site(self, name: str, target: str, size: int, align: int, room: int) -> int:
        """The id of a new site's number."""
        self.sites.append(Site(name, target, size, align, room, self.line))
        return self.helpers.word(len(self.sites) - 1)

    # -- instructions

    def _one(self, made: Instruction) -> None:
        """One instruction of a function, with the checks that it needs."""
        name, first = made.name, made.operands[0] if made.operands else 0
        if name in CHAINS:
            self._chain(made)
        elif name in _MATRIX:
            self._matrix(made)
        elif name in ("OpLoad", "OpStore") or name.startswith("OpAtomic"):
            if self._points_into_buffer(first):
                made = self._replaced(made, self._checked(made))
            self.out.append(made)
        else:
            if name not in _FREE and any(map(self._points_into_buffer, made.operands if name == "OpPhi" else (first,))):
                raise InternalError(f"{name} takes a pointer into a buffer; nothing is known here about such accesses")
            self.out.append(made)

    def _points_into_buffer(self, value: int) -> bool:
        return value in self.reader.definitions and self.reader.storage(value) == _BUFFER

    @staticmethod
    def _replaced(made: Instruction, pointer: int) -> Instruction:
        return Instruction(made.name, made.type, made.result, (pointer, *made.operands[1:]))

    def _checked(self, made: Instruction) -> int:
        """A pointer that is sure to be right, for an access through the first operand."""
        pointer, reader, h = made.operands[0], self.reader, self.helpers
        root = self.roots.of(pointer)
        if root.field is None:
            return pointer  # constant places of the argument block
        stated = _stated_alignment(made)
        kind = reader.pointee(pointer)
        size, align = reader.size(kind), max(stated, reader.scalar_bytes(kind))
        span = self._span(root)
        room = span[1] - span[0] - size
        site = self.site(made.name, _target(root), size, align, room)
        flag = h.constant(h.truth, 1) if room < 0 else self.negative.get(pointer, h.constant(h.truth, 0))
        address = self.put("OpConvertPtrToU", h.ulong, pointer)
        safe = self._call(address, self._low(root, span), h.long(max(room, 0)), align - 1, flag, site)
        return self.put("OpConvertUToPtr", reader.definitions[pointer].type, safe)

    def _span(self, root: Root) -> Span:
        assert root.field is not None
        key = (root.field.role, root.field.arg)
        if key not in self.spans:
            raise InternalError(f"what {_target(root)} may access isn't given")
        return self.spans[key]

    def _low(self, root: Root, span: Span) -> int:
        """The address of a span's first byte."""
        if not span[0]:
            return root.value
        return self.put("OpIAdd", self.helpers.ulong, root.value, self.helpers.long(span[0]))

    def _call(self, address: int, low: int, room: int, mask: int, flag: int, site: int) -> int:
        h = self.helpers
        return self.put("OpFunctionCall", h.ulong, h.check, address, low, room, h.word(mask), flag, site)

    # -- access chains

    def _chain(self, made: Instruction) -> None:
        """Negative indices into buffers are remembered, those past the end of other arrays replaced by 0."""
        base, storage = made.operands[0], self.reader.storage(made.operands[0])
        if storage in _VARIABLES:
            self.out.append(self._bounded(made))
            return
        self.out.append(made)
        if storage != _BUFFER:
            return
        flags = [self.negative[base]] if base in self.negative else []
        for index in made.operands[1:]:
            constant = self.reader.constant(index)
            if constant is None:
                zero = self.helpers.constant(self.reader.definitions[index].type, 0)
                flags.append(self.put("OpSLessThan", self.helpers.truth, index, zero))
            elif constant >> (self.reader.bits(index) - 1):
                flags.append(self.helpers.constant(self.helpers.truth, 1))
        for flag in flags:
            known = self.negative.get(made.result)
            both = flag if known is None else self.put("OpLogicalOr", self.helpers.truth, known, flag)
            self.negative[made.result] = both

    def _bounded(self, made: Instruction) -> Instruction:
        """An access chain into a variable with all its indices in range."""
        reader = self.reader
        kind = reader.pointee(made.operands[0])
        indices = []
        for index in made.operands[1:]:
            whole = reader.definitions[kind]
            if whole.name == "OpTypeArray":
                length = reader.constant(whole.operands[1])
                assert length is not None
                indices.append(self._index(index, length, reader.storage(made.operands[0])))
                kind = whole.operands[0]
            else:
                indices.append(index)
                kind = (
                    whole.operands[0] if whole.name == "OpTypeVector" else whole.operands[reader.constant(index) or 0]
                )
        return Instruction(made.name, made.type, made.result, (made.operands[0], *indices))

    def _index(self, index: int, length: int, storage: str) -> int:
        h, reader = self.helpers, self.reader
        constant = reader.constant(index)
        if constant is not None and constant < length:
            return index
        kind, bits = reader.definitions[index].type, reader.bits(index)
        site = self.site("index", f"{storage.lower()} array of {length}", 0, 0, length - 1)
        wrong = self.put("OpUGreaterThanEqual", h.truth, index, h.constant(kind, length))
        value = index if bits == 64 else self.put("OpSConvert", h.ulong, index)
        self.put("OpFunctionCall", h.void, h.note, wrong, value, site)
        return self.put("OpSelect", kind, wrong, h.constant(kind, 0), index)

    # -- matrices

    def _matrix(self, made: Instruction) -> None:
        """Loads and stores of cooperative matrices: the first line and the last one."""
        is_load = made.name == "OpCooperativeMatrixLoadKHR"
        pointer, rest = made.operands[0], made.operands[1 if is_load else 2 :]
        kind = self.reader.definitions[made.type or self.reader.definitions[made.operands[1]].type]
        rows, columns = (self.reader.constant(kind.operands[place]) for place in (2, 3))
        assert rows is not None and columns is not None
        by_row = self.reader.constant(rest[0]) == COOPERATIVE_ROW
        lines, width = (rows, columns) if by_row else (columns, rows)
        line_bytes = width * self.reader.scalar_bytes(kind.operands[0])
        if self.reader.storage(pointer) == _BUFFER:
            pointer, stride = self._matrix_in_buffer(made, lines, line_bytes, rest[1])
            place = 2 if is_load else 3
            operands = (pointer, *made.operands[1:place], stride, *made.operands[place + 1 :])
            made = Instruction(made.name, made.type, made.result, operands)
        else:
            self._matrix_in_variable(made, lines, line_bytes, rest[1])
        self.out.append(made)

    def _matrix_in_buffer(self, made: Instruction, lines: int, line_bytes: int, stride: int) -> tuple[int, int]:
        h, reader, pointer = self.helpers, self.reader, made.operands[0]
        root = self.roots.of(pointer)
        span, item = self._span(root), reader.size(reader.pointee(pointer))
        align = max(min(_MATRIX_ALIGNMENT, line_bytes), _stated_alignment(made))
        space = span[1] - span[0] - line_bytes
        site = self.site(made.name, _target(root), line_bytes, align, space)
        low, room = self._low(root, span), h.long(max(space, 0))
        flag = h.constant(h.truth, 1) if space < 0 else self.negative.get(pointer, h.constant(h.truth, 0))
        first = self.put("OpConvertPtrToU", h.ulong, pointer)
        wide = self.put("OpUConvert", h.ulong, stride)
        last = self.put("OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, wide, h.long(item * (lines - 1))))
        wrong = h.constant(h.truth, 0)
        for address, mask in ((first, align - 1), (last, min(_MATRIX_ALIGNMENT, line_bytes) - 1)):
            found = self._call(address, low, room, mask, flag, site)
            differs = self.put("OpINotEqual", h.truth, found, address)
            wrong = self.put("OpLogicalOr", h.truth, wrong, differs)
        safe = self.put("OpSelect", h.ulong, wrong, h.long(h.report), first)
        kind = reader.definitions[stride].type
        step = self.put("OpSelect", kind, wrong, h.constant(kind, max(line_bytes // item, 1)), stride)
        return self.put("OpConvertUToPtr", reader.definitions[pointer].type, safe), step

    def _matrix_in_variable(self, made: Instruction, lines: int, line_bytes: int, stride: int) -> None:
        """Notes what is wrong; the access stays as it is, since variables have no scratch."""
        h, reader = self.helpers, self.reader
        chain = reader.definitions[made.operands[0]]
        whole = reader.definitions[reader.pointee(chain.operands[0])]
        length, index = reader.constant(whole.operands[1]), chain.operands[-1]
        assert length is not None
        item = reader.size(whole.operands[0])
        align = min(_MATRIX_ALIGNMENT, line_bytes)
        site = self.site(made.name, f"workgroup array of {length}", line_bytes, align, length * item - line_bytes)
        wide = [
            value if reader.bits(value) == 64 else self.put("OpUConvert", h.ulong, value) for value in (index, stride)
        ]
        first, step = (self.put("OpIMul", h.ulong, value, h.long(item)) for value in wide)
        last = self.put("OpIAdd", h.ulong, first, self.put("OpIMul", h.ulong, step, h.long(lines - 1)))
        end = h.long(length * item - line_bytes)
        wrong = self.put("OpUGreaterThan", h.truth, last, end)
        rest = self.put("OpBitwiseAnd", h.ulong, self.put("OpBitwiseOr", h.ulong, first, step), h.long(align - 1))
        skewed = self.put("OpINotEqual", h.truth, rest, h.long(0))
        both = self.put("OpLogicalOr", h.truth, wrong, skewed)
        self.put("OpFunctionCall", h.void, h.note, both, last, site)


def _stated_alignment(made: Instruction) -> int:
    """What follows `Aligned` among the memory operands; 1 where an instruction has none."""
    places = {"OpLoad": 1, "OpStore": 2, "OpCooperativeMatrixLoadKHR": 3, "OpCooperativeMatrixStoreKHR": 4}
    place = places.get(made.name)
    if place is None or len(made.operands) <= place or not made.operands[place] & _ALIGNED:
        return 1
    return made.operands[place + 1]


def _target(root: Root) -> str:
    assert root.field is not None
    return f"parameter {root.field.arg}" if root.field.role == "address" else root.field.role
