"""Test of a scripted newcomer's hour: mistakes in a notebook, each repaired using its error message only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vkjit as vk
from tests.repo import checkout


def test_a_newcomers_hour(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="the hour is spent in IPython: pip install ipython")
    from tests.repo import newcomer

    environment = {**os.environ, "PYTHONPATH": str(checkout.ROOT), "IPYTHONDIR": str(tmp_path)}
    command = [sys.executable, "-m", "tests.repo.newcomer"]
    done = subprocess.run(
        command, cwd=checkout.ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("repaired: ") == len(newcomer.MISTAKES) >= 6
    with_help = sum(mistake.error is vk.CompileError for mistake in newcomer.MISTAKES)
    assert done.stdout.count("help: ") >= with_help >= 5  # the notebook shows messages unchanged
