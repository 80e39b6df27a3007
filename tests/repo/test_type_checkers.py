"""Tests that type checkers accept every example and still find a mistake."""

from __future__ import annotations

import importlib.util
import json
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
def test_pyright(tmp_path: Path) -> None:
    installed("pyright")
    for path in (checkout.ROOT / "examples").glob("*.py"):
        shutil.copy(path, tmp_path / path.name)
    (tmp_path / "mistake.py").write_text(MISTAKE, encoding="utf-8")
    settings = {
        "include": ["."],
        "extraPaths": [str(checkout.ROOT)],
        "pythonVersion": "3.10",
        "typeCheckingMode": "standard",
        "reportMissingImports": False,  # matplotlib, scikit-learn and PyTorch may be missing
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
