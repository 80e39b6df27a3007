"""The disk cache of compiled kernels: one checksummed file per entry, written atomically.

`load` and `store` map a key (the SHA-256 of everything that the code depends on) to an artifact; the compilation driver
calls them. A file that is damaged, truncated, of another format version, stored under another key, or owned by another
user counts as a miss, never as an error. The same holds for an unusable directory. Any number of processes may read,
write, evict and clear entries concurrently.

`directory()` contains the folder `kernels` for these entries, the folder `pipelines` for the pipeline caches of Vulkan
drivers (`load_pipelines`), and folders of other modules (`read_file`). All have mode 0700 and contain the file `MARK`; a folder
that holds other files and no mark belongs to somebody else, and is neither used nor changed. A file in `kernels` consists
of a magic line, the SHA-256 of the rest, the length of a JSON header (u32, little endian), the header, and the code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import operator
import os
import re
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

from .. import dtypes
from ..errors import ArgumentError, InternalError, Loc, ReportSite
from ..runtime.artifact import ArgField, KernelArtifact
from ..settings import boolean_setting

if TYPE_CHECKING:
    from ..passes.analysis.trip_bound import TripBound

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
_DIGEST_BYTES = 32  # of a SHA-256
SIZE_CAP = 256 << 20
"""Default limit on the total size of the cached kernels in bytes; VKJIT_CACHE_SIZE overrides it. The least recently
used kernels are evicted first.
"""
MARK = ".vkjit-cache"
"""A file in each folder of the cache: what is in the folder may be deleted."""
_OWN_NAME = re.compile(r"[0-9a-f]{64}\.(vkjit|json|bin)|(vkjit-|tmp)[a-z0-9_]{8}\.tmp")
"""Names of files that earlier versions, which wrote no marks, have written."""
_ENTRY_NAME = re.compile(r"[0-9a-f]{64}\.vkjit")
ABANDONED_SECONDS = 3600.0
"""Age after which a temporary file is considered abandoned by a killed writer."""


# -- location


def enabled() -> bool:
    """True unless VKJIT_CACHE=0 is set or the directory can't be used safely.

    Raises ArgumentError for invalid settings.
    """
    _size_cap()  # raises if VKJIT_CACHE_SIZE is invalid
    return _switched_on() and _folder("kernels") is not None


def problem() -> str:
    """Return the reason why the cache is disabled or unusable, as text; "" if it works."""
    try:
        _size_cap()
        if not _switched_on():
            return "VKJIT_CACHE=0 switches it off"
    except ArgumentError as error:
        return str(error)
    try:
        return _unusable_reason(str(directory() / "kernels"))
    except RuntimeError as error:  # no home directory
        return f"there is no place for it ({error}): set VKJIT_CACHE_DIR"


def _switched_on() -> bool:
    return boolean_setting("VKJIT_CACHE") is not False


def directory() -> Path:
    """Return the path in VKJIT_CACHE_DIR, by default a folder in the platform's cache directory.

    Raises RuntimeError for a user without a home directory.
    """
    chosen = os.environ.get("VKJIT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "vkjit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vkjit"
    xdg_cache = os.environ.get("XDG_CACHE_HOME", "")
    return Path(xdg_cache if os.path.isabs(xdg_cache) else Path.home() / ".cache") / "vkjit"


def _folder(name: str) -> Path | None:
    """Return the path of a folder of the cache, created if necessary; None if it can't be used."""
    try:
        path = directory() / name
    except RuntimeError:
        return None
    return None if _unusable_reason(str(path)) else path


@functools.lru_cache(maxsize=16)
def _unusable_reason(text: str) -> str:
    """Create a folder of the cache with mode 0700. Return the reason why it can't be used; "" if it can be used.

    `text` is the folder's path. The folder must belong to this user. For a symbolic link, both the link and its target
    must belong to the user, because the owner of either one can replace it.
    """
    path = Path(text)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid"):
            for status in (path.lstat(), path.stat()):
                if status.st_uid != os.getuid():
                    return f"{path} belongs to another user (number {status.st_uid}): set VKJIT_CACHE_DIR"
        mark = path / MARK
        if not mark.exists():
            foreign = next((name for name in sorted(os.listdir(path)) if not _OWN_NAME.fullmatch(name)), None)
            if foreign is not None:
                return f"{path} holds {foreign}, which vkjit hasn't written: set VKJIT_CACHE_DIR to another folder"
            if os.access(path, os.W_OK | os.X_OK):
                mark.touch()
        if hasattr(os, "getuid") and path.stat().st_mode & 0o077:
            path.chmod(0o700)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        return f"{path} can't be made or read ({reason}): set VKJIT_CACHE_DIR"
    return "" if os.access(path, os.W_OK | os.X_OK) else f"{path} can't be written: set VKJIT_CACHE_DIR"


