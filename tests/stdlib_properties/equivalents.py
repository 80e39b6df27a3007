"""Mutants that change nothing that a program can see, each with the argument why.

Keys are `file.kernel: line of the source | edit`, as the command prints survivors.
"""

from __future__ import annotations

__all__ = ["ARGUED"]

ARGUED: dict[str, str] = {}
