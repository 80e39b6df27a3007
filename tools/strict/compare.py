"""`python -m tools.strict`: compare strict kernels with NumPy bit by bit, for every operation and element type.

Prints each operation and type that differs; the exit code is 1 if any does. Differences with subnormal operands or
results are counted separately, since a device that doesn't guarantee to preserve subnormals may flush them to zero.
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
"""Operands or pairs per launch."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The number of bit differences of an operation.

    `subnormal` counts those with a subnormal operand or result, `regular` all others.
    """

    operation: str
    compared: int
    regular: int
    subnormal: int
    example: str


def compare(dtype: DType, group: Group, count: int, seed: int = 0) -> list[Difference]:
    """Run a group of operations on the default device; returns one entry per operation."""
    totals: dict[str, list[Any]] = {name: [0, 0, 0, ""] for name, _ in group.expected}
    for number, start in enumerate(range(0, count, _CHUNK)):
        size = min(_CHUNK, count - start)
        seeded = seed * 1000 + number
        operands = pairs(dtype, size, seeded) if group.operands == 2 else (single(dtype, size, seeded),)
        for name, found, expected in results(group, operands):
            total = totals[name]
            total[0] += len(found)
            wrong = np.flatnonzero(~_same(found, expected))
            small = _subnormal(operands, expected)[wrong] if len(wrong) else np.zeros(0, np.bool_)
            total[1] += int(np.count_nonzero(~small))
            total[2] += int(np.count_nonzero(small))
            if len(wrong) and (not total[3] or not small.all()):
                total[3] = _shown(operands, found, expected, int(wrong[np.argmin(small)]))
    return [Difference(name, *total) for name, total in totals.items()]


def _bits(values: Any) -> Any:
    return np.ascontiguousarray(values).view(np.dtype(f"u{values.dtype.itemsize}"))


def _same(found: Any, expected: Any) -> Any:
    """Compare bits; all NaNs are equal."""
    if found.dtype != expected.dtype:
        raise VkjitError(f"results are {found.dtype}, NumPy's are {expected.dtype}")
    same = _bits(found) == _bits(expected)
    if found.dtype.kind in "iub":
        return same
    with silence_warnings():
        return same | ((found != found) & (expected != expected))


def _subnormal(operands: tuple[Any, ...], expected: Any) -> Any:
    """Return a mask of subnormal operands or results."""
    mask = np.zeros(expected.shape, np.bool_)
    for values in (*operands, expected):
        if values.dtype.kind in "iub":
            continue
        exponent_bits = {"float16": 5, "bfloat16": 8, "float32": 8, "float64": 11}[values.dtype.name]
        width = 8 * values.dtype.itemsize
        bits = _bits(values)
        mantissa = width - 1 - exponent_bits
        one = bits.dtype.type(1)
        exponent = (bits >> bits.dtype.type(mantissa)) & ((one << bits.dtype.type(exponent_bits)) - one)
        mask |= (exponent == 0) & ((bits & ((one << bits.dtype.type(mantissa)) - one)) != 0)
    return mask


def _shown(operands: tuple[Any, ...], found: Any, expected: Any, i: int) -> str:
    given = ", ".join(_exactly(v[i]) for v in operands)
    return f"({given}) gives {_exactly(found[i])}, NumPy {_exactly(expected[i])}"


def _exactly(value: Any) -> str:
    return str(int(value)) if value.dtype.kind in "iub" else float(value).hex()


def _keeps_subnormals(caps: Any, dtype: DType) -> bool:
    bits = 32 if dtype is dtypes.bf16 else dtype.bits
    return caps.kind in ("interpreter", "llvm-cpu") or f"denorm_preserve_f{bits}" in caps.features


def check(dtype: DType, caps: Any, count: int, seed: int = 0) -> Iterator[tuple[Group, Difference, bool]]:
    """Compare all groups of a type on the default device; the last item is True if the operation is correct."""
    for group in GROUPS:
        if dtype.kind not in group.kinds:
            continue
        if not supports(caps, dtypes.f64) and any("f64" in name for name, _ in group.expected):
            continue
        for difference in compare(dtype, group, count, seed):
            yield (
                group,
                difference,
                not difference.regular and not (difference.subnormal and _keeps_subnormals(caps, dtype)),
            )


def _run(chosen: Iterable[Any], kinds: Sequence[DType], count: int, seed: int) -> int:
    failures = 0
    for info in chosen:
        opened = device(info.index)
        say(f"{info.name}: {count} operands or pairs per operation and type")
        with use_device(opened):
            for kind in kinds:
                failures += _type(kind, opened.caps, count, seed)
    say("all bits are NumPy's" if not failures else f"{failures} operations differ")
    return 1 if failures else 0


def _type(kind: DType, caps: Any, count: int, seed: int) -> int:
    if not supports(caps, kind):
        say(f"  {kind.name:5} left out: the device has no arithmetic of this type")
        return 0
    failures, number, flushed = 0, 0, set()
    for group, difference, right in check(kind, caps, count, seed):
        number += 1
        if not right:
            failures += 1
            where = f"{difference.regular} of {difference.compared}, {difference.subnormal} with subnormals"
            say(f"  {kind.name:5} {group.name} {difference.operation}: {where}: {difference.example}")
        elif difference.subnormal:
            flushed.add(difference.operation)
    note = f"; subnormals differ in {' '.join(sorted(flushed))}" if flushed else ""
    say(f"  {kind.name:5} {number - failures} of {number} operations equal{note}")
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
    kinds = [t for t in dtypes.ALL if t.name in (arguments.type or [t.name for t in dtypes.ALL])]
    return _run(chosen, kinds, arguments.pairs, arguments.seed)
