"""Textual summaries of datasets: sizes, shapes, dtypes, value ranges and label counts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dataset import ArrayDataset

__all__ = ["DatasetInfo", "describe"]


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The summary of a dataset that `describe` returns; prints as a short text."""

    kind: str
    """Name of the dataset's class."""
    examples: int
    """Number of examples."""
    entries: tuple[str, ...]
    """For each entry of an example, such as image and label, a text with its shape, dtype and range of values."""
    labels: dict[str, int]
    """Number of examples per label, by class name if known; empty if the last entry is no integer label."""
    nbytes: int | None
    """Size of all arrays in bytes, or None if the dataset doesn't consist of arrays."""

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: {self.examples:,} examples" + (f", {self.nbytes:,} bytes" if self.nbytes is not None else "")
        ]
        lines += [f"  {number}: {entry}" for number, entry in enumerate(self.entries)]
        if self.labels:
            lines.append("  labels: " + ", ".join(f"{name} {count:,}" for name, count in self.labels.items()))
        return "\n".join(lines)


def describe(dataset: Any, *, at_most: int = 1000) -> DatasetInfo:
    """Summarize a dataset. Unless it is an `ArrayDataset`, only the first `at_most` examples are loaded.

    Ranges and label counts then cover only these examples.
    """
    count = len(dataset)
    if isinstance(dataset, ArrayDataset):
        columns: list[Any] = list(dataset.arrays)
        shapes = [(a.shape[1:], a.dtype) for a in columns]
        nbytes: int | None = sum(a.nbytes for a in columns)
    else:
        examples = [dataset[i] for i in range(min(count, at_most))]
        rows = [e if isinstance(e, tuple) else (e,) for e in examples]
        # one column per entry of an example, such as image and label
        columns = [[np.asarray(v) for v in column] for column in zip(*rows, strict=True)]
        shapes = [(_shape([v.shape for v in c]), c[0].dtype) for c in columns]
        nbytes = None
    entries = tuple(f"{shape} {dtype}, {_range(c)}" for (shape, dtype), c in zip(shapes, columns, strict=True))
    return DatasetInfo(type(dataset).__name__, count, entries, _counts(dataset, columns), nbytes)


def _shape(shapes: list[tuple[int, ...]]) -> Any:
    """Return the shape that all examples have, or a text if they differ."""
    return shapes[0] if len(set(shapes)) == 1 else "of several shapes"


def _range(column: Any) -> str:
    """Describe the range of the numbers in an array, or in a list of arrays."""
    parts = [np.asarray(v) for v in (column if isinstance(column, list) else [column])]
    parts = [p for p in parts if p.size and p.dtype.kind in "biuf"]
    if not parts:
        return "no numbers"
    return f"{min(p.min() for p in parts):.6g} to {max(p.max() for p in parts):.6g}"


def _counts(dataset: Any, columns: list[Any]) -> dict[str, int]:
    """Count the examples per label, if the last entry is one integer per example."""
    if len(columns) < 2:
        return {}
    last = np.asarray(columns[-1])
    if last.ndim != 1 or last.dtype.kind not in "iu":
        return {}
    names = getattr(dataset, "classes", ())
    counts = sorted(Counter(last.tolist()).items())
    return {names[label] if 0 <= label < len(names) else str(label): count for label, count in counts}
