"""`python -m vkjit info`: print versions, devices and settings, as needed for a bug report."""

from __future__ import annotations

import argparse
import json

from ..api.environment import describe, gather

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print versions, devices and settings, as text or JSON."""
    report = gather()
    print(json.dumps(report, indent=2) if arguments.json else describe(report))
    return 0
