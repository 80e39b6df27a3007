"""Tests of types, constants and annotations: each is declared once, and constants are compared by their bits."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from vkjit.errors import InternalError
from vkjit.spirv import Module
from vkjit.spirv.disassemble import disassemble


def last_line(m: Module) -> str:
    return disassemble(m.to_bytes(), raw_ids=True, header=False, indent=False).splitlines()[-1]


def literal_words(m: Module) -> list[int]:
    """Return the value words of the constant declared last."""
    words = m.declarations
    position = start = 0
    while position < len(words):
        start = position
        position += words[position] >> 16
    return words[start + 3 :]


def test_a_type_is_declared_once() -> None:
    m = Module()
    f32 = m.type_float(32)
    assert m.type_float(32) == f32
    assert m.type_vector(f32, 4) == m.type_vector(f32, 4) != m.type_vector(f32, 2)
    assert m.type_array(f32, 4, 16) == m.type_array(f32, 4, 16) != m.type_array(f32, 4)
    assert m.type_int(32, signed=True) != m.type_int(32)
    assert m.type_pointer("Workgroup", f32) != m.type_pointer("Function", f32)
    assert m.type_struct((f32,), (0,), name="A") == m.type_struct((f32,), (0,), name="A")
    assert m.type_struct((f32,), (0,), name="A") != m.type_struct((f32,), (4,), name="A")
    assert m.type_function(f32, (f32,)) != m.type_function(f32)


def test_a_type_can_be_looked_up() -> None:
    m = Module()
    u64 = m.type_int(64)
    vector = m.type_vector(u64, 3)
    assert (m.info(u64).kind, m.info(u64).bits, m.info(u64).signed) == ("int", 64, False)
    assert (m.info(vector).kind, m.info(vector).length, m.info(vector).members) == ("vector", 3, (u64,))
    assert m.type_of(m.constant(u64, 1)) == u64
    with pytest.raises(InternalError, match="isn't a type"):
        m.info(999)
    with pytest.raises(InternalError, match="isn't a value"):
        m.type_of(u64)


@pytest.mark.parametrize("bits", [1, 7, 24, 128])
def test_widths_that_no_device_has_are_errors(bits: int) -> None:
    with pytest.raises(InternalError, match="no integer type"):
        Module().type_int(bits)
    with pytest.raises(InternalError, match="no float type"):
        Module().type_float(bits)


def test_an_empty_array_is_an_error() -> None:
    m = Module()
    with pytest.raises(InternalError, match="at least one"):
        m.type_array(m.type_float(32), 0)


def test_constants_are_equal_by_type_and_bits() -> None:
    m = Module()
    f32, f64, u32 = m.type_float(32), m.type_float(64), m.type_int(32)
    assert m.constant(f32, 0.0) == m.constant(f32, 0.0)
    assert m.constant(f32, 0.0) != m.constant(f32, -0.0)
    assert m.constant(f32, 1.0) != m.constant(f64, 1.0)
    assert m.constant(f32, math.nan) == m.constant(f32, math.nan)
    assert m.constant_bits(f32, 0x7FC00001) != m.constant_bits(f32, 0x7FC00000) == m.constant(f32, math.nan)
    assert m.constant(u32, -1) == m.constant(u32, 0xFFFFFFFF)
    assert m.constant(u32, np.int64(7)) == m.constant(u32, 7)
    assert m.constant_null(f32) != m.constant(f32, 0.0)
    assert m.undef(f32) == m.undef(f32) != m.undef(u32)
    assert m.constant(m.type_bool(), True) != m.constant(m.type_bool(), False)


@pytest.mark.parametrize(
    ("bits", "signed", "value", "words"),
    [
        (8, False, -1, [0xFF]),
        (8, True, -1, [0xFFFFFFFF]),
        (16, True, -2, [0xFFFFFFFE]),
        (16, True, 0x7FFF, [0x7FFF]),
        (16, False, 0x12345, [0x2345]),
        (32, True, -1, [0xFFFFFFFF]),
        (64, True, -1, [0xFFFFFFFF, 0xFFFFFFFF]),
        (64, False, 1 << 40, [0, 1 << 8]),
    ],
)
def test_narrow_integers_are_extended_by_their_sign(bits: int, signed: bool, value: int, words: list[int]) -> None:
    m = Module()
    m.constant(m.type_int(bits, signed), value)
    assert literal_words(m) == words


def test_an_integer_constant_is_no_float() -> None:
    m = Module()
    with pytest.raises(TypeError):
        m.constant(m.type_int(32), 1.5)


@given(st.floats(width=64))
def test_float_constants_round_to_nearest_even(value: float) -> None:
    m = Module()
    with np.errstate(all="ignore"):
        single, half = np.float32(value), np.float16(value)
    for type_id, expected in (
        (m.type_float(64), struct.unpack("<2I", struct.pack("<d", value))),
        (m.type_float(32), (int(single.view(np.uint32)),)),
        (m.type_float(16), (int(half.view(np.uint16)),)),
    ):
        m.constant(type_id, value)
        assert literal_words(m) == list(expected)


@given(st.floats(width=32))
def test_bfloat16_constants_round_to_nearest_even(value: float) -> None:
    m = Module()
    m.constant(m.type_bfloat16(), value)
    (bits,) = literal_words(m)
    with np.errstate(all="ignore"):
        expected = np.array(value, dtype=ml_dtypes.bfloat16)
    if math.isnan(value):
        assert bits & 0x7FFF > 0x7F80
    else:
        assert bits == int(expected.view(np.uint16))


def test_a_constant_of_an_aggregate_is_an_error() -> None:
    m = Module()
    with pytest.raises(InternalError, match="needs a scalar type"):
        m.constant_bits(m.type_vector(m.type_float(32), 2), 0)


def test_a_specialization_constant_is_one_per_number() -> None:
    m = Module()
    u32 = m.type_int(32)
    assert m.spec_constant(u32, 64, 0) == m.spec_constant(u32, 64, 0) != m.spec_constant(u32, 64, 1)
    text = disassemble(m.to_bytes(), raw_ids=True)
    assert text.count("SpecId") == 2
    assert m.spec_constant(m.type_bool(), True, 2) != m.spec_constant(m.type_int(64), 1 << 33, 3)


def test_a_decoration_is_written_once() -> None:
    m = Module()
    f32 = m.type_float(32)
    variable = m.variable("Private", f32, "v")
    for _ in range(2):
        m.decorate(variable, "Aliased")
    assert disassemble(m.to_bytes()).count("OpDecorate %v Aliased") == 1


def test_a_builtin_is_one_variable() -> None:
    m = Module()
    uvec3 = m.type_vector(m.type_int(32), 3)
    assert m.builtin("WorkgroupId", uvec3) == m.builtin("WorkgroupId", uvec3) != m.builtin("LocalInvocationId", uvec3)


def test_offsets_must_match_members() -> None:
    m = Module()
    with pytest.raises(InternalError, match="1 offsets for 2 members"):
        m.type_struct((m.type_int(32), m.type_int(32)), (0,))


def test_names_vanish_without_debug() -> None:
    m = Module(debug=False)
    block = m.type_struct((m.type_int(32),), (0,), name="Block", member_names=("n",))
    m.variable("Private", block, "v")
    text = disassemble(m.to_bytes())
    assert "OpName" not in text
    assert "OpMemberName" not in text
    assert last_line(m).endswith("Private")


def test_scopes_and_semantics_are_constants() -> None:
    m = Module()
    u32 = m.type_int(32)
    assert m.scope("Workgroup") == m.constant(u32, 2)
    assert m.semantics("AcquireRelease|WorkgroupMemory") == m.constant(u32, 0x108)
    with pytest.raises(InternalError, match="no Scope is called"):
        m.scope("Block")


def test_names_for_disassembly_may_be_anything() -> None:
    module = Module()
    for name in ("n" * 270_000, "a\0b", "\ud800", "größe"):
        module.name(module.type_void(), name)
        module.name_member(module.type_void(), 0, name)
    assert module.to_words().size < 10_000
