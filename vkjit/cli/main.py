"""The entry point of `python -m vkjit`: parse the arguments and dispatch to the command's module.

Each command is a module of this package with `add_arguments(parser)` and `run(arguments) -> exit code`. Only the
module of the command that is run is imported.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from ..errors import VkjitError

__all__ = ["main"]

COMMANDS = {
    "info": "versions, devices and settings",
    "doctor": "checks this machine: what is missing, what each device can be expected to do",
    "demo": "runs kernels on a photograph, trains a small network, finds a bug by property testing",
    "test": "tests the kernels of a file on drawn inputs, several devices and schedules",
    "inspect": "shows a kernel's Python, IR after each pass, and SPIR-V",
    "tune": "measures variants of kernels on a device; shows, exports and imports the results",
    "cache": "shows or empties the cache of compiled kernels",
}
"""Commands with their descriptions for `--help`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (2: wrong usage, 1: failed)."""
    parser = argparse.ArgumentParser(prog="python -m vkjit", description="GPU kernels as Python functions")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    tokens = list(sys.argv[1:] if argv is None else argv)
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name in tokens[:1]:
            importlib.import_module(f".{name}", __package__).add_arguments(command)
    arguments = parser.parse_args(tokens)
    module = importlib.import_module(f".{arguments.command}", __package__)
    try:
        return int(module.run(arguments))
    except VkjitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
