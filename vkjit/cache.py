"""The disk cache of compiled kernels: one file per entry, checked, written atomically.

Enters: a key (the SHA-256 of everything that the code depends on) and an artifact. Leaves: the artifact again, in this or a
later process. A file that is damaged, truncated, of another version, stored under another key or owned by somebody else is a
miss, never an error; so is a directory that can't be used. Any number of processes may read, write, evict and clear at once.

Folders: `kernels` and `pipelines` in `directory()`, both of mode 0700. A file of `kernels`: a magic line, the SHA-256 of the
rest, then the length of a JSON header (u32, little endian), the header, the code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import operator
import os
import stat
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import dtypes
from .errors import ArgumentError, InternalError, Loc, ReportSite
from .runtime.artifact import ArgField, KernelArtifact
from .settings import switch

if TYPE_CHECKING:
    from .passes.trip_bound import TripBound

__all__ = [
    "COMPILER",
    "Entry",
    "clear",
    "compiler_digest",
    "directory",
    "enabled",
    "entries",
    "load",
    "load_pipelines",
    "problem",
    "read_file",
    "read_files",
    "remove_files",
    "statistics",
    "store",
    "store_pipelines",
    "verify",
    "write_file",
]

MAGIC = b"vkjit artifact 3\n"
SIZE_CAP = 256 << 20
"""Bytes that the kernels may take, if VKJIT_CACHE_SIZE doesn't say otherwise; those used longest ago go first."""
ABANDONED_SECONDS = 3600.0
"""Age at which a temporary file belongs to no writer any more: it was killed."""


# -- where


def enabled() -> bool:
    """False with VKJIT_CACHE=0, or where the directory can't be used safely. Raises ArgumentError for a setting that is
    none."""
    _size_cap()
    return _switched_on() and _folder("kernels") is not None


def problem() -> str:
    """Why nothing is cached, in words; empty where the cache works."""
    try:
        _size_cap()
        if not _switched_on():
            return "VKJIT_CACHE=0 switches it off"
    except ArgumentError as error:
        return str(error)
    try:
        return _checked(str(directory() / "kernels"))
    except RuntimeError as error:  # no home directory
        return f"there is no place for it ({error}): set VKJIT_CACHE_DIR"


def _switched_on() -> bool:
    return switch("VKJIT_CACHE") is not False


