"""`python -m vkjit cache [info | clear | verify | path]`: show, clear or check the disk cache of compiled kernels."""

from __future__ import annotations

import argparse
import json
import time

from ..compiler import cache
from ..errors import VkjitError

__all__ = ["add_arguments", "run"]

ACTIONS = ("info", "clear", "verify", "path")
MAX_SHOWN = 20
"""Number of kernels that `info` lists without `--all`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "action", nargs="?", default="info", choices=ACTIONS, help="info (default): where it is and what it holds; "
        "clear: delete everything; verify: check all files, delete damaged ones; path: print the directory",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="info: list all kernels")
    parser.add_argument("--json", action="store_true", help="info: print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Exit code 1 if the cache can't be used or `verify` found damaged files."""
    if arguments.action == "path":
        print(_directory())
        return 0
    if arguments.action == "info":
        return _info(arguments)
    problem = cache.problem()
    # A cache that is only switched off can still be cleared and verified. The text is that of `compiler.cache.problem`.
    if problem and problem != "VKJIT_CACHE=0 switches it off":
        raise VkjitError(f"the cache can't be used: {problem}")
    if arguments.action == "clear":
        print(f"deleted {cache.clear()} files in {_directory()}")
        return 0
    good, damaged = cache.verify()
    for path in damaged:
        print(f"damaged, deleted: {path.name}")
    print(f"{good} kernels are good, {len(damaged)} were damaged")
    return 1 if damaged else 0


def _directory() -> str:
    """Return the cache's directory. Raises VkjitError if there is none."""
    try:
        return str(cache.directory())
    except RuntimeError as error:
        raise VkjitError(f"{cache.problem() or error}") from None


def _info(arguments: argparse.Namespace) -> int:
    """Print the size of the cache and the kernels in it. Exit code 1 if the cache can't be used."""
    problem = cache.problem()
    entries = cache.entries()
    stats = cache.statistics()
    if arguments.json:
        kernels = [{"name": e.name, "bytes": e.nbytes, "used": e.used, "file": e.path.name} for e in entries]
        print(json.dumps(stats | {"problem": problem, "kernels": kernels}, indent=2))
        return 1 if problem else 0
    print(f"{stats['directory']}: {stats['entries']} kernels, {stats['bytes'] / 1e6:.1f} MB; "
          f"pipelines of drivers {stats['pipeline_bytes'] / 1e6:.1f} MB")  # fmt: skip
    if problem:
        print(f"nothing is cached: {problem}")
    now = time.time()
    shown = entries if arguments.all else entries[:MAX_SHOWN]
    for entry in shown:
        print(f"  {entry.name or '(damaged)':32} {entry.nbytes / 1e3:8.1f} kB   used {_age(now - entry.used)} ago")
    if len(shown) < len(entries):
        print(f"  and {len(entries) - len(shown)} more: --all lists them")
    return 1 if problem else 0


def _age(seconds: float) -> str:
    """Format a duration in the largest unit (days, hours, minutes, seconds) of which it is at least two."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
