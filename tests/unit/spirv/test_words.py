"""Tests of encoding operands: each kind, and the errors for invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from vkjit.errors import InternalError
from vkjit.spirv.disassemble import _string
from vkjit.spirv.words import Operand, Use, encode_operands, enumerant, instruction, layout_of, pack_string


def encode(opname: str, *operands: Operand) -> list[int]:
    words: list[int] = []
    encode_operands(layout_of(opname), operands, words, set())
    return words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", [0]),
        ("abc", [0x00636261]),
        ("abcd", [0x64636261, 0]),
        ("é", [0x0000A9C3]),
    ],
)
def test_strings_end_in_a_zero_byte(text: str, words: list[int]) -> None:
    assert pack_string(text) == words


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_strings_are_read_back(text: str) -> None:
    words = pack_string(text)
    assert _string(words, 0) == (text, len(words))


def test_a_string_with_a_zero_byte_is_refused() -> None:
    with pytest.raises(InternalError, match="zero byte"):
        pack_string("a\0b")


@pytest.mark.parametrize(
    ("opname", "operands", "words"),
    [
        ("OpIAdd", (5, 6), [5, 6]),
        ("OpLoad", (5,), [5]),
        ("OpLoad", (5, "Aligned", 16), [5, 2, 16]),
        ("OpLoad", (5, "Aligned|MakePointerVisible|NonPrivatePointer", 4, 9), [5, 0x32, 4, 9]),
        ("OpLoad", (5, "NonPrivatePointer|Aligned", 4), [5, 0x22, 4]),
        ("OpLoad", (5, 0x22, 4), [5, 0x22, 4]),
        ("OpDecorate", (5, "Offset", 8), [5, 35, 8]),
        ("OpDecorate", (5, "BuiltIn", "GlobalInvocationId"), [5, 11, 28]),
        ("OpMemberDecorate", (5, 1, "Offset", 8), [5, 1, 35, 8]),
        ("OpExecutionMode", (5, "LocalSize", 8, 4, 2), [5, 17, 8, 4, 2]),
        ("OpCompositeExtract", (5, 0, 3), [5, 0, 3]),
        ("OpExtInst", (5, "Fma", 1, 2, 3), [5, 50, 1, 2, 3]),
        ("OpExtInst", (5, 1, 2), [5, 1, 2]),
        ("OpPhi", (1, 2, 3, 4), [1, 2, 3, 4]),
        ("OpGroupNonUniformIAdd", (1, "Reduce", 2), [1, 0, 2]),
        ("OpSpecConstantOp", ("OpIAdd", 1, 2), [128, 1, 2]),
        ("OpConstant", (-1,), [0xFFFFFFFF]),
        ("OpTypeFloat", (16, "BFloat16KHR"), [16, 0]),
        ("OpLoopMerge", (1, 2, "Unroll|MaxIterations", 8), [1, 2, 0x21, 8]),
        ("OpName", (7, "ab"), [7, 0x6261]),
        ("OpCopyMemory", (1, 2, "Aligned", 4, "Aligned", 8), [1, 2, 2, 4, 2, 8]),
    ],
)
def test_operands_are_encoded(opname: str, operands: tuple[Operand, ...], words: list[int]) -> None:
    assert encode(opname, *operands) == words


@pytest.mark.parametrize(
    ("opname", "operands", "message"),
    [
        ("OpIAdd", (5,), "OpIAdd takes"),
        ("OpIAdd", (5, 6, 7), "1 of 3 operands are left over"),
        ("OpLoad", (5, "Aligned"), "OpLoad takes"),
        ("OpLoad", (5, "Volatil"), "no MemoryAccess is called 'Volatil'"),
        ("OpDecorate", (5, "Ofset", 8), "no Decoration is called 'Ofset'"),
        ("OpDecorate", (5, 1 << 30), "no Decoration has the number"),
        ("OpIAdd", (0, 6), "expected a IdRef"),
        ("OpIAdd", ("x", 6), "expected a IdRef"),
        ("OpCompositeExtract", (5, 1 << 32), "expected a LiteralInteger"),
        ("OpName", (5, 6), "expected a string"),
        ("OpExtInst", (5, "Frobnicate", 1), "no instruction called 'Frobnicate'"),
        ("OpPhi", (1, 2, 3), "OpPhi takes"),
        ("OpLoad", (5, 1 << 12), "a bit that the SPIR-V grammar doesn't know"),
        ("OpDecorate", (5, 1.5), "by name or number"),
    ],
)
def test_wrong_operands_are_errors(opname: str, operands: tuple[Operand, ...], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        encode(opname, *operands)


def test_an_unknown_instruction_is_an_error() -> None:
    with pytest.raises(InternalError, match="'OpFrobnicate'"):
        layout_of("OpFrobnicate")


def test_an_alias_is_the_same_instruction() -> None:
    assert layout_of("OpSDotKHR").opcode == layout_of("OpSDot").opcode == 4450


def test_masks_name_their_bits_in_ascending_order() -> None:
    assert enumerant("MemorySemantics", "WorkgroupMemory|AcquireRelease") == (
        0x108,
        ("AcquireRelease", "WorkgroupMemory"),
    )
    assert enumerant("MemorySemantics", 0x108) == (0x108, ("AcquireRelease", "WorkgroupMemory"))
    assert enumerant("MemorySemantics", 0)[0] == 0


def test_what_is_used_is_noted() -> None:
    uses: set[Use] = set()
    encode_operands(layout_of("OpLoad"), (5, "Aligned|NonPrivatePointer", 4), [], uses)
    assert uses == {("MemoryAccess", "Aligned"), ("MemoryAccess", "NonPrivatePointer")}


def test_an_instruction_holds_its_word_count() -> None:
    assert instruction("OpIAdd", [1, 2, 3, 4]) == [5 << 16 | 128, 1, 2, 3, 4]
    assert instruction("OpTypeStruct", [1] * 0xFFFE)[0] >> 16 == 0xFFFF
    with pytest.raises(InternalError, match="at most 65535"):
        instruction("OpTypeStruct", [1] * 0xFFFF)
