"""Operations on more than 2^31 elements: `python -m tests.huge [--device cpu] [--count N] [--only NAME]`.

Operands have `count` elements (default 2^31 + 7) and stride 0, so that only results take memory, up to 5 GB at a time.
Prints a line for each operation; the exit code is 1 if any result is wrong. An operation that needs more memory than
there is must raise OutOfMemoryError and counts as skipped.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import vkjit as vk
from vkjit.tensor.ops.views import strided

COUNT = 2**31 + 7


def repeated(value: float, dtype: Any, count: int) -> Any:
    """Return `count` elements of one value, stored once."""
    return strided(vk.tensor([value], dtype=dtype), (count,), (0,))


def rows(values: list[float], dtype: Any, count: int) -> Any:
    """Return `count` equal rows, stored once."""
    return strided(vk.tensor(values, dtype=dtype), (count, len(values)), (0, 1))


def edges(x: Any) -> list[Any]:
    """Return the first two elements, those around 2^31, and the last one."""
    middle = min(2**31, x.shape[0] - 2)
    return [x[i].item() for i in (0, 1, middle - 1, middle, x.shape[0] - 1)]


def _table(n: int) -> dict[str, tuple[Callable[[], Any], Any]]:
    """Map each operation's name to (function that returns its result as Python numbers, expected result)."""
    u8, f16, flags = vk.u8, vk.f16, vk.boolean
    two, half, true = repeated(2, u8, n), repeated(0.5, f16, n), repeated(True, flags, n)
    ones = [1.0] * 5
    return {
        "sum": (lambda: two.sum().item(), 2 * n),
        "sum of rows": (lambda: rows([1, 2], u8, n).sum(0).tolist(), [n, 2 * n]),
        "mean": (lambda: half.mean().item(), 0.5),
        "var": (lambda: repeated(3.0, vk.f32, n).var().item(), 0.0),
        "prod": (lambda: repeated(1, u8, n).prod().item(), 1),
        "amax": (lambda: two.amax().item(), 2),
        "argmax": (lambda: two.argmax().item(), 0),
        "argmin": (lambda: two.argmin().item(), 0),
        "all": (lambda: true.all().item(), True),
        "any": (lambda: repeated(False, flags, n).any().item(), False),
        "count_nonzero": (lambda: true.count_nonzero().item(), n),
        "equal": (lambda: vk.equal(two, two), True),
        "bincount": (lambda: vk.bincount(two).tolist(), [0, 0, n]),
        "matmul": (lambda: vk.matmul(rows([1, 2], vk.i64, n).t(), rows([3], vk.i64, n)).tolist(), [[3 * n], [6 * n]]),
        "clone": (lambda: edges(two.clone()), [2] * 5),
        "add": (lambda: edges(two + 1), [3] * 5),
        "mul": (lambda: edges(two * two), [4] * 5),
        "where": (lambda: edges(vk.where(true, two, repeated(9, u8, n))), [2] * 5),
        "gt": (lambda: edges(two > 1), [True] * 5),
        "exp": (lambda: edges(vk.exp(half * 0)), ones),
        "to": (lambda: edges(two.to(vk.i8)), [2] * 5),
        "fill": (lambda: edges(vk.full((n,), 7, dtype=u8)), [7] * 5),
        "cat": (lambda: edges(vk.cat([two[:5], repeated(3, u8, n - 5)])), [2, 2, 3, 3, 3]),
        "copy into a part": (lambda: _into_a_part(n), [0, 0, 0, 1, 1]),
        "rows of 3": (lambda: edges((rows([1, 2, 3], u8, n // 3 + 1) + 1).view(-1)), _thirds(n)),
        "index_select": (lambda: vk.index_select(two, 0, vk.tensor([0, n - 1, n - 2])).tolist(), [2, 2, 2]),
        "searchsorted": (lambda: vk.searchsorted(two, vk.tensor([1, 2, 3], dtype=u8)).tolist(), [0, 0, n]),
        "cumsum": (lambda: edges(vk.cumsum(repeated(1, u8, n), 0, dtype=u8)), _counted(n)),
        "flip": (lambda: edges(vk.flip(vk.cat([two[:1], repeated(3, u8, n - 1)]), 0)), [3, 3, 3, 3, 2]),
    }


def _into_a_part(n: int) -> list[Any]:
    whole = vk.zeros(n, dtype=vk.u8)
    whole[min(2**31, n - 2) :] = 1
    return edges(whole)


def _thirds(n: int) -> list[int]:
    size = (n // 3 + 1) * 3
    middle = min(2**31, size - 2)
    return [i % 3 + 2 for i in (0, 1, middle - 1, middle, size - 1)]


def _counted(n: int) -> list[int]:
    middle = min(2**31, n - 2)
    return [i % 256 for i in (1, 2, middle, middle + 1, n)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--only", action="append")
    options = parser.parse_args(arguments)
    wrong = 0
    with vk.use_device(vk.device(options.device)):
        for name, (call, expected) in _table(options.count).items():
            if options.only and name not in options.only:
                continue
            begun = time.perf_counter()
            try:
                found = call()
            except vk.OutOfMemoryError as error:
                print(f"{name:20} skipped: {error}", flush=True)
                continue
            except vk.VkjitError as error:
                found = f"{type(error).__name__}: {error}"
            good = found == expected
            wrong += not good
            text = "right" if good else f"WRONG: {found}, expected {expected}"
            print(f"{name:20} {text} ({time.perf_counter() - begun:.2f} s)", flush=True)
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
