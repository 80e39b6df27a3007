"""Helpers of the interpreter's tests: build kernels from text or from one operation, and run them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.interp import run_module
from vkjit.dtypes import DType
from vkjit.ir import Array, Builder, Function, Module, Region, Scalar, Vector, semantics, verify
from vkjit.ir.ops import OPS, op_name
from vkjit.ir.parser import parse_module


def kernel(arguments: str, body: str, local: tuple[int, int, int] = (64, 1, 1), before: str = "") -> Module:
    """Build and verify a module with one kernel; `before` holds locations and functions."""
    text = (
        f"{before}\nkernel @k({arguments}) attrs {{local_size = ({local[0]}, {local[1]}, {local[2]})}} {{\n{body}\n}}\n"
    )
    module = parse_module(text.lstrip("\n"))
    verify(module)
    return module


def run(module: Module, groups: Any, *args: Any, **options: Any) -> list[str]:
    return run_module(module, groups, args, **options)


def storage_of(values: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Convert values from the interpreter's representation to the memory format."""
    if dtype is dtypes.bf16:
        halves: npt.NDArray[Any] = np.asarray(values, np.float32).view(np.uint32) >> np.uint32(16)
        return halves.astype(np.uint16)
    return np.asarray(values).astype(dtype.storage)


def carried(raw: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Convert values from the memory format to the interpreter's representation; the inverse of `storage_of`."""
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32) if dtype is dtypes.bf16 else raw


def one_op(
    name: str, sources: Sequence[DType], result: DType, size: int = 0, attrs: dict[str, Any] | None = None
) -> Module:
    """Build a kernel `out[i] = op(in0[i], in1[i]...)` over 64 invocations, on vectors if `size` is given."""

    def element(dtype: DType) -> Scalar | Vector:
        return Vector(dtype, size) if size else Scalar(dtype)

    types = [Array(element(dtype), 1, access="in") for dtype in sources]
    body = Region([*types, Array(element(result), 1, access="out")])
    builder = Builder(body)
    i = builder.emit("global_id", dim=0)
    loaded = [builder.emit("load", array, i) for array in body.args[:-1]]
    extra = dict(attrs or {})
    if "type" in OPS[op_name(name)].attrs:
        extra["type"] = element(result)
    builder.op("store", body.args[-1], i, builder.emit(op_name(name), *loaded, **extra))
    builder.op("return")
    module = Module(Function("k", body, attrs={"local_size": (64, 1, 1)}))
    verify(module)
    return module


_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.25, 1e-3, 100.0, -7.0, np.inf, -np.inf, np.nan, 2.0, 1.5, -0.75]


def samples(dtype: DType, count: int = 64, seed: int = 0) -> npt.NDArray[Any]:
    """Return test values of a dtype in the interpreter's representation: special values first, then random ones."""
    rng = np.random.default_rng(seed)
    if dtype is dtypes.boolean:
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_float:
        special = rng.permutation(np.array(_FLOATS))
        values = np.concatenate([special, rng.normal(0, 4, count - len(special))]).astype(dtype.numpy)
        return semantics.to_bf16(values) if dtype is dtypes.bf16 else values
    info = np.iinfo(dtype.numpy)
    special = rng.permutation(
        np.array([info.min, info.max, 0, 1, info.max - 1, 2, 7, info.max // 3], dtype=dtype.numpy)
    )
    small = rng.integers(0, 40, 20).astype(dtype.numpy)
    rest = rng.integers(info.min, info.max, count - len(special) - 20, dtype=dtype.numpy)
    return np.concatenate([special, small, rest])
