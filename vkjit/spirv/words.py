"""Encoding of SPIR-V instructions, given by name with Python values as operands, to 32-bit words.

The encoding functions also record the used instructions and enumerants, from which `requirements` derives capabilities.
Callers pass operands in the order of the grammar:

- an id or a literal integer: an int (a negative literal is encoded as 32-bit two's complement);
- a literal string: a str; a literal float: a float (32 bits);
- an enumerant (a named value of a SPIR-V enumeration, such as Decoration): its name or its number. If it has
  parameters, they follow as further operands: `"Offset", 4`;
- a mask (of enumerants that are single bits): their names joined by "|", or a number. The parameters of all bits
  follow, in ascending order of the bits: `"Aligned|MakePointerVisible", 16, scope`;
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
"""One operand as a caller passes it (see the module docstring)."""

Use = tuple[str, str]
"""A used instruction, as ("Op", opname), or a used enumerant, as (operand kind, name). It may require capabilities."""

_ID_KINDS = frozenset({"IdRef", "IdScope", "IdMemorySemantics"})


@dataclass(frozen=True, slots=True)
class Layout:
    """The operand layout of an instruction.

    `has_type` is True if the instruction has a result type, `has_result` if it has a result id; these come first.
    `operands` are the (kind, quantifier) pairs of the other operands. The quantifier is "", "?" (optional) or "*"
    (repeated). If each of `operands` is exactly one id, `id_count` is their number, else it is -1; `OpenBlock` has a fast
    path for such instructions. `use` is recorded when the instruction is emitted.
    """

    name: str
    opcode: int
    has_type: bool
    has_result: bool
    operands: tuple[tuple[str, str], ...]
    id_count: int
    use: Use


_LAYOUTS: dict[str, Layout] = {}
"""Cache of `layout_of`."""


def layout_of(opname: str) -> Layout:
    """Return the layout of the instruction with this name or alias. Raises InternalError for an unknown name."""
    cached = _LAYOUTS.get(opname)
    if cached is not None:
        return cached
    name = ALIASES.get(opname, opname)
    row = INSTRUCTIONS.get(name)
    if row is None:
        raise InternalError(f"no SPIR-V instruction is called {opname!r}: expected a name such as 'OpIAdd'")
    # split "IdRef?" into ("IdRef", "?")
    kinds = [(kind.rstrip("?*"), kind[len(kind.rstrip("?*")) :]) for kind in row[1].split()]
    has_type = ("IdResultType", "") in kinds
    has_result = ("IdResult", "") in kinds
    operands = tuple(kinds[has_type + has_result :])  # skip the result type and the result, if there are any
    only_ids = all(kind in _ID_KINDS and not quantifier for kind, quantifier in operands)
    layout = Layout(name, row[0], has_type, has_result, operands, len(operands) if only_ids else -1, ("Op", name))
    _LAYOUTS[opname] = layout
    return layout


def pack_string(text: str) -> list[int]:
    """Encode a literal string: UTF-8, terminated by a zero byte, zero-padded to whole words."""
    data = text.encode("utf-8", "backslashreplace")  # paths of files may be no UTF-8
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
    """Return (number, names) of an enumerant or a mask of operand kind `kind`.

    `value` is its name (for a mask, names joined by "|") or its number. The result has a single name for an enumerant.
    For a mask, it has the name of each bit, in ascending order of the bits. Raises InternalError for unknown names and
    numbers.
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
        names.setdefault(row[0], name)  # the first of several names for one number
    if not mask or value == 0:
        if value not in names:
            raise InternalError(f"no {kind} has the number {value} in the SPIR-V grammar")
        return (names[value],)
    bits = [1 << bit for bit in range(32) if value >> bit & 1]
    if any(bit not in names for bit in bits):
        raise InternalError(f"the {kind} mask {value:#x} has a bit that the SPIR-V grammar doesn't know")
    return tuple(names[bit] for bit in bits)


def encode_operands(layout: Layout, operands: tuple[Operand, ...], words: list[int], uses: set[Use]) -> None:
    """Append the words of `operands` to `words`, and add the used enumerants to `uses`.

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
    """Append the words of the operands from `position` on: those of the operation inside an OpSpecConstantOp.

    They are ids or literal indices, one word each. Return the next position, which is the number of operands.
    """
    words += [_number(layout, "IdRef", operand) for operand in operands[position:]]
    return len(operands)


def _expected(layout: Layout) -> str:
    """Return the expected operands as a text for error messages."""
    return "(" + ", ".join(kind + quantifier for kind, quantifier in layout.operands) + ")"


def _encode_one(
    layout: Layout, kind: str, operands: tuple[Operand, ...], position: int, words: list[int], uses: set[Use]
) -> int:
    """Append the words of the operand at `position`, which must be of `kind`, and of its parameters.

    Return the position of the next operand.
    """
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
    """Append the words of an enumerant or mask and of its parameters; return the position of the next operand."""
    number, names = enumerant(kind, operands[position])
    words.append(number)
    position += 1
    table = ENUMERANTS[kind]
    for name in names:
        uses.add((kind, name))
        for parameter in table[name][1].split():
            parameter_kind = parameter.rstrip("?*")
            if parameter_kind != parameter and position == len(operands):  # an optional parameter is missing
                break
            position = _encode_one(layout, parameter_kind, operands, position, words, uses)
    return position
