"""`python -m tools.strict`: compare kernels compiled with `strict=True` with NumPy, bit by bit.

Covers every operation and element type for which `strict` promises bit-exact results (`operations`), with random
and difficult operands (`operands`), on each device. Prints each operation and type that differs; the exit code is 1 if
any does. Differences with subnormal operands or results are counted separately, because a device that doesn't guarantee
to preserve subnormals may flush them to zero.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.backends.selection import device, use_device
from vkjit.dtypes import DType
from vkjit.errors import VkjitError
from vkjit.ir.semantics import silence_warnings
from vkjit.testing.console import devices_named, say

from ..ulp.measure import supports
from .operands import pairs, single
from .operations import GROUPS, Group, results

__all__ = ["Difference", "compare", "main"]

_CHUNK = 1 << 18
"""Number of operands or pairs per launch."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The comparison of one operation with NumPy.

    `compared` is the number of results. `subnormal` counts the different ones with a subnormal operand or result,
    `regular` all other different ones. `example` describes one of them, if possible a regular one.
    """

    operation: str
    compared: int
    regular: int
    subnormal: int
    example: str


def compare(dtype: DType, group: Group, count: int, seed: int = 0) -> list[Difference]:
    """Compare a group of operations on the default device, for `count` operands or pairs; one entry per operation."""
    # by operation: the fields of Difference after `operation`
    totals: dict[str, list[Any]] = {name: [0, 0, 0, ""] for name, _ in group.expected}
    for number, start in enumerate(range(0, count, _CHUNK)):
        size = min(_CHUNK, count - start)
        chunk_seed = seed * 1000 + number  # different in each chunk
        operands = pairs(dtype, size, chunk_seed) if group.operands == 2 else (single(dtype, size, chunk_seed),)
        for name, actual, expected in results(group, operands):
            fields = totals[name]
            fields[0] += len(actual)
            wrong = np.flatnonzero(~_same(actual, expected))
            is_subnormal = _subnormal(operands, expected)[wrong] if len(wrong) else np.zeros(0, np.bool_)
            fields[1] += int(np.count_nonzero(~is_subnormal))
            fields[2] += int(np.count_nonzero(is_subnormal))
            # argmin finds the first difference without subnormals, if there is one
            if len(wrong) and (not fields[3] or not is_subnormal.all()):
                fields[3] = _difference_text(operands, actual, expected, int(wrong[np.argmin(is_subnormal)]))
    return [Difference(name, *fields) for name, fields in totals.items()]


def _bits(values: Any) -> Any:
    """Return the values' bits as unsigned integers of the same size."""
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def _same(actual: Any, expected: Any) -> Any:
    """Return a mask of equal results: those with equal bits, or that are both NaN."""
    if actual.dtype != expected.dtype:
        raise VkjitError(f"results are {actual.dtype}, NumPy's are {expected.dtype}")
    same = _bits(actual) == _bits(expected)
    if actual.dtype.kind in "iub":
        return same
    with silence_warnings():
        return same | ((actual != actual) & (expected != expected))  # only NaN differs from itself


def _subnormal(operands: tuple[Any, ...], expected: Any) -> Any:
    """Return a mask of the results that are subnormal, or of which an operand is: exponent 0 and mantissa not 0."""
    mask = np.zeros(expected.shape, np.bool_)
    for values in (*operands, expected):
        if values.dtype.kind in "iub":
            continue
        exponent_bits = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}[values.dtype.name]
        width = 8 * values.dtype.itemsize
        bits = _bits(values)
        mantissa_bits = width - 1 - exponent_bits
        unsigned = bits.dtype.type  # operands of one type, so that NumPy keeps it
        exponent_mask = (unsigned(1) << unsigned(exponent_bits)) - unsigned(1)
        mantissa_mask = (unsigned(1) << unsigned(mantissa_bits)) - unsigned(1)
        exponent = (bits >> unsigned(mantissa_bits)) & exponent_mask
        mask |= (exponent == 0) & ((bits & mantissa_mask) != 0)
    return mask


def _difference_text(operands: tuple[Any, ...], actual: Any, expected: Any, i: int) -> str:
    """Describe the difference at index i."""
    given = ", ".join(_exactly(v[i]) for v in operands)
    return f"({given}) gives {_exactly(actual[i])}, NumPy {_exactly(expected[i])}"


def _exactly(value: Any) -> str:
    """Format a number without rounding; floats in hexadecimal."""
    return str(int(value)) if value.dtype.kind in "iub" else float(value).hex()


def _keeps_subnormals(caps: Any, dtype: DType) -> bool:
    """Return True if the device guarantees not to flush subnormals of this type; bf16 is computed in f32."""
    bits = 32 if dtype is dtypes.bf16 else dtype.bits
    return caps.kind in ("interpreter", "llvm-cpu") or f"denorm_preserve_f{bits}" in caps.features


def check(dtype: DType, caps: Any, count: int, seed: int = 0) -> Iterator[tuple[Group, Difference, bool]]:
    """Compare all operations of a type on the default device.

    Yields for each operation its group, the comparison, and True if it is correct: if it has no differences, other than
    with subnormals on a device that may flush them.
    """
    for group in GROUPS:
        if dtype.kind not in group.kinds:
            continue
        if not supports(caps, dtypes.f64) and any("f64" in name for name, _ in group.expected):
            continue  # the group of conversions to f64
        for difference in compare(dtype, group, count, seed):
            is_correct = not difference.regular and not (difference.subnormal and _keeps_subnormals(caps, dtype))
            yield group, difference, is_correct


def _run(infos: Iterable[Any], types: Sequence[DType], count: int, seed: int) -> int:
    """Check all types on the chosen devices, print the results, and return the exit code."""
    failures = 0
    for info in infos:
        opened = device(info.index)
        say(f"{info.name}: {count} operands or pairs per operation and type")
        with use_device(opened):
            for dtype in types:
                failures += _run_type(dtype, opened.caps, count, seed)
    say("all bits are NumPy's" if not failures else f"{failures} operations differ")
    return 1 if failures else 0


def _run_type(dtype: DType, caps: Any, count: int, seed: int) -> int:
    """Check a type on the default device, print the results, and return the number of incorrect operations."""
    if not supports(caps, dtype):
        say(f"  {dtype.name:5} left out: the device has no arithmetic of this type")
        return 0
    failures = number = 0
    flushed = set()
    for group, difference, is_correct in check(dtype, caps, count, seed):
        number += 1
        if not is_correct:
            failures += 1
            counts = f"{difference.regular} of {difference.compared}, {difference.subnormal} with subnormals"
            say(f"  {dtype.name:5} {group.name} {difference.operation}: {counts}: {difference.example}")
        elif difference.subnormal:
            flushed.add(difference.operation)
    note = f"; subnormals differ in {' '.join(sorted(flushed))}" if flushed else ""
    say(f"  {dtype.name:5} {number - failures} of {number} operations equal{note}")
    return failures


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.strict", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", action="append", help="part of a device's name; may be repeated (default: all)")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="per operation and type")
    parser.add_argument("--type", action="append", choices=[t.name for t in dtypes.ALL], help="may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    chosen = devices_named(arguments.device)
    if not chosen:
        return 2
    types = [t for t in dtypes.ALL if t.name in (arguments.type or [t.name for t in dtypes.ALL])]
    return _run(chosen, types, arguments.pairs, arguments.seed)
