"""Random tensors, generated on the device by the counter-based generator Philox.

A stream (`Generator`) is a seed and a counter. Philox maps a seed and a counter value to 4 random values. Each random
tensor takes the next counter values of its stream, one for 4 elements. So results are the same on every device, and
`manual_seed` and saved generator states reproduce them exactly.

What is drawn on a device while its work is captured, is drawn by the replays of the graph (`vkjit.runtime.draws`).
"""

from __future__ import annotations

import math
import secrets
import weakref
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.errors import ArgumentError, DTypeError, shown
from vkjit.runtime.array import LAYOUT_ALIGNMENT, layout_of
from vkjit.runtime.capture import Capture, capture_here, is_capturing, refuse_host
from vkjit.runtime.device import Device, DeviceArray
from vkjit.runtime.handles import new_lock
from vkjit.stdlib.random import random as kernels

from ..autograd.mode import state
from ..memory import allocate, as_int, check_fits
from ..tensor import Tensor, as_shape
from . import creation
from .creation import DeviceLike, as_dtype, check_model

__all__ = [
    "Generator", "bernoulli", "get_rng_state", "initial_seed", "manual_seed", "next_seed", "normal", "rand",
    "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "set_rng_state",
]  # fmt: skip


class Generator:
    """A stream of random numbers: a seed, and a counter that starts at 0.

    Without `seed`, a random 63-bit seed is used.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._lock = new_lock()
        self._seed = 0
        self._counter = 0
        capture = capture_here()
        # one that a captured block makes restarts with the block, so its numbers don't depend on replays
        self._maker = None if capture is None or seed is None else weakref.ref(capture)
        self._set(_checked_seed(secrets.randbits(63) if seed is None else seed), 0)

    def manual_seed(self, seed: int) -> Generator:
        """Restart the stream from a non-negative seed."""
        self.set_state((_checked_seed(seed), 0))
        return self

    def initial_seed(self) -> int:
        """Return the seed last set."""
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """Return the state (seed, counter) for `set_state`."""
        capture = self._capture()
        return self.present() if capture is None else capture.draws.state(self)

    def set_state(self, state: tuple[int, int]) -> None:
        """Restore a state returned by `get_state`. Raises ArgumentError for other states while work is captured."""
        is_pair = isinstance(state, tuple) and len(state) == 2 and all(isinstance(word, int) for word in state)
        seed, counter = state if is_pair else (-1, -1)
        if seed < 0 or counter < 0:
            raise ArgumentError(f"a state is (seed, counter), two ints of at least 0, found {state!r}")
        capture = self._capture()
        if capture is None:
            self._set(seed % 2**64, counter % 2**64)
        else:
            capture.draws.set_state(self, (seed % 2**64, counter % 2**64))

    def take(self, count: int, device: Device | None = None) -> tuple[int, int]:
        """Reserve the next `count` counter values. Returns (seed, first counter value).

        Captured work on `device` reserves them in its capture, for its replays.
        """
        if state.recorder is not None:
            state.recorder.note_not_replayable()
        refused = _refused.get()
        if refused and self is _stream:
            raise ArgumentError(refused)
        capture = None if device is None else self._capture(device)
        if capture is not None:
            return capture.draws.take(self, count)
        with self._lock:
            first = self._counter
            self._counter = (first + count) % 2**64
            return self._seed, first

    def seed_at(self, seed: int, counter: int) -> int:
        """Return the 63-bit seed that is drawn at a counter value of a stream."""
        return int(_seeds(seed, counter, 1)[0])

    def _capture(self, device: Device | None = None) -> Capture | None:
        """Return the open capture whose replays draw from this stream; None if numbers are drawn now."""
        capture = capture_here(device)
        return None if capture is None or (self._maker is not None and self._maker() is capture) else capture

    def present(self) -> tuple[int, int]:
        """Return the state (seed, counter) outside of captures."""
        with self._lock:
            return self._seed, self._counter

    def _set(self, seed: int, counter: int) -> None:
        with self._lock:
            self._seed, self._counter = seed, counter


def _checked_seed(seed: Any) -> int:
    """Return a seed as an int. Raises ArgumentError if it is none."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ArgumentError(f"a seed is an int of at least 0, found {shown(seed)}")
    if seed >= 2**64:
        raise ArgumentError(f"a seed is an int below 2**64, found {shown(seed)}")
    return int(seed)


_refused: ContextVar[str] = ContextVar("refused", default="")
"""Why nothing may be drawn from the default stream; empty if that is permitted."""
_stream = Generator()
"""The default stream."""

