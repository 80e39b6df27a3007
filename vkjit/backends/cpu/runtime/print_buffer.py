"""The print buffer: records of `print` operations in memory behind the report buffer, read after a launch.

A record holds its site, the linear id of the invocation, the element types of its values (four bits each) and the
values (64 bits each). Records that don't fit are counted, and their number is printed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.runtime.artifact import REPORT_WORDS, KernelArtifact

__all__ = [
    "CODES_PER_WORD", "FIRST_VALUE_WORD", "HEAD_WORDS", "KINDS", "KIND_WORDS", "LIST_CODE", "PRINT_WORDS", "clear_printed",
    "printed_lines",
]  # fmt: skip

PRINT_WORDS = 1 << 18
"""Size in u32 words. The buffer consists of 64-bit words: the number of words requested by records, the number of words
available, the number of records dropped for lack of room, then the records.
"""

HEAD_WORDS = 3
CAPACITY_WORDS = PRINT_WORDS // 2 - HEAD_WORDS
KINDS: tuple[DType, ...] = (*dtypes.ALL, dtypes.index)
LIST_CODE = len(KINDS)
"""Type code that precedes the components of a short vector; its value is their number."""
CODES_PER_WORD = 16
KIND_WORDS = 8
FIRST_VALUE_WORD = 2 + KIND_WORDS
"""Words of a record before its values."""


def clear_printed(words: npt.NDArray[np.uint32]) -> None:
    """Prepare the buffer for a launch."""
    table = words[REPORT_WORDS:].view(np.int64)
    table[: HEAD_WORDS + min(int(table[0]), CAPACITY_WORDS)] = 0
    table[1] = CAPACITY_WORDS


def printed_lines(artifact: KernelArtifact, words: npt.NDArray[np.uint32]) -> list[str]:
    """Return the text that a launch printed, in invocation order."""
    table = words[REPORT_WORDS:].view(np.int64)
    wanted, dropped = int(table[0]), int(table[2])
    lines: list[tuple[int, int, str]] = []
    place = 0
    while place + FIRST_VALUE_WORD <= min(wanted, CAPACITY_WORDS) and table[HEAD_WORDS + place]:
        head = int(table[HEAD_WORDS + place])
        count = head >> 32
        record = table[HEAD_WORDS + place : HEAD_WORDS + place + FIRST_VALUE_WORD + count]
        text = artifact.sites[(head & 0xFFFFFFFF) - 1].message.format(*_values(record, count))
        lines.append((int(record[1]), place, text))
        place += FIRST_VALUE_WORD + count
    shown = [line for _, _, line in sorted(lines)]
    if dropped:
        shown.append(f"[kernel {artifact.name}: {len(lines)} prints shown, {dropped} had no room]\n")
    return shown


def _values(record: npt.NDArray[np.int64], count: int) -> list[Any]:
    values: list[Any] = []
    into, left = values, 0
    for number in range(count):
        packed = int(record[2 + number // CODES_PER_WORD])
        code = (packed >> (4 * (number % CODES_PER_WORD))) & 15
        bits = record[FIRST_VALUE_WORD + number : FIRST_VALUE_WORD + number + 1]
        if code == LIST_CODE:
            into, left = [], int(bits[0])
            values.append(into)
            continue
        dtype = KINDS[code]
        kind = np.dtype(np.float64) if dtype.is_float else dtype.numpy
        into.append((bits.view(kind) if dtype.is_float else bits.astype(kind)).tolist()[0])
        left -= 1
        if left <= 0:
            into = values
    return values
