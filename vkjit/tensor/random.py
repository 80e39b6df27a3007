"""Tensors of random numbers, the same on every device: drawn on the device by Philox from a seeded stream.

Enters: shapes, bounds, optionally a generator or a seed of its own. Leaves: tensors. A stream is a seed and a counter;
each tensor takes the next counters, so that `manual_seed` and the states of generators repeat everything exactly.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import ArgumentError, DTypeError
from ..runtime.handles import new_lock
from ..runtime.interface import DeviceArray
from ..stdlib import random as kernels
from . import creation
from .creation import DeviceLike, as_dtype
from .tensor import Tensor, as_shape

__all__ = [
    "Generator", "bernoulli", "get_rng_state", "initial_seed", "manual_seed", "next_seed", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "set_rng_state",
]  # fmt: skip


class Generator:
    """A stream of random numbers: a seed (63 bits) and how many counters have been used."""

    def __init__(self, seed: int | None = None) -> None:
        self._lock = new_lock()
        self._seed = 0
        self._counter = 0
        self.manual_seed(secrets.randbits(63) if seed is None else seed)

    def manual_seed(self, seed: int) -> Generator:
        """Begins anew from a seed of at least 0."""
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise ArgumentError(f"a seed is an int of at least 0, found {seed!r}")
        with self._lock:
            self._seed, self._counter = int(seed) % 2**64, 0
        return self

    def initial_seed(self) -> int:
        """The seed that it was last started with."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """(seed, counter): gives the same numbers again through `set_state`."""
        with self._lock:
            return self._seed, self._counter

    def set_state(self, state: tuple[int, int]) -> None:
        """Goes on from what `get_state` gave."""
        seed, counter = state
        if not (isinstance(seed, int) and isinstance(counter, int)) or seed < 0 or counter < 0:
            raise ArgumentError(f"a state is (seed, counter), two ints of at least 0, found {state!r}")
        with self._lock:
            self._seed, self._counter = seed % 2**64, counter % 2**64

    def take(self, count: int) -> tuple[int, int]:
        """The seed, and the first of so many counters that nobody else gets."""
        with self._lock:
            first = self._counter
            self._counter = (first + count) % 2**64
            return self._seed, first


_stream = Generator()


def manual_seed(seed: int) -> int:
    """Restarts the stream that all random tensors are drawn from; returns the seed."""
    _stream.manual_seed(seed)
    return int(seed)


def initial_seed() -> int:
    """The seed that the stream was last started with."""
    return _stream.initial_seed()


def get_rng_state() -> tuple[int, int]:
    """The state of the stream of the process."""
    return _stream.get_state()


def set_rng_state(state: tuple[int, int]) -> None:
    """Sets the stream of the process to a state."""
    _stream.set_state(state)


def next_seed() -> int:
    """A seed (63 bits) drawn from the stream, for kernels that make random numbers on the device."""
    seed, counter = _stream.take(1)
    words = np.random.Philox(key=seed, counter=[counter, 0, 0, 1]).random_raw()  # a part that no tensor uses
    return int(words) >> 1


def _generator(seed: int | None, generator: Generator | None) -> Generator:
    return generator if generator is not None else _stream if seed is None else Generator(seed)


def _start(count: int, seed: int | None, generator: Generator | None) -> tuple[int, int]:
    return _generator(seed, generator).take(-(-count // 4))


def _float_type(dtype: Any) -> Any:
    element = as_dtype(dtype)
    if not element.is_float:
        raise DTypeError(f"expected a float type to draw from a continuous distribution, found {element!r}")
    return element


def _flat(made: Tensor) -> DeviceArray:
    array = made._array
    return DeviceArray(array.buffer, array.offset, array.dtype, (made.numel(),), (1,))


def _finished(made: Tensor, requires_grad: bool) -> Tensor:
    return made.requires_grad_() if requires_grad else made


_BITS = {"f16": 11, "bf16": 8, "f32": 24}
"""Bits of a uniform number: rounding to the type must not reach 1."""


def fill_uniform(made: Tensor, low: float, high: float, start: tuple[int, int]) -> Tensor:
    """Writes uniform numbers in [low, high) into a contiguous tensor."""
    if not made.numel():
        return made
    if made.dtype is dtypes.f64:
        kernels.uniform_double(_flat(made), *start, float(low), float(high) - float(low))
    else:
        kernels.uniform(_flat(made), *start, float(low), float(high) - float(low), _BITS[made.dtype.name])
    return made


def fill_normal(made: Tensor, mean: float, std: float, start: tuple[int, int]) -> Tensor:
    """Writes normal numbers into a contiguous tensor."""
    if made.numel():
        kernels.normal(_flat(made), *start, float(mean), float(std))
    return made


def rand(
    *shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False,
    seed: int | None = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Uniform numbers in [0, 1): `vk.rand(2, 3)`. `seed` draws from a stream of its own."""
    made = creation.empty(as_shape(shape), dtype=_float_type(dtype), device=device)
    return _finished(fill_uniform(made, 0.0, 1.0, _start(made.numel(), seed, generator)), requires_grad)


