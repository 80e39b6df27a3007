"""Golden tests of the IR: one file holds input, directive and expectation; `VKJIT_BLESS=1` rewrites expectations.

`golden/passes`: `// passes NAMES FORM` in the first line, IR text, and after `// expect` the output of the passes,
valid in that form. `golden/verify`: `// verify FORM`, IR text, and after `// expect` all violations as comments.
`golden/ir`: text that parsing and printing leave unchanged.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vkjit.ir import print_module, verify
from vkjit.ir.parser import parse_module
from vkjit.ir.verify import violations
from vkjit.passes.registry import PASSES, run_passes

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
MARK = "// expect\n"
BLESS = os.environ.get("VKJIT_BLESS", "0") not in ("", "0")


def files(folder: str) -> list[Path]:
    return sorted((GOLDEN / folder).glob("*.ir"))


def directive(source: str, word: str) -> list[str]:
    first = source.splitlines()[0].split()
    assert first[:2] == ["//", word], f"the first line reads '// {word} ...'"
    return first[2:]


def compare(path: Path, source: str, wanted: str, found: str) -> None:
    if BLESS:
        path.write_text(source + MARK + found, encoding="utf-8")
    else:
        assert found == wanted


@pytest.mark.parametrize("path", files("passes"), ids=lambda path: path.stem)
def test_passes(path: Path) -> None:
    source, _, wanted = path.read_text(encoding="utf-8").partition(MARK)
    names, form = directive(source, "passes")
    module = parse_module(source, path.name)
    verify(module)
    module = run_passes(module, names.split(","))
    verify(module, form)
    compare(path, source, wanted, print_module(module))


@pytest.mark.parametrize("path", files("verify"), ids=lambda path: path.stem)
def test_violations(path: Path) -> None:
    source, _, wanted = path.read_text(encoding="utf-8").partition(MARK)
    (form,) = directive(source, "verify")
    found = "\n".join(violations(parse_module(source, path.name), form))
    assert found, "a file of golden/verify breaks a rule"
    compare(path, source, wanted, "".join(f"// {line}\n" for line in found.splitlines()))


@pytest.mark.parametrize("path", files("ir"), ids=lambda path: path.stem)
def test_text_stays(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = parse_module(text, path.name)
    verify(module)
    if BLESS:
        path.write_text(print_module(module, locations=True), encoding="utf-8")
    else:
        assert print_module(module, locations=True) == text


def test_each_pass_has_a_golden_file() -> None:
    used = {name for path in files("passes") for name in directive(path.read_text(), "passes")[0].split(",")}
    checks = {"check_matrices", "check_promises", "check_uniformity", "check_written"}
    deep = {"limit_nesting"}  # changes nothing below 48 levels; see unit/passes/test_limit_nesting.py
    assert set(PASSES) - checks - deep <= used


def test_each_rule_of_the_verifier_has_a_golden_file() -> None:
    texts = "".join(path.read_text(encoding="utf-8").partition(MARK)[2] for path in files("verify"))
    # text always parses to fresh operations, so it can't break names (1) and ownership (3)
    missing = [rule for rule in range(1, 18) if f"({rule})\n" not in texts and rule != 3]
    assert not missing
