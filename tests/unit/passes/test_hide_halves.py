"""Tests of the workaround for a driver that skips rounding to f16: no widened f16 result is visible in the SPIR-V."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.language.codegen_kernels import GPU
from vkjit.compiler.driver import emit_module
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline
from vkjit.runtime.device import DeviceCaps
from vkjit.testing.fuzz import Program, parse_program
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret
from vkjit.testing.fuzz.program import Memory
from vkjit.testing.fuzz.watch.reader import Reader

FOUND = sorted((Path(__file__).parents[2] / "property" / "found").glob("unrounded_half_*.ir"))


def caps(*quirks: str) -> DeviceCaps:
    return replace(GPU, quirks=frozenset(quirks))


def widened(program: Program, level: int, *quirks: str) -> int:
    """Return the number of conversions that widen the result of a conversion to f16."""
    module = pipeline.run(clone_module(program.module), caps(*quirks), level)
    reader = Reader.of(emit_module(module, caps(*quirks)).code)
    narrowed = {
        made.result for made in reader.instructions if made.name == "OpFConvert" and reader.bits(made.result) == 16
    }
    return sum(made.name == "OpFConvert" and made.operands[0] in narrowed for made in reader.instructions)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_programs_that_showed_the_fault(path: Path) -> None:
    program = parse_program(path.read_text(encoding="utf-8"))
    for level in (0, 1, 2):
        assert widened(program, level)
        assert widened(program, level, "unrounded_halves") == 0


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_is_hidden_means_the_same(path: Path) -> None:
    program = parse_program(path.read_text(encoding="utf-8"))
    memory = Memory.of(program)
    module = pipeline.run(clone_module(program.module), caps("unrounded_halves"), 2)
    assert difference(program, interpret(program, memory, module), interpret(program, memory)) == ""
