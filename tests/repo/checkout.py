"""The repository for its tests: its root folder and its text files."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def tracked() -> tuple[str, ...] | None:
    """Names of the files in git; None in an unpacked source distribution, without git, or in another user's clone."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    return tuple(name for name in done.stdout.split("\0") if name) if done.returncode == 0 else None


@functools.cache
def files() -> tuple[Path, ...]:
    """All files of the project, excluding links, environments and caches."""
    names = tracked()
    if names is not None:
        found = [ROOT / name for name in names]
    else:
        found = [
            Path(folder) / name
            for folder, folders, names in os.walk(ROOT)
            for name in names
            if not any(part.startswith((".", "__")) for part in Path(folder).relative_to(ROOT).parts)
        ]
    return tuple(path for path in found if path.is_file() and not path.is_symlink())


def kept_folder(config: pytest.Config, name: str, otherwise: Path) -> Path:
    """A folder that is still there in the next run, for what tools find out again and again; `otherwise` where pytest keeps
    nothing.
    """
    cache = getattr(config, "cache", None)
    return otherwise / name if cache is None else Path(cache.mkdir(name))


def python_files() -> tuple[Path, ...]:
    """Handwritten Python sources."""
    return tuple(path for path in files() if path.suffix == ".py" and "_gen" not in path.name)


def text_of(path: Path) -> str | None:
    """Return the file's text, or None for a binary file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def name_of(path: Path) -> str:
    """Return the path relative to the repository's root."""
    return path.relative_to(ROOT).as_posix()
