"""Data loader: batches of examples, prepared by worker threads or processes and uploaded one batch ahead.

Batches have the structure of the examples, with tensors on a device. The order and all randomness depend only on (seed,
epoch, example index), not on the workers or on whether the iteration was interrupted and resumed.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import device as open_device
from ..errors import ArgumentError, VkjitError
from ..tensor import api as _api  # noqa: F401  # installs the tensor methods
from ..tensor.ops import creation
from .batch_samplers import Order, Orders
from .batch_workers import Maker, Workers, collate
from .samplers import RandomSampler, SequentialSampler, as_array
from .torch_options import Named, refuse_others, resolved

__all__ = ["DataLoader", "collate"]

_DEFAULTS = Named(workers=0, prefetch=2, collate=collate)


class DataLoader:
    """An iterable over batches of a dataset: `for x, y in DataLoader(data, 64, shuffle=True): ...`

    batch_size: examples per batch; drop_last drops an incomplete last batch. shuffle: False, True or "epoch" (a new
    order each epoch), "once" (one order for all epochs). sampler: yields the indices of an epoch, instead of shuffle:
    one of `vkjit.data`, a sequence, or any iterable. batch_sampler: yields batches as lists of indices, instead of all
    of these. seed: seeds orders and transforms. workers: number of threads that prepare batches (0: none); prefetch:
    batches prepared ahead. processes: use worker processes, which don't compete for the GIL with the training; for
    Python-heavy transforms, and devices that compute on the host. device: where tensors are placed (default: the
    default device); with to_device=False, batches are NumPy arrays. collate: makes a batch of a list of examples.

    num_workers and collate_fn are aliases of workers and collate; prefetch_factor is prefetch per worker. pin_memory
    and persistent_workers are accepted and ignored: batches are uploaded anyway, and worker processes live as long as
    the loader.

    Each iteration is a new epoch, even after an interrupted one. `state_dict()` holds the position: the epoch and the
    number of batches yielded in it. After `load_state_dict` the next iteration resumes there.
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
        options = resolved(Named(workers, prefetch, collate), _DEFAULTS, names)
        shuffle = False if shuffle is None else shuffle
        _check(dataset, batch_size, shuffle, seed, processes, options)
        _check_samplers(sampler, batch_sampler, batch_size, shuffle, drop_last)
        self.dataset, self.drop_last = dataset, drop_last
        self.batch_size = None if batch_sampler is not None else batch_size
        self.shuffle = "epoch" if shuffle is True else shuffle
        self.seed, self.workers, self.prefetch = seed, options.workers, options.prefetch
        self.collate, self.to_device = options.collate, to_device
        self._sampler = _as_sampler(sampler if batch_sampler is None else batch_sampler, dataset, shuffle)
        self._workers = Workers(options.workers, processes)
        self._device = device
        self.epoch = 0
        self.position = 0
        """Batches yielded in this epoch."""
        self._resumes = False
        """True after `load_state_dict`: the next iteration resumes at `position`."""

    def __len__(self) -> int:
        return len(self._orders())

    def _orders(self) -> Orders:
        return Orders(self._sampler, self.batch_size, self.drop_last, len(self.dataset))

    # -- position

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the batches yielded in it, and what determines the order.

        Raises ArgumentError for a sampler whose order isn't determined by the loader's seed and thus can't be resumed.
        """
        orders = self._orders()
        if not orders.is_reproducible:
            raise ArgumentError(
                f"the order of a {type(self._sampler).__name__} can't be told again, so there is no place to go on from: write it "
                "as a vk.data.Sampler, whose order(generator) follows from the loader's seed, or give a list of indices"
            )
        return {
            "epoch": self.epoch, "position": self.position, "seed": self.seed, "batch_size": self.batch_size,
            "length": len(self.dataset), "order": self._order_name(), "batches": len(orders),
        }  # fmt: skip

    def _order_name(self) -> str:
        return f"shuffle={self.shuffle!r}" if self.shuffle else self._orders().name

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Resume from a saved position. Raises ArgumentError if it doesn't match this loader's batches."""
        own = {
            "batch_size": self.batch_size,
            "length": len(self.dataset),
            "order": self._order_name(),
            "batches": len(self),
        }
        for name, value in own.items():
            if state_dict.get(name, value) != value:
                raise ArgumentError(f"the place was saved with {name}={state_dict[name]}, this loader has {value}")
        if not self._orders().is_reproducible:
            self.state_dict()  # raises with the reason
        missing = [n for n in ("epoch", "position", "seed") if n not in state_dict]
        if missing:
            raise ArgumentError(
                f"the place of a loader has epoch, position and seed, this one lacks {', '.join(missing)}"
            )
        self.epoch, self.position, self.seed = (int(state_dict[n]) for n in ("epoch", "position", "seed"))
        self._resumes = True

    # -- iteration

    def _order_epoch(self, epoch: int) -> int:
        """Return the epoch whose order is used."""
        return 0 if self.shuffle == "once" else epoch

    def order(self, epoch: int) -> Order:
        """Return the example indices of an epoch, in order."""
        batches = [b.indices for b in self._orders().batches(self.seed, self._order_epoch(epoch))]
        return np.concatenate(batches) if batches else np.zeros(0, np.int64)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._resumes:  # the last epoch was interrupted: skip the rest
            self.epoch, self.position = self.epoch + 1, 0
        self._resumes = False
        epoch, seed = self.epoch, self.seed
        batches = self._orders().batches(seed, self._order_epoch(epoch), self.position)
        make = Maker(self.dataset, self.collate)
        if self.workers:
            made = self._workers.made(make, batches, seed, epoch, self.prefetch)
        else:
            made = ((make(b, seed, epoch), False) for b in batches)
        target = open_device(self._device) if self.to_device else None
        waiting: collections.deque[Any] = collections.deque()
        error: Exception | None = None
        owner = os.getpid()
        while True:
            if os.getpid() != owner:
                raise VkjitError(
                    "this iteration was begun before fork(), and its workers answer the other process: iterate over the loader anew"
                )
            try:
                batch, more = next(made)
            except StopIteration:
                break
            except Exception as exception:  # noqa: BLE001  # raised after the batches before it have been yielded
                error = exception
                break
            waiting.append(batch if target is None else _uploaded(batch, target))
            while waiting and (len(waiting) > 1 or not more):  # upload one batch ahead, but don't wait for it
                yield self._yielded(waiting.popleft())
        while waiting:
            yield self._yielded(waiting.popleft())
        if error is not None:
            try:
                raise error
            finally:
                error = None  # breaks the reference cycle with this frame
        self.epoch, self.position = epoch + 1, 0

    def _yielded(self, batch: Any) -> Any:
        self.position += 1
        return batch


