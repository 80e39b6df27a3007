"""Tests of `python -m vkjit test`: exit codes, skipped kernels, settings."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from vkjit.cli.main import main

SOURCE = """
import vkjit as vk

@vk.kernel(over="y")
def copy(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[vk.global_id(0)]

@vk.kernel(over="y")
def gather(x: vk.In[vk.f32, "V"], i: vk.In[vk.i32, "N"], y: vk.Out[vk.f32, "N"]):
    y[vk.global_id(0)] = x[i[vk.global_id(0)]]

@vk.kernel
def loose(x):
    x[0] = 1

@vk.kernel(local=8)
def grid(y: vk.InOut[vk.i32, "N"]):
    vk.atomic.add(y, 0, 1)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernels_for_cli.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def run(*words: str) -> int:
    return main(["test", *words, "--device", "interpreter", "--examples", "20", "--seed", "5"])


def test_a_right_kernel(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:copy") == 0
    assert capsys.readouterr().out.startswith("ok      copy: 20 inputs, 40 launches on interpreter")


def test_all_kernels_of_a_file(file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "failure.py"
    assert run(file, "--script", str(script)) == 1
    shown = capsys.readouterr().out
    assert "ok      copy" in shown and "skipped loose: parameter x has no annotation" in shown
    assert "skipped grid: it has neither over= nor groups=" in shown
    assert "FAILED  gather" in shown and "elements={'i': (0, 'V-1')}" in shown and "4 kernels, 1 failed" in shown
    assert "vk.testing.run" in script.read_text(encoding="utf-8")


def test_settings(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:gather", "--dims", "V=1:50", "--elements", "i=0:V-1") == 0
    assert run(f"{file}:grid", "--groups", "2", "--dims", "N=3") == 0
    assert "1 kernel, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize("target", ["missing.py", "missing.py:x"])
def test_a_file_that_is_missing(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(target) == 1
    assert "expected path/to/file.py" in capsys.readouterr().err


def test_a_kernel_that_is_missing(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{file}:nothing") == 1
    assert "it has copy, gather, loose, grid" in capsys.readouterr().err


def test_proposed_tests_find_the_kernels_wherever_both_files_are(
    file: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The proposed tests still pass when moved with the kernels; an existing file isn't overwritten."""
    assert run(file, "--write", str(tmp_path / "test_proposed.py")) == 0
    assert "4 kernels" in capsys.readouterr().out
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (Path(file), tmp_path / "test_proposed.py"):
        path.rename(moved / path.name)
    text = (moved / "test_proposed.py").read_text(encoding="utf-8")
    assert "lambda x: x" in text and "elements={'i': (0, 'V-1')}" in text and "# loose isn't tested" in text
    assert {"test_copy", "test_gather"} <= set(runpy.run_path(str(moved / "test_proposed.py")))
    (moved / "kernels_for_cli.py").rename(file)
    assert run(file, "--write", str(moved / "test_proposed.py")) == 1
    assert "exists already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--device", "nothing"), "no device 'nothing'"), (("--groups", "4;4"), "as in --groups 4,4")],
)
def test_settings_that_are_wrong_are_no_failures_of_kernels(
    file: str, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["test", file, *words]) == 1
    shown = capsys.readouterr()
    assert message in shown.err and "FAILED" not in shown.out
