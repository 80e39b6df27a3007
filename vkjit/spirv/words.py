"""Encoding of SPIR-V instructions, given by name with Python values as operands, to 32-bit words.

The encoding functions also record the used instructions and enumerants, from which `requirements` derives capabilities.
Callers pass operands in the order of the grammar:

- an id or a literal integer: an int (a negative literal is encoded as 32-bit two's complement);
- a literal string: a str; a literal float: a float (32 bits);
- an enumerant (a value of an enumeration): its SPIR-V name or its number, followed by its parameters as further
  operands: `"Offset", 4`;
- a mask: names joined by "|" in ascending order of bits, or a number, followed by the parameters in that order:
  `"Aligned|MakePointerVisible", 16, scope`;
- an instruction of GLSL.std.450: its name or number;
- repeated pairs, such as the (value, parent) pairs of OpPhi: flattened.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

from ..errors import InternalError
from ._gen_grammar import ALIASES, COMPOSITE_KINDS, ENUMERANTS, GLSL_STD_450, INSTRUCTIONS, MASK_KINDS

__all__ = ["Layout", "Operand", "Use", "encode_operands", "enumerant", "instruction", "layout_of", "pack_string"]

Operand = int | float | str
"""One operand as passed by a caller."""

Use = tuple[str, str]
"""A used instruction, ("Op", opname), or enumerant, (operand kind, name), which may require capabilities."""

_ID_KINDS = frozenset({"IdRef", "IdScope", "IdMemorySemantics"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The operand layout of an instruction.

    `has_type` and `has_result` are True if it begins with a result type and a result id. `operands` are the (kind,
    quantifier) pairs of the other operands; the quantifier is "", "?" (optional) or "*" (repeated). `ids` is the number
    of these operands if each is a single id, else -1; it enables a fast path in `OpenBlock`. `use` is the item to
    record when the instruction is emitted.
    """

    name: str
    opcode: int
    has_type: bool
    has_result: bool
    operands: tuple[tuple[str, str], ...]
    ids: int
    use: Use


_LAYOUTS: dict[str, Layout] = {}
"""Cache of `layout_of`."""


def layout_of(opname: str) -> Layout:
    """Return the layout of an instruction, by name or alias. Raises InternalError for an unknown name."""
    cached = _LAYOUTS.get(opname)
    if cached is not None:
        return cached
    name = ALIASES.get(opname, opname)
    row = INSTRUCTIONS.get(name)
    if row is None:
        raise InternalError(f"no SPIR-V instruction is called {opname!r}: expected a name such as 'OpIAdd'")
    kinds = [(kind.rstrip("?*"), kind[len(kind.rstrip("?*")) :]) for kind in row[1].split()]
    has_type = ("IdResultType", "") in kinds
    has_result = ("IdResult", "") in kinds
    operands = tuple(kinds[has_type + has_result :])
    only_ids = all(kind in _ID_KINDS and not quantifier for kind, quantifier in operands)
    layout = Layout(name, row[0], has_type, has_result, operands, len(operands) if only_ids else -1, ("Op", name))
    _LAYOUTS[opname] = layout
    return layout


def pack_string(text: str) -> list[int]:
    """Encode a literal string: UTF-8, terminated by a zero byte, zero-padded to whole words."""
    data = text.encode("utf-8")
    if b"\0" in data:
        raise InternalError(f"a SPIR-V string can't hold a zero byte: {text!r}")
    data += b"\0" * (4 - len(data) % 4)
    return list(struct.unpack(f"<{len(data) // 4}I", data))


def instruction(opname: str, words: list[int]) -> list[int]:
    """Return an instruction with its operand words. Raises InternalError if it is longer than 65535 words."""
    count = len(words) + 1
    if count > 0xFFFF:
        raise InternalError(f"{opname} of {count} words: at most 65535 fit into a SPIR-V instruction")
    return [count << 16 | layout_of(opname).opcode, *words]


@functools.lru_cache(maxsize=4096)
def enumerant(kind: str, value: Operand) -> tuple[int, tuple[str, ...]]:
    """Return (number, names) of an enumerant or a mask of operand kind `kind`, given by name or number.

    The names of a mask are in ascending order of their bits.
    """
    table = ENUMERANTS[kind]
    mask = kind in MASK_KINDS
    if isinstance(value, str):
        names = value.split("|") if mask else [value]
        for name in names:
            if name not in table:
                raise InternalError(f"no {kind} is called {name!r} in the SPIR-V grammar")
        names.sort(key=lambda name: table[name][0])
        number = 0
        for name in names:
            number |= table[name][0]
        return number, tuple(names)
    if not isinstance(value, int):
        raise InternalError(f"a {kind} is given by name or number, not by {value!r}")
    return value, _names_of(kind, value, mask)