_SEEDS = 256
"""Seeds that are computed at once: the set-up of NumPy's generator takes most of the time."""
_SEED_LAYOUT = layout_of(dtypes.u64, (1,), (1,))


def manual_seed(seed: int) -> int:
    """Restart the default stream from a seed and return the seed."""
    _stream.manual_seed(seed)
    return int(seed)


def initial_seed() -> int:
    """Return the seed last set for the default stream."""
    return _stream.initial_seed()


def get_rng_state() -> tuple[int, int]:
    """Return the state of the default stream."""
    return _stream.get_state()


def set_rng_state(state: tuple[int, int]) -> None:
    """Set the state of the default stream."""
    _stream.set_state(state)


def _seeds(seed: int, first: int, count: int) -> npt.NDArray[np.uint64]:
    """Return the 63-bit seeds for the `count` counter values from `first` on of a stream."""
    # the last word of the counter, 1, selects a range that no tensor uses
    words = np.random.Philox(key=seed, counter=np.array([first, 0, 0, 1], np.uint64)).random_raw(4 * count)
    return words[::4] >> np.uint64(1)  # type: ignore[no-any-return]  # one of the four words for a counter value


class Mark(NamedTuple):
    """A point of the default stream; see `mark`."""

    state: tuple[int, int]
    capture: weakref.ref[Capture] | None
    captured_state: tuple[int, int] | None


def mark() -> Mark:
    """Return a point of the default stream that `draw_again` returns to: outside of captures, and in the one here."""
    capture = capture_here()
    if capture is None:
        return Mark(_stream.present(), None, None)
    return Mark(_stream.present(), weakref.ref(capture), capture.draws.state(_stream))


def return_to(point: Mark, what: str) -> None:
    """Return to a point of the default stream.

    If a capture began or ended meanwhile, draws raise ArgumentError until the next call: neither the numbers drawn then
    nor those of a replay could be drawn again. `what` names the caller.
    """
    capture, then = capture_here(), None if point.capture is None else point.capture()
    _stream._set(*point.state)
    if point.capture is not None and capture is not None and capture is then and point.captured_state is not None:
        capture.draws.set_state(_stream, point.captured_state)
    is_same = capture is then and (point.capture is None) == (capture is None)
    _refused.set("" if is_same else f"{what} draws random numbers again, which were drawn on the other side of a capture: "
        "capture the forward and the backward pass together, or neither")  # fmt: skip


def next_seed() -> int:
    """Return a 63-bit seed drawn from the default stream, for host code that generates random numbers itself."""
    if capture_here() is not None:
        refuse_host("draws random numbers on the host")
    return int(_seeds(*_stream.take(1), 1)[0])