def _check(dataset: Any, batch_size: Any, shuffle: Any, seed: Any, processes: bool, options: Named) -> None:
    """Raise ArgumentError for options out of range."""
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
    """Raise ArgumentError if options conflict about the batches."""
    if batch_sampler is not None and (sampler is not None or shuffle or drop_last or batch_size != 1):
        raise ArgumentError("a batch_sampler gives whole batches: leave out batch_size, shuffle, sampler and drop_last")
    if sampler is not None and shuffle:
        raise ArgumentError(
            f"a sampler gives the order: leave out shuffle, found shuffle={shuffle!r} beside a {type(sampler).__name__}"
        )
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None and (not hasattr(given, "__iter__") or iter(given) is given):
            raise ArgumentError(f"a {name} gives indices each time it is iterated over, found a {type(given).__name__}")


def _as_sampler(given: Any, dataset: Any, shuffle: Any) -> Any:
    if given is not None:
        return as_array(given) if hasattr(given, "numpy") else given
    return RandomSampler(dataset) if shuffle else SequentialSampler(dataset)


def _uploaded(batch: Any, device: Any) -> Any:
    """Upload the arrays of a batch as tensors; f64 becomes f32, the usual type of models."""
    if isinstance(batch, (tuple, list)):
        return tuple(_uploaded(b, device) for b in batch)
    if isinstance(batch, dict):
        return {key: _uploaded(value, device) for key, value in batch.items()}
    if not isinstance(batch, np.ndarray) or batch.dtype.kind not in "biuf":
        return batch
    element = dtypes.f32 if batch.dtype == np.float64 else dtypes.from_numpy(batch.dtype)
    return creation.upload(batch, element, device)
