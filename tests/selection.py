"""The cut through the suite that `--fast` runs: a few cases of every test function, chosen by a rule.

The rule: tests marked `slow` are left out. Of a test function with n cases, as many are kept as n has digits in base 8 (one of
up to 7, two of up to 63, three of up to 511), spread evenly over the cases. Executors take turns: the first case that is kept of
a file's first test runs on the first executor, that of its second test on the second, and so on. Properties draw a quarter of
their examples.

Nothing else decides: the same suite gives the same cut, in every worker and on every machine with the same executors.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

__all__ = ["cut", "examples", "kept", "select", "set_fast"]

_fast = False


def set_fast(wanted: bool) -> None:
    """Turn small numbers of examples on or off; before test modules are imported."""
    global _fast
    _fast = wanted


def examples(count: int) -> int:
    """Return how many examples a property draws: `count`, or a quarter of them, five at least, in a fast run."""
    return min(count, max(5, count // 4)) if _fast else count


def kept(count: int) -> int:
    """Return how many of a test function's `count` cases are kept: the number of digits in base 8."""
    return (count.bit_length() + 2) // 3


def select(executors: Sequence[Hashable], turn: int) -> list[int]:
    """Return the indices of the cases that are kept.

    executors: one per case, in order; None where a case runs on no executor in particular. turn: the number of the test
    function in its file, which decides about the executor of the first case.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, executor in enumerate(executors):
        groups[executor].append(index)
    order = list(groups.values())
    wanted = kept(len(executors))
    found = set()
    for number in range(wanted):
        group = order[(turn + number) % len(order)]
        found.add(group[number * len(group) // wanted])
    return sorted(found)


def cut(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of a fast run, in order."""
    functions: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("slow") is None:
            functions[item.nodeid.partition("[")[0]].append(item)
    turns: Counter[str] = Counter()
    chosen: list[pytest.Item] = []
    for cases in functions.values():
        file = str(cases[0].path)
        chosen += (cases[index] for index in select([executor_of(case) for case in cases], turns[file]))
        turns[file] += 1
    return chosen


def executor_of(item: pytest.Item) -> Hashable:
    """Return the label of the executor that a test runs on; None for a test that takes no device."""
    call = getattr(item, "callspec", None)
    return None if call is None else call.params.get("vkjit_device")