# -- digest of the compiler's source files


COMPILER = (
    ".", "backends/codegen", "backends/vulkan/codegen", "backends/vulkan/runtime/printing.py", "compiler", "frontend", "ir",
    "lang", "passes", "runtime/artifact.py", "runtime/device.py", "runtime/matrix_shapes.py", "spirv",
)  # fmt: skip
"""The modules that affect the generated SPIR-V: files and folders of the package, the latter (except `.`) with their
sub-folders.
"""


@functools.cache
def compiler_digest(sources: tuple[str, ...] = COMPILER) -> str:
    """Return a hash of the paths, sizes and times of these source files and of those in these folders.

    The hash is a part of all keys, so that a change of the compiler invalidates all entries. It is computed once per
    process, since later changes of the files don't affect the code that is already loaded. The versions of Python and
    NumPy are hashed, too.
    """
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    parts: list[Any] = [root, *sys.version_info[:2], np.__version__, sys.byteorder]
    for source in sources:
        path = os.path.join(root, source)
        if source.endswith(".py"):
            _describe_file(path, os.stat(path), parts)
        else:
            _describe_folder(path, source != ".", parts)
    return hashlib.sha256(repr(parts).encode(errors="surrogatepass")).hexdigest()


def _describe_file(name: str, status: os.stat_result, parts: list[Any]) -> None:
    parts += (name, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _describe_folder(folder: str, nested: bool, parts: list[Any]) -> None:
    """Append a description of a folder's source files to `parts`, including its sub-folders if `nested`."""
    parts.append(folder)
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=operator.attrgetter("name"))
    for entry in ordered:
        if entry.name.endswith((".py", ".lark")):
            _describe_file(entry.name, entry.stat(), parts)
        elif nested and entry.name != "__pycache__" and entry.is_dir():
            _describe_folder(entry.path, nested, parts)


# -- files


def _read(path: Path) -> bytes | None:
    """Read a file of the cache. Return None if it doesn't exist or isn't a regular file owned by this user."""
    # without O_NONBLOCK, opening a pipe waits for its other end
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or (hasattr(os, "getuid") and status.st_uid != os.getuid()):
            return None
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(handle)