def directory() -> Path:
    """VKJIT_CACHE_DIR, else the platform's cache directory. Raises RuntimeError for a user without a home."""
    chosen = os.environ.get("VKJIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "vkjit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vkjit"
    place = os.environ.get("XDG_CACHE_HOME", "")
    return Path(place if os.path.isabs(place) else Path.home() / ".cache") / "vkjit"


def _folder(name: str) -> Path | None:
    """A folder of the cache; None where it can't be used."""
    try:
        path = directory() / name
    except RuntimeError:
        return None
    return None if _checked(str(path)) else path


@functools.lru_cache(maxsize=16)
def _checked(text: str) -> str:
    """Makes the folder, with mode 0700; what is wrong with it, in words, or nothing.

    A link counts as what it leads to, and has to belong to this user too: what others own, they can exchange.
    """
    path = Path(text)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            for status in (path.lstat(), path.stat()):
                if status.st_uid != os.getuid():
                    return f"{path} belongs to another user (number {status.st_uid}): set VKJIT_CACHE_DIR"
            if path.stat().st_mode & 0o077:
                path.chmod(0o700)
    except OSError as error:
        return f"{path} can't be made or read ({error.strerror}): set VKJIT_CACHE_DIR"
    return "" if os.access(path, os.W_OK | os.X_OK) else f"{path} can't be written: set VKJIT_CACHE_DIR"


# -- what code depends on besides the kernel


COMPILER = ("ir", "frontend", "passes", "emit", "spirv", "lang")
"""The folders that decide about SPIR-V, beside the modules of the package itself."""


@functools.cache
def compiler_digest(folders: tuple[str, ...] = COMPILER) -> str:
    """A hash over the compiler's own files (places, sizes, times), so that no entry outlives a change of the compiler.

    It is taken once, when the compiler is loaded: files that change later don't change the code that runs.
    """
    root = os.path.dirname(os.path.realpath(__file__))
    told = [root, *sys.version_info[:2], np.__version__, sys.byteorder]
    for entry in _files(root, folders):
        status = entry.stat()
        told += (entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return hashlib.sha256(repr(told).encode()).hexdigest()


def _files(folder: str, inner: tuple[str, ...] | None = None) -> Iterator[os.DirEntry[str]]:
    """The source files of a folder and of the folders in it (of all, if `inner` doesn't name some), in order."""
    with os.scandir(folder) as found:
        listed = sorted(found, key=operator.attrgetter("name"))
    for entry in listed:
        name = entry.name
        if name.endswith((".py", ".lark")):
            yield entry
        elif (inner is None or name in inner) and name != "__pycache__" and entry.is_dir():
            yield from _files(entry.path)


# -- files


def _read(path: Path) -> bytes | None:
    """A file of the cache; None where there is none, or where it isn't a file of this user's own."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
                return None
            return file.read()
    except OSError:
        return None


def _write(path: Path, data: bytes) -> bool:
    """Writes a temporary file and moves it into place; whether that worked."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    except OSError:
        _checked.cache_clear()  # the folder may have been deleted: it is made again next time
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(name)
        if isinstance(error, OSError):
            return False
        raise
    return True


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.vkjit"


def load(key: str) -> KernelArtifact | None:
    """The artifact stored under the key, or None."""
    folder = _folder("kernels")
    if folder is None:
        return None
    path = _path(folder, key)
    data = _read(path)
    artifact = _decode(data, key) if data is not None else None
    if artifact is not None:
        with contextlib.suppress(OSError):  # another process evicted the entry; what was read is still good
            os.utime(path)
    return artifact


def store(key: str, artifact: KernelArtifact) -> None:
    """Writes the entry; does nothing where that fails."""
    folder = _folder("kernels")
    if folder is not None and key and _write(_path(folder, key), _encode(artifact, key)):
        _evict(folder)


def load_pipelines(name: str) -> bytes:
    """What was stored under the name for a driver, unchecked; empty where there is nothing."""
    folder = _folder("pipelines") if _switched_on() else None
    return (_read(folder / f"{name}.bin") or b"") if folder is not None else b""


def store_pipelines(name: str, data: bytes) -> None:
    """Keeps a driver's compiled pipelines; does nothing where that fails."""
    folder = _folder("pipelines") if _switched_on() else None
    if folder is not None and len(data) <= _size_cap():
        _write(folder / f"{name}.bin", data)


def read_file(folder: str, name: str) -> bytes | None:
    """A file of another folder of the cache, unchecked; None where there is none of this user's own."""
    place = _folder(folder) if _switched_on() else None
    return _read(place / name) if place is not None else None


def write_file(folder: str, name: str, data: bytes) -> bool:
    """Puts a file into another folder of the cache, whole or not at all; whether that worked."""
    place = _folder(folder) if _switched_on() else None
    return place is not None and _write(place / name, data)


def read_files(folder: str, suffix: str) -> Iterator[bytes]:
    """The files of a folder whose names end so."""
    place = _folder(folder)
    for path in sorted(place.glob(f"*{suffix}")) if place is not None else ():
        data = _read(path)
        if data is not None:
            yield data


def remove_files(folder: str, suffix: str) -> int:
    """Deletes the files of a folder whose names end so, and what killed writers left; how many."""
    place = _folder(folder)
    if place is None:
        return 0
    return sum(_remove(path) for pattern in (f"*{suffix}", "*.tmp") for path in place.glob(pattern))


# -- keeping house


def _size_cap() -> int:
    """VKJIT_CACHE_SIZE. Raises ArgumentError for what is no number of bytes."""
    text = os.environ.get("VKJIT_CACHE_SIZE", "")
    if text and not (text.isascii() and text.isdecimal()):
        raise ArgumentError(f"VKJIT_CACHE_SIZE is {text!r}: expected a number of bytes, such as {SIZE_CAP}")
    return int(text) if text else SIZE_CAP


def _listed(folder: Path) -> list[tuple[float, int, Path]]:
    """Time of last use, bytes and place of each entry, the one used longest ago first."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name.endswith(".vkjit"):
                with contextlib.suppress(OSError):  # deleted meanwhile
                    status = item.stat(follow_symlinks=False)
                    found.append((status.st_mtime, status.st_size, Path(item.path)))
    return sorted(found)


def _evict(folder: Path) -> None:
    """Every now and then, deletes the entries used longest ago until the cache is under its cap, and what killed writers
    left behind."""
    if int.from_bytes(os.urandom(1), "little") >= 8:
        return
    listed = _listed(folder)
    total, cap = sum(size for _, size, _ in listed), _size_cap()
    for _, size, path in listed:
        if total <= cap:
            break
        _remove(path)
        total -= size
    now = time.time()
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.lstat().st_mtime > ABANDONED_SECONDS:
                path.unlink()


def _remove(path: Path) -> bool:
    """Deletes a file; whether it was there and could be deleted."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of the cache. `name` is the kernel's, empty where the file is damaged; `used` in seconds since 1970."""

    path: Path
    name: str
    nbytes: int
    used: float


def entries() -> list[Entry]:
    """All entries, the one used last first; each is read and checked."""
    folder = _folder("kernels")
    found = []
    for used, nbytes, path in reversed(_listed(folder) if folder is not None else []):
        artifact = _decode(_read(path) or b"", path.stem)
        found.append(Entry(path, artifact.name if artifact is not None else "", nbytes, used))
    return found


def verify() -> tuple[int, list[Path]]:
    """Checks all entries and deletes the damaged ones: how many are good, and which were deleted."""
    found = entries()
    damaged = [entry.path for entry in found if not entry.name]
    for path in damaged:
        _remove(path)
    return len(found) - len(damaged), damaged


def statistics() -> dict[str, Any]:
    """Directory, number of kernels, their bytes, bytes of the drivers' pipelines."""
    folder, pipelines = _folder("kernels"), _folder("pipelines")
    listed = _listed(folder) if folder is not None else []
    with contextlib.suppress(RuntimeError):
        return {
            "directory": str(directory()),
            "entries": len(listed),
            "bytes": sum(size for _, size, _ in listed),
            "pipeline_bytes": sum(p.stat().st_size for p in pipelines.glob("*.bin")) if pipelines is not None else 0,
        }
    return {"directory": "none", "entries": 0, "bytes": 0, "pipeline_bytes": 0}


def clear() -> int:
    """Deletes everything that is cached (and left-over temporary files); returns how many files."""
    folders = [folder for folder in (_folder("kernels"), _folder("pipelines")) if folder is not None]
    patterns = ("*.vkjit", "*.bin", "*.tmp")
    return sum(_remove(path) for folder in folders for pattern in patterns for path in folder.glob(pattern))


# -- the form of an entry


def _encode(artifact: KernelArtifact, key: str) -> bytes:
    lost = artifact.info.keys() - _INFO
    if lost:
        raise InternalError(f"the cache doesn't know how to keep {', '.join(sorted(lost))} of kernel {artifact.name}")
    header = {
        "key": key,
        "name": artifact.name,
        "entry": artifact.entry,
        "local_size": artifact.local_size,
        "fields": [(f.role, f.arg, f.axis, f.dtype.name, f.offset, f.size) for f in artifact.fields],
        "block_size": artifact.block_size,
        "indirect": artifact.indirect,
        "reads": sorted(artifact.reads),
        "writes": sorted(artifact.writes),
        "features": sorted(artifact.features),
        "shared_bytes": artifact.shared_bytes,
        "subgroup_size": artifact.subgroup_size,
        "sites": [(s.kind, (s.loc.file, s.loc.line, s.loc.col, s.loc.end), s.message) for s in artifact.sites],
        "info": {name: _INFO[name][0](value) for name, value in artifact.info.items()},
    }
    text = json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + artifact.code
    data: bytes = MAGIC + hashlib.sha256(body).digest() + body
    return data


def _decode(data: bytes, key: str) -> KernelArtifact | None:
    """None for anything but a whole, unaltered entry that was stored under this key."""
    start = len(MAGIC) + 32
    if not data.startswith(MAGIC) or len(data) < start + 4:
        return None
    body = memoryview(data)[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        return None
    (length,) = struct.unpack_from("<I", body)
    try:
        header = json.loads(bytes(body[4 : 4 + length]))
        return _artifact(header, bytes(body[4 + length :])) if header["key"] == key else None
    except (ValueError, KeyError, TypeError, IndexError):  # whole, but not what this version writes
        return None


def _artifact(header: dict[str, Any], code: bytes) -> KernelArtifact:
    return KernelArtifact(
        name=header["name"],
        code=code,
        entry=header["entry"],
        local_size=(header["local_size"][0], header["local_size"][1], header["local_size"][2]),
        fields=tuple(ArgField(r, a, x, dtypes.by_name[d], o, s) for r, a, x, d, o, s in header["fields"]),
        block_size=header["block_size"],
        indirect=header["indirect"],
        reads=frozenset(header["reads"]),
        writes=frozenset(header["writes"]),
        features=frozenset(header["features"]),
        shared_bytes=header["shared_bytes"],
        subgroup_size=header["subgroup_size"],
        sites=tuple(ReportSite(kind, Loc(*loc), message) for kind, loc, message in header["sites"]),
        info={name: _INFO[name][1](value) for name, value in header["info"].items()},
    )


def _rows(by_site: dict[int, Any]) -> list[tuple[int, Any]]:
    return sorted(by_site.items())


def _bound_to_json(bound: TripBound) -> Any:
    from .passes.trip_bound import bound_to_json

    return bound_to_json(bound)


def _bound_from_json(data: Any) -> TripBound | None:
    from .passes.trip_bound import bound_from_json  # it brings the IR along

    return bound_from_json(data)


_INFO: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grid_axes": (list, tuple),
    "trip_bound": (_bound_to_json, _bound_from_json),
    "report_values": (_rows, lambda rows: {site: tuple(kinds) for site, kinds in rows}),
    "print_values": (_rows, lambda rows: {site: tuple(map(tuple, kinds)) for site, kinds in rows}),
    "print_local": (list, tuple),
}
"""How what launches need of an artifact's `info` is written as JSON, and read."""
