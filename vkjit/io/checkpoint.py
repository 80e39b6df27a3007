"""Checkpoints: complete training state in a single safetensors file, without pickle.

A checkpoint is a tree of dictionaries, lists, tuples, tensors, numbers, strings, booleans and None. It holds, for
example, the states of a model, an optimizer and a schedule, and the epoch. The file's metadata contains the tree as
JSON. Values that JSON lacks are objects with one special key:

    {"$tensor": name}           a tensor, stored in the file under this name
    {"$tuple": [...]}           a tuple
    {"$items": [[key, value]]}  a dictionary with keys that are integers or begin with "$"
    {"$number": "nan"}          a float that isn't finite
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from ..errors import ArgumentError
from ..tensor.tensor import Tensor
from .format import PathLike, read
from .tensors import save, upload

__all__ = ["load_checkpoint", "save_checkpoint"]

FORMAT, VERSION = "vkjit-checkpoint", "1"
_TENSOR, _ITEMS, _TUPLE, _NUMBER = "$tensor", "$items", "$tuple", "$number"
_SPECIAL = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def save_checkpoint(path: PathLike, **parts: Any) -> None:
    """Write a checkpoint of named parts.

    For example: `save_checkpoint("run.safetensors", model=model.state_dict(), optimizer=..., epoch=3)`. The file is
    replaced atomically, so a killed run leaves the last good checkpoint. Raises ArgumentError for unsupported values,
    with their path in the tree.
    """
    tensors: dict[str, Tensor] = {}
    try:
        tree = {name: _encoded(value, name, tensors) for name, value in parts.items()}
        text = json.dumps(tree, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise ArgumentError("a checkpoint can't hold values that are nested so deeply, or in themselves") from None
    except ValueError as error:  # an integer of more digits than Python formats
        raise ArgumentError(f"a checkpoint can't hold one of the values: {error}") from None
    save(tensors, path, {"format": FORMAT, "version": VERSION, "tree": text})


def _encoded(value: Any, path: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a value, which is at `path` in the tree, to JSON types. Its tensors are added to `tensors`."""
    if isinstance(value, Tensor):
        # paths may collide: the key "a.b" in one dictionary, and the key "b" in a dictionary "a"
        while path in tensors:
            path += "'"
        tensors[path] = value
        return {_TENSOR: path}
    if isinstance(value, float) and not math.isfinite(value):
        return {_NUMBER: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return _encoded_mapping(value, path, tensors)
    if isinstance(value, (list, tuple)):
        items = [_encoded(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
        return {_TUPLE: items} if isinstance(value, tuple) else items
    raise ArgumentError(
        f"a checkpoint can't hold {path}, a {type(value).__name__}: "
        f"expected tensors, numbers, strings, lists, dictionaries"
    )


def _encoded_mapping(value: Mapping[Any, Any], path: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a dictionary, as `_encoded` does: to a JSON object if its keys allow that, else to "$items"."""
    for key in value:
        if not isinstance(key, (str, int)) or isinstance(key, bool):
            raise ArgumentError(f"a checkpoint can't hold {path}: its key {key!r} is no string and no int")
    encoded = [(key, _encoded(item, f"{path}.{key}", tensors)) for key, item in value.items()]
    if all(isinstance(key, str) and not key.startswith("$") for key in value):
        return dict(encoded)
    return {_ITEMS: [[key, item] for key, item in encoded]}


def load_checkpoint(path: PathLike, device: Any = None, *, copy: bool = True) -> dict[str, Any]:
    """Read a checkpoint and return its parts by name, with tensors on a device (default: the default device).

    `copy=False` maps the file, as for `vk.io.load`. Raises ArgumentError if the file can't be read, is no checkpoint, or
    is damaged.
    """
    name = os.fspath(path)
    contents = read(path)
    notes = contents.metadata
    if notes.get("format") != FORMAT:
        raise ArgumentError(f"{name} holds tensors but is no checkpoint: read it with vk.io.load")
    if notes.get("version") != VERSION:
        raise ArgumentError(f"{name} is a checkpoint of version {notes.get('version')}, expected {VERSION}")
    try:
        tree = json.loads(notes["tree"])
    except (KeyError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} is damaged: the tree of its values can't be read ({error})") from error
    if not isinstance(tree, dict):
        raise ArgumentError(f"{name} is damaged: the tree of its values is a {type(tree).__name__}")
    tensors = upload(contents, device, copy=copy)
    try:
        return {part: _decoded(value, tensors, name) for part, value in tree.items()}
    except ArgumentError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} is damaged: a value of its tree has an invalid form ({error!r})") from error


def _decoded(value: Any, tensors: Mapping[str, Tensor], file: str) -> Any:
    """Convert a value back from JSON types; the inverse of `_encoded`. `file` is named in error messages."""
    if isinstance(value, list):
        return [_decoded(item, tensors, file) for item in value]
    if not isinstance(value, dict):
        return value
    if _TENSOR in value:
        if value[_TENSOR] not in tensors:
            raise ArgumentError(f"{file} is damaged: it lacks the tensor {value[_TENSOR]!r}")
        return tensors[value[_TENSOR]]
    if _NUMBER in value:
        return _SPECIAL[value[_NUMBER]]
    if _TUPLE in value:
        return tuple(_decoded(item, tensors, file) for item in value[_TUPLE])
    items = value[_ITEMS] if _ITEMS in value else value.items()
    return {key: _decoded(item, tensors, file) for key, item in items}
