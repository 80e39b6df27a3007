"""Batches of example indices: which examples of a dataset form each batch of an epoch.

`DataLoader` wraps its `sampler` or `batch_sampler` argument in `IndexBatches`, which yields one `Batch` after another. A
batch also holds how often each of its examples occurred earlier in the epoch, so that repetitions of an example can be
given different random numbers (see `batch_workers`). The order of a `Sampler` is determined by seed and epoch, so an
interrupted epoch can be resumed. The order of an arbitrary iterable can't be reproduced.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .samplers import BatchSampler, Sampler

__all__ = ["Batch", "IndexBatches", "Indices"]

Indices = npt.NDArray[np.int64]
"""Example indices, in the order in which they are loaded."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The dataset indices of one batch."""

    indices: Indices
    prior_occurrences: Indices | None
    """For each entry of `indices`, how often that example occurred earlier in this epoch; None if none did."""


@dataclass(frozen=True, slots=True)
class IndexBatches:
    """The batches of a loader: a sampler's indices in groups of `batch_size`, or the batches of a batch sampler."""

    sampler: Any
    """A sampler (an iterable of indices) or a batch sampler (an iterable of lists of indices).

    A `Sampler`, or a batch sampler with the method `batches(generator)`, gets the generator of the epoch.
    """
    batch_size: int | None
    """None if `sampler` is a batch sampler."""
    drop_last: bool
    """True to drop an incomplete last batch."""
    length: int
    """Number of examples in the dataset."""

    def __len__(self) -> int:
        if self.batch_size is None:
            return len(self.sampler)
        return len(BatchSampler(self.sampler, self.batch_size, self.drop_last))

    @property
    def name(self) -> str:
        """The sampler's class name, which `DataLoader.state_dict` stores to detect that the sampler was replaced."""
        inner = self.sampler
        return (
            f"{type(inner).__name__}({type(inner.sampler).__name__})" if _is_batching(inner) else type(inner).__name__
        )

    @property
    def is_reproducible(self) -> bool:
        """True if the order is determined by seed and epoch alone, so that an epoch can be resumed."""
        inner = self.sampler.sampler if _is_batching(self.sampler) else self.sampler
        return isinstance(inner, (Sampler, Sequence, np.ndarray)) or (
            self.batch_size is None and hasattr(inner, "batches")
        )

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from batch `start` on. Raises ArgumentError for invalid indices."""
        counts = np.zeros(self.length, np.int64)
        for number, unchecked in enumerate(self._unchecked_batches(np.random.default_rng([seed, epoch]))):
            indices = self._checked_indices(unchecked)
            prior = _prior_occurrences(indices, counts)
            # an index that occurs twice in the batch is assigned twice; the last assignment, the largest count, wins
            counts[indices] = (0 if prior is None else prior) + 1
            if number >= start:
                yield Batch(indices, prior)

    def _unchecked_batches(self, generator: np.random.Generator) -> Iterator[Any]:
        """Yield the unchecked batches of an epoch: arrays, lists or other iterables of indices."""
        if self.batch_size is not None:
            return BatchSampler(self.sampler, self.batch_size, self.drop_last).batches(generator)
        if hasattr(self.sampler, "batches"):
            return iter(self.sampler.batches(generator))
        return iter(self.sampler)

    def _checked_indices(self, chosen: Any) -> Indices:
        """Convert a batch to an array of indices. Raises ArgumentError if it is empty or holds invalid indices."""
        option = "batch_sampler" if self.batch_size is None else "sampler"
        try:
            values = chosen if isinstance(chosen, np.ndarray) else [operator.index(i) for i in chosen]
        except TypeError:
            values = np.zeros(1)  # floats, which the next check rejects
        indices = np.asarray(values)
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
            expected = "batches, each a list of at least one index" if self.batch_size is None else "indices"
            raise ArgumentError(f"a {option} gives {expected}, {type(self.sampler).__name__} gave {chosen!r}")
        if indices.min() < 0 or indices.max() >= self.length:
            wrong = indices.min() if indices.min() < 0 else indices.max()
            raise ArgumentError(
                f"the {option} ({type(self.sampler).__name__}) gave index {wrong}: the dataset has {self.length} examples"
            )
        return indices.astype(np.int64, copy=False)


def _is_batching(sampler: Any) -> bool:
    return isinstance(sampler, BatchSampler)


def _prior_occurrences(indices: Indices, counts: Indices) -> Indices | None:
    """Count how often each index occurred earlier in the epoch; return None if no index did.

    `counts` holds the occurrences per example before this batch. Earlier occurrences within the batch are added.
    """
    before = counts[indices]
    # a stable sort groups equal indices in batch order; the rank in its group counts the occurrences within the batch
    permutation = np.argsort(indices, kind="stable")
    ordered = indices[permutation]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if is_first.all():
        return before if before.any() else None
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    before[permutation] += np.arange(len(ordered)) - starts
    return before