def _names_of(kind: str, value: int, mask: bool) -> tuple[str, ...]:
    """Return the name of an enumerant, or the names of a mask's bits."""
    names: dict[int, str] = {}
    for name, row in ENUMERANTS[kind].items():
        names.setdefault(row[0], name)
    if not mask or value == 0:
        if value not in names:
            raise InternalError(f"no {kind} has the number {value} in the SPIR-V grammar")
        return (names[value],)
    bits = [1 << bit for bit in range(32) if value >> bit & 1]
    if any(bit not in names for bit in bits):
        raise InternalError(f"the {kind} mask {value:#x} has a bit that the SPIR-V grammar doesn't know")
    return tuple(names[bit] for bit in bits)


def encode_operands(layout: Layout, operands: tuple[Operand, ...], words: list[int], uses: set[Use]) -> None:
    """Append the words of `operands` to `words`, and the used enumerants to `uses`.

    Raises InternalError for too few or too many operands and for an operand of the wrong kind.
    """
    position, count = 0, len(operands)
    for kind, quantifier in layout.operands:
        if quantifier == "*":
            while position < count:
                position = _encode_one(layout, kind, operands, position, words, uses)
        elif quantifier == "?" and position == count:
            break
        else:
            position = _encode_one(layout, kind, operands, position, words, uses)
    if position < count and layout.name == "OpSpecConstantOp":
        position = _append_ids(layout, operands, position, words)
    if position != count:
        raise InternalError(
            f"{layout.name} takes {_expected(layout)}; {count - position} of {count} operands are left over"
        )


def _append_ids(layout: Layout, operands: tuple[Operand, ...], position: int, words: list[int]) -> int:
    """Append the operands of the operation inside OpSpecConstantOp: ids or literal indices, one word each."""
    words += [_number(layout, "IdRef", operand) for operand in operands[position:]]
    return len(operands)


def _expected(layout: Layout) -> str:
    """Return the expected operands, for error messages."""
    return "(" + ", ".join(kind + quantifier for kind, quantifier in layout.operands) + ")"


def _encode_one(
    layout: Layout, kind: str, operands: tuple[Operand, ...], position: int, words: list[int], uses: set[Use]
) -> int:
    """Encode one operand of `kind`, with its parameters; return the next position."""
    if kind in COMPOSITE_KINDS:
        for part in COMPOSITE_KINDS[kind]:
            position = _encode_one(layout, part, operands, position, words, uses)
        return position
    if position >= len(operands):
        raise InternalError(f"{layout.name} takes {_expected(layout)}; got only {len(operands)} operands: {operands}")
    operand = operands[position]
    if kind in ENUMERANTS:
        return _encode_enumerant(layout, kind, operands, position, words, uses)
    if kind == "LiteralString":
        if not isinstance(operand, str):
            raise InternalError(f"{layout.name}: expected a string, found {operand!r}")
        words.extend(pack_string(operand))
    elif kind == "LiteralFloat":
        words.append(struct.unpack("<I", struct.pack("<f", operand))[0])
    elif kind == "LiteralExtInstInteger" and isinstance(operand, str):
        if operand not in GLSL_STD_450:
            raise InternalError(f"GLSL.std.450 has no instruction called {operand!r}")
        words.append(GLSL_STD_450[operand][0])
    elif kind == "LiteralSpecConstantOpInteger" and isinstance(operand, str):
        words.append(layout_of(operand).opcode)
    else:
        words.append(_number(layout, kind, operand))
    return position + 1


def _number(layout: Layout, kind: str, operand: Operand) -> int:
    """Return the word of an id or a literal integer."""
    if not isinstance(operand, int) or not -0x80000000 <= operand <= 0xFFFFFFFF or (kind in _ID_KINDS and operand <= 0):
        raise InternalError(f"{layout.name}: expected a {kind} as an int of 32 bits, found {operand!r}")
    return operand & 0xFFFFFFFF


def _encode_enumerant(
    layout: Layout, kind: str, operands: tuple[Operand, ...], position: int, words: list[int], uses: set[Use]
) -> int:
    """Encode an enumerant or mask with its parameters; return the next position."""
    number, names = enumerant(kind, operands[position])
    words.append(number)
    position += 1
    table = ENUMERANTS[kind]
    for name in names:
        uses.add((kind, name))
        for parameter in table[name][1].split():
            bare = parameter.rstrip("?*")
            if bare != parameter and position == len(operands):
                break
            position = _encode_one(layout, bare, operands, position, words, uses)
    return position
