"""`python -m tools.ulp`: measure the worst error of each mathematical function on each device, and check its bound.

Prints a table of errors in ULPs (units in the last place). The exit code is 1 if a documented bound (`ulp` in the op
table, `vkjit.ir.ops`) is exceeded, or a result for a special value such as an infinity is wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from vkjit import dtypes, lang
from vkjit.backends.selection import device, use_device
from vkjit.dtypes import DType, Element
from vkjit.errors import VkjitError
from vkjit.ir.ops import OPS, OpName, op_name
from vkjit.lang import In, Out
from vkjit.launch.kernel import func, kernel
from vkjit.testing.compare.exact import judge
from vkjit.testing.console import devices_named, say

from .samples import BINARY, UNARY, operands_of

__all__ = ["FUNCTIONS", "Measurement", "bound_of", "main", "measure", "supports"]

T = TypeVar("T", bound=Element)
FUNCTIONS = (*UNARY, *BINARY)
"""All functions with a bound, by their names in the op table."""
TYPES: tuple[DType, ...] = (dtypes.f16, dtypes.f32, dtypes.f64)
_FEATURES = {"f16": "float16", "f64": "float64"}
"""The device feature that arithmetic of a type needs."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The accuracy of one function for one type.

    `bound` is the documented bound, and `worst` the largest error, which occurred at `operands`; both are in ULPs.
    `samples` is the number of results. `wrong` describes up to three results beyond the bound. `flushed` counts the
    subnormal results that were flushed to zero, which is allowed.
    """

    function: str
    dtype: DType
    bound: float
    samples: int
    worst: float
    operands: tuple[float, ...]
    wrong: tuple[str, ...]
    flushed: int

    @property
    def fits(self) -> bool:
        """True if all results are within the bound."""
        return not self.wrong


def bound_of(name: str) -> float:
    """Return the documented error bound of a function in ULPs, which is the same for all types; 0.5 by default."""
    return float(OPS[op_name(name)].ulp or 0.5)


@func
def _quotient(x: Any, y: Any) -> Any:
    return x / y


def _unary_kernel(function: Any) -> Any:
    """Return a kernel that applies a function of one operand to each element."""

    @kernel(over="y")
    def measured(x: In[T, "N"], y: Out[T, "N"]):
        i = lang.global_id(0)
        y[i] = function(x[i])

    return measured


def _binary_kernel(function: Any) -> Any:
    """Return a kernel that applies a function of two operands to each pair of elements."""

    @kernel(over="y")
    def measured(x: In[T, "N"], z: In[T, "N"], y: Out[T, "N"]):
        i = lang.global_id(0)
        y[i] = function(x[i], z[i])

    return measured


def measure(name: str, dtype: DType, count: int, seed: int = 0) -> Measurement:
    """Run a function on the default device for about `count` operands, and compare the results with exact values."""
    function = _quotient if name == "div" else getattr(lang, name)
    operands = operands_of(name, dtype.numpy, count, seed)
    make_kernel = _unary_kernel if name in UNARY else _binary_kernel
    results = make_kernel(function)(*operands)
    bound = bound_of(name)
    verdict = judge(op_name(name), operands, results, bound)
    worst_operands = () if verdict.at is None else tuple(float(v[verdict.at]) for v in operands)
    wrong = tuple(_result_text(op_name(name), operands, results, i) for i in verdict.wrong[:3])
    if len(verdict.wrong) > len(wrong):
        wrong += (f"and {len(verdict.wrong) - len(wrong)} more",)
    return Measurement(name, dtype, bound, len(results), verdict.ulp, worst_operands, wrong, verdict.flushed)


def _result_text(name: OpName, operands: list[Any], results: Any, i: int) -> str:
    """Describe the result at index i, next to the exact one."""
    from vkjit.testing.compare.exact import exact

    values = ", ".join(float(v[i]).hex() for v in operands)
    expected = exact(name, [v[i : i + 1] for v in operands])[0]
    return f"{name}({values}) = {results[i]!r}, exactly {expected!r}"


def supports(caps: Any, dtype: DType) -> bool:
    """Return True if the device has arithmetic of this type; the interpreter and the CPU have all."""
    needed = _FEATURES.get(dtype.name)
    return needed is None or caps.kind in ("interpreter", "llvm-cpu") or needed in caps.features


def _run(names: Sequence[str], types: Sequence[DType], chosen: Iterable[Any], count: int, seed: int) -> int:
    """Measure functions on the chosen devices, print a table for each, and return the exit code."""
    failures = 0
    for info in chosen:
        with use_device(device(info.index)) as current:
            say(f"{info.name}: worst errors in units in the last place, {count} samples and hard arguments")
            say(f"{'function':10}{'bound':>6}  " + "".join(f"{dtype.name:>10}" for dtype in types))
            for name in names:
                failures += _row(name, types, current, count, seed)
    say("all within their bounds" if not failures else f"{failures} exceed their bounds or have wrong special values")
    return 1 if failures else 0


def _row(name: str, types: Sequence[DType], current: Any, count: int, seed: int) -> int:
    """Measure a function on the device `current`, print its row, and return the number of types with wrong results."""
    cells, problems = [], []
    for dtype in types:
        if not supports(current.caps, dtype):
            cells.append("-")
            continue
        type_count = max(count // 8, 1) if dtype is dtypes.f64 else count  # exact values for f64 take longer
        measurement = measure(name, dtype, type_count, seed)
        cells.append(f"{measurement.worst:.3f}{'' if measurement.fits else ' !'}")
        problems += [f"    {dtype.name}: {text}" for text in measurement.wrong]
    say(f"{name:10}{bound_of(name):>6g}  " + "".join(f"{cell:>10}" for cell in cells))
    for problem in problems:
        say(problem)
    return len({p.split(":")[0] for p in problems})  # each problem begins with its type and a colon


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.ulp", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--device", action="append", help="part of a device's name; may be repeated (default: all)")
    parser.add_argument("--samples", type=int, default=1_000_000, help="per function and type; f64 takes an eighth")
    parser.add_argument("--function", action="append", choices=FUNCTIONS, help="may be repeated (default: all)")
    parser.add_argument(
        "--type", action="append", choices=[t.name for t in TYPES], help="may be repeated (default: all)"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(argv)
    chosen = devices_named(arguments.device)
    if not chosen:
        return 2
    types = [t for t in TYPES if t.name in (arguments.type or [t.name for t in TYPES])]
    try:
        return _run(arguments.function or FUNCTIONS, types, chosen, arguments.samples, arguments.seed)
    except VkjitError as error:
        say(f"error: {error}")
        return 2
