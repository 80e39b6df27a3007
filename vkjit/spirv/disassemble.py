"""A SPIR-V disassembler driven by the grammar tables, for inspection tools and tests.

The output is the same as that of the tool spirv-dis (with `--raw-id` for `raw_ids=True`): one line per instruction.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ..errors import InternalError
from ._gen_grammar import COMPOSITE_KINDS, ENUMERANTS, GLSL_STD_450, INSTRUCTIONS, MAGIC, MASK_KINDS
from .words import Layout, layout_of

__all__ = ["disassemble"]

_RESULT_COLUMN = 15
"""The width of the column with result ids."""
_INTEGER_NAMES = {8: "char", 16: "short", 32: "int", 64: "long"}
_NAME_BYTES = frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_FLOAT_NAMES = {16: "half", 32: "float", 64: "double"}


@functools.cache
def _by_opcode() -> dict[int, Layout]:
    return {row[0]: layout_of(name) for name, row in INSTRUCTIONS.items()}


@functools.cache
def _by_value(kind: str) -> dict[int, tuple[str, str]]:
    """Return the enumerants of an operand kind, as value -> (name, parameter kinds); the first name of a value wins."""
    table: dict[int, tuple[str, str]] = {}
    for name, row in ENUMERANTS[kind].items():
        table.setdefault(row[0], (name, row[1]))
    return table


@functools.cache
def _glsl_names() -> dict[int, str]:
    return {row[0]: name for name, row in GLSL_STD_450.items()}


def disassemble(
    code: bytes | Sequence[int] | npt.NDArray[np.uint32],
    *,
    raw_ids: bool = False,
    header: bool = True,
    indent: bool = True,
) -> str:
    """Return the text of a module, with a trailing newline.

    `raw_ids` prints ids as numbers instead of names taken from OpName and from types and constants; `header` prints the
    version, the generator and the bound as comments; `indent` aligns results. Raises InternalError if `code` isn't a
    SPIR-V module.
    """
    words = np.frombuffer(code, dtype="<u4").tolist() if isinstance(code, bytes) else [int(word) for word in code]
    if len(words) < 5 or words[0] != MAGIC:
        raise InternalError("these bytes aren't a SPIR-V module: the first word isn't the magic number")
    return "".join(_Disassembler(words, raw_ids, indent).lines(header))


def _split(words: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield (opcode, operand words) of each instruction."""
    position = 5  # after the header
    while position < len(words):
        count, opcode = words[position] >> 16, words[position] & 0xFFFF
        if count == 0 or position + count > len(words):
            raise InternalError(f"the instruction at word {position} says it has {count} words; the module ends before")
        yield opcode, words[position + 1 : position + count]
        position += count


