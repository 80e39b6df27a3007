"""Where the command's lines go."""

from __future__ import annotations

__all__ = ["say"]


def say(*lines: str) -> None:
    """Prints lines at once: runs are long, and are watched."""
    for line in lines:
        print(line, flush=True)  # noqa: T201  a command-line tool
