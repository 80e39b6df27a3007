"""`python -m vkjit cache`: shows or empties the cache of compiled kernels."""

from __future__ import annotations

import argparse

from .. import cache

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the command."""
    parser.add_argument("--clear", action="store_true", help="delete all entries")


def run(arguments: argparse.Namespace) -> int:
    """Prints where the cache is and what it holds, after emptying it where asked."""
    if arguments.clear:
        print(f"deleted {cache.clear()} files")
    stats = cache.statistics()
    state = "" if cache.enabled() else " (off)"
    print(f"{stats['directory']}{state}: {stats['entries']} kernels, {stats['bytes'] / 1e6:.1f} MB")
    return 0