class _Disassembler:
    """Disassembles a module in two passes. The first one (`_learn`) collects the names of ids and the types of values.

    `_numbers` maps the ids of scalar types to (kind, bits), `_value_types` maps values to their type ids, and `_sets`
    maps the ids of imported instruction sets to their names.
    """

    def __init__(self, words: list[int], raw_ids: bool, indent: bool) -> None:
        self._words = words
        self._raw_ids = raw_ids
        self._indent = indent
        self._numbers: dict[int, tuple[str, int]] = {}
        self._value_types: dict[int, int] = {}
        self._sets: dict[int, str] = {}
        self._namer = None if raw_ids else _Namer(self)

    def lines(self, header: bool) -> Iterator[str]:
        """Yield the lines of the text."""
        if header:
            yield from self._header()
        instructions = list(_split(self._words))
        for opcode, operands in instructions:
            self._learn(opcode, operands)
        for opcode, operands in instructions:
            yield self._line(opcode, operands)

    def _header(self) -> Iterator[str]:
        """Yield the comment lines with the words of the module's header."""
        _, version, generator, bound, schema = self._words[:5]
        yield "; SPIR-V\n"
        yield f"; Version: {version >> 16 & 255}.{version >> 8 & 255}\n"
        tool = generator >> 16
        yield f"; Generator: {'Khronos' if tool == 0 else f'Unknown({tool})'}; {generator & 0xFFFF}\n"
        yield f"; Bound: {bound}\n; Schema: {schema}\n"

    def _learn(self, opcode: int, operands: list[int]) -> None:
        """Record the type, the instruction set or the name that an instruction declares."""
        layout = _by_opcode().get(opcode)
        if layout is None:
            return
        if layout.has_type:
            self._value_types[operands[1]] = operands[0]
        name = layout.name
        if name == "OpTypeInt":
            self._numbers[operands[0]] = ("int" if operands[2] else "uint", operands[1])
        elif name == "OpTypeFloat":
            self._numbers[operands[0]] = ("bfloat" if len(operands) > 2 else "float", operands[1])
        elif name == "OpExtInstImport":
            self._sets[operands[0]] = _string(operands, 1)[0]
        if self._namer is not None:
            self._namer.learn(layout, operands)

    def name_of(self, number: int) -> str:
        """Return the name of an id, without its %."""
        return str(number) if self._namer is None else self._namer.names.get(number, str(number))

    def number_text(self, type_id: int, words: list[int]) -> str:
        """Return the text of a literal, given by its words, of the scalar type with the id `type_id`."""
        kind, bits = self._numbers.get(type_id, ("uint", 32 * len(words)))
        value = sum(word << 32 * index for index, word in enumerate(words)) & ((1 << bits) - 1)
        if kind == "int" and value >> (bits - 1):
            value -= 1 << bits
        return str(value) if kind.endswith("int") or bits < 16 else _float_text(value, bits, kind == "bfloat")

    def _line(self, opcode: int, operands: list[int]) -> str:
        """Return the line of an instruction."""
        layout = _by_opcode().get(opcode)
        if layout is None:
            return " " * _RESULT_COLUMN * self._indent + " ".join([f"OpUnknown({opcode})", *map(str, operands)]) + "\n"
        parts = [layout.name]
        position = 0
        if layout.has_type:
            parts.append("%" + self.name_of(operands[0]))
            position = 1
        head = ""
        if layout.has_result:
            head = f"%{self.name_of(operands[position])} = "
            position += 1
        parts += self._operands(layout, operands, position)
        return (head.rjust(_RESULT_COLUMN) if self._indent else head) + " ".join(parts) + "\n"

    def _operands(self, layout: Layout, words: list[int], position: int) -> list[str]:
        """Return the texts of an instruction's operands, which begin at `position` in its words."""
        parts: list[str] = []
        for kind, quantifier in layout.operands:
            if quantifier == "*":
                while position < len(words):
                    position = self._operand(layout, kind, words, position, parts)
            elif position < len(words):
                position = self._operand(layout, kind, words, position, parts)
        if layout.name == "OpSpecConstantOp":  # the operands of the operation inside follow its opcode
            inner = _by_opcode()[words[2]]
            position = 3
            for kind, quantifier in inner.operands:
                while position < len(words):
                    position = self._operand(inner, kind, words, position, parts)
                    if quantifier != "*":
                        break
        return parts

    def _operand(self, layout: Layout, kind: str, words: list[int], position: int, parts: list[str]) -> int:
        """Append the text of the operand of kind `kind` at `position` to `parts`, and return the next position."""
        if kind in COMPOSITE_KINDS:
            return self._pair(layout, kind, words, position, parts)
        if kind in ENUMERANTS:
            return self._enumerant(layout, kind, words, position, parts)
        if kind == "LiteralString":
            text, used = _string(words, position)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
            return position + used
        if kind == "LiteralContextDependentNumber":
            parts.append(self.number_text(words[0], words[position:]))
            return len(words)
        if kind == "LiteralExtInstInteger":
            is_glsl = self._sets.get(words[2]) == "GLSL.std.450"
            parts.append(_glsl_names().get(words[position], str(words[position])) if is_glsl else str(words[position]))
        elif kind == "LiteralSpecConstantOpInteger":
            parts.append(_by_opcode()[words[position]].name.removeprefix("Op"))
        elif kind == "LiteralFloat":
            parts.append(_float_text(words[position], 32, False))
        elif kind.startswith("Literal"):
            parts.append(str(words[position]))
        else:
            parts.append("%" + self.name_of(words[position]))
        return position + 1

    def _pair(self, layout: Layout, kind: str, words: list[int], position: int, parts: list[str]) -> int:
        """Append the texts of a pair of operands, and return the next position."""
        if layout.name == "OpSwitch":  # (literal of the selector's type, label)
            selector_type = self._value_types.get(words[0], 0)
            count = (self._numbers.get(selector_type, ("uint", 32))[1] + 31) // 32
            parts.append(self.number_text(selector_type, words[position : position + count]))
            return self._operand(layout, "IdRef", words, position + count, parts)
        for part in COMPOSITE_KINDS[kind]:
            if position < len(words):
                position = self._operand(layout, part, words, position, parts)
        return position

    def _enumerant(self, layout: Layout, kind: str, words: list[int], position: int, parts: list[str]) -> int:
        """Append the texts of an enumerant or mask and of its parameters, and return the next position."""
        table, value = _by_value(kind), words[position]
        values = [1 << bit for bit in range(32) if value >> bit & 1] if kind in MASK_KINDS and value else [value]
        rows = [table.get(each, (str(each), "")) for each in values]
        parts.append("|".join(name for name, _ in rows))
        position += 1
        for _, parameters in rows:
            for parameter in parameters.split():
                bare = parameter.rstrip("?*")
                if position < len(words):
                    position = self._operand(layout, bare, words, position, parts)
        return position


