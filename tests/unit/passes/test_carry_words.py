"""Tests of the workaround for a driver whose compiler crashes on loop-carried booleans: none of them is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.language.codegen_kernels import GPU
from vkjit.compiler.driver import emit_module
from vkjit.ir.core import Module
from vkjit.ir.rewrite import clone_module
from vkjit.passes import pipeline
from vkjit.testing.fuzz import Program, generate, parse_program
from vkjit.testing.fuzz.compare import difference
from vkjit.testing.fuzz.execute import interpret
from vkjit.testing.fuzz.program import Memory

FOUND = sorted((Path(__file__).parents[2] / "property" / "found").glob("carried_truth*.ir"))
CAPS = replace(GPU, quirks=frozenset({"carried_truths"}))


def carried(module: Module) -> int:
    loops = [op for op in module.kernel.body.walk() if op.name in ("for", "loop")]
    return sum(result.type.dtype.kind == "bool" for loop in loops for result in loop.results)  # type: ignore[attr-defined]


def check(program: Program) -> int:
    """Check the workaround at every level; return the number of loop-carried booleans without it."""
    before = 0
    memory = Memory.of(program)
    for level in (0, 1, 2):
        before += carried(pipeline.run(clone_module(program.module), replace(CAPS, quirks=frozenset()), level))
        module = pipeline.run(clone_module(program.module), CAPS, level)
        assert carried(module) == 0
        emit_module(clone_module(module), CAPS)
        assert difference(program, interpret(program, memory, module), interpret(program, memory)) == ""
    return before


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_programs_that_showed_the_fault(path: Path) -> None:
    assert check(parse_program(path.read_text(encoding="utf-8")))


def test_other_programs() -> None:
    assert sum(check(generate(seed, 12)) for seed in range(1_000_020, 1_000_030))
