"""Tune matrix products: measure the variants of a product of square matrices, for `python -m vkjit tune`.

The measurements are stored in a record. From then on, products of the same types and shapes on a device of the same
name and driver use the best variant (`tuning_lookup`). Before a variant is timed, its result on generated matrices is
checked against that of the default variant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from vkjit.autotune.problem import Candidate, Problem, tune
from vkjit.runtime.device import Device, DeviceArray, contiguous_strides
from vkjit.stdlib.matmul.tuning_lookup import invalidate, product_key
from vkjit.stdlib.matmul.variants import variants_of

__all__ = ["tune_product"]


def tune_product(device: Device, size: int, dtype: Any, budget: float) -> Any:
    """Measure the variants of the product of two `size` x `size` matrices within `budget` seconds; return the record.

    Return None if the device has only one variant.
    """
    a, b, c = (_matrix(device, size, dtype, seed) for seed in (1, 2, 0))
    accumulate = vk.f32 if dtype.is_float and dtype.itemsize < 4 else dtype
    variants = variants_of(a, b, c, accumulate)
    try:
        if len(variants) < 2:
            return None
        candidates = [Candidate(launch, variant_name) for variant_name, launch in variants]
        # relative: the unit roundoff of the type (practically 0 for integers, whose results are exact), times a bound
        # that grows with the square root of the number of additions
        unit_roundoff = 2.0 ** -{"bf16": 8, "f16": 11, "f32": 24, "f64": 53}.get(dtype.name, 60)
        tolerance = unit_roundoff * (8 + 2 * size**0.5)
        problem = Problem(
            f"product of {size} x {size} {dtype.name}", product_key(a, b, c), device, candidates, lambda launch: launch(),
            lambda: [_values(c)], tolerance,
        )  # fmt: skip
        return tune(problem, budget)
    finally:
        device.synchronize()
        invalidate(device)
        for array in (a, b, c):
            array.buffer.close()


def _matrix(device: Device, size: int, dtype: Any, seed: int) -> DeviceArray:
    """Allocate a square matrix of random numbers in [-1, 1), or of small integers; uninitialized for seed 0.

    Its shape is (1, size, size): a batch of one.
    """
    matrix = DeviceArray(
        device.allocate(size * size * dtype.itemsize), 0, dtype, (1, size, size), contiguous_strides((1, size, size))
    )
    if seed:
        rng = np.random.default_rng(seed)
        if dtype.is_float:
            values = (rng.random((size, size)) * 2 - 1).astype(np.float32)
            # bf16 is the upper half of an f32; the lower half is cut off
            high_halves = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
            stored = high_halves if dtype is vk.bf16 else values.astype(dtype.storage)
        else:
            stored = rng.integers(0, 8, (size, size)).astype(dtype.storage)
        device.write(matrix.buffer, 0, np.ascontiguousarray(stored).reshape(-1).view(np.uint8))
    return matrix


def _values(array: DeviceArray) -> Any:
    """Read an array back to the host, bf16 as f32."""
    data = np.empty(array.buffer.nbytes, dtype=np.uint8)
    array.device.read(array.buffer, 0, data)
    count = array.shape[0] * array.shape[1] * array.shape[2]
    stored = data[: count * array.dtype.itemsize].view(array.dtype.storage)
    return (stored.astype(np.uint32) << 16).view(np.float32) if array.dtype is vk.bf16 else stored
