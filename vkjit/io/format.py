"""Reader and writer of the safetensors format, in terms of NumPy arrays.

A file consists of the header's length (8 bytes, little-endian), a JSON header, and the tensors' bytes without gaps. The
header maps each tensor's name to its dtype, shape and byte range, and "__metadata__" to an object of strings. Files are
written atomically; that also deletes temporary files that killed processes left in the folder. Reading validates the
header; the data are read, or memory-mapped, with `Contents.opened`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..files import PathLike, replacing, resolved

__all__ = ["Contents", "Entry", "PathLike", "read", "write"]

Bytes = npt.NDArray[np.uint8]

_TYPES: dict[str, DType] = {
    "BOOL": dtypes.boolean, "U8": dtypes.u8, "I8": dtypes.i8, "U16": dtypes.u16, "I16": dtypes.i16, "U32": dtypes.u32,
    "I32": dtypes.i32, "U64": dtypes.u64, "I64": dtypes.i64, "F16": dtypes.f16, "BF16": dtypes.bf16, "F32": dtypes.f32,
    "F64": dtypes.f64,
}  # fmt: skip
"""Element types by their names in the format."""
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_LONGEST_HEADER = 100_000_000
"""Upper bound for the header's length in bytes, the same as in the reference implementation."""
_MAX_AXES = 64
_LARGEST = 2**63 - 1
"""Upper bound for the product of a shape's nonzero extents."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file: element type, shape, and its byte range [start, end) after the header."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


Stamp = tuple[int, int, int, int]
"""Device, inode, size and time of the last change of a file, by which a changed file is recognized."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A parsed header: entries by tensor name, metadata, and the offset in the file at which the data begin."""

    entries: dict[str, Entry]
    metadata: dict[str, str]
    path: PathLike
    start: int
    stamp: Stamp

    @contextlib.contextmanager
    def opened(self, mapped: bool) -> Iterator[Callable[[Entry], Bytes]]:
        """Yield a function that returns an entry's bytes: in memory of their own, or `mapped` from the file.

        Raises ArgumentError if the file isn't the one whose header was read or has changed when the block ends.
        """
        with _open(self.path) as file:
            self._check(file)
            # copy-on-write: changes stay in memory
            pages = np.memmap(file, np.uint8, "c") if mapped else None

            def values(entry: Entry) -> Bytes:
                begin, end = self.start + entry.start, self.start + entry.end
                if pages is not None:
                    return np.asarray(pages[begin:end])
                part = np.empty(end - begin, np.uint8)
                file.seek(begin)
                unread = part.data
                # in a loop: Linux reads at most 2 GiB - 4 KiB at a time
                while unread and (count := file.readinto(unread)):
                    unread = unread[count:]
                if unread:
                    raise self._changed()
                return part

            yield values
            self._check(file)

    def _check(self, file: FileIO) -> None:
        if _stamp(file) != self.stamp:
            raise self._changed()

    def _changed(self) -> ArgumentError:
        return ArgumentError(f"{os.fspath(self.path)} changed while it was read: load it when it is complete")


# -- writing


def write(path: PathLike, tensors: Sequence[tuple[str, DType, npt.NDArray[Any]]], metadata: Mapping[str, str]) -> None:
    """Write a file of tensors, given as (name, dtype, values), and metadata; an existing file is replaced atomically.

    `values` are in the dtype's NumPy storage type, which for bf16 is an unsigned integer.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    # larger elements first, so that each is aligned to its size
    ordered = sorted(tensors, key=lambda item: (-item[1].itemsize, item[0]))
    for name, dtype, values in ordered:
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(values.shape),
            "data_offsets": [position, position + values.nbytes],
        }
        position += values.nbytes
    header_bytes = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)  # the data begin at a multiple of 8 bytes
    target = resolved(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no ordinary file"
        raise ArgumentError(f"{os.fspath(path)} is {what}: tensors are saved to ordinary files")
    with replacing(target) as file:
        file.write(len(header_bytes).to_bytes(8, "little"))
        file.write(header_bytes)
        for _, _, values in ordered:
            file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)


# -- reading


def read(path: PathLike) -> Contents:
    """Parse a file. Raises ArgumentError, with the reason, if it can't be read or violates the format."""
    name = os.fspath(path)
    with _open(path) as file:
        stamp = _stamp(file)
        size = stamp[2]
        prefix = file.read(8)
        if len(prefix) < 8:
            raise _broken(name, f"it has {len(prefix)} bytes, fewer than the 8 that give the header's length")
        length = int.from_bytes(prefix, "little")
        if length > min(_LONGEST_HEADER, size - 8):
            raise _broken(
                name, f"its header would have {length} bytes, the file has {size}: cut off, or no safetensors file"
            )
        text = file.read(length)
    try:
        header = json.loads(text.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise _broken(name, f"its header is no JSON of tensors: {error}") from error
    if not isinstance(header, dict):
        raise _broken(name, "its header is no JSON object")
    notes = header.pop("__metadata__", {})
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        raise _broken(name, "its metadata doesn't map strings to strings")
    entries = {key: _entry(name, key, value) for key, value in header.items()}
    _check_cover(name, entries, size - 8 - length)
    return Contents(entries, notes, path, 8 + length, stamp)


def _open(path: PathLike) -> FileIO:
    """Open an ordinary file for reading. Raises ArgumentError for others: a pipe could block forever."""
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError("it is no ordinary file")
        return FileIO(path)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise ArgumentError(f"{name} can't be read as a safetensors file: {error}") from error


def _stamp(file: FileIO) -> Stamp:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. Raises ValueError for duplicate names, because readers differ in which of them they use."""
    result = dict(pairs)
    if len(result) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        raise ValueError(f"it has {next(name for name in counts if counts[name] > 1)!r} more than once")
    return result


def _broken(file: str, reason: str) -> ArgumentError:
    """Return the error for a file that violates the format."""
    return ArgumentError(f"{file} is no valid safetensors file: {reason}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _entry(file: str, name: str, value: Any) -> Entry:
    """Validate a tensor's entry in the JSON header. Raises ArgumentError, or DTypeError for unsupported dtypes."""
    if not isinstance(value, dict) or not {"dtype", "shape", "data_offsets"} <= set(value):
        raise _broken(file, f"{name} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = _TYPES.get(str(value["dtype"])), value["shape"], value["data_offsets"]
    if dtype is None:
        raise DTypeError(f"{file}: {name} holds {value['dtype']}, expected one of {', '.join(_TYPES)}")
    if isinstance(shape, list) and len(shape) > _MAX_AXES:
        raise _broken(file, f"{name} has {len(shape)} axes, up to {_MAX_AXES} are possible")
    if not isinstance(shape, list) or not all(map(_is_count, shape)) or math.prod(n for n in shape if n) > _LARGEST:
        raise _broken(file, f"the shape of {name} is {shape}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)):
        raise _broken(file, f"data_offsets of {name} are {offsets}")
    needed = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != needed:
        raise _broken(
            file, f"{name} of shape {shape} needs {needed} bytes, its offsets {offsets} give {offsets[1] - offsets[0]}"
        )
    return Entry(dtype, tuple(shape), offsets[0], offsets[1])


def _check_cover(file: str, entries: Mapping[str, Entry], size: int) -> None:
    """Raise ArgumentError unless the entries cover the data exactly, without overlaps or gaps. `size` is in bytes."""
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].end)):
        if entry.start != position:
            raise _broken(file, f"{name} begins at byte {entry.start} of the data, expected {position}")
        position = entry.end
    if position != size:
        raise _broken(
            file, f"its tensors take {position} bytes, the file has {size} after the header: cut off or padded"
        )
