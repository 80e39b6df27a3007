"""The disk cache of compiled kernels: one file per entry, checked, written atomically.

Enters: a key (the SHA-256 of everything that the code depends on) and an artifact. Leaves: the artifact again, in this or a
later process. A file that is damaged, truncated, of another version or owned by somebody else is a miss, never an error.

File: a magic line, the SHA-256 of the rest, then the length of a JSON header (u32, little endian), the header, the SPIR-V.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

from . import dtypes
from .errors import Loc, ReportSite
from .passes.trip_bound import bound_from_json, bound_to_json
from .runtime.artifact import ArgField, KernelArtifact

__all__ = ["clear", "compiler_digest", "directory", "enabled", "load", "statistics", "store"]

MAGIC = b"vkjit artifact 1\n"
SIZE_CAP = 256 << 20
"""Bytes that the cache may take; the entries used longest ago go first."""


def enabled() -> bool:
    """False with VKJIT_CACHE=0, or where the directory can't be used safely."""
    return os.environ.get("VKJIT_CACHE", "1") != "0" and _usable_directory() is not None


def directory() -> Path:
    """VKJIT_CACHE_DIR, else the platform's cache directory."""
    chosen = os.environ.get("VKJIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home()))) / "vkjit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vkjit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vkjit"


def _usable_directory() -> Path | None:
    """The directory, made with mode 0700; None where it belongs to another user or can't be made."""
    return _checked_directory(str(directory()))


@functools.lru_cache(maxsize=8)
def _checked_directory(text: str) -> Path | None:
    path = Path(text)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return None
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            return None
        if status.st_mode & 0o022:
            path.chmod(0o700)
    return path if os.access(path, os.W_OK) else None


@functools.lru_cache(maxsize=1)
def compiler_digest() -> str:
    """A hash of the compiler's own source files, so that no entry outlives a change of the compiler."""
    root = Path(__file__).resolve().parent
    digest = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for part in ("dtypes.py", "compiler.py", "cache.py", "ir", "frontend", "passes", "emit", "spirv", "cpu"):
        path = root / part
        files = [path] if path.is_file() else sorted(path.rglob("*.py")) + sorted(path.rglob("*.lark"))
        for file in files:
            status = file.stat()
            digest.update(f"{file.relative_to(root)}:{status.st_size}:{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _path(folder: Path, key: str) -> Path:
    return folder / f"{key}.vkjit"


def load(key: str) -> KernelArtifact | None:
    """The artifact stored under the key, or None."""
    folder = _usable_directory()
    if folder is None:
        return None
    path = _path(folder, key)
    try:
        data = path.read_bytes()
    except OSError:
        return None
    artifact = _decode(data)
    if artifact is not None:
        with contextlib.suppress(OSError):  # another process evicted the entry; what was read is still good
            os.utime(path)
    return artifact


def store(key: str, artifact: KernelArtifact) -> None:
    """Writes the entry to a temporary file and moves it into place; does nothing where that fails."""
    folder = _usable_directory()
    if folder is None or not key:
        return
    try:
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_encode(artifact))
            os.replace(name, _path(folder, key))
        except BaseException:
            os.unlink(name)
            raise
    except OSError:
        return
    _evict(folder)


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    found = []
    for path in folder.glob("*.vkjit"):
        try:
            status = path.stat()
        except OSError:
            continue
        found.append((status.st_mtime, status.st_size, path))
    return sorted(found)


def _evict(folder: Path) -> None:
    """Every now and then, deletes the entries used longest ago until the cache is under its cap."""
    if int.from_bytes(os.urandom(1), "little") >= 8:
        return
    entries = _entries(folder)
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= SIZE_CAP:
            return
        path.unlink(missing_ok=True)
        total -= size


def statistics() -> dict[str, Any]:
    """Directory, number of entries and bytes."""
    folder = _usable_directory()
    entries = _entries(folder) if folder is not None else []
    return {"directory": str(directory()), "entries": len(entries), "bytes": sum(size for _, size, _ in entries)}


def clear() -> int:
    """Deletes all entries (and left-over temporary files); returns how many."""
    folder = _usable_directory()
    if folder is None:
        return 0
    count = 0
    for pattern in ("*.vkjit", "*.tmp"):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)
            count += 1
    return count


def _encode(artifact: KernelArtifact) -> bytes:
    header = {
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
        "report_values": sorted(artifact.info.get("report_values", {}).items()),
        "trip_bound": bound_to_json(artifact.info.get("trip_bound")),
    }
    text = json.dumps(header).encode()
    body = struct.pack("<I", len(text)) + text + artifact.code
    data: bytes = MAGIC + hashlib.sha256(body).digest() + body
    return data


def _decode(data: bytes) -> KernelArtifact | None:
    """None for anything but a whole, unaltered entry."""
    start = len(MAGIC) + 32
    if not data.startswith(MAGIC) or len(data) < start + 4:
        return None
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        return None
    (length,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + length])
    return KernelArtifact(
        name=header["name"],
        code=body[4 + length :],
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
        info=_info(header),
    )


def _info(header: dict[str, Any]) -> dict[str, Any]:
    """The parts of an artifact's `info` that launches need."""
    info: dict[str, Any] = {}
    bound = bound_from_json(header["trip_bound"])
    if bound is not None:
        info["trip_bound"] = bound
    if header["report_values"]:
        info["report_values"] = {site: tuple(kinds) for site, kinds in header["report_values"]}
    return info
