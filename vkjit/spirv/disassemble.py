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

_HEADER_WORDS = 5
"""The length of a module's header: magic number, version, generator, bound of the ids, schema."""
_RESULT_COLUMN = 15
"""The width of the column with result ids."""
_NAME_BYTES = frozenset(b"0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""The bytes that names of ids may contain."""
_INTEGER_NAMES = {8: "char", 16: "short", 32: "int", 64: "long"}
_FLOAT_NAMES = {16: "half", 32: "float", 64: "double"}
"""The names that spirv-dis gives to types, by their number of bits."""


@functools.cache
def _by_opcode() -> dict[int, Layout]:
    """Return the layouts of all instructions, by opcode."""
    return {row[0]: layout_of(name) for name, row in INSTRUCTIONS.items()}


@functools.cache
def _by_value(kind: str) -> dict[int, tuple[str, str]]:
    """Return the enumerants of an operand kind: a dict from a number to (name, parameter kinds).

    If a number has several names, the first one is used.
    """
    table: dict[int, tuple[str, str]] = {}
    for name, row in ENUMERANTS[kind].items():
        table.setdefault(row[0], (name, row[1]))
    return table


@functools.cache
def _glsl_names() -> dict[int, str]:
    """Return the names of the instructions of GLSL.std.450, by number."""
    return {row[0]: name for name, row in GLSL_STD_450.items()}


def disassemble(
    code: bytes | Sequence[int] | npt.NDArray[np.uint32],
    *,
    raw_ids: bool = False,
    header: bool = True,
    indent: bool = True,
) -> str:
    """Return the text of a module, with a trailing newline.

    `raw_ids` prints ids as numbers; by default, they get names taken from OpName, types and constants. `header` prints
    the version, the generator and the bound as comments. `indent` aligns results. Raises InternalError if `code` isn't
    a SPIR-V module.
    """
    words = np.frombuffer(code, dtype="<u4").tolist() if isinstance(code, bytes) else [int(word) for word in code]
    if len(words) < _HEADER_WORDS or words[0] != MAGIC:
        raise InternalError("these bytes aren't a SPIR-V module: the first word isn't the magic number")
    return "".join(_Disassembler(words, raw_ids, indent).lines(header))


def _split(words: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Yield (opcode, operand words) of each instruction."""
    position = _HEADER_WORDS
    while position < len(words):
        # the first word of an instruction has the number of its words and the opcode, 16 bits each
        count, opcode = words[position] >> 16, words[position] & 0xFFFF
        if count == 0 or position + count > len(words):
            raise InternalError(f"the instruction at word {position} says it has {count} words; the module ends before")
        yield opcode, words[position + 1 : position + count]
        position += count


class _Disassembler:
    """Disassembles a module in two passes: one collects declarations (`_collect`), the other writes lines (`_line`).

    `_scalar_types` maps the ids of scalar types to (kind, bits), where the kind is "int", "uint", "float" or "bfloat".
    `_value_types` maps the ids of values to the ids of their types. `_instruction_sets` maps the ids of imported
    instruction sets to their names. `_namer` is None if ids are printed as numbers.
    """

    def __init__(self, words: list[int], raw_ids: bool, indent: bool) -> None:
        self._words = words
        self._raw_ids = raw_ids
        self._indent = indent
        self._scalar_types: dict[int, tuple[str, int]] = {}
        self._value_types: dict[int, int] = {}
        self._instruction_sets: dict[int, str] = {}
        self._namer = None if raw_ids else _Namer(self)

    def lines(self, header: bool) -> Iterator[str]:
        """Yield the lines of the disassembly, each with its newline. `header` adds the comment lines at the start."""
        if header:
            yield from self._header()
        instructions = list(_split(self._words))
        for opcode, operands in instructions:
            self._collect(opcode, operands)
        for opcode, operands in instructions:
            yield self._line(opcode, operands)

    def _header(self) -> Iterator[str]:
        """Yield comment lines that show the words of the module's header."""
        _, version, generator, bound, schema = self._words[:_HEADER_WORDS]
        yield "; SPIR-V\n"
        yield f"; Version: {version >> 16 & 255}.{version >> 8 & 255}\n"
        tool = generator >> 16
        yield f"; Generator: {'Khronos' if tool == 0 else f'Unknown({tool})'}; {generator & 0xFFFF}\n"
        yield f"; Bound: {bound}\n; Schema: {schema}\n"

    def _collect(self, opcode: int, operands: list[int]) -> None:
        """Record the type, the instruction set or the name that an instruction declares."""
        layout = _by_opcode().get(opcode)
        if layout is None:
            return
        if layout.has_type:
            self._value_types[operands[1]] = operands[0]
        name = layout.name
        if name == "OpTypeInt":
            self._scalar_types[operands[0]] = ("int" if operands[2] else "uint", operands[1])
        elif name == "OpTypeFloat":
            self._scalar_types[operands[0]] = ("bfloat" if len(operands) > 2 else "float", operands[1])
        elif name == "OpExtInstImport":
            self._instruction_sets[operands[0]] = _string(operands, 1)[0]
        if self._namer is not None:
            self._namer.learn(layout, operands)

    def name_of(self, target: int) -> str:
        """Return the name of an id, without its %."""
        return str(target) if self._namer is None else self._namer.names.get(target, str(target))

    def number_text(self, type_id: int, words: list[int]) -> str:
        """Return the text of a literal of the scalar type with the id `type_id`. `words` are the literal's words."""
        kind, bits = self._scalar_types.get(type_id, ("uint", 32 * len(words)))
        value = sum(word << 32 * index for index, word in enumerate(words)) & ((1 << bits) - 1)
        if kind == "int" and value >> (bits - 1):
            value -= 1 << bits
        is_integer = kind in ("int", "uint")
        return str(value) if is_integer or bits < 16 else _float_text(value, bits, kind == "bfloat")

    def _line(self, opcode: int, operands: list[int]) -> str:
        """Return the line of an instruction, with its newline."""
        layout = _by_opcode().get(opcode)
        if layout is None:
            margin = " " * _RESULT_COLUMN if self._indent else ""
            return margin + " ".join([f"OpUnknown({opcode})", *map(str, operands)]) + "\n"
        texts = [layout.name]
        position = 0
        if layout.has_type:
            texts.append("%" + self.name_of(operands[0]))
            position = 1
        head = ""
        if layout.has_result:
            head = f"%{self.name_of(operands[position])} = "
            position += 1
        texts += self._operands(layout, operands, position)
        return (head.rjust(_RESULT_COLUMN) if self._indent else head) + " ".join(texts) + "\n"

    def _operands(self, layout: Layout, words: list[int], position: int) -> list[str]:
        """Return the texts of the operands that begin at `position` in the words of an instruction."""
        texts: list[str] = []
        for kind, quantifier in layout.operands:
            if quantifier == "*":
                while position < len(words):
                    position = self._operand(layout, kind, words, position, texts)
            elif position < len(words):
                position = self._operand(layout, kind, words, position, texts)
        if layout.name == "OpSpecConstantOp":
            # an operation inside the instruction; words: result type, result, opcode of the operation, its operands...
            inner = _by_opcode()[words[2]]
            position = 3
            for kind, quantifier in inner.operands:
                while position < len(words):
                    position = self._operand(inner, kind, words, position, texts)
                    if quantifier != "*":
                        break
        return texts

    def _operand(self, layout: Layout, kind: str, words: list[int], position: int, texts: list[str]) -> int:
        """Append the text of the operand of kind `kind` at `position` to `texts`, and return the next position."""
        if kind in COMPOSITE_KINDS:
            return self._pair(layout, kind, words, position, texts)
        if kind in ENUMERANTS:
            return self._enumerant(layout, kind, words, position, texts)
        if kind == "LiteralString":
            text, used = _string(words, position)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            texts.append(f'"{escaped}"')
            return position + used
        if kind == "LiteralContextDependentNumber":
            texts.append(self.number_text(words[0], words[position:]))
            return len(words)
        if kind == "LiteralExtInstInteger":
            # words: result type, result, id of the instruction set, number of the instruction, operands...
            is_glsl = self._instruction_sets.get(words[2]) == "GLSL.std.450"
            texts.append(_glsl_names().get(words[position], str(words[position])) if is_glsl else str(words[position]))
        elif kind == "LiteralSpecConstantOpInteger":
            texts.append(_by_opcode()[words[position]].name.removeprefix("Op"))
        elif kind == "LiteralFloat":
            texts.append(_float_text(words[position], 32, is_bf16=False))
        elif kind.startswith("Literal"):
            texts.append(str(words[position]))
        else:
            texts.append("%" + self.name_of(words[position]))
        return position + 1

    def _pair(self, layout: Layout, kind: str, words: list[int], position: int, texts: list[str]) -> int:
        """Append the texts of a pair (an operand of a composite kind), and return the next position."""
        if layout.name == "OpSwitch":  # (literal of the selector's type, label)
            selector_type = self._value_types.get(words[0], 0)
            _, bits = self._scalar_types.get(selector_type, ("uint", 32))
            count = (bits + 31) // 32  # the words of the literal
            texts.append(self.number_text(selector_type, words[position : position + count]))
            return self._operand(layout, "IdRef", words, position + count, texts)
        for part in COMPOSITE_KINDS[kind]:
            if position < len(words):
                position = self._operand(layout, part, words, position, texts)
        return position

    def _enumerant(self, layout: Layout, kind: str, words: list[int], position: int, texts: list[str]) -> int:
        """Append the texts of an enumerant or mask and of its parameters, and return the next position."""
        table = _by_value(kind)
        values = [words[position]]
        if kind in MASK_KINDS and words[position]:  # one value per bit that is set
            values = [1 << bit for bit in range(32) if words[position] >> bit & 1]
        rows = [table.get(value, (str(value), "")) for value in values]
        texts.append("|".join(name for name, _ in rows))
        position += 1
        for _, parameters in rows:
            for parameter in parameters.split():
                bare = parameter.rstrip("?*")
                if position < len(words):
                    position = self._operand(layout, bare, words, position, texts)
        return position


class _Namer:
    """Readable, unique names for ids (`names`).

    A name is taken from OpName if the id has one. Otherwise it is derived from the declaration of a type or constant.
    All other ids are their own names.
    """

    def __init__(self, owner: _Disassembler) -> None:
        self.names: dict[int, str] = {}
        self._owner = owner
        self._taken: set[str] = set()

    def learn(self, layout: Layout, operands: list[int]) -> None:
        """Record a name: OpName names its target; any other instruction may suggest a name for its result."""
        if layout.name == "OpName":
            self._save(operands[0], _string(operands, 1)[0])
            return
        if not layout.has_result:
            return
        result = operands[1 if layout.has_type else 0]
        if result not in self.names:
            self._save(result, self._suggest(layout, operands) or str(result))

    def _save(self, target: int, suggestion: str) -> None:
        """Give the id `target` a name, unless it has one already.

        Invalid characters of the suggestion become underscores. A number is appended if the name is taken.
        """
        name = bytes(byte if byte in _NAME_BYTES else ord("_") for byte in suggestion.encode()).decode() or "_"
        unique = name
        index = 0
        while unique in self._taken:
            unique = f"{name}_{index}"
            index += 1
        self._taken.add(unique)
        self.names.setdefault(target, unique)

    def _suggest(self, layout: Layout, operands: list[int]) -> str:
        """Return the name that spirv-dis derives for a type or constant; "" for other declarations."""
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

    def _name(self, target: int) -> str:
        return self.names.get(target, str(target))

    def _suggest_type(self, layout: Layout, operands: list[int]) -> str:
        """Return the name that spirv-dis derives for a type; "" for types that are named by their id."""
        result, arguments = operands[0], operands[1:]
        match layout.name:
            case "OpTypeVoid":
                return "void"
            case "OpTypeBool":
                return "bool"
            case "OpTypeInt":
                return ("" if arguments[1] else "u") + _INTEGER_NAMES.get(arguments[0], f"int{arguments[0]}")
            case "OpTypeFloat":
                if len(arguments) == 1:
                    return _FLOAT_NAMES[arguments[0]]
                return "bfloat16" if arguments[1] == 0 else ""  # arguments[1]: the encoding, 0 for BFloat16KHR
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


def _float_text(bits: int, width: int, is_bf16: bool) -> str:
    """Return the text that spirv-dis writes for the float of `width` bits with the bits `bits`.

    16-bit floats, subnormals, infinities and NaNs are written as hexadecimal floats, others in decimal with enough
    digits to read the value back. `is_bf16` is True for bf16.
    """
    half_precision = (8, 7) if is_bf16 else (5, 10)
    exponent_bits, fraction_bits = {64: (11, 52), 32: (8, 23)}.get(width, half_precision)
    fraction = bits & ((1 << fraction_bits) - 1)
    exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1)
    max_exponent = (1 << exponent_bits) - 1
    is_zero = exponent == 0 and fraction == 0
    if width >= 32 and (is_zero or 0 < exponent < max_exponent):
        float_dtype, bits_dtype = (np.float64, np.uint64) if width == 64 else (np.float32, np.uint32)
        digits_to_round_trip = 17 if width == 64 else 9
        return f"{float(np.array(bits, dtype=bits_dtype).view(float_dtype)):.{digits_to_round_trip}g}"
    sign = "-" if bits >> (width - 1) else ""
    if is_zero:
        return sign + "0x0p+0"
    power = exponent - (max_exponent >> 1)  # without the bias
    if exponent == 0:  # subnormal: shift the leading one of the fraction out, as for a normal number
        shift = fraction_bits + 1 - fraction.bit_length()
        fraction = fraction << shift & ((1 << fraction_bits) - 1)
        power = 1 - (max_exponent >> 1) - shift
    pad = -fraction_bits % 4  # to whole hexadecimal digits
    digits = f"{fraction << pad:0{(fraction_bits + pad) // 4}x}".rstrip("0")
    return f"{sign}0x1{'.' + digits if digits else ''}p{power:+d}"
