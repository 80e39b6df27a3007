"""Tests of the documentation: Python blocks marked `python run` run, and targets of relative links exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import vkjit as vk
from tests.repo import checkout

PAGES = tuple(path for path in checkout.files() if path.suffix == ".md")
NAME = re.compile(r"\bvk\.([A-Za-z_]\w*)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)(#[^)\s]*)?\)")


def runnable(text: str) -> str:
    """Return the page as a program: blocks marked `python run` at their own line numbers, all other lines empty.

    Blocks of one page share their names, as for a reader who follows the page.
    """
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = line.strip() == "```python run"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines).strip("\n") and "\n".join(lines) + "\n"


def without_code(text: str) -> str:
    """Return the page's prose, as brackets in code aren't links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if runnable(page.read_text(encoding="utf-8"))], ids=checkout.name_of
)
def test_code_on_the_page_runs(page: Path, tmp_path: Path) -> None:
    program = tmp_path / f"{page.stem}.py"
    program.write_text(runnable(page.read_text(encoding="utf-8")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"line numbers are those of {checkout.name_of(page)}\n{done.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.stem != "architecture"], ids=checkout.name_of)
def test_names_on_the_page_exist(page: Path) -> None:
    """The page on the architecture also reserves names for what is planned."""
    found = {match[1] for match in NAME.finditer(page.read_text(encoding="utf-8"))}
    assert [name for name in sorted(found) if not hasattr(vk, name)] == []


@pytest.mark.parametrize("page", PAGES, ids=checkout.name_of)
def test_links_on_the_page_lead_somewhere(page: Path) -> None:
    targets = [match[1] for match in LINK.finditer(without_code(page.read_text(encoding="utf-8")))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_of_the_docs_is_in_the_index() -> None:
    index = (checkout.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in PAGES if path.parent == checkout.ROOT / "docs"} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def test_blocks_keep_their_line_numbers() -> None:
    text = "# Title\n\n```python run\na = 1\n```\n```python\nb = 2\n```\n```python run\nc = a\n```\n"
    assert runnable(text).splitlines() == ["", "", "", "a = 1", "", "", "", "", "", "c = a", ""]
    assert runnable("no code\n") == ""
