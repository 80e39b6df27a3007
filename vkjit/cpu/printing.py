"""The `print` operation: records in memory behind the report buffer, read when a launch is over.

Enters: `print values... {site}`. Leaves: for each running lane a record of its site, the number of the invocation, the
types of the values (four bits each) and the values (64 bits each), as far as there is room; after the launch, lines in
the order of invocations. Holds: what had no room is counted and announced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..ir.core import Op
from ..ir.types import Vector
from ..runtime.artifact import REPORT_WORDS, KernelArtifact
from .generator import Generator, Handler, dtype_of
from .report import lane_bits

__all__ = ["HANDLERS", "PRINT_WORDS", "clear_printed", "printed_lines"]

PRINT_WORDS = 1 << 18
"""Words (u32) behind the report buffer: an i64 that counts the words of 64 bits asked for, one with their number, one that counts
the records that had no room, then the records."""

_HEAD = 3
_CAPACITY = PRINT_WORDS // 2 - _HEAD
_KINDS: tuple[DType, ...] = (*dtypes.ALL, dtypes.index)
_LIST = len(_KINDS)
"""Stands before the components of a short vector; its value is their number."""
_PER_WORD = 16
_KIND_WORDS = 8
_FIRST = 2 + _KIND_WORDS
"""Words of a record before its values."""


def _print(g: Generator, op: Op) -> None:
    text = g.text
    head, leave = text.new_label("line"), text.new_label("lines")
    kind = f"i{g.width}"
    left = text.variable(kind)
    text.store(kind, "-1" if g.mask is None else g.bits(g.mask), left)
    text.jump(head)
    text.label(head)
    with g.scope():
        word = text.load(kind, left)
        lane = g.resized(text.call(kind, f"llvm.cttz.{kind}", f"{kind} {word}", "i1 true"), kind, "i32")
        _record(g, op, lane)
        rest = text.op(f"and {kind} {word}, {text.op(f'sub {kind} {word}, 1')}")
        text.store(kind, rest, left)
        text.branch(text.op(f"icmp ne {kind} {rest}, 0"), head, leave)
    text.label(leave)


def _record(g: Generator, op: Op, lane: str) -> None:
    values: list[str] = []
    codes: list[int] = []
    for value in op.operands:
        parts = lane_bits(g, value, lane)
        code = _KINDS.index(dtype_of(value.type))
        if isinstance(value.type, Vector):
            values.append(str(len(parts)))
            codes.append(_LIST)
        values += parts
        codes += [code] * len(parts)
    packed = [_packed(codes[start : start + _PER_WORD]) for start in range(0, _KIND_WORDS * _PER_WORD, _PER_WORD)]
    function = f"print{len(values)}"
    g.helpers[function] = _function(function, len(values))
    order = _order(g, lane)
    words = [str(op.attrs["site"] + 1 | len(values) << 32), order, *map(str, packed), *values]
    buffer = f"i64 {g.field_value('report', -1)}"
    g.text.do(f"call void @{function}({buffer}, {', '.join(f'i64 {word}' for word in words)})")


def _packed(codes: list[int]) -> int:
    """Four bits each, as a signed number of 64 bits."""
    word = sum(code << (4 * place) for place, code in enumerate(codes))
    return word - (1 << 64) if word >> 63 else word


def _order(g: Generator, lane: str) -> str:
    """The number of an invocation: that of its workgroup, along x first, times its size, plus its own."""
    text = g.text
    x, y, z = (g.ids["group", axis] for axis in range(3))
    plane = text.op(f"add i64 {text.op(f'mul i64 {z}, %y')}, {y}")
    group = text.op(f"add i64 {text.op(f'mul i64 {plane}, %x')}, {x}")
    first = text.op(f"add i64 {text.op(f'mul i64 {group}, {g.geometry.total}')}, {g.ids['first', 0]}")
    return text.op(f"add i64 {first}, {text.op(f'zext i32 {lane} to i64')}")


def _function(name: str, count: int) -> str:
    """LLVM text of the function for lines of `count` values."""
    size = _FIRST + count
    parameters = "".join(f", i64 %p{number}" for number in range(size))
    lines = [
        f"define internal void @{name}(i64 %address{parameters}) noinline cold nounwind {{",
        f"  %start = add i64 %address, {4 * REPORT_WORDS}",
        "  %cursor = inttoptr i64 %start to ptr",
        f"  %at = atomicrmw add ptr %cursor, i64 {size} monotonic",
        f"  %end = add i64 %at, {size}",
        "  %limit = getelementptr i64, ptr %cursor, i64 1",
        "  %capacity = load i64, ptr %limit",
        "  %fits = icmp ule i64 %end, %capacity",
        "  br i1 %fits, label %write, label %drop",
        "drop:",
        "  %dropped = getelementptr i64, ptr %cursor, i64 2",
        "  %more = atomicrmw add ptr %dropped, i64 1 monotonic",
        "  br label %after",
        "write:",
        f"  %first = add i64 %at, {_HEAD}",
        "  %record = getelementptr i64, ptr %cursor, i64 %first",
    ]
    for number in range(size):
        lines += [
            f"  %q{number} = getelementptr i64, ptr %record, i64 {number}",
            f"  store i64 %p{number}, ptr %q{number}",
        ]
    return "\n".join([*lines, "  br label %after", "after:", "  ret void", "}"])


# -- on the host


def clear_printed(words: npt.NDArray[np.uint32]) -> None:
    """Makes the buffer ready for a launch."""
    table = words[REPORT_WORDS:].view(np.int64)
    table[: _HEAD + min(int(table[0]), _CAPACITY)] = 0
    table[1] = _CAPACITY


def printed_lines(artifact: KernelArtifact, words: npt.NDArray[np.uint32]) -> list[str]:
    """The text of what a launch printed, in the order of invocations."""
    table = words[REPORT_WORDS:].view(np.int64)
    wanted, dropped = int(table[0]), int(table[2])
    lines: list[tuple[int, int, str]] = []
    place = 0
    while place + _FIRST <= min(wanted, _CAPACITY) and table[_HEAD + place]:
        head = int(table[_HEAD + place])
        count = head >> 32
        record = table[_HEAD + place : _HEAD + place + _FIRST + count]
        text = artifact.sites[(head & 0xFFFFFFFF) - 1].message.format(*_values(record, count))
        lines.append((int(record[1]), place, text))
        place += _FIRST + count
    shown = [line for _, _, line in sorted(lines)]
    if dropped:
        shown.append(f"[kernel {artifact.name}: {len(lines)} prints shown, {dropped} had no room]\n")
    return shown


def _values(record: npt.NDArray[np.int64], count: int) -> list[Any]:
    values: list[Any] = []
    into, left = values, 0
    for number in range(count):
        packed = int(record[2 + number // _PER_WORD])
        code = (packed >> (4 * (number % _PER_WORD))) & 15
        bits = record[_FIRST + number : _FIRST + number + 1]
        if code == _LIST:
            into, left = [], int(bits[0])
            values.append(into)
            continue
        dtype = _KINDS[code]
        kind = np.dtype(np.float64) if dtype.is_float else dtype.numpy
        into.append((bits.view(kind) if dtype.is_float else bits.astype(kind)).tolist()[0])
        left -= 1
        if left <= 0:
            into = values
    return values


HANDLERS: dict[str, Handler] = {"print": _print}
