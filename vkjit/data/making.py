"""Batches made on the host, by threads or by processes of this program.

Enters: a dataset, how examples become a batch, the numbers of the examples. Leaves: batches of arrays, in the order in which they
were asked for. What is random follows from the seed, the epoch and the number of the example, whoever makes it.
"""

from __future__ import annotations

import collections
import multiprocessing
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .dataset import ArrayDataset, Dataset
from .shared import Packed, drop, pack, unpack

__all__ = ["Maker", "Order", "Workers", "collate"]

Order = npt.NDArray[np.int64]


def collate(examples: list[Any]) -> Any:
    """Examples stacked along a new first axis, in the structure of the first: tuples, dictionaries, arrays, numbers."""
    first = examples[0]
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


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes batches of a dataset."""

    dataset: Any
    collate: Callable[[list[Any]], Any]

    def __call__(self, chosen: Order, seed: int, epoch: int) -> Any:
        """One batch of the examples with these numbers."""
        if isinstance(self.dataset, ArrayDataset) and self.collate is collate:
            return self.dataset.batch(chosen)
        examples = []
        for index in chosen.tolist():
            if isinstance(self.dataset, Dataset):
                examples.append(self.dataset.item(index, np.random.default_rng([seed, epoch, index])))
            else:
                examples.append(self.dataset[index])
        return self.collate(examples)


class _Own:
    """What a worker process makes batches with: it is sent once, when the process starts."""

    maker: Maker


def _begin(maker: Maker) -> None:
    _Own.maker = maker


def _made(chosen: Order, seed: int, epoch: int) -> Packed:
    return pack(_Own.maker(chosen, seed, epoch))


class Workers:
    """Threads, which start anew with each epoch, or processes, which stay until the loader goes."""

    def __init__(self, count: int, processes: bool) -> None:
        self.count, self.processes = count, processes
        self._pool: ProcessPoolExecutor | None = None

    def _process_pool(self, maker: Maker) -> ProcessPoolExecutor:
        if self._pool is None:
            # started from nothing: a copy of a process with open devices and threads of its own would not work
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, _begin, (maker,))
            weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        return self._pool

    def made(
        self, maker: Maker, batches: Iterator[Order], seed: int, epoch: int, ahead: int
    ) -> Iterator[tuple[Any, bool]]:
        """The batches in order, each with whether the next one is there already; `ahead` of them and one per worker are under
        way."""
        if not self.processes:
            with ThreadPoolExecutor(self.count, thread_name_prefix="vkjit-data") as pool:
                yield from self._in_order(pool, maker, batches, seed, epoch, ahead)
            return
        try:
            for packed, more in self._in_order(self._process_pool(maker), _made, batches, seed, epoch, ahead):
                yield unpack(packed), more
        except BrokenProcessPool as error:
            self._pool = None
            raise ArgumentError(
                "a worker process ended before it made a batch. Its own words are above, if it had any; a program that starts "
                'processes needs `if __name__ == "__main__":` around what it does, and a dataset whose parts can be sent to '
                "another process: no lambdas, no functions inside functions"
            ) from error

    def _in_order(
        self, pool: Executor, make: Callable[..., Any], batches: Iterator[Order], seed: int, epoch: int, ahead: int
    ) -> Iterator[tuple[Any, bool]]:
        queue: collections.deque[Future[Any]] = collections.deque()

        def first() -> tuple[Any, bool]:
            batch = queue.popleft().result()
            return batch, bool(queue) and queue[0].done()

        try:
            for chosen in batches:
                queue.append(pool.submit(make, chosen, seed, epoch))
                if len(queue) > ahead + self.count - 1:
                    yield first()
            while queue:
                yield first()
        finally:
            for future in queue:
                if not future.cancel():
                    future.add_done_callback(_dropped)


def _dropped(future: Future[Any]) -> None:
    """What a batch that nobody wants holds goes back."""
    if future.exception() is None and isinstance(future.result(), Packed):
        drop(future.result())
