"""A first property test by a new user: an off-by-one kernel with a short reference; the bug is found and shrunk."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import vkjit as vk

PROGRAM = """
import vkjit as vk

@vk.kernel(over="y")
def shifted(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i - 1] if i > 1 else 0.0

@vk.testing.check(shifted, devices={device!r})
def test_shifted(x, y):
    y[:1], y[1:] = 0, x[:-1]
    return y

test_shifted()
"""


def test_an_off_by_one_is_found_shrunk_and_shown(tmp_path: Path) -> None:
    device = "cpu" if any(info.kind == "llvm-cpu" for info in vk.devices()) else "interpreter"
    (tmp_path / "first.py").write_text(textwrap.dedent(PROGRAM).format(device=device), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "first.py"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60
    )
    assert done.returncode == 1 and "CheckFailure" in done.stderr, done.stderr
    assert "N = 2" in done.stderr and "y[1] is 0.0" in done.stderr, done.stderr
    shown = "first.py:7\n    7 |     y[i] = x[i - 1] if i > 1 else 0.0"  # under load, the search for a fix may time out
    assert shown in done.stderr, done.stderr