def randn(
    *shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False,
    seed: int | None = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal numbers of mean 0 and variance 1. `seed` draws from a stream of its own."""
    made = creation.empty(as_shape(shape), dtype=_float_type(dtype), device=device)
    return _finished(fill_normal(made, 0.0, 1.0, _start(made.numel(), seed, generator)), requires_grad)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, dtype: Any = dtypes.f32, device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Normal numbers of a mean and a standard deviation: numbers and a size, or tensors that broadcast."""
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not tensors:
        if size is None:
            raise ArgumentError("normal() of numbers needs a size: vk.normal(0.0, 1.0, (2, 3))")
        drawn: Any = randn(as_shape((size,)), dtype=dtype, device=device, generator=generator)
        return drawn * float(std) + float(mean)  # type: ignore[no-any-return]
    from .iterate import broadcast_shapes

    first = tensors[0]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    drawn = randn(shape, dtype=first.dtype, device=first.device, generator=generator)
    return drawn * std + mean  # type: ignore[no-any-return]


def rand_like(x: Tensor, **options: Any) -> Tensor:
    """Uniform numbers in [0, 1) of x's shape, type and device."""
    return rand(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randn_like(x: Tensor, **options: Any) -> Tensor:
    """Normal numbers of x's shape, type and device."""
    return randn(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: Any = dtypes.i64, device: DeviceLike = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Integers in [low, high): `vk.randint(0, 10, (2, 3))`, or `vk.randint(10, (2, 3))` from 0."""
    if high is None or (size is None and isinstance(high, (tuple, list))):
        low, high, size = 0, low, size if high is None else high
    element, sizes = as_dtype(dtype), as_shape((size,))
    if not low < high:
        raise ArgumentError(f"randint() needs low < high, found {low} and {high}")
    whole = creation.empty(sizes, dtype=element if element.is_integer else dtypes.i64, device=device)
    start = _start(whole.numel(), None, generator)
    if whole.numel():
        kernels.integers(_flat(whole), *start, int(low), (int(high) - int(low)) % 2**64)
    return _finished(whole.to(element), requires_grad)


def randint_like(x: Tensor, low: int, high: int | None = None, **options: Any) -> Tensor:
    """Integers in [low, high) (one number: from 0) of x's shape, type and device."""
    bounds = (0, low) if high is None else (low, high)
    return randint(*bounds, x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def bernoulli(x: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the chance that x (or p, where given) holds, else 0, in x's type."""
    chances = x if p is None else p if isinstance(p, Tensor) else creation.full(x.shape, float(p), device=x.device)
    if not chances.dtype.is_float:
        raise DTypeError(f"bernoulli() takes chances as floats, found {chances.dtype!r}")
    made = creation.empty(x.shape, dtype=x.dtype, device=x.device)
    start = _start(made.numel(), None, generator)
    if made.numel():
        source = chances.detach().expand(x.shape).contiguous()
        kernels.coins(_flat(source), _flat(made), *start)
    return made


def randperm(
    n: int, *, dtype: Any = dtypes.i64, device: DeviceLike = None, generator: Generator | None = None
) -> Tensor:
    """The numbers 0 to n - 1 in random order: the order of random keys of 63 bits."""
    from .sorting import argsort

    keys = randint(0, 2**63 - 1, (n,), device=device, generator=generator)
    return argsort(keys, 0).to(as_dtype(dtype))