def _write(path: Path, data: bytes) -> bool:
    """Write a file atomically, as a temporary file that is then renamed. Return True on success."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix="vkjit-", suffix=".tmp")
    except OSError:
        _unusable_reason.cache_clear()  # the folder may have been deleted; the next call recreates it
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
    """Return the artifact stored under the key, or None."""
    folder = _folder("kernels")
    if folder is None:
        return None
    path = _path(folder, key)
    data = _read(path)
    artifact = _decode(data, key) if data is not None else None
    if artifact is not None:
        with contextlib.suppress(OSError):  # another process may have evicted the entry; the data read is still valid
            os.utime(path)
    return artifact


def store(key: str, artifact: KernelArtifact) -> None:
    """Store an artifact under the key; do nothing for an empty key. Failures are ignored."""
    folder = _folder("kernels")
    if folder is not None and key and _write(_path(folder, key), _encode(artifact, key)):
        _evict(folder)


def load_pipelines(name: str) -> bytes:
    """Return the Vulkan pipeline cache data stored under the name, without validating it; b"" if there is none."""
    folder = _folder("pipelines") if _switched_on() else None
    return (_read(folder / f"{name}.bin") or b"") if folder is not None else b""


def store_pipelines(name: str, data: bytes) -> None:
    """Store the pipeline cache data of a Vulkan driver under a name. Failures are ignored."""
    folder = _folder("pipelines") if _switched_on() else None
    if folder is not None and len(data) <= _size_cap():
        _remove_abandoned(folder)
        _write(folder / f"{name}.bin", data)


def load_machine_code(name: str) -> bytes | None:
    """Return the machine code of the host stored under a name, after checking its checksum; None if there is none."""
    data = read_file("machine", f"{name}.bin") or b""
    body = data[len(MAGIC) + 32 :]
    return body if data[: len(MAGIC) + 32] == MAGIC + hashlib.sha256(body).digest() else None


def store_machine_code(name: str, body: bytes) -> None:
    """Store machine code of the host under a name. Failures are ignored."""
    write_file("machine", f"{name}.bin", MAGIC + hashlib.sha256(body).digest() + body)


def read_file(folder: str, name: str) -> bytes | None:
    """Return the content of a file in a folder of the cache, without validating it; None if this user has no such file.

    `folder` and `name` are the names of the folder and the file.
    """
    path = _folder(folder) if _switched_on() else None
    return _read(path / name) if path is not None else None


def write_file(folder: str, name: str, data: bytes) -> bool:
    """Write a file into the folder named `folder` of the cache atomically. Return True on success."""
    path = _folder(folder) if _switched_on() else None
    if path is None:
        return False
    _remove_abandoned(path)
    return _write(path / name, data)


def read_files(folder: str, suffix: str) -> Iterator[bytes]:
    """Yield the contents of the files in a folder of the cache whose names end in `suffix`."""
    path_of_folder = _folder(folder)
    if path_of_folder is None:
        return
    for path in sorted(path_of_folder.glob(f"*{suffix}")):
        data = _read(path)
        if data is not None:
            yield data


def remove_files(folder: str, suffix: str) -> int:
    """Delete the files in a folder of the cache whose names end in `suffix`, and leftover temporary files there.

    A folder that is a symbolic link is left alone. Returns the number of deleted files.
    """
    path = _folder(folder)
    if path is None or path.is_symlink():
        return 0
    return sum(_remove(file) for pattern in (f"*{suffix}", "vkjit-*.tmp") for file in path.glob(pattern))


# -- housekeeping


def _size_cap() -> int:
    """Return the size limit of the kernels in bytes. Raises ArgumentError if VKJIT_CACHE_SIZE is invalid."""
    text = os.environ.get("VKJIT_CACHE_SIZE", "")
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise ArgumentError(f"VKJIT_CACHE_SIZE is {text[:40]!r}: expected a number of bytes, such as {SIZE_CAP}")
    return int(text) if text else SIZE_CAP


def _listed(folder: Path) -> list[tuple[float, int, Path]]:
    """Return (time of last use, size in bytes, path) of each entry, least recently used first."""
    listed = []
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if _ENTRY_NAME.fullmatch(item.name):
                with contextlib.suppress(OSError):  # deleted in the meantime
                    status = item.stat(follow_symlinks=False)
                    listed.append((status.st_mtime, status.st_size, Path(item.path)))
    return sorted(listed)


def _evict(folder: Path) -> None:
    """Delete abandoned temporary files, and the least recently used entries until the cache is within its size limit.

    Only about 1 in 32 calls, chosen at random, does this. The others return at once.
    """
    random_byte = int.from_bytes(os.urandom(1), "little")
    if random_byte >= 256 // 32:
        return
    by_last_use = _listed(folder)
    total, cap = sum(size for _, size, _ in by_last_use), _size_cap()
    for _, size, path in by_last_use:
        if total <= cap:
            break
        _remove(path)
        total -= size
    _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    """Delete temporary files that killed processes left in a folder."""
    now = time.time()
    for path in folder.glob("vkjit-*.tmp"):
        with contextlib.suppress(OSError):
            if now - path.lstat().st_mtime > ABANDONED_SECONDS:
                path.unlink()


def _remove(path: Path) -> bool:
    """Delete a file. Return True on success."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in the folder `kernels`.

    `name` is the kernel's name, "" if the file is damaged; `used` is the time of the last use, in seconds since 1970.
    """

    path: Path
    name: str
    nbytes: int
    used: float


def entries() -> list[Entry]:
    """Return all entries, most recently used first. Each file is read and its checksum is verified."""
    folder = _folder("kernels")
    result = []
    for used, nbytes, path in reversed(_listed(folder) if folder is not None else []):
        artifact = _decode(_read(path) or b"", path.stem)
        result.append(Entry(path, artifact.name if artifact is not None else "", nbytes, used))
    return result


def verify() -> tuple[int, list[Path]]:
    """Check all entries and delete the damaged ones. Return the number of valid entries and the deleted paths."""
    all_entries = entries()
    damaged = [entry.path for entry in all_entries if not entry.name]
    for path in damaged:
        _remove(path)
    return len(all_entries) - len(damaged), damaged


def statistics() -> dict[str, Any]:
    """Return the directory, the number of kernels, and the sizes of the kernels and of the pipeline caches in bytes."""
    folder, pipelines = _folder("kernels"), _folder("pipelines")
    kernels = _listed(folder) if folder is not None else []
    with contextlib.suppress(RuntimeError):
        return {
            "directory": str(directory()),
            "entries": len(kernels),
            "bytes": sum(size for _, size, _ in kernels),
            "pipeline_bytes": sum(p.stat().st_size for p in pipelines.glob("*.bin")) if pipelines is not None else 0,
        }
    # `directory` has raised the RuntimeError
    return {"directory": "none", "entries": 0, "bytes": 0, "pipeline_bytes": 0}


def clear() -> int:
    """Delete all kernels, pipeline caches and machine code, and leftover temporary files. Return the number of deleted files."""
    return sum(remove_files(*pair) for pair in (("kernels", ".vkjit"), ("pipelines", ".bin"), ("machine", ".bin")))


# -- the file format


def _encode(artifact: KernelArtifact, key: str) -> bytes:
    """Encode an artifact as the content of a file in `kernels`. The module docstring describes the format."""
    unknown = artifact.info.keys() - _INFO
    if unknown:
        raise InternalError(
            f"the cache doesn't know how to keep {', '.join(sorted(unknown))} of kernel {artifact.name}"
        )
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
    """Decode the content of a file in `kernels`.

    Returns None unless the content is complete and unaltered and was stored under this key.
    """
    start = len(MAGIC) + _DIGEST_BYTES
    if not data.startswith(MAGIC) or len(data) < start + 4:  # the header's length has 4 bytes
        return None
    body = memoryview(data)[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        return None
    (length,) = struct.unpack_from("<I", body)
    try:
        header = json.loads(bytes(body[4 : 4 + length]))
        return _artifact(header, bytes(body[4 + length :])) if header["key"] == key else None
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        RecursionError,
    ):  # intact, but of another format version
        return None


def _artifact(header: dict[str, Any], code: bytes) -> KernelArtifact:
    """Return the artifact that a header and code describe."""
    return KernelArtifact(
        name=header["name"],
        code=code,
        entry=header["entry"],
        local_size=(header["local_size"][0], header["local_size"][1], header["local_size"][2]),
        fields=tuple(
            ArgField(role, arg, axis, dtypes.by_name[dtype], offset, size)
            for role, arg, axis, dtype, offset, size in header["fields"]
        ),
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
    """Return the sorted items of a dict with int keys as a list, since keys of JSON objects are strings."""
    return sorted(by_site.items())


def _bound_to_json(bound: TripBound) -> Any:
    from ..passes.analysis.trip_bound import bound_to_json  # imported late: it imports the IR

    return bound_to_json(bound)


def _bound_from_json(data: Any) -> TripBound | None:
    from ..passes.analysis.trip_bound import bound_from_json

    return bound_from_json(data)


_INFO: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grid_axes": (list, tuple),
    "unwritten_reads": (
        lambda reads: [(number, (loc.file, loc.line, loc.col, loc.end)) for number, loc in reads.items()],
        lambda rows: {number: Loc(*loc) for number, loc in rows},
    ),
    "trip_bound": (_bound_to_json, _bound_from_json),
    "report_values": (_rows, lambda rows: {site: tuple(kinds) for site, kinds in rows}),
    "print_values": (_rows, lambda rows: {site: tuple(map(tuple, kinds)) for site, kinds in rows}),
    "print_local": (list, tuple),
    "stack_bytes": (int, int),
}
"""Maps each key of `KernelArtifact.info` to a pair of functions that convert the value to JSON data and back."""
