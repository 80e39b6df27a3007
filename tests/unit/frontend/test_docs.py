"""Tests of the language reference: every block runs on the default device, and its kernels pass the type checker."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo import checkout

PAGE = Path(__file__).parents[3] / "docs" / "language.md"


def blocks() -> list[str]:
    """Return the page's Python blocks, padded with empty lines so that errors name the page's line numbers."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.finditer(r"```python\n(.*?)```", text, re.DOTALL)
    return ["\n" * text[: m.start(1)].count("\n") + m.group(1) for m in found]


def test_every_block_runs() -> None:
    scope: dict[str, object] = {"__name__": "language"}
    for number, block in enumerate(blocks()):
        name = f"<language.md block {number}>"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
        exec(compile(block, name, "exec", dont_inherit=True), scope)  # noqa: S102  (kernels from text)


@pytest.mark.slow
def test_kernels_pass_the_type_checker(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if shutil.which("mypy", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("mypy isn't installed")
    page = tmp_path / "page.py"
    page.write_text("\n".join(block.strip("\n") for block in blocks()), encoding="utf-8")
    options = [
        "--config-file=",
        "--follow-imports=silent",
        "--ignore-missing-imports",
        "--no-error-summary",
        f"--cache-dir={checkout.kept_folder(request.config, 'mypy-page', tmp_path)}",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(page)],
        capture_output=True,
        text=True,
        check=False,
        cwd=PAGE.parents[1],
    )
    assert result.returncode == 0, result.stdout + result.stderr
