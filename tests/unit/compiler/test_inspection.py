"""Tests of `vk.inspect` and `python -m vkjit inspect`: output on each kind of device, and errors."""

from __future__ import annotations

import html.parser
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.api.inspection import _changed, guess_signature
from vkjit.cli.main import main

T = TypeVar("T", bound=vk.Element)

SOURCE = '''
from typing import TypeVar
import vkjit as vk

T = TypeVar("T", bound=vk.Element)

@vk.kernel(over="y")
def scale(x: vk.In[T, "N"], y: vk.Out[T, "N"], K: vk.Const[int]):
    """<b>bold</b> & "quoted"."""
    i = vk.global_id(0)
    total = x[i]
    for k in range(K):
        total = total * 0.5 + 1.0
    y[i] = total
'''


@vk.kernel(over="y")
def scaled(x: vk.In[T, "N"], y: vk.Out[T, "N"], factor: vk.Const[int] = 3):
    i = vk.global_id(0)
    y[i] = x[i] * factor * 2 + 0 * factor


@vk.kernel(local=32)
def grouped(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y.put(i, x.get(i, pad=0))


def test_a_launch_is_shown_on_its_device(device: Any) -> None:
    found = scaled.inspect(np.arange(5, dtype=np.int32), factor=7)
    assert (found.kernel, found.device) == ("scaled", device.name)
    assert found.signature.args[0].dtype is vk.i32
    assert "def scaled(" in found.stage("python").text
    assert found.stage("frontend").text.count("mul") >= 2
    assert {stage.kind for stage in found.stages} == {
        "python", "ir", *{"interpreter": (), "llvm-cpu": ("llvm", "assembly")}.get(device.caps.kind, ("spirv",)),
    }  # fmt: skip
    assert "workgroup" in found.facts and found.text("statistics").startswith("\n==== Code")
    assert bool(found.statistics) == ("pipeline_executable_properties" in device.caps.features)
    if device.caps.kind not in ("interpreter", "llvm-cpu"):
        assert "OpEntryPoint GLCompute" in found.stage("spirv").text
    # the code shown is the code that runs
    np.testing.assert_array_equal(scaled(np.arange(5, dtype=np.int32), factor=7), np.arange(5) * 14)


def test_passes_say_what_they_changed() -> None:
    with vk.use_device("interpreter"):
        assert scaled.inspect().stages[-1].changed == ()
    vulkan = [info for info in vk.devices() if info.kind not in ("interpreter", "llvm-cpu") and not info.missing]
    if not vulkan:
        pytest.skip("no Vulkan device on this machine")
    with vk.use_device(vulkan[0]):
        found = vk.inspect(scaled)
    ir = [stage for stage in found.stages if stage.kind == "ir"]
    assert any(stage.added for stage in ir) and any(stage.removed for stage in ir)
    for before, after in zip(ir, ir[1:], strict=False):
        assert (before.text == after.text) == (after.changed == ()), after.name
        lines = len(after.text.splitlines()) - len(before.text.splitlines())
        assert after.added - after.removed == lines, after.name
    text = found.text("ir", diff=True)
    assert "nothing changed" in text and "\n+" in text and "==== IR of the front end" in text
    assert len(text) < len(found.text("ir"))


def test_operands_that_change_places_are_a_change() -> None:
    before, after = "  %2 = sub %0, %1 : f32", "  %2 = sub %1, %0 : f32"
    assert _changed(before, after) == ("@@ line 1", f"-{before}", f"+{after}")
    assert _changed(f"  %7 = const 1 : i32\n{before}", before.replace("%2", "%1")) == (
        "@@ line 1", "-  %7 = const 1 : i32", " " + before.replace("%2", "%1"),
    )  # fmt: skip


def test_nothing_is_launched_and_nothing_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.full(4, 7, np.float32)
    with vk.use_device("interpreter"):
        vk.inspect(grouped, np.zeros(4, np.float32), y)
        assert grouped.inspect(np.zeros(4, np.float32), y).signature.local_size == (32, 1, 1)
    assert y.tolist() == [7, 7, 7, 7]
    assert grouped._plans == {}


def test_nothing_is_launched_after_a_launch_of_the_same_form() -> None:
    @vk.kernel(over="y")
    def copied(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        y[vk.global_id(0)] = x[vk.global_id(0)]

    with vk.use_device("interpreter"):
        x, y, z = vk.ones(4), vk.zeros(4), vk.zeros(4)
        copied(x, y)
        assert len(vk.inspect(copied, x, z).signature.args) == 2
        assert z.tolist() == [0, 0, 0, 0]
        copied(x, z)
        assert z.tolist() == [1, 1, 1, 1]


class Checker(html.parser.HTMLParser):
    """HTML parser that records open tags, the text inside `pre`, and everything that loads a resource."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href")] + (
            [tag] if tag == "script" else []
        )
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "pre" in self.open:
            self.text.append(data)


def test_the_page_is_whole_escaped_and_needs_nothing(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    assert main(["inspect", f"{tmp_path}/k.py:scale", "--types", "K=3", "--html", f"{tmp_path}/page.html"]) == 0
    page = (tmp_path / "page.html").read_text()
    checker = Checker()
    checker.feed(page)
    assert page.startswith("<!DOCTYPE html>") and checker.open == [] and checker.loaded == []
    assert "<b>" not in page and "&lt;b&gt;bold" in page
    assert '<b>bold</b> & "quoted".' in "".join(checker.text)


def test_notebooks_get_a_fragment() -> None:
    with vk.use_device("interpreter"):
        shown = scaled.inspect()._repr_html_()
    checker = Checker()
    checker.feed(shown)
    assert shown.startswith('<div class="vkjit">') and checker.open == []


def test_the_command_prints_stages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    target = f"{tmp_path}/k.py:scale"
    assert main(["inspect", target, "--types", "K=3,T=f16", "--device", "interpreter", "--local", "64"]) == 0
    text = capsys.readouterr().out
    assert "==== Python: scale" in text and "f16" in text and "64 x 1 x 1" in text
    assert main(["inspect", target, "--types", "K=3", "--device", "interpreter", "--stage", "python"]) == 0
    shown = capsys.readouterr().out.split("scale\n", 1)[1]
    assert shown.strip() in SOURCE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["k.py"], "expected path/to/file.py:kernel"),
        (["none.py:scale"], "that the file exists"),
        (["k.py:nothing"], "has no kernel 'nothing'; it has scale"),
        (["k.py:scale"], "the Const parameter K has no value"),
        (["k.py:scale", "--types", "K=3,T=f15"], "no element type is named 'f15'"),
        (["k.py:scale", "--types", "Q=3"], "expected NAME=VALUE, with one of K, T"),
        (["k.py:scale", "--types", "K=three"], "expected a number, True or False"),
        (["k.py:scale", "--types", "K=3", "--stage", "nonsense"], "has no stage 'nonsense'"),
        (["k.py:scale", "--types", "K=3", "--local", "a"], "expected one to three numbers"),
        (["k.py:scale", "--types", "K=3", "--local", "1,1,1,1"], "expected one to three numbers"),
        (["k.py:scale", "--types", "K=3", "--html", "no/such/place.html"], "can't be written"),
        (["k.py:scale", "--types", "K=3", "--device", "abacus"], "no device 'abacus'"),
    ],
)
def test_what_is_wrong_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    (tmp_path / "k.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    device = [] if "--device" in words else ["--device", "interpreter"]
    assert main(["inspect", *words, *device]) == 1
    assert message in capsys.readouterr().err


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(vk.ArgumentError, match=r"vk\.inspect takes a kernel"):
        vk.inspect(len)
    with pytest.raises(vk.ArgumentError, match="x"):
        scaled.inspect(1.5)


def test_a_guess_follows_the_annotations() -> None:
    found = guess_signature(scaled, vk.device("interpreter"), {"T": vk.f16, "factor": 5}, (8, 4))
    assert found.local_size == (8, 4, 1) and found.typevars == (("T", vk.f16),)
    assert found.args[2].value == 5  # type: ignore[union-attr]
