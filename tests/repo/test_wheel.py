"""Tests of the wheel: it has the package with its standard library and type marker, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.repo import checkout


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Build the wheel and return the names of its files."""
    pytest.importorskip("hatchling", reason="hatchling isn't installed (extra: test)")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=checkout.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = Path(folder).glob("vkjit-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_holds_every_module_of_the_package(names: set[str]) -> None:
    ours = {checkout.name_of(path) for path in checkout.python_files()}
    expected = {name for name in ours if name.startswith("vkjit/")}
    expected |= {f"vkjit/{name}" for name in ours if name.startswith("stdlib/")}
    assert expected <= names
    assert "vkjit/stdlib/__init__.py" in expected


def test_the_wheel_marks_the_package_as_typed_and_carries_the_licence(names: set[str]) -> None:
    assert "vkjit/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_holds_nothing_else(names: set[str]) -> None:
    stray = {name for name in names if not name.startswith("vkjit/") and ".dist-info/" not in name}
    assert stray == {"pytest_vkjit.py"}  # outside of the package, so that pytest doesn't import that
    assert not {name for name in names if name.endswith((".pyc", ".pyo")) or "__pycache__" in name}


def test_grammars_of_the_parsers_are_in_the_wheel(names: set[str]) -> None:
    grammars = {checkout.name_of(path) for path in checkout.files() if path.suffix == ".lark"}
    assert grammars <= names
