"""Data loader: batches of examples, prepared by worker threads or processes and uploaded one batch ahead.

`DataLoader` combines the other modules: `batch_samplers` chooses the examples of each batch, `batch_workers` prepares
the batches on the host, and this module uploads them. A batch has the structure of an example, with tensors on a
device. The order depends only on seed and epoch, the randomness of an example also on its index and on how often it
occurred in the epoch. Neither depends on the workers, or on whether the iteration was interrupted and resumed.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import device as open_device
from ..errors import ArgumentError, VkjitError, check_nesting
from ..tensor import api as _api  # noqa: F401  # installs the tensor methods
from ..tensor.ops import creation
from .batch_samplers import IndexBatches, Indices
from .batch_workers import BatchMaker, Workers, collate
from .samplers import RandomSampler, SequentialSampler, as_array
from .torch_options import AliasedOptions, refuse_others, resolve_options

__all__ = ["DataLoader", "collate"]

_DEFAULTS = AliasedOptions(workers=0, prefetch=2, collate=collate)
"""The defaults of the `DataLoader` options that have aliases."""


class DataLoader:
    """An iterable over the batches of a dataset, as in `for x, y in DataLoader(data, 64, shuffle=True): ...`

    - `batch_size`: examples per batch. `drop_last` drops an incomplete last batch.
    - `shuffle`: False, True or "epoch" (a new order each epoch), or "once" (one random order for all epochs).
    - `sampler`: yields the example indices of an epoch, instead of `shuffle`. It is a sampler of `vkjit.data`, a
      sequence of indices, or any iterable of them.
    - `batch_sampler`: yields batches as lists of indices; replaces `batch_size`, `drop_last`, `shuffle` and `sampler`.
    - `seed`: seeds the order and the transforms.
    - `workers`: number of worker threads that prepare batches; with 0 the calling thread does. `prefetch`: number of
      batches that workers prepare ahead.
    - `processes`: use worker processes instead of threads. They don't compete with the training loop for the GIL, which
      helps with transforms written in Python and with devices that compute on the host.
    - `device`: where the tensors are placed (default: the default device). With `to_device=False`, batches are NumPy
      arrays.
    - `collate`: makes a batch of a list of examples.

    PyTorch's `num_workers` and `collate_fn` are aliases of `workers` and `collate`; `prefetch_factor` is the number of
    batches prepared ahead per worker. `pin_memory` and `persistent_workers` are accepted and ignored, because the
    loader uploads batches itself, and its worker processes live as long as the loader.

    Each iteration is a new epoch, even if the previous one was interrupted. `state_dict()` returns the position: the
    epoch and the number of batches yielded in it. After `load_state_dict` the next iteration resumes there.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | str | None = False,
        *,
        sampler: Any = None,
        batch_sampler: Any = None,
        seed: int = 0,
        drop_last: bool = False,
        workers: int = 0,
        prefetch: int = 2,
        processes: bool = False,
        device: Any = None,
        to_device: bool = True,
        collate: Callable[[list[Any]], Any] = collate,
        num_workers: int | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        prefetch_factor: int | None = None,
        pin_memory: bool = False,
        persistent_workers: bool = False,
        **others: Any,
    ) -> None:
        del pin_memory, persistent_workers
        refuse_others(others)
        names = {"num_workers": num_workers, "collate_fn": collate_fn, "prefetch_factor": prefetch_factor}
        options = resolve_options(AliasedOptions(workers, prefetch, collate), _DEFAULTS, names)
        shuffle = False if shuffle is None else shuffle
        _check(dataset, batch_size, shuffle, seed, processes, options)
        _check_samplers(sampler, batch_sampler, batch_size, shuffle, drop_last)
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self.shuffle = "epoch" if shuffle is True else shuffle
        self.seed, self.workers, self.prefetch = seed, options.workers, options.prefetch
        self.collate, self.to_device = options.collate, to_device
        # a sampler, or a batch sampler if `batch_size` is None
        self._sampler = _as_sampler(sampler if batch_sampler is None else batch_sampler, dataset, shuffle)
        self._workers = Workers(options.workers, processes)
        self._device = device
        self.epoch = 0
        self.position = 0
        """Number of batches yielded in this epoch."""
        self._resumes = False
        """True after `load_state_dict`: the next iteration resumes at `position`."""

    def __len__(self) -> int:
        return len(self._index_batches())

    def _index_batches(self) -> IndexBatches:
        """Return the object that generates the index batches of every epoch, from this loader's sampler and options."""
        return IndexBatches(self._sampler, self.batch_size, self.drop_last, len(self.dataset))

    # -- position

    def state_dict(self) -> dict[str, Any]:
        """Return the current position: the epoch and the number of batches yielded in it.

        The dictionary also holds the options that determine the batches, which `load_state_dict` compares. Raises
        ArgumentError for a sampler whose order isn't determined by the loader's seed and thus can't be resumed.
        """
        index_batches = self._index_batches()
        if not index_batches.is_reproducible:
            raise ArgumentError(
                f"the order of a {type(self._sampler).__name__} can't be told again, so an epoch can't be resumed: write it as a "
                "vk.data.Sampler, whose order(generator) depends only on the loader's seed, or pass a list of indices"
            )
        return {
            "epoch": self.epoch, "position": self.position, "seed": self.seed, "batch_size": self.batch_size,
            "length": len(self.dataset), "order": self._order_name(), "batches": len(index_batches),
        }  # fmt: skip

    def _order_name(self) -> str:
        """Return a text that identifies the order of examples, by which `load_state_dict` detects another order."""
        return f"shuffle={self.shuffle!r}" if self.shuffle else self._index_batches().name

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Set the position to one returned by `state_dict`; the next iteration resumes there.

        Raises ArgumentError if the position is that of a loader with other batches, or if the order can't be
        reproduced.
        """
        if not isinstance(state_dict, Mapping):
            raise ArgumentError(f"the state of a loader is a mapping, found a {type(state_dict).__name__}")
        current = {
            "batch_size": self.batch_size,
            "length": len(self.dataset),
            "order": self._order_name(),
            "batches": len(self),
        }
        for name, value in current.items():
            if state_dict.get(name, value) != value:
                raise ArgumentError(f"the position was saved with {name}={state_dict[name]}, this loader has {value}")
        if not self._index_batches().is_reproducible:
            self.state_dict()  # raises with the reason
        missing = [n for n in ("epoch", "position", "seed") if n not in state_dict]
        if missing:
            raise ArgumentError(
                f"the state of a loader has epoch, position and seed, this one lacks {', '.join(missing)}"
            )
        self.epoch, self.position, self.seed = (int(state_dict[n]) for n in ("epoch", "position", "seed"))
        self._resumes = True

    # -- iteration

    def _seed_epoch(self, epoch: int) -> int:
        """Return the epoch number that seeds the order of an epoch, together with the loader's seed.

        It is 0 for shuffle="once", so that all epochs have the same order.
        """
        return 0 if self.shuffle == "once" else epoch

    def order(self, epoch: int) -> Indices:
        """Return the example indices of an epoch, in order."""
        if not isinstance(epoch, int | np.integer) or epoch < 0:
            raise ArgumentError(f"order() takes the number of an epoch, from 0 on, found {epoch!r:.80}")
        batches = [b.indices for b in self._index_batches().batches(self.seed, self._seed_epoch(epoch))]
        return np.concatenate(batches) if batches else np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumes:  # the last iteration was interrupted: begin the next epoch
            self.epoch, self.position = self.epoch + 1, 0
        self._resumes = False
        epoch, seed = self.epoch, self.seed
        batches = self._index_batches().batches(seed, self._seed_epoch(epoch), self.position)
        maker = BatchMaker(self.dataset, self.collate)
        if self.workers:
            prepared = self._workers.prepare(maker, batches, seed, epoch, self.prefetch)
        else:
            # pairs (batch, True if the next one is ready), as `Workers.prepare` yields; without workers, none ever is
            prepared = ((maker(b, seed, epoch), False) for b in batches)
        target = open_device(self._device) if self.to_device else None
        uploaded: collections.deque[Any] = collections.deque()
        error: Exception | None = None
        owner_process = os.getpid()
        while True:
            if os.getpid() != owner_process:
                raise VkjitError(
                    "this iteration was begun before fork(), and its workers belong to the other process: "
                    "iterate over the loader anew"
                )
            try:
                batch, next_ready = next(prepared)
            except StopIteration:
                break
            except Exception as exception:  # noqa: BLE001  # raised below, after all earlier batches have been yielded
                error = exception
                break
            try:
                uploaded.append(batch if target is None else _uploaded(batch, target))
            except RecursionError:
                check_nesting(batch, "a batch")
                raise
            # if the next batch is ready, upload it before this one is yielded; otherwise don't wait for a worker
            while uploaded and (len(uploaded) > 1 or not next_ready):
                yield self._count_yielded(uploaded.popleft())
        while uploaded:
            yield self._count_yielded(uploaded.popleft())
        if error is not None:
            try:
                raise error
            finally:
                error = None  # breaks the reference cycle with this frame
        self.epoch, self.position = epoch + 1, 0

    def _count_yielded(self, batch: Any) -> Any:
        """Count the batch, which is about to be yielded, and return it."""
        self.position += 1
        return batch


def _check(dataset: Any, batch_size: Any, shuffle: Any, seed: Any, processes: bool, options: AliasedOptions) -> None:
    """Raise ArgumentError if `dataset` isn't a dataset, or if an option has a wrong type or is out of range."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise ArgumentError(
            f"a dataset has a length and numbered examples, found a {type(dataset).__name__}: write __len__() and __getitem__(), "
            "as in vk.data.Dataset, or put what it gives into a list"
        )
    if type(batch_size) is not int or batch_size < 1:
        raise ArgumentError(f"batch_size is an int of at least 1, found {batch_size!r}")
    if shuffle not in (False, True, "once", "epoch"):
        raise ArgumentError(f'shuffle is False, True, "epoch" or "once", found {shuffle!r}')
    workers, prefetch = options.workers, options.prefetch
    if type(workers) is not int or type(prefetch) is not int or workers < 0 or prefetch < 1:
        raise ArgumentError(
            f"workers is an int of at least 0 and prefetch one of at least 1, found {workers!r} and {prefetch!r}"
        )
    if type(seed) is not int or seed < 0:
        raise ArgumentError(f"seed is an int of at least 0, found {seed!r}")
    if not callable(options.collate):
        raise ArgumentError(f"collate is a function of a list of examples, found {options.collate!r}")
    if processes and not workers:
        raise ArgumentError("processes=True needs workers, found workers=0")


