"""Tensors of random numbers, the same on every device: drawn on the host by Philox from one seeded stream.

Enters: shapes, bounds, optionally a seed of its own. Leaves: tensors. `manual_seed` restarts the stream of the process.
"""

from __future__ import annotations

import secrets
import threading
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, DTypeError
from .creation import DeviceLike, as_dtype, upload
from .tensor import Tensor, as_shape

__all__ = [
    "initial_seed",
    "manual_seed",
    "next_seed",
    "rand",
    "rand_like",
    "randint",
    "randn",
    "randn_like",
    "randperm",
]


class _Stream:
    """The stream of the process, restarted by `manual_seed`."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.seed = secrets.randbits(63)  # another one in every process
        self.generator = np.random.Generator(np.random.Philox(self.seed))

    def restart(self, seed: int) -> None:
        with self.lock:
            self.seed = seed
            self.generator = np.random.Generator(np.random.Philox(seed))


_stream = _Stream()


def manual_seed(seed: int) -> int:
    """Restarts the stream that all random tensors are drawn from; returns the seed."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(f"a seed is an int of at least 0, found {seed!r}")
    _stream.restart(int(seed))
    return int(seed)


def initial_seed() -> int:
    """The seed that the stream was last started with."""
    return _stream.seed


def next_seed() -> int:
    """A seed (63 bits) drawn from the stream, for kernels that make random numbers on the device."""
    with _stream.lock:
        return int(_stream.generator.integers(2**63))


def _float_type(dtype: Any) -> Any:
    element = as_dtype(dtype)
    if not element.is_float:
        raise DTypeError(f"expected a float type to draw from a continuous distribution, found {element!r}")
    return element


def rand(
    *shape: Any,
    dtype: Any = dtypes.f32,
    device: DeviceLike = None,
    requires_grad: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Uniform numbers in [0, 1): `vk.rand(2, 3)`. `seed` draws from a stream of its own."""
    element, sizes = _float_type(dtype), as_shape(shape)
    drawn = np.float64 if element is dtypes.f64 else np.float32
    with _stream.lock:
        generator = _stream.generator if seed is None else np.random.Generator(np.random.Philox(seed))
        values = generator.random(sizes, dtype=drawn)
    if element.bits == 16:  # rounding must not reach 1
        values = np.floor(values * (2048 if element is dtypes.f16 else 256)) / (2048 if element is dtypes.f16 else 256)
    made = upload(np.asarray(values), element, device)
    return made.requires_grad_() if requires_grad else made


def randn(
    *shape: Any,
    dtype: Any = dtypes.f32,
    device: DeviceLike = None,
    requires_grad: bool = False,
    seed: int | None = None,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1. `seed` draws from a stream of its own."""
    element, sizes = _float_type(dtype), as_shape(shape)
    drawn = np.float64 if element is dtypes.f64 else np.float32
    with _stream.lock:
        generator = _stream.generator if seed is None else np.random.Generator(np.random.Philox(seed))
        values = generator.standard_normal(sizes, dtype=drawn)
    made = upload(np.asarray(values), element, device)
    return made.requires_grad_() if requires_grad else made


def rand_like(x: Tensor, **options: Any) -> Tensor:
    """Uniform numbers in [0, 1) of x's shape, type and device."""
    return rand(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randn_like(x: Tensor, **options: Any) -> Tensor:
    """Normal numbers of x's shape, type and device."""
    return randn(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randint(
    low: int, high: int | Any, size: Any = None, *, dtype: Any = dtypes.i64, device: DeviceLike = None
) -> Tensor:
    """Integers in [low, high): `vk.randint(0, 10, (2, 3))`, or `vk.randint(10, (2, 3))` from 0."""
    if size is None:
        low, high, size = 0, low, high
    element, sizes = as_dtype(dtype), as_shape((size,))
    if not low < high:
        raise ArgumentError(f"randint() needs low < high, found {low} and {high}")
    with _stream.lock:
        values = _stream.generator.integers(low, high, sizes, dtype=np.int64)
    return upload(np.asarray(values), element, device)


def randperm(n: int, *, dtype: Any = dtypes.i64, device: DeviceLike = None) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    with _stream.lock:
        values = _stream.generator.permutation(n)
    return upload(values, as_dtype(dtype), device)
