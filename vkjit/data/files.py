"""Datasets from local files: CSV tables, raw binary arrays, and the data sets MNIST, CIFAR-10 and digits.

Each function returns an `ArrayDataset`. Nothing is downloaded.
"""

from __future__ import annotations

import csv as csv_module
import gzip
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .dataset import ArrayDataset

__all__ = ["cifar10", "csv", "digits", "mnist", "raw"]

Array = npt.NDArray[Any]
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_MAX_AXES = 32
"""The maximum number of axes of an example or of an array in a file; NumPy has some more."""
_PART = 1 << 24
"""Bytes that are read at a time."""
_CIFAR_BYTES = 1 + 3 * 32 * 32
"""Bytes of an example of CIFAR-10: the label, then the red, the green and the blue plane of 32 x 32."""


def csv(path: Any, label: str | int | None = None, *, delimiter: str = ",", header: bool = True) -> ArrayDataset:
    """Read a table of numbers from a UTF-8 file. Example i is row i as f32.

    `label` is the name or index of a label column. With it, example i is the pair of the other columns of row i and the
    label. If all labels are integers that fit, they become i64; if all are numbers, f32; otherwise they are class names, and
    become i64 indices into the alphabetically sorted names. `header`: True if the first row holds the column names.

    Raises ArgumentError if the file can't be read, and (with the line) for rows of different length, cells that aren't
    numbers, and missing labels.
    """
    file = _path(path)
    rows = _rows(file, delimiter)
    names = rows.pop(0)[1] if header and rows else None
    if not rows:
        raise ArgumentError(f"{file} has no rows")
    width = len(names) if names is not None else len(rows[0][1])
    for number, row in rows:
        if len(row) != width:
            raise ArgumentError(f"{file}, line {number}: {len(row)} cells, expected {width}")
    if label is None:
        return ArrayDataset(_numbers(file, rows, range(width)))
    column = _column(file, label, names, width)
    features = _numbers(file, rows, [i for i in range(width) if i != column])
    cells = [row[column].strip() for _, row in rows]
    if "" in cells:
        raise ArgumentError(f"{file}, line {rows[cells.index('')][0]}: the label in column {column + 1} is missing")
    labels, classes = _labels(cells)
    return ArrayDataset(features, labels, classes=classes)


def _path(path: Any) -> Path:
    """Return the path of a file or folder. Raises ArgumentError for what is no path."""
    try:
        return Path(path)
    except TypeError:
        raise ArgumentError(f"expected the path of a file or folder, found {path!r:.80}") from None


def _rows(file: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Return the nonempty rows as (line number, cells), with the number of the row's last line."""
    try:
        if file.exists() and not file.is_file():  # reading from a pipe could block forever
            raise OSError("it is no ordinary file")
        with file.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets write a byte order mark
            reader = csv_module.reader(stream, delimiter=delimiter)
            return [(reader.line_num, row) for row in reader if row]
    except (OSError, ValueError, csv_module.Error, TypeError) as error:  # TypeError: invalid delimiter
        raise ArgumentError(f"{file} can't be read as a table: {error}") from error


def _column(file: Path, label: str | int, names: list[str] | None, width: int) -> int:
    """Return the index of the label column of a table with `width` columns."""
    if isinstance(label, int):
        if not -width <= label < width:
            raise ArgumentError(f"{file} has {width} columns, none with number {label}")
        return label % width
    stripped = [n.strip() for n in names or ()]
    if label not in stripped:
        raise ArgumentError(f"{file} has no column {label!r}, only {', '.join(stripped) or 'columns without names'}")
    if stripped.count(label) > 1:
        raise ArgumentError(f"{file} has {stripped.count(label)} columns {label!r}: give the index of the label's")
    return stripped.index(label)


def _numbers(file: Path, rows: list[tuple[int, list[str]]], columns: Any) -> Array:
    """Parse the given columns of all rows: f32 (rows, columns)."""
    table = np.empty((len(rows), len(columns)), np.float32)
    for row_index, (number, row) in enumerate(rows):
        for column_index, column in enumerate(columns):
            try:
                table[row_index, column_index] = _number(row[column])
            except ValueError:
                raise ArgumentError(
                    f"{file}, line {number}: {row[column]!r} in column {column + 1} is no number"
                ) from None
    return table


def _number(cell: str) -> float:
    """Parse a cell. Raises ValueError if it isn't a number, also for Python's digit separators, as in 1_000."""
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


def _labels(cells: list[str]) -> tuple[Array, tuple[str, ...]]:
    """Return the labels, as described in `csv`, and the class names if the labels are names."""
    try:
        values = np.array([_number(c) for c in cells])
    except ValueError:
        classes = tuple(sorted(set(cells)))
        indices = {name: index for index, name in enumerate(classes)}
        return np.array([indices[c] for c in cells], np.int64), classes
    if not (values == np.rint(values)).all():
        return values.astype(np.float32), ()
    exact = [int(c) if c.lstrip("+-").isdecimal() else v for c, v in zip(cells, values.tolist(), strict=True)]
    if any(isinstance(n, float) and abs(n) > 2**53 for n in exact):  # no exact integers
        return values.astype(np.float32), ()
    if min(exact) < -(2**63) or max(exact) >= 2**63:
        raise ArgumentError(
            f"the labels from {min(exact)} to {max(exact)} don't fit i64: give names instead of numbers"
        )
    return np.array([int(n) for n in exact], np.int64), ()


def raw(path: Any, dtype: Any, shape: Sequence[int], *, offset: int = 0) -> ArrayDataset:
    """Memory-map a file of examples, all of the given shape and dtype, stored consecutively from byte `offset` on.

    Nobody may shorten the file while the dataset exists: reading from it would end the process by SIGBUS.
    """
    file = _path(path)
    try:
        if dtype is None:  # NumPy takes it for f64
            raise TypeError
        element = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"dtype is a type of NumPy's elements, found {dtype!r}") from error
    if not isinstance(offset, int | np.integer) or offset < 0 or element.hasobject:
        raise ArgumentError(
            f"raw() reads numbers from a byte of at least 0 on, found dtype {element}, offset {offset!r}"
        )
    if (
        not isinstance(shape, Sequence)
        or len(shape) > _MAX_AXES
        or not all(isinstance(n, int) and n >= 0 for n in shape)
    ):
        raise ArgumentError(f"shape is a tuple of up to {_MAX_AXES} counts, found {shape!r:.80}")
    size = math.prod(shape) * element.itemsize
    try:
        available = file.stat().st_size - offset
        if not file.is_file():
            raise OSError("it is no ordinary file")
    except (OSError, ValueError) as error:
        raise ArgumentError(f"{file} can't be read: {error}") from error
    if size == 0 or available <= 0 or available % size:
        raise ArgumentError(f"{file} has {available} bytes from {offset} on, no multiple of the {size} of an example")
    count = available // size
    return ArrayDataset(np.memmap(file, element, "r", offset, (count, *shape)))


