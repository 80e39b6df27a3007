"""The repository as its tests see it: where it lies and which text files belong to it."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_git_checkout() -> bool:
    """Whether the files come from git; an unpacked source distribution has no history."""
    return (ROOT / ".git").exists()


@functools.cache
def files() -> tuple[Path, ...]:
    """All files of the project, without links, environments and caches."""
    if is_git_checkout():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        found = [
            Path(folder) / name
            for folder, folders, names in os.walk(ROOT)
            for name in names
            if not any(part.startswith((".", "__")) for part in Path(folder).relative_to(ROOT).parts)
        ]
    return tuple(path for path in found if path.is_file() and not path.is_symlink())


def python_files() -> tuple[Path, ...]:
    """Sources written by hand."""
    return tuple(path for path in files() if path.suffix == ".py" and "_gen" not in path.name)


def text_of(path: Path) -> str | None:
    """The file's text; None for what isn't text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def name_of(path: Path) -> str:
    """The path as it is written in the repository."""
    return path.relative_to(ROOT).as_posix()
