"""Dictionaries of tensors in safetensors files, which contain no pickled code and can be read by other frameworks.

All values are preserved bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..backends.selection import device as open_device
from ..errors import ArgumentError
from ..launch import host_arrays
from ..runtime.device import Device, DeviceArray, contiguous_strides
from ..tensor import api as _api  # noqa: F401  # installs the tensor methods
from ..tensor.memory import allocate
from ..tensor.tensor import Tensor
from .format import Contents, Entry, PathLike, read, write

__all__ = ["load", "metadata", "save", "upload"]


def save(tensors: Mapping[str, Tensor], path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name, and optional metadata strings, to a file, which is replaced atomically.

    Waits for the devices to compute the tensors. Tensors that share memory are each written in full. Raises
    ArgumentError for values that are no tensors.
    """
    if not isinstance(tensors, Mapping):
        raise ArgumentError(
            f"save() takes a mapping of names to tensors, and then the path, found {type(tensors).__name__} first"
        )
    rows = []
    for name, tensor in tensors.items():
        if not isinstance(name, str) or name == "__metadata__" or not _is_unicode(name):
            raise ArgumentError(
                f"{name!r} can't be the name of a tensor: names are strings of Unicode other than __metadata__"
            )
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{name!r} is a {type(tensor).__name__}, expected a tensor: save other values in a checkpoint"
            )
        rows.append((name, tensor.dtype, np.asarray(host_arrays.fetch(tensor._array)).reshape(tensor.shape)))
    notes = dict(metadata or {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in notes.items()):
        raise ArgumentError("metadata maps strings to strings: write other values as JSON")
    write(path, rows, notes)


def _is_unicode(text: str) -> bool:
    """Return True if the string can be encoded as UTF-8, that is, has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def upload(contents: Contents, device: Any = None) -> dict[str, Tensor]:
    """Return the tensors of a parsed file, on a device (default: the default device)."""
    target = open_device(device)
    tensors: dict[str, Tensor] = {}
    for name, entry in contents.entries.items():
        array = _mapped(contents, entry, target)
        if array is None:
            array = allocate(entry.shape, entry.dtype, target)
            if entry.end > entry.start:
                target.write(array.buffer, 0, np.asarray(contents.data[entry.start : entry.end]))
        tensors[name] = Tensor(array)
    return tensors


def _mapped(contents: Contents, entry: Entry, device: Device) -> DeviceArray | None:
    """Return an array that uses the memory-mapped file without a copy; None if device or alignment don't allow it."""
    nbytes = entry.end - entry.start
    part = np.asarray(contents.data[entry.start : entry.end])
    address = part.ctypes.data
    # buffers consist of whole, aligned 32-bit words
    if not nbytes or nbytes % 4 or address % max(entry.dtype.itemsize, 4):
        return None
    buffer = device.adopt(address, nbytes, part)
    if buffer is None:
        return None
    return DeviceArray(buffer, 0, entry.dtype, entry.shape, contiguous_strides(entry.shape))


def load(path: PathLike, device: Any = None) -> dict[str, Tensor]:
    """Return a file's tensors by name, on a device (default: the default device).

    If the device computes on host memory, the tensors use the memory-mapped file without a copy: pages are read from
    disk on first use, and changes aren't written to the file. Such a file must not be truncated while the tensors
    exist. Raises ArgumentError if the file can't be read or is invalid, DTypeError for unsupported element types.
    """
    return upload(read(path), device)


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata strings of a file without reading its tensors."""
    return read(path).metadata
