"""Cooperative matrix shapes that the interpreter supports: those of common devices, or those listed in a file.

The environment variable VKJIT_INTERPRETER_MATRICES is the path of a JSON file: a list of objects with the fields m, n,
k, a, b, c (and result, if it differs from c), as in a device's `caps.matrices`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vkjit import dtypes
from vkjit.errors import DeviceError
from vkjit.runtime.device import MatrixShape

__all__ = ["VARIABLE", "common_matrices", "interpreter_matrices", "read_matrices"]

VARIABLE = "VKJIT_INTERPRETER_MATRICES"


def _common() -> Iterator[MatrixShape]:
    for m, n, k in ((16, 16, 16), (16, 8, 16), (16, 8, 8), (8, 16, 16)):
        for result in ("f16", "f32"):
            yield MatrixShape(m, n, k, "f16", "f16", result, result)
    yield MatrixShape(16, 16, 16, "bf16", "bf16", "f32", "f32")
    for n in (16, 8):
        yield MatrixShape(16, n, 32, "i8", "i8", "i32", "i32")
        yield MatrixShape(16, n, 32, "u8", "u8", "u32", "u32")
    for kind in ("f32", "f64"):
        yield MatrixShape(8, 8, 4, kind, kind, kind, kind)


def common_matrices() -> tuple[MatrixShape, ...]:
    """Return shapes that devices of several vendors support."""
    return tuple(_common())


def interpreter_matrices() -> tuple[MatrixShape, ...]:
    """Return the shapes in the file that the environment variable names, else the common ones."""
    path = os.environ.get(VARIABLE, "")
    return read_matrices(Path(path)) if path else common_matrices()


def read_matrices(path: Path) -> tuple[MatrixShape, ...]:
    """Return the shapes listed in a file. Raises DeviceError if the file can't be read as such a list."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeviceError(f"{VARIABLE}: {path} can't be read: {error}") from None
    if not isinstance(rows, list):
        raise DeviceError(f"{VARIABLE}: {path} holds no list")
    return tuple(_shape(path, row) for row in rows)


def _shape(path: Path, row: Any) -> MatrixShape:
    found = dict(row) if isinstance(row, dict) else {}
    found.setdefault("result", found.get("c"))
    sizes = [found.get(name) for name in ("m", "n", "k")]
    kinds = [found.get(name) for name in ("a", "b", "c", "result")]
    good = all(type(size) is int and 1 <= size <= 1024 for size in sizes)
    if not good or not all(kind in dtypes.by_name and kind != "bool" for kind in kinds):
        raise DeviceError(
            f"{VARIABLE}: {path} has the row {row!r}: expected m, n, k from 1 to 1024 and the names of the element types "
            "a, b, c"
        )
    m, n, k = (int(size or 0) for size in sizes)
    a, b, c, result = map(str, kinds)
    return MatrixShape(m, n, k, a, b, c, result)
