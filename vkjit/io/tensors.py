"""Dictionaries of tensors in safetensors files: no pickle, readable by every framework.

Enters: tensors by name, as `state_dict` gives them. Leaves: a file, and tensors from a file. All element types are
kept bit by bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import staging
from ..devices import device as open_device
from ..errors import ArgumentError
from ..runtime.interface import Device, DeviceArray, contiguous_strides
from ..tensor import api as _api  # noqa: F401  # puts the methods on Tensor
from ..tensor import creation
from ..tensor.tensor import Tensor
from .format import Contents, Entry, PathLike, read, write

__all__ = ["load", "metadata", "save", "upload"]


def save(tensors: Mapping[str, Tensor], path: PathLike, metadata: Mapping[str, str] | None = None) -> None:
    """Writes tensors and strings that describe them; the file appears whole or not at all. Waits for the device.

    Names that share memory are each written in full. Raises ArgumentError for a value that is no tensor.
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
        rows.append((name, tensor.dtype, np.asarray(staging.fetch(tensor._array)).reshape(tensor.shape)))
    notes = dict(metadata or {})
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in notes.items()):
        raise ArgumentError("metadata maps strings to strings: write other values as JSON")
    write(path, rows, notes)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def upload(contents: Contents, device: Any = None) -> dict[str, Tensor]:
    """The tensors of an opened file on a device."""
    target = open_device(device)
    found: dict[str, Tensor] = {}
    for name, entry in contents.entries.items():
        array = _adopted(contents, entry, target)
        if array is None:
            array = creation.allocate(entry.shape, entry.dtype, target)
            if entry.end > entry.start:
                target.write(array.buffer, 0, np.asarray(contents.data[entry.start : entry.end]))
        found[name] = Tensor(array)
    return found


def _adopted(contents: Contents, entry: Entry, device: Device) -> DeviceArray | None:
    """A tensor whose memory is the mapped file, where the device works on the host's memory and its place allows it."""
    nbytes = entry.end - entry.start
    part = np.asarray(contents.data[entry.start : entry.end])
    address = part.ctypes.data
    if not nbytes or nbytes % 4 or address % max(entry.dtype.itemsize, 4):
        return None
    buffer = device.adopt(address, nbytes, part)
    if buffer is None:
        return None
    return DeviceArray(buffer, 0, entry.dtype, entry.shape, contiguous_strides(entry.shape))


def load(path: PathLike, device: Any = None) -> dict[str, Tensor]:
    """The tensors of a file by name, on a device (default: the default device). A device that works on the host's memory gets
    the file's pages without a copy, read from disk when they are first used; changes stay in memory. Such a file must not be
    cut off while the tensors live.

    Raises ArgumentError for a file that can't be read or isn't in the format, DTypeError for element types that vkjit
    lacks.
    """
    return upload(read(path), device)


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The strings that describe a file's tensors; the tensors aren't read."""
    return read(path).metadata
