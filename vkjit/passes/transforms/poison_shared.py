"""Fill the shared memory of debug kernels with poison at their start, to expose reads of uninitialized memory.

Takes a kernel in normal form (see `ir.verify`) without calls, in which arrays are accessed by linear offsets::

    %s = shared : shared<f32, 256>    ->     %s = shared : shared<f32, 256>          (at the kernel's start)
                                             for %k = 0, 4, 1 { store %s, %k * 64 + %local, nan }
                                             barrier

1. As in the interpreter, floats are filled with NaN, booleans with true, and integers with the byte 0xAA.
2. The bounds of the inserted loop are constants, so the kernel's total trip count stays bounded (see `trip_bound`).
3. Only kernels with the attribute `debug` are changed. Sanitized kernels aren't, as the sanitizer checks each read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.types import I32, Array

__all__ = ["POISON_BYTE", "PoisonShared"]

POISON_BYTE = 0xAA
"""The byte with which integers are filled."""


@dataclass(frozen=True, slots=True)
class PoisonShared:
    """Fill shared arrays of debug kernels with poison."""

    name: ClassVar[str] = "poison_shared"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        if not kernel.attrs.get("debug") or kernel.attrs.get("sanitize"):
            return module
        arrays: list[Op] = [op for op in kernel.body.walk() if op.name == "shared"]
        if not arrays:
            return module
        _remove_allocations(kernel.body)
        builder = Builder(Region(), kernel.loc)
        builder.region.ops += arrays
        local = _local_index(builder, kernel.attrs["local_size"])
        size = math.prod(kernel.attrs["local_size"])
        for op in arrays:
            _fill(builder, op.result, local, size)
        if size > 1:
            builder.op("barrier")
        kernel.body.ops[:0] = builder.region.ops
        return module


def _remove_allocations(region: Region) -> None:
    """Remove the allocations of shared arrays, which move to the kernel's start."""
    region.ops = [op for op in region.ops if op.name != "shared"]
    for op in region.ops:
        for inner in op.regions:
            _remove_allocations(inner)


def _local_index(builder: Builder, sizes: tuple[int, int, int]) -> Value:
    """Emit the linear index of the invocation in its workgroup."""
    number = builder.const(0, I32)
    for dim in (2, 1, 0):
        scaled = builder.emit("mul", number, builder.const(sizes[dim], I32))
        number = builder.emit("add", scaled, builder.cast(builder.emit("local_id", dim=dim), I32))
    return number


def _fill(builder: Builder, array: Value, local: Value, size: int) -> None:
    """Emit the loop that fills an array with poison.

    Each of the `size` invocations fills every `size`-th element, beginning at index `local`, its index in the
    workgroup.
    """
    kind = array.type
    assert isinstance(kind, Array)
    count = math.prod(kind.shape or ())
    body = Region([I32], ["k"])
    with builder.at(body):
        index = builder.emit("add", builder.emit("mul", body.args[0], builder.const(size, I32)), local)
        value = builder.const(_poison(kind.dtype), kind.element)
        if count % size:
            with builder.when(builder.emit("lt", index, builder.const(count, I32))):
                builder.op("store", array, index, value)
        else:
            builder.op("store", array, index, value)
        builder.op("continue")
    trip_count = -(-count // size)  # rounded up
    low, high, step = (builder.const(number, I32) for number in (0, trip_count, 1))
    builder.op("for", low, high, step, types=[], regions=[body])


def _poison(dtype: DType) -> Any:
    """Return the poison of a dtype as a Python number (rule 1)."""
    if dtype.is_float:
        return math.nan
    if dtype.kind == "bool":
        return True
    return int(np.frombuffer(bytes([POISON_BYTE]) * dtype.numpy.itemsize, dtype.numpy)[0])
