"""The validation layer reports deliberate mistakes, so its silence elsewhere is meaningful."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vkjit.backends.vulkan.runtime import enumeration

CONTROL = Path(__file__).resolve().parents[2] / "validation_control.py"
PROBE = """
from vkjit.backends.vulkan.runtime import instance
print(instance.get_instance().validating)
"""


def run(*arguments: str, log: str = "") -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "VKJIT_VALIDATE": "1", "VKJIT_VALIDATE_LOG": log}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, check=False, env=settings
    )


@pytest.mark.parametrize("logged", [False, True])
def test_each_wrong_call_fails_its_test(logged: bool, tmp_path: Path) -> None:
    if enumeration.driver_error() is not None:
        pytest.skip(f"no Vulkan driver: {enumeration.driver_error()}")
    if run("-c", PROBE).stdout != "True\n":
        pytest.skip("the validation layer (vulkan-validationlayers) isn't installed")
    log = str(tmp_path / "log") if logged else ""
    done = run("-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", str(CONTROL), log=log)
    assert done.returncode == 1, done.stdout + done.stderr
    text = done.stdout
    assert "3 passed, 2 errors" in text, text
    assert "VUID-VkFenceCreateInfo-flags" in text
    assert "SYNC-HAZARD-WRITE-AFTER-WRITE" in text or "SYNC-HAZARD-WRITE_AFTER_WRITE" in text
    assert len(list(tmp_path.glob("log.*"))) == logged
