"""Tests that type checkers accept the examples, and all code of the documentation, and still find a mistake."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import checkout

MISTAKE = """
import numpy as np
import vkjit as vk

@vk.kernel(ovr="x")
def kernel(x: vk.InOut[vk.f32, "N"]):
    x[vk.global_id(0)] = 1
"""
"""A misspelled keyword of the decorator."""


LITERALS = """
import vkjit as vk

@vk.func
def scaled(a: vk.f32, b: vk.f32 = 0.5, n: vk.i32 = 1, c: vk.boolean = True) -> vk.f32:
    total: vk.f32 = 0
    return a * b + vk.f32(n) + total

@vk.kernel(over="y")
def kernel(y: vk.Out[vk.f32, "N"], dt: vk.f32 = 0.1, n: vk.i32 = 3, m: vk.Const[int] = 3):
    i = vk.global_id(0)
    y[i] = scaled(1.0) + scaled(y[i], 2) + scaled(1, b=3.0) + vk.f32(3) * vk.i32(2)

kernel(dt=0.5)
"""
"""Literals as arguments and defaults of parameters that are annotated with element types."""


def write_pages(folder: Path) -> None:
    """Write the Python code of each page of the documentation to a file, and the code of this module."""
    for page in (*(checkout.ROOT / "docs").glob("*.md"), checkout.ROOT / "README.md"):
        blocks = re.findall(r"^```python[^\n]*\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        (folder / f"{page.stem}_page.py").write_text("\n\n".join(blocks), encoding="utf-8")
    (folder / "literals.py").write_text(LITERALS, encoding="utf-8")
    (folder / "mistake.py").write_text(MISTAKE, encoding="utf-8")


def installed(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} isn't installed: pip install {module}")


@pytest.mark.slow
def test_mypy(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Uses the project's settings, which don't require annotations in kernels."""
    installed("mypy")
    (tmp_path / "mistake.py").write_text(MISTAKE, encoding="utf-8")
    cache = checkout.kept_folder(request.config, "mypy-examples", tmp_path)
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", f"--cache-dir={cache}", "examples"]
    command.append(str(tmp_path / "mistake.py"))
    done = subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert any("mistake.py" in line and "ovr" in line for line in errors), done.stdout + done.stderr
    assert all("mistake.py" in line for line in errors), "\n".join(errors)


@pytest.mark.slow
def test_mypy_strict_on_the_documentation(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Functions without annotations are allowed; later blocks of a page define names of earlier ones again."""
    installed("mypy")
    write_pages(tmp_path)
    cache = checkout.kept_folder(request.config, "mypy-pages", tmp_path)
    allowed = [f"--disable-error-code={code}" for code in ("no-untyped-def", "no-untyped-call", "no-redef")]
    options = ["--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports", *allowed]
    command = [sys.executable, "-m", "mypy", *options, f"--cache-dir={cache}", *map(str, sorted(tmp_path.glob("*.py")))]
    done = subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert any("mistake.py" in line and "ovr" in line for line in errors), done.stdout + done.stderr
    assert all("mistake.py" in line for line in errors), "\n".join(errors)


@pytest.mark.slow
def test_pyright(tmp_path: Path) -> None:
    installed("pyright")
    write_pages(tmp_path)
    for path in (checkout.ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path / path.name)
    settings = {
        "include": ["."],
        "extraPaths": [str(checkout.ROOT)],
        "pythonVersion": "3.10",
        "typeCheckingMode": "standard",
        "reportMissingImports": False,  # matplotlib, scikit-learn and PyTorch may be missing
        "reportRedeclaration": False,  # blocks of a page define names again
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        pytest.skip(f"pyright doesn't run here: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    found = json.loads(done.stdout[done.stdout.index("{") :])
    errors = [d for d in found["generalDiagnostics"] if d["severity"] == "error"]
    assert errors
    assert all(Path(d["file"]).name == "mistake.py" and "ovr" in d["message"] for d in errors), errors
    assert found["summary"]["filesAnalyzed"] > len(list((checkout.ROOT / "examples").glob("*.py")))
