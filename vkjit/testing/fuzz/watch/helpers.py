"""The declarations and functions that `instrument` adds to a SPIR-V module.

The added functions check an address and write errors into a report buffer. The buffer starts with `SCRATCH_BYTES` bytes
of scratch memory, to which invalid accesses are redirected. Then follows a 64-bit record for each site, that is for
each check that `instrument` inserts. A record is 0 until a check fails at its site. Then bit 63 (`SEEN`) is set, and
bit 62 (`MISALIGNED`) if an address is misaligned. The lower 62 bits (mask `DISTANCE`) hold the distance in bytes of the
invalid address from the start of the accessible range, modulo 2**62, or the value that is passed to the function
`note`, such as an invalid index. Stores of records aren't synchronized: if several invocations fail at one site, the
record of any of them remains.
"""

from __future__ import annotations

from vkjit.spirv._gen_grammar import ENUMERANTS
from vkjit.spirv.words import Operand, encode_operands, layout_of

from .reader import Instruction, Reader

__all__ = ["COOPERATIVE_ROW", "DISTANCE", "MISALIGNED", "RECORD_BYTES", "SCRATCH_BYTES", "SEEN", "Helpers"]

COOPERATIVE_ROW = ENUMERANTS["CooperativeMatrixLayout"]["RowMajorKHR"][0]
"""SPIR-V's enumerant for cooperative matrices in row-major order."""
SCRATCH_BYTES = 1 << 16
RECORD_BYTES = 8
SEEN, MISALIGNED = 1 << 63, 1 << 62
DISTANCE = MISALIGNED - 1
"""Mask of the distance in a record."""


