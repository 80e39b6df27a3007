"""Atomic writes of users' files: after an error or an interrupt, an existing file is as it was before.

A write also deletes temporary files that killed processes left in the folder. Temporary files are
recognized by their names and locked while they are written, so other files, and those in use, are kept.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["replacing", "resolved", "write_text"]

PathLike = str | os.PathLike[str]

_SUFFIX = ".vkjit-tmp"
_TEMPORARY = re.compile(rf"\..{{1,40}}\.[0-9a-f]{{16}}{re.escape(_SUFFIX)}", re.DOTALL)
"""Names of temporary files: the beginning of the target's, and a random number."""
_ABANDONED_SECONDS = 24 * 3600 if fcntl is None else 60
"""Age from which a temporary file that isn't locked counts as abandoned. Writers lock a new file much sooner; without
`fcntl` there are no locks, so a write may take a day."""


@contextlib.contextmanager
def replacing(path: PathLike) -> Iterator[BinaryIO]:
    """Open a file for writing that replaces `path` when the block ends; if the block raises, `path` stays as it was.

    Symbolic links are followed, and an existing file's permissions are kept. Pipes and devices are written directly.
    """
    target = resolved(path)
    try:
        mode: int | None = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("wb") as file:
            yield file
        return
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    permissions = 0o666 if mode is None else stat.S_IMODE(mode)
    _delete_abandoned(target.parent)
    # The name is chosen before the file is created, so that `except` deletes the file even if an interrupt comes at once.
    # The name of the target is truncated, so that this one stays within the limit for file names.
    temporary, lock = target.with_name(f".{target.name[:40]}.{secrets.token_hex(8)}{_SUFFIX}"), None
    try:
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, permissions)) as file:
            lock = _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())  # so that a power loss can't leave the new name without its data
        if mode is not None:
            temporary.chmod(permissions)  # os.open() took the umask away from them
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _lock(file: BinaryIO) -> int | None:
    """Lock a file and return a duplicate of its descriptor; None if Python has no `fcntl`.

    The lock lasts until both descriptors are closed, so it still holds when `file` is closed and renamed.
    """
    if fcntl is None:
        return None
    with contextlib.suppress(OSError):  # some network file systems have no locks
        fcntl.flock(file, fcntl.LOCK_EX)
    return os.dup(file.fileno())


def _delete_abandoned(folder: Path) -> None:
    """Delete the temporary files in a folder that killed processes of this user left."""
    found: list[os.DirEntry[str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        found += [item for item in listing if _TEMPORARY.fullmatch(item.name) and item.is_file(follow_symlinks=False)]
    for item in found:
        with contextlib.suppress(OSError):  # such as BlockingIOError: a process writes the file
            if time.time() - item.stat(follow_symlinks=False).st_mtime < _ABANDONED_SECONDS:
                continue
            if fcntl is None:
                Path(item.path).unlink()
                continue
            with open(item.path, "rb+", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW)) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(file.fileno()).st_uid == os.getuid():
                    Path(item.path).unlink()


def resolved(path: PathLike) -> Path:
    """Return the path with symbolic links followed. Raises ArgumentError for a link that leads back to itself, or that
    another user has planted.
    """
    try:
        _check_links(Path(path))
        target = Path(path).resolve()
        if target.is_symlink():  # Python 3.13 raises nothing for a link that leads to itself
            target.stat()
    except (RuntimeError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ELOOP:
            raise
        raise ArgumentError(f"{os.fspath(path)} can't be written: it is a symbolic link that leads to itself") from None
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{path!r} is no file name: {error}") from None
    return target


def _check_links(link: Path) -> None:
    """Refuse links of other users in shared folders such as /tmp, as Linux does with `fs.protected_symlinks` set.

    Otherwise a planted link would choose the file that is replaced.
    """
    for _ in range(40):  # as many as Linux follows; for longer chains, `resolve` raises the error
        if not hasattr(os, "geteuid") or not link.is_symlink():
            return
        folder, owner = link.parent.stat(), link.lstat().st_uid
        shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if shared and owner not in (os.geteuid(), folder.st_uid):
            raise ArgumentError(
                f"{link} is a symbolic link of another user (number {owner}) in a shared folder: save under another name, or in "
                "a folder of your own"
            )
        link = link.parent / link.readlink()


def write_text(path: PathLike, text: str) -> None:
    """Write a text in UTF-8 to a file that replaces `path`; see `replacing`."""
    with replacing(path) as file:
        file.write(text.encode())
