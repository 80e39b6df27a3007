"""Tests of the settings in environment variables: the list is complete, and invalid values are reported."""

from __future__ import annotations

import re

import pytest

from tests.repo import checkout
from vkjit.api import environment
from vkjit.compiler.driver import optimization_level
from vkjit.errors import ArgumentError
from vkjit.settings import SETTINGS, boolean_setting

NAME = re.compile(r"VKJIT_[A-Z_]*[A-Z]")


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("0", False), ("", None), (" 1 ", True)])
def test_a_switch(text: str, expected: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_DEBUG", text)
    assert boolean_setting("VKJIT_DEBUG") is expected


@pytest.mark.parametrize("text", ["on", "false", "2", "-1", "yes"])
def test_a_switch_that_says_neither(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_DEBUG", text)
    with pytest.raises(ArgumentError, match=f"VKJIT_DEBUG is '{text}': expected 0 or 1"):
        boolean_setting("VKJIT_DEBUG")


@pytest.mark.parametrize(("text", "expected"), [("", 2), (" ", 2), ("1", 1)])
def test_optimisation(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKJIT_OPT", text)
    assert optimization_level() == expected
    monkeypatch.setenv("VKJIT_OPT", "3")
    with pytest.raises(ArgumentError, match="VKJIT_OPT is '3': expected 0, 1 or 2"):
        optimization_level()


def test_the_list_has_all_that_the_package_reads() -> None:
    found: set[str] = set()
    for path in checkout.python_files():
        name = checkout.name_of(path)
        if name.startswith("vkjit/") and name != "vkjit/settings.py":
            found |= set(NAME.findall(checkout.text_of(path) or ""))
    assert found == set(SETTINGS)


def test_the_documentation_has_the_same_list() -> None:
    text = (checkout.ROOT / "docs" / "runtime.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(VKJIT_\w+)` \| (.*) \|$", text, re.MULTILINE)
    assert dict(rows) == SETTINGS and len(rows) == len(SETTINGS)


def test_info_tells_what_is_set_and_what_means_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VKJIT_TUNE", "1")
    monkeypatch.setenv("VKJIT_SANITISE", "1")
    monkeypatch.setenv("VKJIT_QQQQ", "1")
    report = environment.gather()
    assert report["settings"]["VKJIT_TUNE"] == "1"
    assert {"VKJIT_SANITISE", "VKJIT_QQQQ"} <= set(report["unknown_settings"])
    lines = environment.describe(report).splitlines()
    assert f"setting   VKJIT_TUNE=1: {SETTINGS['VKJIT_TUNE']}" in lines
    assert "setting   VKJIT_SANITISE: there is no such setting, did you mean VKJIT_SANITIZE?" in lines
    assert "setting   VKJIT_QQQQ: there is no such setting" in lines