class Helpers:
    """The ids, types, constants and functions that are added to one module.

    `report` is the address of the report buffer. The lists `annotations`, `declarations` and `functions` hold the added
    instructions for these sections of the module. `check` and `note` are the ids of the added functions (see `_check`
    and `_note`).
    """

    def __init__(self, reader: Reader, report: int) -> None:
        self.reader = reader
        self.report = report
        self.annotations: list[Instruction] = []
        self.declarations: list[Instruction] = []
        self.functions: list[Instruction] = []
        self._types = {
            (instruction.name, instruction.operands): instruction.result
            for instruction in reader.instructions
            if instruction.name.startswith("OpType")
        }
        self._constants: dict[tuple[int, int], int] = {}
        self.uint, self.ulong = self.type("OpTypeInt", 32, 0), self.type("OpTypeInt", 64, 0)
        self.bool_type, self.void = self.type("OpTypeBool"), self.type("OpTypeVoid")
        self._record_pointers = self._records()
        self.check = self._check()
        self.note = self._note()

    def id(self) -> int:
        """Return a new id."""
        self.reader.header[3] += 1  # the smallest unused id
        return self.reader.header[3] - 1

    def put(self, out: list[Instruction], name: str, type_id: int, *operands: Operand) -> int:
        """Append an instruction to `out`. Return the id of its result, or 0 if it has none.

        `type_id` is the id of the type of the result, 0 if the instruction has none.
        """
        layout, words = layout_of(name), list[int]()
        encode_operands(layout, operands, words, set())
        result = self.id() if layout.has_result else 0
        out.append(Instruction(layout.name, type_id, result, tuple(words)))
        if result:
            self.reader.definitions[result] = out[-1]
        return result

    def type(self, name: str, *operands: int) -> int:
        """Return the id of the type that the instruction `name` with these operands declares.

        Adds the declaration if the module doesn't have it.
        """
        key = (name, operands)
        if key not in self._types:
            self._types[key] = self.put(self.declarations, name, 0, *operands)
        return self._types[key]

    def constant(self, type_id: int, value: int) -> int:
        """Return the id of a constant of an integer type or the boolean type."""
        key = (type_id, value)
        if key not in self._constants:
            if type_id == self.bool_type:
                instruction = Instruction("OpConstantTrue" if value else "OpConstantFalse", type_id, self.id(), ())
            else:
                bits = self.reader.definitions[type_id].operands[0]
                value &= (1 << bits) - 1
                words = (value & 0xFFFFFFFF, value >> 32) if bits == 64 else (value,)
                instruction = Instruction("OpConstant", type_id, self.id(), words)
            self.declarations.append(instruction)
            self.reader.definitions[instruction.result] = instruction
            self._constants[key] = instruction.result
        return self._constants[key]

    def word(self, value: int) -> int:
        """Return the id of a 32-bit constant."""
        return self.constant(self.uint, value)

    def long(self, value: int) -> int:
        """Return the id of a 64-bit constant."""
        return self.constant(self.ulong, value)

    # -- functions

    def _records(self) -> tuple[int, int]:
        """Declare a structure that consists of the array of records.

        Returns the ids of two pointer types: to the structure and to one record.
        """
        array = self.put(self.declarations, "OpTypeRuntimeArray", 0, self.ulong)
        struct = self.put(self.declarations, "OpTypeStruct", 0, array)
        for name, operands in (
            ("OpDecorate", (array, "ArrayStride", RECORD_BYTES)),
            ("OpDecorate", (struct, "Block")),
            ("OpMemberDecorate", (struct, 0, "Offset", 0)),
        ):
            self.put(self.annotations, name, 0, *operands)
        whole, one = (
            self.put(self.declarations, "OpTypePointer", 0, "PhysicalStorageBuffer", pointee)
            for pointee in (struct, self.ulong)
        )
        return whole, one

    def _begin(self, result: int, *parameters: int) -> tuple[int, list[int]]:
        """Start a function with this result type and parameter types. Return its id and the ids of its parameters."""
        function_type = self.type("OpTypeFunction", result, *parameters)
        function = self.put(self.functions, "OpFunction", result, "None", function_type)
        ids = [self.put(self.functions, "OpFunctionParameter", parameter) for parameter in parameters]
        self.put(self.functions, "OpLabel", 0)
        return function, ids

    def _store(self, distance: int, flags: int, site: int) -> None:
        """Emit the store of a site's record, made up of a distance and flags. All parameters are ids."""
        out, (whole, one) = self.functions, self._record_pointers
        low = self.put(out, "OpBitwiseAnd", self.ulong, distance, self.long(DISTANCE))
        record = self.put(out, "OpBitwiseOr", self.ulong, low, flags)
        base = self.put(out, "OpConvertUToPtr", whole, self.long(self.report + SCRATCH_BYTES))
        pointer = self.put(out, "OpAccessChain", one, base, self.word(0), site)
        self.put(out, "OpStore", 0, pointer, record, "Aligned", RECORD_BYTES)

    def _when(self, condition: int) -> int:
        """Start a block that runs if `condition` is true.

        Returns the label of the block that follows it. The caller has to end the block and emit this label.
        """
        inside, after = self.id(), self.id()
        self.put(self.functions, "OpSelectionMerge", 0, after, "None")
        self.put(self.functions, "OpBranchConditional", 0, condition, inside, after)
        self.functions.append(Instruction("OpLabel", 0, inside, ()))
        return after

    def _check(self) -> int:
        """Define the function check(address, low, room, mask, flag, site) and return its id.

        An address is invalid in three cases: it is less than `low`, or more than `room` bytes above `low` (both are
        `address - low > room` as unsigned integers); it is misaligned, since it has a bit of `mask`; or `flag` is true,
        by which the caller reports an error that it has found itself, such as a negative index. For an invalid address,
        the function stores a record and returns the address of the scratch memory. For a valid one, it returns
        `address`.
        """
        ulong, uint, out = self.ulong, self.uint, self.functions
        function, parameters = self._begin(ulong, ulong, ulong, ulong, uint, self.bool_type, uint)
        address, low, room, mask, flag, site = parameters
        distance = self.put(out, "OpISub", ulong, address, low)
        outside = self.put(out, "OpUGreaterThan", self.bool_type, distance, room)
        lower = self.put(out, "OpUConvert", uint, address)
        remainder = self.put(out, "OpBitwiseAnd", uint, lower, mask)
        misaligned = self.put(out, "OpINotEqual", self.bool_type, remainder, self.word(0))
        range_or_alignment = self.put(out, "OpLogicalOr", self.bool_type, outside, misaligned)
        wrong = self.put(out, "OpLogicalOr", self.bool_type, range_or_alignment, flag)
        after = self._when(wrong)
        flags = self.put(out, "OpSelect", ulong, misaligned, self.long(SEEN | MISALIGNED), self.long(SEEN))
        self._store(distance, flags, site)
        self.put(out, "OpBranch", 0, after)
        out.append(Instruction("OpLabel", 0, after, ()))
        self.put(out, "OpReturnValue", 0, self.put(out, "OpSelect", ulong, wrong, self.long(self.report), address))
        self.put(out, "OpFunctionEnd", 0)
        return function

    def _note(self) -> int:
        """Define the function note(wrong, value, site) and return its id.

        It serves checks of values that aren't addresses, such as array indices. The calling code tests the value; if it
        is invalid (`wrong` is true), the function stores the site's record, with `value` in the bits of `DISTANCE`.
        """
        out = self.functions
        function, (wrong, value, site) = self._begin(self.void, self.bool_type, self.ulong, self.uint)
        after = self._when(wrong)
        self._store(value, self.long(SEEN), site)
        self.put(out, "OpBranch", 0, after)
        out.append(Instruction("OpLabel", 0, after, ()))
        self.put(out, "OpReturn", 0)
        self.put(out, "OpFunctionEnd", 0)
        return function
