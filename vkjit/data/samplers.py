"""Samplers: which examples an epoch consists of, and in which order.

`DataLoader` creates a random generator from its seed and the epoch, and passes it to the sampler. The order depends on
that generator alone, so a loader can resume in the middle of an epoch. The classes correspond to PyTorch's, except that
the loader seeds them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError, shown
from .dataset import checked_indices

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "as_array",
]  # fmt: skip

Generator = np.random.Generator


def as_array(values: Any) -> npt.NDArray[Any]:
    """Convert array-likes, including tensors, to a NumPy array."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


_MAX_SAMPLES = 1 << 27
"""The largest number of indices of an epoch: 1 GiB."""


def _checked_count(value: Any, name: str, what: str) -> int:
    """Return `value` as an int. Raises ArgumentError if it isn't an integer of at least 1, or too large for one epoch."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ArgumentError(f"{name}: {what} is an int of at least 1, found {shown(value)}")
    if what == "num_samples" and value > _MAX_SAMPLES:
        raise ArgumentError(f"{name}: an epoch has at most {_MAX_SAMPLES} samples, found {what}={shown(value)}")
    return int(value)


def _no_generator(generator: object, name: str) -> None:
    """Refuse PyTorch's `generator` argument, because the loader's seed determines the order. Raises ArgumentError."""
    if generator is not None:
        raise ArgumentError(
            f"{name} takes no generator, found a {type(generator).__name__}: the order follows from the loader's seed, "
            "DataLoader(..., seed=1)"
        )


class Sampler:
    """Base class of samplers. Subclasses define `order(generator)` and `__len__`, the number of indices per epoch.

    The order must depend on the generator alone. A loader passes a new generator each epoch. A direct iteration over
    the sampler uses seed 0 and counts as a new epoch.
    """

    _passes = 0
    """Number of direct iterations so far."""

    def order(self, generator: Generator) -> Any:
        """Return the indices of an epoch, drawing any randomness from the generator."""
        raise NotImplementedError(f"{type(self).__name__} has no order(generator): write it, the indices of an epoch")

    def __len__(self) -> int:
        raise NotImplementedError(
            f"{type(self).__name__} has no __len__(): write it, the number of indices of an epoch"
        )

    def __iter__(self) -> Iterator[int]:
        generator = np.random.default_rng([0, self._passes])
        self._passes += 1
        return iter(as_array(self.order(generator)).tolist())


class SequentialSampler(Sampler):
    """All examples of a dataset in order."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, generator: Generator) -> Any:
        del generator
        return np.arange(len(self))


class RandomSampler(Sampler):
    """The examples of a dataset in random order, optionally with replacement.

    `num_samples`, the number of indices per epoch, defaults to the dataset's size and may exceed it. Without
    replacement, no example repeats before all have occurred.
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: None = None
    ) -> None:
        _no_generator(generator, "RandomSampler")
        if num_samples is not None:
            _checked_count(num_samples, "RandomSampler", "num_samples")
        if (replacement or num_samples is not None) and not len(data_source):
            raise ArgumentError("RandomSampler: nothing can be drawn from a dataset without examples")
        self.data_source, self.replacement, self._samples = data_source, replacement, num_samples

    @property
    def num_samples(self) -> int:
        """Number of indices per epoch."""
        return len(self.data_source) if self._samples is None else self._samples

    def __len__(self) -> int:
        return self.num_samples

    def order(self, generator: Generator) -> Any:
        count, samples = len(self.data_source), self.num_samples
        if self.replacement:
            return generator.integers(count, size=samples)
        if samples <= count:
            return generator.permutation(count)[:samples]
        # as many permutations of all examples as needed
        return np.concatenate([generator.permutation(count) for _ in range(-(-samples // count))])[:samples]


class SubsetRandomSampler(Sampler):
    """The given indices of examples, in random order."""

    def __init__(self, indices: Any, generator: None = None) -> None:
        _no_generator(generator, "SubsetRandomSampler")
        self.indices = checked_indices(indices, "SubsetRandomSampler")

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, generator: Generator) -> Any:
        return generator.permutation(self.indices)


class WeightedRandomSampler(Sampler):
    """`num_samples` random examples per epoch, drawn with probabilities proportional to their weights.

    `weights` holds one non-negative number per example; they needn't sum to 1. Without replacement, the examples of an
    epoch are distinct.
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: None = None) -> None:
        name = "WeightedRandomSampler"
        _no_generator(generator, name)
        try:
            values = as_array(weights if hasattr(weights, "numpy") else list(weights)).astype(np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"{name}: weights are numbers, one per example, found {weights!r:.80}") from None
        if values.ndim != 1 or not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
            raise ArgumentError(
                f"{name}: weights are numbers of at least 0, one per example and not all 0, found shape {values.shape}"
                + (f", {values.min():g} to {values.max():g}" if values.size else "")
            )
        self.num_samples = _checked_count(num_samples, name, "num_samples")
        if not replacement and num_samples > np.count_nonzero(values):
            raise ArgumentError(
                f"{name}: {num_samples} different examples can't be drawn, only {np.count_nonzero(values)} have a weight above 0"
            )
        self.weights, self.replacement = values, replacement

    def __len__(self) -> int:
        return self.num_samples

    def order(self, generator: Generator) -> Any:
        probabilities = self.weights / self.weights.sum()
        return generator.choice(len(probabilities), self.num_samples, self.replacement, probabilities)


class BatchSampler:
    """A batch sampler that groups the indices of a sampler; `drop_last` drops an incomplete last batch.

    `sampler` is a `Sampler`, or any iterable of indices.
    """

    _passes = 0
    """Number of direct iterations so far; each counts as an epoch with seed 0, as in `Sampler`."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = _checked_count(batch_size, "BatchSampler", "batch_size")

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def batches(self, generator: Generator) -> Iterator[Any]:
        """Yield the batches of an epoch: arrays of indices for a `Sampler`, lists for other iterables."""
        if isinstance(self.sampler, Sampler):
            order = as_array(self.sampler.order(generator))
            for start in range(0, len(order), self.batch_size):
                if start + self.batch_size <= len(order) or not self.drop_last:
                    yield order[start : start + self.batch_size]
            return
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __iter__(self) -> Iterator[list[Any]]:
        generator = np.random.default_rng([0, self._passes])
        self._passes += 1
        return (as_array(batch).tolist() for batch in self.batches(generator))
