"""Samplers: which examples an epoch takes, and in which order.

Enters: datasets, indices, weights; a generator that the loader makes of its seed and the number of the epoch. Leaves: indices, or
batches of them. An order follows from the generator alone, so that a loader can go on in the middle of an epoch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

__all__ = [
    "BatchSampler", "RandomSampler", "Sampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "as_array",
]  # fmt: skip

Generator = np.random.Generator


def as_array(values: Any) -> npt.NDArray[Any]:
    """Numbers of any kind, tensors among them, as an array."""
    return np.asarray(values.numpy() if hasattr(values, "numpy") else values)


def _count(value: Any, name: str, what: str) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ArgumentError(f"{name}: {what} is an int of at least 1, found {value!r}")
    return int(value)


def _no_generator(generator: object, name: str) -> None:
    if generator is not None:
        raise ArgumentError(
            f"{name} takes no generator, found a {type(generator).__name__}: what is random follows from the loader's seed, "
            "DataLoader(..., seed=1)"
        )


class Sampler:
    """An order of examples. Subclasses write `order(generator)`, indices that follow from the generator alone, and `__len__`.

    A loader asks with a generator of its own for each epoch. Iterated over by itself, each time is the next epoch of seed 0.
    """

    _passes = 0

    def order(self, generator: Generator) -> Any:
        """The indices of an epoch; what is random about them is drawn from the generator."""
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
    """All examples of a dataset, from the first to the last."""

    def __init__(self, data_source: Any) -> None:
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def order(self, generator: Generator) -> Any:
        del generator
        return np.arange(len(self))


class RandomSampler(Sampler):
    """The examples of a dataset in random order; with replacement each one is drawn from all.

    num_samples: how many (default: as many as there are); without replacement, all come before one comes again.
    """

    def __init__(
        self, data_source: Any, replacement: bool = False, num_samples: int | None = None, generator: None = None
    ) -> None:
        _no_generator(generator, "RandomSampler")
        if num_samples is not None:
            _count(num_samples, "RandomSampler", "num_samples")
        if (replacement or num_samples is not None) and not len(data_source):
            raise ArgumentError("RandomSampler: nothing can be drawn from a dataset without examples")
        self.data_source, self.replacement, self._samples = data_source, replacement, num_samples

    @property
    def num_samples(self) -> int:
        """Indices of an epoch."""
        return len(self.data_source) if self._samples is None else self._samples

    def __len__(self) -> int:
        return self.num_samples

    def order(self, generator: Generator) -> Any:
        count, wanted = len(self.data_source), self.num_samples
        if self.replacement:
            return generator.integers(count, size=wanted)
        if wanted <= count:
            return generator.permutation(count)[:wanted]
        return np.concatenate([generator.permutation(count) for _ in range(-(-wanted // count))])[:wanted]


class SubsetRandomSampler(Sampler):
    """Given indices, in random order."""

    def __init__(self, indices: Any, generator: None = None) -> None:
        _no_generator(generator, "SubsetRandomSampler")
        self.indices = as_array(indices if hasattr(indices, "numpy") else list(indices)).reshape(-1)
        if self.indices.size and self.indices.dtype.kind not in "iu":
            raise ArgumentError(f"SubsetRandomSampler takes indices, integers, found {self.indices.dtype}")

    def __len__(self) -> int:
        return len(self.indices)

    def order(self, generator: Generator) -> Any:
        return generator.permutation(self.indices)


class WeightedRandomSampler(Sampler):
    """Examples drawn in proportion to their weights: num_samples of them, which without replacement are different ones.

    weights: one number of at least 0 per example; they needn't add up to 1.
    """

    def __init__(self, weights: Any, num_samples: int, replacement: bool = True, generator: None = None) -> None:
        name = "WeightedRandomSampler"
        _no_generator(generator, name)
        found = as_array(weights if hasattr(weights, "numpy") else list(weights)).astype(np.float64)
        if found.ndim != 1 or not (np.isfinite(found).all() and (found >= 0).all() and found.sum() > 0):
            raise ArgumentError(
                f"{name}: weights are numbers of at least 0, one per example and not all 0, found shape {found.shape}"
                + (f", {found.min():g} to {found.max():g}" if found.size else "")
            )
        self.num_samples = _count(num_samples, name, "num_samples")
        if not replacement and num_samples > np.count_nonzero(found):
            raise ArgumentError(
                f"{name}: {num_samples} different examples can't be drawn, only {np.count_nonzero(found)} have a weight above 0"
            )
        self.weights, self.replacement = found, replacement

    def __len__(self) -> int:
        return self.num_samples

    def order(self, generator: Generator) -> Any:
        shares = self.weights / self.weights.sum()
        return generator.choice(len(shares), self.num_samples, self.replacement, shares)


class BatchSampler:
    """Batches of what a sampler gives. drop_last: a last batch that isn't full is left out.

    sampler: a `Sampler`, or anything that gives indices when it is iterated over.
    """

    _passes = 0

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        self.sampler, self.drop_last = sampler, drop_last
        self.batch_size = _count(batch_size, "BatchSampler", "batch_size")

    def __len__(self) -> int:
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def batches(self, generator: Generator) -> Iterator[Any]:
        """The batches of an epoch."""
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