def _read_idx(file: Path) -> Array:
    """Read a u8 array from a file in MNIST's IDX format, gzipped or not.

    The header consists of two zero bytes, the element type (8: u8), the number of axes, and each size as a big-endian
    32-bit integer.
    """
    try:
        with file.open("rb") as raw_stream:
            packed = raw_stream.read(2) == b"\x1f\x8b"  # gzip's magic number
        with gzip.open(file) if packed else file.open("rb") as stream:
            start = stream.read(4)
            if len(start) < 4 or start[:2] != b"\0\0" or start[2] != 8:
                raise ArgumentError(f"{file} is no IDX file of bytes")
            sizes = stream.read(4 * start[3])
            shape = tuple(int.from_bytes(sizes[i : i + 4], "big") for i in range(0, 4 * start[3], 4))
            size = math.prod(shape)
            # in parts: neither the header nor a small packed file makes it take more memory than there are data
            data = bytearray()
            while len(data) <= size and (part := stream.read(min(_PART, size + 1 - len(data)))):
                data += part
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise ArgumentError(f"{file} can't be read: {error}") from error
    if len(data) != size or len(sizes) != 4 * start[3] or not 0 < len(shape) <= _MAX_AXES:
        found = f"more than {size}" if len(data) > size else len(data)
        raise ArgumentError(f"{file} has {found} bytes of data, its header {shape} asks for {size}")
    if size == 0:
        raise ArgumentError(f"{file} holds no examples: its header asks for an array of shape {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def mnist(folder: Any, train: bool = True) -> ArrayDataset:
    """Read MNIST (or a data set in its format) from local files: images (28, 28) as u8, labels as i64.

    `folder` contains train-images-idx3-ubyte and train-labels-idx1-ubyte, or for train=False the same names with t10k
    instead of train, optionally gzipped.
    """
    folder = _path(folder)
    arrays = []
    for part in ("images-idx3-ubyte", "labels-idx1-ubyte"):
        name = f"{'train' if train else 't10k'}-{part}"
        # the last one: some distributions have a dot in place of the hyphen before "idx"
        candidates = [folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx")]
        present = next((p for p in candidates if p.is_file()), None)
        if present is None:
            raise ArgumentError(f"{folder} has no {name} or {name}.gz")
        arrays.append(_read_idx(present))
        if arrays[-1].ndim != 5 - 2 * len(arrays):
            raise ArgumentError(f"{present} has {arrays[-1].ndim} axes, expected {5 - 2 * len(arrays)}")
    if len(arrays[0]) != len(arrays[1]):
        raise ArgumentError(f"{folder}: {len(arrays[0])} images, but {len(arrays[1])} labels")
    return ArrayDataset(arrays[0], arrays[1].astype(np.int64), classes=[str(i) for i in range(10)])


def cifar10(folder: Any, train: bool = True) -> ArrayDataset:
    """Read CIFAR-10 from local files of its binary version: images (32, 32, 3) as u8, labels as i64.

    `folder` contains data_batch_1.bin to data_batch_5.bin, or for train=False test_batch.bin.
    """
    folder = _path(folder)
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    parts = []
    for name in names:
        file = folder / name
        if not file.is_file():
            raise ArgumentError(f"{folder} has no {name}: the binary version of CIFAR-10 is expected")
        data = np.fromfile(file, np.uint8)
        if not len(data) or len(data) % _CIFAR_BYTES:
            raise ArgumentError(f"{file} has {len(data)} bytes, no multiple of the {_CIFAR_BYTES} of an example")
        parts.append(data.reshape(-1, _CIFAR_BYTES))
    rows = np.concatenate(parts)
    if rows[:, 0].max() >= len(CIFAR_CLASSES):
        raise ArgumentError(f"{folder}: found label {rows[:, 0].max()}, expected 0 to 9: a file isn't CIFAR-10's")
    images = np.ascontiguousarray(rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return ArrayDataset(images, rows[:, 0].astype(np.int64), classes=CIFAR_CLASSES)


def digits() -> ArrayDataset:
    """Return scikit-learn's handwritten digits: 1797 images (8, 8) as f32 from 0 to 1, labels as i64."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ArgumentError("digits() needs scikit-learn, which isn't installed: pip install scikit-learn") from None
    images, labels = load_digits(return_X_y=True)  # pixels from 0 to 16
    return ArrayDataset(
        (images / 16).astype(np.float32).reshape(-1, 8, 8), labels.astype(np.int64), classes=[str(i) for i in range(10)]
    )
