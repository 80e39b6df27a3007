"""`python -m vkjit demo`: a tour of the library.

Part 1 runs image kernels on a photograph, part 2 trains a small network on handwritten digits, part 3 finds a bug in a
user's kernel with a property test. Each part is a module with `run(report, arguments)`. Results are checked against a
reference, and files are written to an output folder.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

from vkjit.backends.selection import default_device, device, driver_error, use_device
from vkjit.errors import DriverNotFoundError
from vkjit.runtime.device import Device

from .report import Report

__all__ = ["add_arguments", "run"]

PARTS = ("photo", "training", "property")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "image", nargs="?", type=Path, help="a picture of your own (default: a photograph that ships with scikit-learn)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("vkjit-demo"), help="folder for the results (default: vkjit-demo)"
    )
    parser.add_argument("--device", default=None, help="number or part of the name (default: the best that exists)")
    parser.add_argument("--only", choices=PARTS, action="append", help="run this part only (may be repeated)")


def _explain_missing_driver(report: Report, kind: str, error: DriverNotFoundError) -> None:
    """Print that there is no Vulkan driver, and where the kernels run instead; `kind` is the kind of the device."""
    fallbacks = {
        "interpreter": "the kernels run on the reference interpreter, which is correct, but slow",
        "llvm-cpu": "the kernels run on the CPU, through LLVM",
    }
    report.line(f"No Vulkan driver was found: {fallbacks.get(kind, 'another device is used')}.")
    report.line(str(error))


def run(arguments: argparse.Namespace) -> int:
    """Run the parts in order. Exit code 1 if a check fails."""
    report = Report()
    target = default_device() if arguments.device is None else _device_named(arguments.device)
    report.line(f"device: {target.name} ({target.caps.kind})")
    error = driver_error()
    if error is not None:
        _explain_missing_driver(report, target.caps.kind, error)
    arguments.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with use_device(target):
        for part in arguments.only or PARTS:
            importlib.import_module(f".{part}", __package__).run(report, arguments)
    report.line(f"all done in {time.perf_counter() - start:.1f} s; results are in {arguments.out}")
    return 1 if report.failed else 0


def _device_named(text: str) -> Device:
    """Return the device that the option `--device` names, by its index or a part of its name."""
    return device(int(text) if text.isdigit() else text)
