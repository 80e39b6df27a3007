"""Batch preparation on the host, by threads or processes.

Batches are returned in the order requested. Randomness depends on the seed, the epoch, the example's index, and its
number of earlier occurrences in the epoch, not on the worker.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pickle import PicklingError
from typing import Any

import numpy as np

from ..errors import ArgumentError
from .batch_samplers import Batch
from .dataset import ArrayDataset, Dataset
from .worker_processes import ProcessEnded, Processes

__all__ = ["Maker", "Workers", "collate"]


def collate(examples: list[Any]) -> Any:
    """Stack examples along a new first axis, in the structure of the first: tuples, dictionaries, arrays, numbers."""
    first = examples[0]
    if isinstance(first, (tuple, list, dict)):
        _check_alike(examples)
    if isinstance(first, (tuple, list)):
        return tuple(collate([e[i] for e in examples]) for i in range(len(first)))
    if isinstance(first, dict):
        return {key: collate([e[key] for e in examples]) for key in first}
    values = [np.asarray(e) for e in examples]
    shapes = {v.shape for v in values}
    if len(shapes) > 1:
        raise ArgumentError(
            f"examples of different shapes can't be stacked: found {sorted(shapes)}; bring them to one size in a transform, "
            "or pass collate="
        )
    return np.stack(values)


def _check_alike(examples: list[Any]) -> None:
    """Raise ArgumentError for examples whose structure differs from the first, rather than silently dropping parts."""
    parts = [set(e) if isinstance(e, dict) else len(e) if isinstance(e, (tuple, list)) else None for e in examples]
    other = next((i for i, found in enumerate(parts) if found != parts[0]), None)
    if other is not None:
        raise ArgumentError(
            f"examples of different structure can't be stacked: {_structure(examples[0])} and {_structure(examples[other])}; bring "
            "them to one structure, or pass collate="
        )


def _structure(example: Any) -> str:
    if isinstance(example, dict):
        return f"a dictionary of {', '.join(map(repr, example))}"
    return f"{len(example)} parts" if isinstance(example, (tuple, list)) else f"a {type(example).__name__}"


@dataclass(frozen=True, slots=True)
class Maker:
    """Callable that makes batches of a dataset."""

    dataset: Any
    collate: Callable[[list[Any]], Any]

    def __call__(self, batch: Batch, seed: int, epoch: int) -> Any:
        """Return one batch."""
        indices = batch.indices
        if isinstance(self.dataset, ArrayDataset) and self.collate is collate:
            return self.dataset.batch(indices)
        if not isinstance(self.dataset, Dataset):
            return self.collate([self.dataset[index] for index in indices.tolist()])
        earlier = np.zeros_like(indices) if batch.prior_occurrences is None else batch.prior_occurrences
        examples = []
        for index, times in zip(indices.tolist(), earlier.tolist(), strict=True):
            source = [seed, epoch, index, times] if times else [seed, epoch, index]
            examples.append(self.dataset.item(index, np.random.default_rng(source)))
        return self.collate(examples)


class Workers:
    """A pool of worker threads, restarted each epoch, or of processes, which live as long as the loader."""

    def __init__(self, count: int, processes: bool) -> None:
        self.count, self.processes = count, processes
        self._started: Processes | None = None

    def made(
        self, maker: Maker, batches: Iterator[Batch], seed: int, epoch: int, ahead: int
    ) -> Iterator[tuple[Any, bool]]:
        """Yield (batch, True if the next batch is ready) in order.

        `ahead` batches, and one more for each worker after the first, are prepared concurrently.
        """
        under_way = ahead + self.count - 1
        if not self.processes:
            with ThreadPoolExecutor(self.count, thread_name_prefix="vkjit-data") as pool:
                yield from _by_threads(pool, maker, batches, seed, epoch, under_way)
            return
        try:
            if (
                self._started is None or self._started.owner != os.getpid()
            ):  # after a fork the workers serve the other process
                self._started = _started(self.count, maker)
            yield from _by_processes(self._started, batches, seed, epoch, under_way)
        except ProcessEnded as error:
            self._started = None
            raise ArgumentError(
                "a worker process ended before it made a batch. Its own words are above, if it had any; a program that starts "
                'processes needs `if __name__ == "__main__":` around what it does, and a dataset whose parts can be sent to '
                "another process: no lambdas, no functions inside functions"
            ) from error


def _started(count: int, maker: Maker) -> Processes:
    try:
        return Processes(count, maker)
    except (PicklingError, AttributeError, TypeError) as error:
        raise ArgumentError(
            f"the dataset can't be sent to a process: {error}; processes take no lambdas, no functions inside functions and no "
            "open files: use functions and classes of modules, or threads (processes=False)"
        ) from error


def _by_threads(
    pool: Executor, maker: Maker, batches: Iterator[Batch], seed: int, epoch: int, under_way: int
) -> Iterator[tuple[Any, bool]]:
    queue: collections.deque[Future[Any]] = collections.deque()

    def first() -> tuple[Any, bool]:
        batch = queue.popleft().result()
        return batch, bool(queue) and queue[0].done()

    try:
        for chosen in batches:
            queue.append(pool.submit(maker, chosen, seed, epoch))
            if len(queue) > under_way:
                yield first()
        while queue:
            yield first()
    finally:
        for future in queue:
            future.cancel()


def _by_processes(
    processes: Processes, batches: Iterator[Batch], seed: int, epoch: int, under_way: int
) -> Iterator[tuple[Any, bool]]:
    queue: collections.deque[int] = collections.deque()

    def first() -> tuple[Any, bool]:
        batch = processes.result(queue.popleft())
        return batch, bool(queue) and processes.is_ready(queue[0])

    try:
        for chosen in batches:
            queue.append(processes.submit(chosen, seed, epoch))
            if len(queue) > under_way:
                yield first()
        while queue:
            yield first()
    finally:
        processes.forget(queue)
