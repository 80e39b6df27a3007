"""Batches of examples, made ahead by worker threads or processes and put on the device one batch ahead.

Enters: a dataset, the size of batches, seeds. Leaves: batches, tensors on a device in the structure of the examples. Order and
everything random follow from (seed, epoch, number of the example): they don't depend on threads, nor on whether the
iteration was broken off and resumed.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..devices import device as open_device
from ..errors import ArgumentError
from ..tensor import api as _api  # noqa: F401  # puts the methods on Tensor
from ..tensor import creation
from .making import Maker, Order, Workers, collate

__all__ = ["DataLoader", "collate"]


class DataLoader:
    """Iterates over batches of a dataset: `for x, y in DataLoader(data, 64, shuffle=True): ...`

    batch_size: examples of a batch; drop_last leaves a smaller last one out. shuffle: False, True or "epoch" (another order each
    epoch), "once" (one order for all epochs). seed: of orders and of what transforms draw. workers: threads that make batches
    (0: none), prefetch: batches made ahead. processes: the workers are processes, which don't take turns with the training at
    running Python: for transforms of much Python, and devices that compute on the host. device: where tensors go (default: the
    default device; with to_device=False NumPy arrays are handed out). collate: makes a batch of a list of examples.

    Each iteration is an epoch, also after one that was broken off. `state_dict()` is the place: the epoch and the number of batches
    handed out in it. After `load_state_dict` the next iteration goes on from there.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool | str = False,
        *,
        seed: int = 0,
        drop_last: bool = False,
        workers: int = 0,
        prefetch: int = 2,
        processes: bool = False,
        device: Any = None,
        to_device: bool = True,
        collate: Callable[[list[Any]], Any] = collate,
    ) -> None:
        if type(batch_size) is not int or batch_size < 1:
            raise ArgumentError(f"batch_size is an int of at least 1, found {batch_size!r}")
        if shuffle not in (False, True, "once", "epoch"):
            raise ArgumentError(f'shuffle is False, True, "epoch" or "once", found {shuffle!r}')
        if type(workers) is not int or type(prefetch) is not int or workers < 0 or prefetch < 1:
            raise ArgumentError(
                f"workers is an int of at least 0 and prefetch one of at least 1, found {workers!r} and {prefetch!r}"
            )
        if type(seed) is not int or seed < 0:
            raise ArgumentError(f"seed is an int of at least 0, found {seed!r}")
        if not callable(collate):
            raise ArgumentError(f"collate is a function of a list of examples, found {collate!r}")
        if processes and not workers:
            raise ArgumentError("processes=True needs workers, found workers=0")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.shuffle = "epoch" if shuffle is True else shuffle
        self.seed, self.workers, self.prefetch = seed, workers, prefetch
        self.collate, self.to_device = collate, to_device
        self._workers = Workers(workers, processes)
        self._device = device
        self.epoch = 0
        self.position = 0
        """Batches of this epoch that have been handed out."""
        self._goes_on = False
        """Whether the next iteration goes on from the place: it has been loaded."""

    def __len__(self) -> int:
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole if self.drop_last or not rest else whole + 1

    # -- the place

    def state_dict(self) -> dict[str, Any]:
        """Epoch, batches handed out in it, and what the order follows from."""
        return {
            "epoch": self.epoch, "position": self.position, "seed": self.seed, "batch_size": self.batch_size,
            "length": len(self.dataset),
        }  # fmt: skip

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes on from a place. Raises ArgumentError where it belongs to other batches."""
        for name, own in (("batch_size", self.batch_size), ("length", len(self.dataset))):
            if state_dict[name] != own:
                raise ArgumentError(f"the place was saved with {name}={state_dict[name]}, this loader has {own}")
        self.epoch, self.position, self.seed = (int(state_dict[n]) for n in ("epoch", "position", "seed"))
        self._goes_on = True

    # -- iteration

    def order(self, epoch: int) -> Order:
        """The numbers of the examples as an epoch takes them."""
        count = len(self.dataset)
        if not self.shuffle:
            return np.arange(count)
        source = [self.seed, epoch if self.shuffle == "epoch" else 0]
        return np.random.default_rng(source).permutation(count)

    def __iter__(self) -> Iterator[Any]:
        if self.position and not self._goes_on:  # the last epoch was broken off: the rest of it is left out
            self.epoch, self.position = self.epoch + 1, 0
        self._goes_on = False
        epoch, start = self.epoch, self.position
        order = self.order(epoch)
        count = len(self)
        batches = (order[i * self.batch_size : (i + 1) * self.batch_size] for i in range(start, count))
        make, seed = Maker(self.dataset, self.collate), self.seed
        if self.workers:
            made = self._workers.made(make, batches, seed, epoch, self.prefetch)
        else:
            made = ((make(b, seed, epoch), False) for b in batches)
        target = open_device(self._device) if self.to_device else None
        waiting: collections.deque[Any] = collections.deque()
        for batch, more in made:
            waiting.append(batch if target is None else _uploaded(batch, target))
            while waiting and (
                len(waiting) > 1 or not more
            ):  # one goes to the device ahead, but none waits for the next
                yield self._handed_out(waiting.popleft())
        while waiting:
            yield self._handed_out(waiting.popleft())
        self.epoch, self.position = epoch + 1, 0

    def _handed_out(self, batch: Any) -> Any:
        self.position += 1
        return batch


def _uploaded(batch: Any, device: Any) -> Any:
    """The batch's arrays as tensors; f64 as f32, which models are made of."""
    if isinstance(batch, (tuple, list)):
        return tuple(_uploaded(b, device) for b in batch)
    if isinstance(batch, dict):
        return {key: _uploaded(value, device) for key, value in batch.items()}
    if not isinstance(batch, np.ndarray) or batch.dtype.kind not in "biuf":
        return batch
    element = dtypes.f32 if batch.dtype == np.float64 else dtypes.from_numpy(batch.dtype)
    return creation.upload(batch, element, device)
