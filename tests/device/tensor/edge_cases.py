"""Edge-case arguments for the operations in `tests/parity/ops/ops.txt`, read from `edge_cases.json`.

`python -m tests.parity.ops.edges` writes the file from PyTorch's samples and results. Arguments are NumPy arrays. They
are changed by kind: "nan" adds NaN, infinities and -0 to floats; "one" cuts every axis to 1; "empty0" to "empty2" cut
one extent to 0. They can be turned into tensors with any strides. Needs no PyTorch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import vkjit as vk
from vkjit import dtypes

__all__ = [
    "FILE",
    "KINDS",
    "Array",
    "Case",
    "arrays",
    "cases",
    "changed",
    "decode",
    "expanded",
    "mapped",
    "noncontiguous",
    "tensors",
]

FILE = Path(__file__).with_name("edge_cases.json")
KINDS = ("plain", "nan", "one", "empty0", "empty1", "empty2")

SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 3e38, 1e-40)


@dataclass(frozen=True, eq=False)
class Array:
    """A tensor argument: its values and the name of its type."""

    values: np.ndarray[Any, Any]
    dtype: str


@dataclass(frozen=True, eq=False)
class Case:
    """Arguments of an operation, and PyTorch's results by kind (None: no result was kept)."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    expected: dict[str, Any]


_NUMPY = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i64": np.int64, "i32": np.int32, "bool": np.bool_}


def _number(value: Any) -> float:
    return float(value)


def decode(value: Any) -> Any:
    """Decode a value of the file: numbers and strings are plain, other values are objects with a key."""
    if isinstance(value, list):
        return [decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if "data" in value:
        numpy_type = _NUMPY[value["type"]]
        data = [_number(v) for v in value["data"]] if value["type"] in ("f32", "f16", "f64") else value["data"]
        return Array(np.array(data, dtype=numpy_type).reshape(value["shape"]), value["type"])
    if "tuple" in value:
        return tuple(decode(v) for v in value["tuple"])
    if "slice" in value:
        return slice(*value["slice"])
    if "number" in value:
        return float(value["number"])
    if "dtype" in value:
        return vk.boolean if value["dtype"] == "bool" else dtypes.by_name[value["dtype"]]
    return {k: decode(v) for k, v in value["dict"].items()} if "dict" in value else Ellipsis


def cases() -> Iterator[Case]:
    """Yield all cases of the file."""
    for row in json.loads(FILE.read_text(encoding="utf-8")):
        yield Case(row["name"], decode({"tuple": row["args"]}), decode({"dict": row["kwargs"]}), row["expected"])


def mapped(value: Any, function: Callable[[Array], Any]) -> Any:
    """Return the value with every array in it replaced."""
    if isinstance(value, Array):
        return function(value)
    if isinstance(value, (list, tuple)):
        items = [mapped(v, function) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return value


def arrays(value: Any) -> list[Array]:
    """Return the arrays in a value, in order."""
    found: list[Array] = []
    mapped(value, found.append)
    return found


def changed(arguments: Any, kind: str) -> Any:
    """Return the arguments changed by `kind`; None if it doesn't apply to them."""
    if kind == "plain":
        return arguments
    if kind == "one":
        return mapped(arguments, lambda a: Array(a.values[(slice(0, 1),) * a.values.ndim], a.dtype))
    if kind == "nan":
        return mapped(arguments, _with_special_values)
    extents = list(dict.fromkeys(e for a in arrays(arguments)[:1] for e in a.values.shape))
    number = int(kind[-1])
    if number >= len(extents):
        return None
    extent = extents[number]
    return mapped(
        arguments, lambda a: Array(a.values[tuple(slice(0, 0 if e == extent else e) for e in a.values.shape)], a.dtype)
    )


def _with_special_values(array: Array) -> Array:
    if array.values.dtype.kind != "f" or not array.values.size:
        return array
    values = array.values.copy()
    flat = values.reshape(-1)
    with np.errstate(over="ignore"):
        flat[::2] = np.resize(np.array(SPECIAL), flat[::2].shape).astype(values.dtype)
    return Array(values, array.dtype)


# -- tensors with any strides


def _tensor(values: Any, dtype: str) -> Any:
    return vk.tensor(values, dtype=decode({"dtype": dtype}))


def tensors(arguments: Any) -> Any:
    """Return the arguments as contiguous tensors."""
    return mapped(arguments, lambda a: _tensor(a.values, a.dtype))


def _poison(values: Any) -> Any:
    return {"f": math.nan, "b": True}.get(values.dtype.kind, 113)


def noncontiguous(arguments: Any) -> Any:
    """Return the arguments as tensors with gaps, reversed axis order in memory and a reversed last axis.

    The gaps are filled with poison values.
    """

    def one(array: Array) -> Any:
        values = array.values
        if not values.ndim:
            memory = np.full(3, _poison(values), values.dtype)
            memory[1] = values
            return _tensor(memory, array.dtype)[1]
        transposed = np.ascontiguousarray(values[..., ::-1].T)
        memory = np.full(tuple(2 * e + 1 for e in transposed.shape), _poison(values), values.dtype)
        inner = tuple(slice(1, None, 2) for _ in transposed.shape)
        memory[inner] = transposed
        return _tensor(memory, array.dtype)[inner].permute(*reversed(range(values.ndim)))[..., ::-1]

    return mapped(arguments, one)


def expanded(arguments: Any) -> tuple[Any, Any]:
    """Return arguments that are constant along their longest axis, as stride-0 views and as copies."""

    def cut(array: Array) -> tuple[Any, Any]:
        values = array.values
        if not values.size or not values.ndim:
            return values, None
        axis = int(np.argmax(values.shape))
        return values.take([0], axis), values.shape

    def as_view(array: Array) -> Any:
        values, shape = cut(array)
        made = _tensor(values, array.dtype)
        return made if shape is None else made.expand(shape)

    def as_copy(array: Array) -> Any:
        values, shape = cut(array)
        return _tensor(values if shape is None else np.broadcast_to(values, shape).copy(), array.dtype)

    return mapped(arguments, as_view), mapped(arguments, as_copy)
