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
from .format import Bytes, Contents, Entry, PathLike, read, write

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
    if not all(isinstance(text, str) and _is_unicode(text) for pair in notes.items() for text in pair):
        raise ArgumentError("metadata maps strings of Unicode to strings of Unicode: write other values as JSON")
    write(path, rows, notes)


def _is_unicode(text: str) -> bool:
    """Return True if the string can be encoded as UTF-8, that is, has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def upload(contents: Contents, device: Any = None, *, copy: bool = True) -> dict[str, Tensor]:
    """Return the tensors of a parsed file, on a device (default: the default device); `copy` as for `load`."""
    target = open_device(device)
    tensors: dict[str, Tensor] = {}
    with contents.opened(mapped=not copy) as values:
        for name, entry in contents.entries.items():
            part = values(entry)
            array = _adopted(part, entry, target)
            if array is None:
                array = allocate(entry.shape, entry.dtype, target)
                if len(part):
                    target.write(array.buffer, 0, part)
            tensors[name] = Tensor(array)
    return tensors


def _adopted(part: Bytes, entry: Entry, device: Device) -> DeviceArray | None:
    """Return an array that uses the host memory `part` without a copy; None if device or alignment don't allow it."""
    address = part.ctypes.data
    # buffers consist of whole, aligned 32-bit words
    if not len(part) or len(part) % 4 or address % max(entry.dtype.itemsize, 4):
        return None
    buffer = device.adopt(address, len(part), part)
    if buffer is None:
        return None
    return DeviceArray(buffer, 0, entry.dtype, entry.shape, contiguous_strides(entry.shape))


def load(path: PathLike, device: Any = None, *, copy: bool = True) -> dict[str, Tensor]:
    """Return a file's tensors by name, on a device (default: the default device).

    The tensors have memory of their own: later changes of the file don't change them. With `copy=False`, devices that
    compute on host memory use the memory-mapped file: pages are read from disk on first use, and changes of the tensors
    aren't written to the file. Nobody may then write into the file or shorten it while the tensors exist, or they change
    or the process is killed by SIGBUS; replacing it by renaming, as `save` does, is safe.

    Raises ArgumentError if the file can't be read, is invalid, or changes meanwhile; DTypeError for unsupported element
    types.
    """
    return upload(read(path), device, copy=copy)


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the metadata strings of a file without reading its tensors."""
    return read(path).metadata