class _Namer:
    """Readable, unique names for ids.

    A name is that of OpName, else one derived from the declaration of a type or constant, else the id itself.
    """

    def __init__(self, owner: _Disassembler) -> None:
        self.names: dict[int, str] = {}
        self._owner = owner
        self._taken: set[str] = set()

    def learn(self, layout: Layout, operands: list[int]) -> None:
        """Record the name that an instruction gives to an id or to its result."""
        if layout.name == "OpName":
            self._save(operands[0], _string(operands, 1)[0])
            return
        if not layout.has_result:
            return
        result = operands[1 if layout.has_type else 0]
        if result not in self.names:
            self._save(result, self._suggest(layout, operands) or str(result))

    def _save(self, number: int, suggestion: str) -> None:
        """Name an id, unless it has a name already. Invalid characters become underscores; a number makes it unique."""
        name = bytes(byte if byte in _NAME_BYTES else 0x5F for byte in suggestion.encode()).decode() or "_"
        unique, index = name, 0
        while unique in self._taken:
            unique, index = f"{name}_{index}", index + 1
        self._taken.add(unique)
        self.names.setdefault(number, unique)

    def _suggest(self, layout: Layout, operands: list[int]) -> str:
        """Return the name of a type or constant, as spirv-dis derives it; "" for other declarations."""
        if layout.name.startswith("OpType"):
            return self._suggest_type(layout, operands)
        if layout.name == "OpConstantTrue":
            return "true"
        if layout.name == "OpConstantFalse":
            return "false"
        if layout.name == "OpConstant":
            text = self._owner.number_text(operands[0], operands[2:]).replace("-", "n")
            return f"{self._name(operands[0])}_{text}"
        return ""

    def _name(self, number: int) -> str:
        return self.names.get(number, str(number))

    def _suggest_type(self, layout: Layout, operands: list[int]) -> str:
        """Return the name of a type, as spirv-dis derives it; "" for types that are named by their id."""
        result, arguments = operands[0], operands[1:]
        match layout.name:
            case "OpTypeVoid":
                return "void"
            case "OpTypeBool":
                return "bool"
            case "OpTypeInt":
                return ("" if arguments[1] else "u") + _INTEGER_NAMES.get(arguments[0], f"int{arguments[0]}")
            case "OpTypeFloat":
                return _FLOAT_NAMES[arguments[0]] if len(arguments) == 1 else "bfloat16" if arguments[1] == 0 else ""
            case "OpTypeVector":
                return f"v{arguments[1]}{self._name(arguments[0])}"
            case "OpTypeArray":
                return f"_arr_{self._name(arguments[0])}_{self._name(arguments[1])}"
            case "OpTypeRuntimeArray":
                return f"_runtimearr_{self._name(arguments[0])}"
            case "OpTypePointer":
                storage = _by_value("StorageClass").get(arguments[0], (str(arguments[0]), ""))[0]
                return f"_ptr_{storage}_{self._name(arguments[1])}"
            case "OpTypeStruct":
                return f"_struct_{result}"
            case _:
                return ""


def _string(words: list[int], position: int) -> tuple[str, int]:
    """Return (text, number of words) of the literal string at `position`."""
    data = b"".join(word.to_bytes(4, "little") for word in words[position:])
    end = data.find(b"\0")
    if end < 0:
        raise InternalError("a SPIR-V string has no terminating zero byte")
    return data[:end].decode("utf-8", errors="replace"), end // 4 + 1


def _float_text(bits: int, width: int, brain: bool) -> str:
    """Return the text of a float of `width` bits given by its bits, as spirv-dis writes it.

    16-bit floats, subnormals, infinities and NaNs are written as hexadecimal floats, others in decimal with enough
    digits to read the value back. `brain` is True for bf16.
    """
    exponent_bits, fraction_bits = {64: (11, 52), 32: (8, 23)}.get(width, (8, 7) if brain else (5, 10))
    fraction = bits & ((1 << fraction_bits) - 1)
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    top = (1 << exponent_bits) - 1
    zero = exponent == 0 and fraction == 0
    if width >= 32 and (zero or 0 < exponent < top):
        kind, carrier = (np.float64, np.uint64) if width == 64 else (np.float32, np.uint32)
        return f"{float(np.array(bits, dtype=carrier).view(kind)):.{17 if width == 64 else 9}g}"
    sign = "-" if bits >> (width - 1) else ""
    if zero:
        return sign + "0x0p+0"
    power = exponent - (top >> 1)
    if exponent == 0:
        shift = fraction_bits + 1 - fraction.bit_length()
        fraction = fraction << shift & ((1 << fraction_bits) - 1)
        power = 1 - (top >> 1) - shift
    pad = -fraction_bits % 4
    digits = f"{fraction << pad:0{(fraction_bits + pad) // 4}x}".rstrip("0")
    return f"{sign}0x1{'.' + digits if digits else ''}p{power:+d}"
