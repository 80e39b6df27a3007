"""Datasets: indexed collections of examples.

An example is a NumPy array, a number, or a tuple of them. Datasets are read from several threads at once; randomness is
drawn from a generator that the loader creates per example.
"""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

__all__ = ["ArrayDataset", "ConcatDataset", "Dataset", "Subset", "Transformed", "checked_index", "split"]

Generator = np.random.Generator


def checked_index(index: int, length: int, owner: str) -> int:
    """Normalize an index to 0..length - 1; negative ones count from the end. Raises IndexError if out of range.

    Raises ArgumentError if it is no integer.
    """
    try:
        index = operator.index(index)
    except TypeError:
        raise ArgumentError(f"{owner}: the index of an example is an integer, found a {type(index).__name__}") from None
    if not -length <= index < length:
        raise IndexError(f"{owner}: example {index} is out of range for {length} examples")
    return index % length


def checked_indices(indices: Any, owner: str) -> npt.NDArray[np.int64]:
    """Return indices of examples, given as an array or an iterable, as an array. Raises ArgumentError for other values."""
    try:
        values = np.asarray(indices if hasattr(indices, "__array__") else list(indices)).reshape(-1)
    except (TypeError, ValueError):
        raise ArgumentError(f"{owner} takes indices, integers, found a {type(indices).__name__}") from None
    if values.size and values.dtype.kind not in "iu":
        raise ArgumentError(f"{owner} takes indices, integers, found {values.dtype}")
    return values.astype(np.int64)


class Dataset:
    """An indexed collection of examples: the base class of datasets.

    Subclasses define `__len__`, and either `__getitem__` or `item`. Define `item`, which takes a random generator, if
    the examples are random.
    """

    classes: Sequence[str] = ()
    """Names of the classes, indexed by label; empty if unknown."""

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__(): write it, the number of examples")

    def __getitem__(self, index: int) -> Any:
        position = checked_index(index, len(self), type(self).__name__)
        return self.item(position, np.random.default_rng(position))  # without a loader, the index is the seed

    def item(self, index: int, generator: Generator) -> Any:
        """Return example `index`, drawing any randomness from the generator."""
        del generator
        if type(self).__getitem__ is Dataset.__getitem__:
            raise NotImplementedError(f"{type(self).__name__} has neither __getitem__() nor item(): write one of them")
        return self[index]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


class ArrayDataset(Dataset):
    """A dataset of arrays whose first axes have the same size.

    Example i is the tuple of the arrays' i-th entries; with a single array, the entry itself.
    """

    def __init__(self, *arrays: Any, classes: Sequence[str] = ()) -> None:
        if not arrays:
            raise ArgumentError("ArrayDataset needs at least one array, found none")
        self.arrays: tuple[npt.NDArray[Any], ...] = tuple(
            a if isinstance(a, np.ndarray) else np.asarray(a) for a in arrays
        )
        lengths = [len(a) if a.ndim else None for a in self.arrays]
        if None in lengths or len(set(lengths)) != 1:
            raise ArgumentError(
                f"the arrays of a dataset have one first size, found shapes {[a.shape for a in self.arrays]}"
            )
        self.classes = tuple(classes)

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        position = checked_index(index, len(self), "ArrayDataset")
        return self.arrays[0][position] if len(self.arrays) == 1 else tuple(a[position] for a in self.arrays)

    def batch(self, indices: npt.NDArray[np.int64]) -> Any:
        """Return the examples at `indices`, stacked, by indexing each array once."""
        return self.arrays[0][indices] if len(self.arrays) == 1 else tuple(a[indices] for a in self.arrays)


class Subset(Dataset):
    """The examples of another dataset at given indices, in the order of the indices."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset = dataset
        self.indices = checked_indices(indices, "Subset")
        if len(self.indices) and not (self.indices.min() >= 0 and self.indices.max() < len(dataset)):
            raise ArgumentError(f"the indices of a subset lie between 0 and {len(dataset) - 1}")
        self.classes = getattr(dataset, "classes", ())

    def __len__(self) -> int:
        return len(self.indices)

    def item(self, index: int, generator: Generator) -> Any:
        position = int(self.indices[checked_index(index, len(self), "Subset")])
        return _item(self.dataset, position, generator)


class ConcatDataset(Dataset):
    """The concatenation of datasets, given as arguments or as one list."""

    def __init__(self, *datasets: Any) -> None:
        if len(datasets) == 1 and isinstance(datasets[0], (list, tuple)):
            datasets = tuple(datasets[0])
        if not datasets:
            raise ArgumentError("ConcatDataset needs at least one dataset, found none")
        for dataset in datasets:
            if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
                raise ArgumentError(f"ConcatDataset takes datasets, found a {type(dataset).__name__}")
        self.datasets = datasets
        self.ends = list(itertools.accumulate(len(d) for d in datasets))
        """For each dataset, the position after its last example."""
        self.classes = getattr(datasets[0], "classes", ())

    def __len__(self) -> int:
        return self.ends[-1]

    def item(self, index: int, generator: Generator) -> Any:
        position = checked_index(index, len(self), "ConcatDataset")
        number = bisect.bisect_right(self.ends, position)  # of the dataset
        start = self.ends[number - 1] if number else 0  # the dataset's first position
        return _item(self.datasets[number], position - start, generator)


class Transformed(Dataset):
    """Another dataset with transforms `f(x, generator)` applied to its examples.

    If an example is a tuple, `transform` applies to its first entry and `target` to its second. Otherwise `transform`
    applies to the example itself.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[[Any, Generator], Any] | None = None,
        target: Callable[[Any, Generator], Any] | None = None,
    ) -> None:
        self.dataset, self.transform, self.target = dataset, transform, target
        self.classes = getattr(dataset, "classes", ())

    def __len__(self) -> int:
        return len(self.dataset)

    def item(self, index: int, generator: Generator) -> Any:
        example = _item(self.dataset, checked_index(index, len(self), "Transformed"), generator)
        parts = list(example) if isinstance(example, tuple) else [example]
        if self.transform is not None:
            parts[0] = self.transform(parts[0], generator)
        if self.target is not None and len(parts) > 1:
            parts[1] = self.target(parts[1], generator)
        return tuple(parts) if isinstance(example, tuple) else parts[0]


def _item(dataset: Any, index: int, generator: Generator) -> Any:
    """Return an example of a dataset. A `Dataset` gets the generator; any other object is indexed without it."""
    return dataset.item(index, generator) if isinstance(dataset, Dataset) else dataset[index]


def split(dataset: Any, ratios: Sequence[float], *, seed: int | None = 0) -> list[Subset]:
    """Split a dataset into disjoint parts with sizes proportional to `ratios`, one part per ratio.

    Sizes are rounded by the largest-remainder method, so that they add up. The examples are shuffled by the seed first;
    with seed None they keep their order.
    """
    weights = np.asarray(ratios, np.float64)
    if weights.ndim != 1 or not len(weights) or not (weights >= 0).all() or not weights.sum() > 0:
        raise ArgumentError(f"ratios are numbers of at least 0, not all 0, found {ratios!r}")
    count = len(dataset)
    order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
    exact_sizes = weights / weights.sum() * count
    sizes = np.floor(exact_sizes + 1e-9).astype(np.int64)  # 1e-9: an integer with a rounding error isn't rounded down
    # the examples left over go to the parts with the largest remainders
    sizes[np.argsort(sizes - exact_sizes, kind="stable")[: count - int(sizes.sum())]] += 1
    ends = np.cumsum(sizes)
    return [Subset(dataset, order[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
