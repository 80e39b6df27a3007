"""mypy checks the names of operations and of attributes, against types that follow the op table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.repo import checkout
from tests.repo.test_type_checkers import installed
from tools import op_names
from vkjit.errors import InternalError
from vkjit.ir.attributes import Attrs
from vkjit.ir.ops import OPS, OpName, op_name

RIGHT = """
from vkjit.ir.builder import Builder
from vkjit.ir.core import Op, Function
from vkjit.ir.ops import OpName

LOOPS: frozenset[OpName] = frozenset({"for", "loop"})
COSTS: dict[OpName, int] = {"exp": 12, "sqrt": 6}
TEXTS = {"exp": "e**x"}
NAMES = ("for", "loop")

def check(op: Op, function: Function, b: Builder) -> list[object]:
    return [
        op.name == "for",
        op.name in ("add", "sub"),
        op.name in {"add", "sub"},
        op.name not in LOOPS,
        COSTS.get(op.name, 1),
        {"add": "+", "sub": "-"}.get(op.name),
        op.attrs["site"] + 1,
        op.attrs.get("exact"),
        "dim" in op.attrs,
        function.attrs.get("strict"),
        b.emit("extent", op.result, axis=0),
    ]
"""

MISTAKES = {
    'op.name == "for"': 'op.name == "fro"',
    'op.name in ("add", "sub")': 'op.name in ("add", "sbu")',
    'op.name in {"add", "sub"}': 'op.name in {"add", "sbu"}',
    "op.name not in LOOPS": "op.name not in NAMES",
    '"for", "loop"})': '"for", "lop"})',
    '"sqrt": 6': '"sqr": 6',
    "COSTS.get(op.name, 1)": "TEXTS.get(op.name)",
    '{"add": "+", "sub": "-"}': '{"add": "+", "sbu": "-"}',
    'op.attrs["site"] + 1': 'op.attrs["sote"] + 1',
    'op.attrs.get("exact")': 'op.attrs.get("exat")',
    '"dim" in op.attrs': '"dmi" in op.attrs',
    'function.attrs.get("strict")': 'function.attrs.get("stirct")',
    'b.emit("extent", op.result, axis=0)': 'b.emit("extend", op.result, axis=0)',
    "axis=0": "axs=0",
}
"""Lines or parts of `RIGHT`, and the same with a mistake."""


def test_generated_names_are_up_to_date() -> None:
    assert op_names.main(["--check"]) == 0, "run: python -m tools.op_names"
    assert get_args(OpName) == tuple(OPS)


def test_attributes_of_the_op_table_have_types() -> None:
    assert {name for row in OPS.values() for name in row.attrs} <= set(Attrs.__annotations__)


def test_op_name() -> None:
    assert op_name("add") == "add"
    with pytest.raises(InternalError, match="no operation is named ad$"):
        op_name("ad")


def test_mypy_rejects_misspelt_names(tmp_path: Path) -> None:
    """One run over a correct file and one file per mistake; the plugin and the settings are those of the project."""
    installed("mypy")
    (tmp_path / "right.py").write_text(RIGHT, encoding="utf-8")
    for number, (right, wrong) in enumerate(MISTAKES.items()):
        assert RIGHT.count(right) == 1, right
        (tmp_path / f"wrong_{number}.py").write_text(RIGHT.replace(right, wrong), encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    command += map(str, sorted(tmp_path.glob("*.py")))
    done = subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert not [line for line in errors if "wrong_" not in line], done.stdout + done.stderr
    accepted = [wrong for number, wrong in enumerate(MISTAKES.values()) if f"wrong_{number}.py" not in done.stdout]
    assert not accepted, done.stdout + done.stderr
