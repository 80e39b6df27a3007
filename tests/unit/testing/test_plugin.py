"""Tests of the pytest plugin in a separate project: executors, the sanitizer, leaks, readable reports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_vkjit

PROGRAM = """
import numpy as np
import vkjit as vk


@vk.kernel(over="x")
def counted(x: vk.In[vk.i32, "N"], count: vk.InOut[vk.i32, "1"]):
    if x[vk.global_id(0)] > 0:
        count[0] += 1


def test_runs_where_it_is_told(vkjit_device, vkjit_leak_check):
    assert vkjit_device.caps.kind == "interpreter"


def test_race(vkjit_device):
    counted(np.ones(5, np.int32), np.zeros(1, np.int32))


@vk.testing.check(counted, devices="interpreter", max_examples=4)
def test_counted(x, count):
    return count + np.int32((x > 0).sum())
"""


def pytest_in(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_kernels.py").write_text(PROGRAM, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "vkjit.testing.plugin",
        "-p",
        "no:cacheprovider",
        "--rootdir",
    ]
    return subprocess.run(
        [*command, str(folder), *options, str(folder)], capture_output=True, text=True, check=False, cwd=folder
    )


def test_a_device_that_there_is_not_is_an_error(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--vkjit-device=interpretre")
    assert done.returncode and "is part of no executor's name" in done.stdout + done.stderr, done.stdout + done.stderr
    assert "interpreter" in done.stdout + done.stderr and "passed" not in done.stdout


def test_options_and_fixtures(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "--vkjit-device=interpreter", "--vkjit-sanitize", "--vkjit-artifacts=left")
    text = done.stdout
    assert "1 passed" in text and "2 failed" in text, text + done.stderr
    assert "the sanitizer found" in text and "race_global" in text
    assert "smallest failing input:\n    N = 2" in text
    assert "property_holds" not in text, "a failed check explains itself, without the code that raised it"
    left = tmp_path / "left" / "test-kernels.py-test-counted"
    assert {path.name for path in left.iterdir()} >= {"counted.py", "counted.txt", "counted.ir.txt", "counted.spv"}
    assert "written to left/test-kernels.py-test-counted: counted.py" in text


def test_projects_without_kernels_pay_nothing(tmp_path: Path) -> None:
    """pytest imports the plugin at each start; vkjit and NumPy stay out until a test asks for a device."""
    program = "def test_modules():\n    import sys\n    assert not {'vkjit', 'numpy'} & set(sys.modules)\n"
    (tmp_path / "test_other.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_vkjit", "-p", "no:cacheprovider", "--rootdir", "."]
    root = str(Path(pytest_vkjit.__file__).parent)
    variables = {**os.environ, "PYTHONPATH": root, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=variables)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    project = (Path(root) / "pyproject.toml").read_text(encoding="utf-8")
    assert '"vkjit.testing.plugin" = "pytest_vkjit"' in project


def test_this_suite_uses_the_plugin(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin("vkjit.testing.plugin")
