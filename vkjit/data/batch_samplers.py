"""The order of examples in an epoch: yields the example indices of each batch.

The source is a sampler, a sequence of indices, or any iterable of indices. A batch also holds how often each of its
indices occurred earlier in the epoch. The order of a sampler is determined by seed and epoch, so an epoch can resume
midway; that of other iterables can't be reproduced.
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

__all__ = ["Batch", "Order", "Orders"]

Order = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """The examples of a batch."""

    indices: Order
    prior_occurrences: Order | None
    """Number of earlier occurrences of each example in this epoch; None if there are none."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The example order of a loader: a sampler's indices in groups of `batch_size`, or a batch sampler's batches."""

    sampler: Any
    batch_size: int | None
    """None if the sampler is a batch sampler."""
    drop_last: bool
    length: int
    """Number of examples in the dataset."""

    def __len__(self) -> int:
        if self.batch_size is None:
            return len(self.sampler)
        return len(BatchSampler(self.sampler, self.batch_size, self.drop_last))

    @property
    def name(self) -> str:
        """The sampler's name, stored in saved positions."""
        inner = self.sampler
        return (
            f"{type(inner).__name__}({type(inner.sampler).__name__})" if _is_batching(inner) else type(inner).__name__
        )

    @property
    def is_reproducible(self) -> bool:
        """True if the order is determined by seed and epoch."""
        inner = self.sampler.sampler if _is_batching(self.sampler) else self.sampler
        return isinstance(inner, (Sampler, Sequence, np.ndarray)) or (
            self.batch_size is None and hasattr(inner, "batches")
        )

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch, from batch `start` on. Raises ArgumentError for invalid indices."""
        counts = np.zeros(self.length, np.int64)
        for number, chosen in enumerate(self._chosen(np.random.default_rng([seed, epoch]))):
            indices = self._checked(chosen)
            earlier = _earlier(indices, counts)
            counts[indices] = (0 if earlier is None else earlier) + 1  # for duplicates the last assignment wins
            if number >= start:
                yield Batch(indices, earlier)

    def _chosen(self, generator: np.random.Generator) -> Iterator[Any]:
        if self.batch_size is not None:
            return BatchSampler(self.sampler, self.batch_size, self.drop_last).batches(generator)
        if hasattr(self.sampler, "batches"):
            return iter(self.sampler.batches(generator))
        return iter(self.sampler)

    def _checked(self, chosen: Any) -> Order:
        kind = "batch_sampler" if self.batch_size is None else "sampler"
        try:
            values = chosen if isinstance(chosen, np.ndarray) else [operator.index(i) for i in chosen]
        except TypeError:
            values = np.zeros(1)
        indices = np.asarray(values)
        if indices.ndim != 1 or not indices.size or indices.dtype.kind not in "iu":
            wanted = "batches, each a list of at least one index" if self.batch_size is None else "indices"
            raise ArgumentError(f"a {kind} gives {wanted}, {type(self.sampler).__name__} gave {chosen!r}")
        if indices.min() < 0 or indices.max() >= self.length:
            wrong = indices.min() if indices.min() < 0 else indices.max()
            raise ArgumentError(
                f"the {kind} ({type(self.sampler).__name__}) gave index {wrong}: the dataset has {self.length} examples"
            )
        return indices.astype(np.int64, copy=False)


def _is_batching(sampler: Any) -> bool:
    return isinstance(sampler, BatchSampler)


def _earlier(indices: Order, counts: Order) -> Order | None:
    """Return the number of earlier occurrences of each index: `counts` before this batch, plus those within it."""
    before = counts[indices]
    permutation = np.argsort(indices, kind="stable")
    ordered = indices[permutation]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if is_first.all():
        return before if before.any() else None
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    before[permutation] += np.arange(len(ordered)) - starts
    return before
