"""Models in safetensors files: the configuration as JSON in the metadata, the state as tensors.

Other programs can read the tensors. If the device computes on host memory, loaded tensors use the memory-mapped file
without a copy (see `tensors.load`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ..backends.selection import device as open_device
from ..errors import ArgumentError
from ..nn.config import Classes, from_config, to_config
from ..nn.modules.module import Module
from .format import PathLike, read
from .tensors import save, upload

__all__ = ["load_model", "save_model"]

FORMAT = "vkjit-model"


def save_model(path: PathLike, model: Module, metadata: Mapping[str, str] | None = None) -> None:
    """Write a model's configuration (`nn.to_config`) and state to a file, which is replaced atomically.

    `metadata` are further strings to store. Raises ArgumentError for models that a configuration can't describe, and
    for metadata named "format" or "config".
    """
    taken = sorted({"format", "config"} & set(metadata or {}))
    if taken:
        raise ArgumentError(f"metadata of a model can't have {' and '.join(taken)}: the file needs the name itself")
    text = json.dumps(to_config(model), separators=(",", ":"), allow_nan=False)
    save(model.state_dict(), path, {**(metadata or {}), "format": FORMAT, "config": text})


def load_model(path: PathLike, device: Any = None, classes: Classes | None = None, *, copy: bool = True) -> Any:
    """Load a model, in training mode, to a device (default: the default device).

    `classes` maps the names of the caller's own module classes to the classes. No code is loaded from the file, and
    only constructors of `vk.nn` and of `classes` are run. `copy=False` maps the file, as for `vk.io.load`. Raises
    ArgumentError if the file can't be read, holds no model, or names unknown classes.
    """
    name, contents, target = os.fspath(path), read(path), open_device(device)
    if contents.metadata.get("format") != FORMAT or "config" not in contents.metadata:
        raise ArgumentError(f"{name} holds no model: vk.io.load reads tensors, vk.io.load_checkpoint reads checkpoints")
    try:
        config = json.loads(contents.metadata["config"])
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{name} is damaged: its model's configuration is no JSON ({error})") from error
    model = from_config(config, classes=classes, device="meta")  # without memory for its tensors
    state = upload(contents, target, copy=copy)
    if any(module._buffers[name] is not None for module in model.modules() for name in module._non_persistent):
        # the file doesn't contain non-persistent buffers: have the constructors compute them
        model = from_config(config, classes=classes, device=target)
        model.load_state_dict(state, assign=True)
        return model
    return model.materialize(target, state)
