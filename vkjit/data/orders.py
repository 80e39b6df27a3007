"""What the batches of an epoch are made of: the numbers of their examples.

Enters: samplers, or sequences of indices, or anything that gives indices when it is iterated over; seed and epoch. Leaves: per
batch the indices, and how often each has come before in the epoch. The orders of samplers follow from seed and epoch, so that an
epoch can begin later; those of other iterables can't be told again.
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
    earlier: Order | None
    """How often each example came before in this epoch; None where none did."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders that a loader takes examples in: those of a sampler, `batch_size` at a time, or batches of a batch sampler."""

    sampler: Any
    batch_size: int | None
    """None: the sampler is a batch sampler."""
    drop_last: bool
    length: int
    """Examples of the dataset."""

    def __len__(self) -> int:
        if self.batch_size is None:
            return len(self.sampler)
        return len(BatchSampler(self.sampler, self.batch_size, self.drop_last))

    @property
    def name(self) -> str:
        """What a saved place remembers of the sampler."""
        inner = self.sampler
        return (
            f"{type(inner).__name__}({type(inner.sampler).__name__})" if _is_batching(inner) else type(inner).__name__
        )

    @property
    def can_be_told_again(self) -> bool:
        """Whether seed and epoch are all that an order follows from."""
        inner = self.sampler.sampler if _is_batching(self.sampler) else self.sampler
        return isinstance(inner, (Sampler, Sequence, np.ndarray)) or (
            self.batch_size is None and hasattr(inner, "batches")
        )

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from batch `start` on. Raises ArgumentError for what are no indices of the dataset."""
        counts = np.zeros(self.length, np.int64)
        for number, chosen in enumerate(self._chosen(np.random.default_rng([seed, epoch]))):
            indices = self._checked(chosen)
            earlier = _earlier(indices, counts)
            counts[indices] = (
                0 if earlier is None else earlier
            ) + 1  # of one that comes twice the later place is written
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
            found = chosen if isinstance(chosen, np.ndarray) else [operator.index(i) for i in chosen]
        except TypeError:
            found = np.zeros(1)
        indices = np.asarray(found)
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
    """How often each index came before: `counts` times before this batch, and in it."""
    before = counts[indices]
    places = np.argsort(indices, kind="stable")
    ordered = indices[places]
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    if is_first.all():
        return before if before.any() else None
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    before[places] += np.arange(len(ordered)) - starts
    return before