def next_seed_tensor(device: Device) -> Tensor:
    """Return a 63-bit seed drawn from the default stream as a u64 tensor with one element, which the caller mustn't
    change.

    The device gets many seeds with one upload. A captured seed is set by fills, which replays change.
    """
    # `device.seeds` is (key, array): the seed of the stream and the first counter value, and an array with a seed every
    # LAYOUT_ALIGNMENT bytes
    capture = _stream._capture(device)
    if capture is not None:
        begin, offset = len(capture.entries), capture.draws.position(_stream)
        captured = seed_tensor(_stream.seed_at(*_stream.take(1, device)), device)
        for part, entry in enumerate(capture.entries[begin:]):
            capture.draws.add(entry, _stream, offset, part)
        return captured
    seed, counter = _stream.take(1)
    place = counter % _SEEDS
    key = seed, counter - place
    uploaded: tuple[tuple[int, int], DeviceArray] | None = device.seeds
    if uploaded is None or uploaded[0] != key:
        spread = np.zeros((_SEEDS, LAYOUT_ALIGNMENT // 8), np.uint64)
        spread[:, 0] = _seeds(*key, _SEEDS)
        uploaded = key, creation.upload(spread, dtypes.u64, device)._array
        device.keep_seeds(uploaded)
    return Tensor.of(uploaded[1].shifted(place * LAYOUT_ALIGNMENT, _SEED_LAYOUT))


def seed_tensor(seed: int, device: Device) -> Tensor:
    """Return a seed as a u64 tensor with one element."""
    array = allocate((1,), dtypes.u64, device)
    device.fill(array.buffer, 0, 4, seed & 0xFFFFFFFF)
    device.fill(array.buffer, 4, 4, seed >> 32)
    return Tensor.of(array)


class Start(NamedTuple):
    """Where an operation begins to draw: the stream's seed and counter value, which kernels get.

    If the work is captured, `capture` is its capture and `offset` how many numbers of the stream it drew before.
    """

    seed: int
    counter: int
    source: Generator
    capture: Capture | None
    offset: int

    def launch(self, kernel: Any, arrays: tuple[DeviceArray, ...], *rest: Any) -> None:
        """Launch a kernel that takes the arrays, the seed, the counter value and `rest`."""
        begin = 0 if self.capture is None else len(self.capture.entries)
        kernel(*arrays, self.seed, self.counter, *rest)
        if self.capture is not None:
            for entry in self.capture.entries[begin:]:
                self.capture.draws.add(entry, self.source, self.offset)


def start(count: int, device: Device, generator: Generator | None, seed: int | None = None) -> Start:
    """Reserve the counter values for `count` elements that are drawn on a device.

    They come from `generator`, else from a new stream with the given seed, else from the default stream.
    """
    if generator is None and seed is not None:
        source, capture = Generator(seed), None
    else:
        source = _stream if generator is None else generator
        capture = source._capture(device)
    offset = 0 if capture is None else capture.draws.position(source)
    return Start(*source.take(-(-count // 4), None if capture is None else device), source, capture, offset)


def _float_type(dtype: Any) -> Any:
    """Return the element type. Raises DTypeError if it isn't a float type."""
    element = as_dtype(dtype)
    if not element.is_float:
        raise DTypeError(f"expected a float type to draw from a continuous distribution, found {element!r}")
    return element


def _flat(x: Tensor) -> DeviceArray:
    """View a contiguous tensor as a vector."""
    array = x._array
    return DeviceArray(array.buffer, array.offset, array.dtype, (x.numel(),), (1,))


def _with_requires_grad(x: Tensor, requires_grad: bool) -> Tensor:
    return x.requires_grad_() if requires_grad else x


_BITS = {"f16": 11, "bf16": 8, "f32": 24}
"""Number of random bits of a uniform value: the precision of the type, so that no value below 1 is rounded to 1."""


def fill_uniform(out: Tensor, low: float, high: float, start: Start) -> Tensor:
    """Fill a contiguous tensor of a float type with uniform values in [low, high)."""
    for bound in (low, high, high - low):
        check_fits(bound, out.dtype)
    if not low <= high or not math.isfinite(high - low):
        raise ArgumentError(
            f"a uniform distribution over [{low}, {high}) doesn't exist: expected low <= high, both finite"
        )
    if not out.numel():
        return out
    if out.dtype is dtypes.f64:
        start.launch(kernels.uniform_f64, (_flat(out),), float(low), float(high) - float(low))
    else:
        bits = _BITS[out.dtype.name]
        start.launch(kernels.uniform, (_flat(out),), float(low), float(high) - float(low), bits)
    return out


def fill_normal(out: Tensor, mean: float, std: float, start: Start) -> Tensor:
    """Fill a contiguous tensor of a float type with normally distributed values."""
    if out.numel():
        start.launch(kernels.normal, (_flat(out),), float(mean), float(std))
    return out


def rand(
    *shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False,
    seed: int | None = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return uniform values in [0, 1): `vk.rand(2, 3)`.

    With `seed`, they come from a new stream with that seed, not from the default stream.
    """
    out = creation.empty(as_shape(shape), dtype=_float_type(dtype), device=device)
    drawn = fill_uniform(out, 0.0, 1.0, start(out.numel(), out.device, generator, seed))
    return _with_requires_grad(drawn, requires_grad)


def randn(
    *shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False,
    seed: int | None = None, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return normally distributed values with mean 0 and variance 1; `seed` as for `rand`."""
    out = creation.empty(as_shape(shape), dtype=_float_type(dtype), device=device)
    drawn = fill_normal(out, 0.0, 1.0, start(out.numel(), out.device, generator, seed))
    return _with_requires_grad(drawn, requires_grad)


def normal(
    mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, dtype: Any = dtypes.f32, device: DeviceLike = None,
    generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return normally distributed values with the given mean and standard deviation.

    If both are numbers, `size` is the shape of the result. If one or both are tensors, they are broadcast, and each
    element of the result has its own mean or deviation.
    """
    tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
    if not tensors:
        if size is None:
            raise ArgumentError("normal() of numbers needs a size: vk.normal(0.0, 1.0, (2, 3))")
        check_deviation(std, "normal")
        if not isinstance(mean, (int, float, np.number)):
            raise ArgumentError(f"normal(): mean={shown(mean)}, expected a number or a tensor")
        drawn: Any = randn(as_shape((size,)), dtype=dtype, device=device, generator=generator)
        return drawn * float(std) + float(mean)  # type: ignore[no-any-return]
    from .broadcast import broadcast_shapes

    if not isinstance(std, Tensor):
        check_deviation(std, "normal")
    elif std.numel() and not is_capturing(std.device) and not bool((std.detach() >= 0).all().item()):
        raise ArgumentError("normal(): std has elements below 0 or NaN, expected at least 0")
    first = tensors[0]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    drawn = randn(shape, dtype=first.dtype, device=first.device, generator=generator)
    return drawn * std + mean  # type: ignore[no-any-return]


def check_deviation(std: Any, name: str) -> None:
    """Raise ArgumentError unless a standard deviation is a number of at least 0."""
    if not isinstance(std, (int, float, np.number)) or not float(std) >= 0:
        raise ArgumentError(f"{name}(): std={std!r}, expected a number of at least 0")


def rand_like(x: Tensor, **options: Any) -> Tensor:
    """Return uniform values in [0, 1) with x's shape, dtype and device."""
    check_model(x, "rand_like")
    return rand(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randn_like(x: Tensor, **options: Any) -> Tensor:
    """Return standard normal values with x's shape, dtype and device."""
    check_model(x, "randn_like")
    return randn(x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def randint(
    low: int, high: Any = None, size: Any = None, *, dtype: Any = dtypes.i64, device: DeviceLike = None,
    requires_grad: bool = False, generator: Generator | None = None,
) -> Tensor:  # fmt: skip
    """Return integers in [low, high): `vk.randint(0, 10, (2, 3))`, or `vk.randint(10, (2, 3))` for low = 0."""
    if high is None or (size is None and isinstance(high, (tuple, list))):  # randint(high, size)
        size = size if high is None else high
        low, high = 0, low
    element, sizes = as_dtype(dtype), as_shape((size,))
    low, high = as_int(low, "randint(low=)"), as_int(high, "randint(high=)")
    if not low < high:
        raise ArgumentError(f"randint() needs low < high, found {low} and {high}")
    if element.kind == "bool" or (element.is_integer and not element.is_signed):
        highest = 1 if element.kind == "bool" else np.iinfo(element.storage).max
        if low < 0 or high - 1 > highest:
            raise DTypeError(f"randint(): {low} to {high - 1} is out of range for {element!r} (0 to {highest})")
    for bound in (low, high - 1):
        check_fits(bound, element if element.is_integer else dtypes.i64)
        check_fits(bound, element)
    values = creation.empty(sizes, dtype=element if element.is_integer else dtypes.i64, device=device)
    begin = start(values.numel(), values.device, generator)
    if values.numel():
        range_size = (int(high) - int(low)) % 2**64  # as a u64; 0 stands for 2**64
        begin.launch(kernels.integers, (_flat(values),), int(low), range_size)
    return _with_requires_grad(values.to(element), requires_grad)


def randint_like(x: Tensor, low: int, high: int | None = None, **options: Any) -> Tensor:
    """Return integers in [low, high), or [0, low) if high is None, with x's shape, dtype and device."""
    check_model(x, "randint_like")
    bounds = (0, low) if high is None else (low, high)
    return randint(*bounds, x.shape, **{"dtype": x.dtype, "device": x.device, **options})


def bernoulli(x: Tensor, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """Return a tensor of x's shape and dtype, whose elements are 1 with a given probability, else 0.

    The probabilities are the elements of x, or `p`, a number or tensor, if it is given.
    """
    if p is not None and not isinstance(p, Tensor) and not (isinstance(p, (int, float)) and 0 <= p <= 1):
        raise ArgumentError(f"bernoulli(p={p!r}): expected a chance from 0 to 1")
    chances = x if p is None else p if isinstance(p, Tensor) else creation.full(x.shape, float(p), device=x.device)
    if not chances.dtype.is_float:
        raise DTypeError(f"bernoulli() takes chances as floats, found {chances.dtype!r}")
    out = creation.empty(x.shape, dtype=x.dtype, device=x.device)
    begin = start(out.numel(), out.device, generator)
    if out.numel():
        source = chances.detach().expand(x.shape).contiguous()
        begin.launch(kernels.bernoulli, (_flat(source), _flat(out)))
    return out


def randperm(
    n: int, *, dtype: Any = dtypes.i64, device: DeviceLike = None, generator: Generator | None = None
) -> Tensor:
    """Return a random permutation of 0 to n - 1, obtained by sorting random 63-bit keys."""
    from .sorting import argsort

    if n:
        check_fits(as_int(n, "randperm(n=)", 0) - 1, as_dtype(dtype))
    keys = randint(0, 2**63 - 1, (n,), device=device, generator=generator)
    return argsort(keys, 0).to(as_dtype(dtype))