def _check_samplers(sampler: Any, batch_sampler: Any, batch_size: int, shuffle: Any, drop_last: bool) -> None:
    """Raise ArgumentError if options that define the batches contradict each other, or a sampler isn't re-iterable."""
    if batch_sampler is not None and (sampler is not None or shuffle or drop_last or batch_size != 1):
        raise ArgumentError("a batch_sampler gives whole batches: leave out batch_size, shuffle, sampler and drop_last")
    if sampler is not None and shuffle:
        raise ArgumentError(
            f"a sampler gives the order: leave out shuffle, found shuffle={shuffle!r} beside a {type(sampler).__name__}"
        )
    for name, argument in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if argument is not None and (not hasattr(argument, "__iter__") or iter(argument) is argument):
            raise ArgumentError(
                f"a {name} gives indices each time it is iterated over, found a {type(argument).__name__}"
            )


def _as_sampler(given: Any, dataset: Any, shuffle: Any) -> Any:
    """Return the sampler `given`, as a NumPy array if it is a tensor; if None, the sampler that `shuffle` selects."""
    if given is not None:
        return as_array(given) if hasattr(given, "numpy") else given
    return RandomSampler(dataset) if shuffle else SequentialSampler(dataset)


def _uploaded(batch: Any, device: Any) -> Any:
    """Upload the arrays of a batch as tensors. f64 becomes f32, because models usually compute in f32."""
    if isinstance(batch, (tuple, list)):
        return tuple(_uploaded(b, device) for b in batch)
    if isinstance(batch, dict):
        return {key: _uploaded(value, device) for key, value in batch.items()}
    if not isinstance(batch, np.ndarray) or batch.dtype.kind not in "biuf":
        return batch
    element = dtypes.f32 if batch.dtype == np.float64 else dtypes.from_numpy(batch.dtype)
    return creation.upload(batch, element, device)
