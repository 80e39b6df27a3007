"""Tests of the workaround for a driver that miscompiles products with a lowest bit: SPIR-V shows no such product."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.language.codegen_kernels import GPU
from vkjit.compiler.driver import emit_module
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline
from vkjit.runtime.device import DeviceCaps
from vkjit.testing.fuzz import Program, generate, parse_program
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret
from vkjit.testing.fuzz.generate import TILES
from vkjit.testing.fuzz.program import Memory
from vkjit.testing.fuzz.watch.reader import Reader

FOUND = sorted((Path(__file__).parents[2] / "property" / "found").glob("parity_factor_*.ir"))
CARRIES = frozenset({"OpUConvert", "OpSConvert", "OpIAdd", "OpISub"})
TAKES = frozenset({"OpIMul", "OpAccessChain"})


def caps(*quirks: str) -> DeviceCaps:
    return replace(GPU, quirks=frozenset(quirks))


def visible(program: Program, level: int, *quirks: str) -> int:
    """Count products and offsets with an operand that is visibly a lowest bit, or a conversion or sum of one."""
    module = pipeline.run(clone_module(program.module), caps(*quirks), level)
    reader = Reader.of(emit_module(module, caps(*quirks)).code)
    bits: set[int] = set()
    count = 0
    for made in reader.instructions:
        numbers = [reader.constant(word) for word in made.operands] if made.type else []
        is_bit = (made.name == "OpBitwiseAnd" and 1 in numbers) or (made.name == "OpUMod" and numbers[1:] == [2])
        is_bit &= None in numbers
        if is_bit or (made.name in CARRIES and not bits.isdisjoint(made.operands)):
            bits.add(made.result)
        count += made.name in TAKES and not bits.isdisjoint(made.operands)
    return count


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_programs_that_showed_the_fault(path: Path) -> None:
    program = parse_program(path.read_text(encoding="utf-8"))
    for level in (0, 1, 2):
        assert visible(program, level)
        assert visible(program, level, "parity_products") == 0


def test_what_is_hidden_means_the_same() -> None:
    program = parse_program(FOUND[-1].read_text(encoding="utf-8"))
    memory = Memory.of(program)
    module = pipeline.run(clone_module(program.module), caps("parity_products"), 2)
    assert difference(program, interpret(program, memory, module), interpret(program, memory)) == ""


@pytest.mark.parametrize("seed", [3, 11, 1_000_051, TILES + 1])
def test_other_programs(seed: int) -> None:
    """Covers algebra on integers of all widths and programs on tiles."""
    program = generate(seed, 8)
    for level in (0, 2):
        assert visible(program, level, "parity_products") == 0
