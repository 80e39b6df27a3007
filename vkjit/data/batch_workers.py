"""Batch preparation on the host: threads or processes load, transform and stack the examples of each batch.

`DataLoader` passes the index batches of `batch_samplers` and uploads the results. They are returned in the order
requested. The random numbers of an example depend on the seed, the epoch, the example's index, and its number of
earlier occurrences in the epoch, but not on the worker.
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

from ..errors import ArgumentError, check_nesting
from ..tensor.ops.creation import check_unmasked
from .batch_samplers import Batch
from .dataset import ArrayDataset, Dataset
from .worker_processes import WorkerDied, WorkerProcesses

__all__ = ["BatchMaker", "Workers", "collate"]


def collate(examples: list[Any]) -> Any:
    """Stack examples (arrays, numbers, or tuples, lists and dictionaries of them) along a new first axis.

    The result has the structure of one example; lists become tuples.
    """
    try:
        return _stacked(examples)
    except RecursionError:
        check_nesting(examples, "a batch of examples")
        raise


def _stacked(examples: list[Any]) -> Any:
    first = examples[0]
    if isinstance(first, (tuple, list, dict)):
        _check_same_structure(examples)
    if isinstance(first, (tuple, list)):
        return tuple([_stacked([e[i] for e in examples]) for i in range(len(first))])
    if isinstance(first, dict):
        return {key: _stacked([e[key] for e in examples]) for key in first}
    for example in examples:
        check_unmasked(example)
    values = [np.asarray(e) for e in examples]
    shapes = {v.shape for v in values}
    if len(shapes) > 1:
        raise ArgumentError(
            f"examples of different shapes can't be stacked: found {sorted(shapes)}; bring them to one size in a transform, "
            "or pass collate="
        )
    return np.stack(values)


def _check_same_structure(examples: list[Any]) -> None:
    """Raise ArgumentError if an example has other keys or another length than the first.

    Otherwise `collate`, which follows the structure of the first example, would silently drop parts.
    """
    # what must agree: the keys of dictionaries, the length of tuples and lists, nothing for other values
    parts = [set(e) if isinstance(e, dict) else len(e) if isinstance(e, (tuple, list)) else None for e in examples]
    other = next((i for i, part in enumerate(parts) if part != parts[0]), None)
    if other is not None:
        raise ArgumentError(
            f"examples of different structure can't be stacked: {_structure(examples[0])} and {_structure(examples[other])}; bring "
            "them to one structure, or pass collate="
        )


def _structure(example: Any) -> str:
    """Describe the structure of an example for an error message."""
    if isinstance(example, dict):
        return f"a dictionary of {', '.join(map(repr, example))}"
    return f"{len(example)} parts" if isinstance(example, (tuple, list)) else f"a {type(example).__name__}"


@dataclass(frozen=True, slots=True)
class BatchMaker:
    """Callable that loads and stacks the examples of one batch. It is picklable, so worker processes can receive it."""

    dataset: Any
    collate: Callable[[list[Any]], Any]
    """Makes a batch of a list of examples."""

    def __call__(self, batch: Batch, seed: int, epoch: int) -> Any:
        """Return the batch of examples with the given indices."""
        indices = batch.indices
        # array datasets aren't random: index the arrays once instead of once per example
        if isinstance(self.dataset, ArrayDataset) and self.collate is collate:
            return self.dataset.batch(indices)
        if not isinstance(self.dataset, Dataset):
            return self.collate([self.dataset[index] for index in indices.tolist()])
        prior_counts = np.zeros_like(indices) if batch.prior_occurrences is None else batch.prior_occurrences
        examples = []
        for index, prior_count in zip(indices.tolist(), prior_counts.tolist(), strict=True):
            # an example that occurs again in the epoch gets other random numbers than before
            seed_words = [seed, epoch, index, prior_count] if prior_count else [seed, epoch, index]
            examples.append(self.dataset.item(index, np.random.default_rng(seed_words)))
        return self.collate(examples)


class Workers:
    """The worker pool of a loader: threads, restarted each epoch, or processes, which live as long as the loader."""

    def __init__(self, count: int, processes: bool) -> None:
        self.count, self.processes = count, processes
        self._pool: WorkerProcesses | None = None

    def prepare(
        self, maker: BatchMaker, batches: Iterator[Batch], seed: int, epoch: int, ahead: int
    ) -> Iterator[tuple[Any, bool]]:
        """Prepare the batches and yield pairs (batch, True if the next batch is ready already), in order.

        While the caller uses a batch, up to `ahead` + workers - 1 further batches are being prepared or are ready.
        """
        max_pending = ahead + self.count - 1
        if not self.processes:
            with ThreadPoolExecutor(self.count, thread_name_prefix="vkjit-data") as pool:
                yield from _by_threads(pool, maker, batches, seed, epoch, max_pending)
            return
        try:
            # after a fork, the worker processes belong to the parent, so the child process starts its own
            if self._pool is None or self._pool.owner != os.getpid():
                self._pool = _start_processes(self.count, maker)
            yield from _by_processes(self._pool, batches, seed, epoch, max_pending)
        except WorkerDied as error:
            self._pool = None
            raise ArgumentError(
                "a worker process ended before it made a batch. If it failed with an error, that is printed above. A program "
                'that starts processes needs `if __name__ == "__main__":` around its main code, and a dataset that can be '
                "pickled: without lambdas and functions inside functions"
            ) from error


def _start_processes(count: int, maker: BatchMaker) -> WorkerProcesses:
    """Start worker processes. Raises ArgumentError if the dataset or `collate` can't be pickled."""
    try:
        return WorkerProcesses(count, maker)
    except (PicklingError, AttributeError, TypeError) as error:
        raise ArgumentError(
            f"the dataset can't be sent to a process: {error}; processes take no lambdas, no functions inside functions and no "
            "open files: use functions and classes of modules, or threads (processes=False)"
        ) from error


def _by_threads(
    pool: Executor, maker: BatchMaker, batches: Iterator[Batch], seed: int, epoch: int, max_pending: int
) -> Iterator[tuple[Any, bool]]:
    """Implement `Workers.prepare` with threads.

    At most `max_pending` batches are submitted beyond the one yielded.
    """
    queue: collections.deque[Future[Any]] = collections.deque()

    def take_oldest() -> tuple[Any, bool]:
        batch = queue.popleft().result()
        return batch, bool(queue) and queue[0].done()

    try:
        for index_batch in batches:
            queue.append(pool.submit(maker, index_batch, seed, epoch))
            if len(queue) > max_pending:
                yield take_oldest()
        while queue:
            yield take_oldest()
    finally:
        for future in queue:
            future.cancel()


def _by_processes(
    processes: WorkerProcesses, batches: Iterator[Batch], seed: int, epoch: int, max_pending: int
) -> Iterator[tuple[Any, bool]]:
    """Implement `Workers.prepare` with processes.

    At most `max_pending` batches are submitted beyond the one yielded.
    """
    queue: collections.deque[int] = collections.deque()

    def take_oldest() -> tuple[Any, bool]:
        batch = processes.result(queue.popleft())
        return batch, bool(queue) and processes.is_ready(queue[0])

    try:
        for index_batch in batches:
            queue.append(processes.submit(index_batch, seed, epoch))
            if len(queue) > max_pending:
                yield take_oldest()
        while queue:
            yield take_oldest()
    finally:
        processes.forget(queue)
