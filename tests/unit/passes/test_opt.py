"""Tests of `python -m tools.opt`, which runs passes on IR text, and of its error messages."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from tools import opt
from vkjit.ir.parser import parse_module
from vkjit.passes import pipeline, registry
from vkjit.passes.sanitizer import MarkUniformAssumptions, Sanitize

TEXT = """\
kernel @scale(%x: array<f32, 1, inout>) attrs {local_size = (64, 1, 1)} {
  %i = global_id {dim = 0} : index
  %a = const 2 : i32
  %b = const 3 : i32
  %c = add %a, %b : i32
  %d = cast %c : f32
  store %x, %i, %d
  return
}
"""


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = opt.main(list(words))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "k.ir").write_text(TEXT)
    return str(tmp_path / "k.ir")


def test_named_passes_run_in_order(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, file, "--passes", "fold, dce")
    assert code == 0 and "add" not in text and "const 5.0 : f32" in text
    assert parse_module(text).kernel.name == "scale"


def test_without_passes_the_text_comes_back(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, file)
    assert code == 0
    assert run(capsys, file, "--passes", "")[1] == text


@pytest.mark.parametrize("name", registry.PIPELINES)
def test_whole_pipelines(file: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, file, "--passes", name, "--form", "primitive")
    assert code == 0 and "store" in text


def test_each_pass_shows_its_module(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, file, "--passes", "fold,dce", "--each")
    assert code == 0
    assert text.startswith("// after fold\n") and "\n// after dce\n" in text
    parse_module(text.split("// after dce\n")[1])


def test_standard_input_and_a_file_for_the_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT))
    assert run(capsys, "-", "--passes", "fold", "--output", f"{tmp_path}/out.ir") == (0, "", "")
    assert "const 5.0 : f32" in (tmp_path / "out.ir").read_text()


def test_all_passes_are_listed_and_can_be_run_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = run(capsys, "--list")
    assert code == 0
    rows = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert rows.keys() == {*registry.PASSES, *registry.PIPELINES}
    assert all(len(told) > 10 for told in rows.values())


def test_the_pipeline_has_no_pass_that_the_tool_lacks() -> None:
    groups = pipeline.passes_for(registry.PLAIN_DEVICE)
    used = {step.name for _, group in groups for step in group}
    assert used - registry.PASSES.keys() <= {
        Sanitize.name,
        MarkUniformAssumptions.name,
    }  # these are for sanitized kernels only


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("none.ir",), "none.ir: No such file or directory"),
        (("k.ir", "--passes", "fuld"), "no pass is named 'fuld': did you mean fold?"),
        (("k.ir", "--passes", "pipeline7"), "no pass is named 'pipeline7': did you mean pipeline"),
        (("k.ir", "--passes", "xyzzy"), "no pass is named 'xyzzy': expected one of pipeline"),
        (("k.ir", "--form", "primitive"), "access to an array that isn't linear"),
        (("broken.ir",), "broken.ir:1"),
        (("untyped.ir",), "untyped.ir:2"),
        (("bytes.ir",), "bytes.ir is no text in UTF-8"),
        (("k.ir", "--output", "no/where.ir"), "no/where.ir: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path,
    words: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.ir").write_text(TEXT)
    Path("broken.ir").write_text("kernel @ {\n")
    Path("untyped.ir").write_text("kernel @k() {\n  %a = add %b, %b : i32\n  return\n}\n")
    Path("bytes.ir").write_bytes(b"\xff\xfe")
    code, text, error = run(capsys, *words)
    assert (code, text) == (1, "")
    assert message in error


def test_a_file_is_expected(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(capsys)
    assert code == 2 and "expected a file with IR text" in error
