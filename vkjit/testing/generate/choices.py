"""Sources of the random choices that make up a test case: one hypothesis draw per choice, or a seeded generator.

`Drawn` makes one hypothesis draw per choice, so hypothesis can shrink and mutate the choices, and it prefers small and
repeated ones. `Seeded` uses a random generator whose seed is drawn once; its choices are spread more evenly, and
`vkjit.testing.shrink` shrinks failing cases. Strategies that the user gives are drawn by hypothesis in both cases.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

__all__ = ["Chooser", "Drawn", "Seeded"]

Item = TypeVar("Item")


class Chooser(ABC):
    """A source of choices.

    `draw` is a function that takes a hypothesis strategy and returns a value drawn from it.
    """

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw

    @abstractmethod
    def pick(self, options: Sequence[Item]) -> Item:
        """Return one of the options. They are ordered from simple to complex: hypothesis shrinks to the first."""

    @abstractmethod
    def integer(self, low: int | None, high: int | None) -> int:
        """Return an integer in [low, high]; None stands for no bound."""

    @abstractmethod
    def real(self, low: float | None, high: float | None) -> float:
        """Return a finite float in [low, high]; None stands for no bound."""

    def seed(self) -> int:
        """Return a seed for data too large to be chosen element by element."""
        return self.integer(0, 2**16 - 1)


class Drawn(Chooser):
    """A chooser that makes each choice by a hypothesis draw."""

    def pick(self, options: Sequence[Item]) -> Item:
        from hypothesis import strategies as st

        chosen: Item = options[0] if len(options) == 1 else self.draw(st.sampled_from(options))
        return chosen

    def integer(self, low: int | None, high: int | None) -> int:
        from hypothesis import strategies as st

        return int(self.draw(st.integers(low, high)))

    def real(self, low: float | None, high: float | None) -> float:
        from hypothesis import strategies as st

        return float(self.draw(st.floats(low, high, allow_nan=False, allow_infinity=False)))


class Seeded(Chooser):
    """A chooser that makes all choices by a random generator with the given seed."""

    def __init__(self, draw: Callable[[Any], Any], seed: int) -> None:
        super().__init__(draw)
        self.random = random.Random(seed)

    def pick(self, options: Sequence[Item]) -> Item:
        return self.random.choice(options)

    def integer(self, low: int | None, high: int | None) -> int:
        low, high = _closed(low, high)
        if self.random.random() < 0.3:  # 30% of the draws are near the lower bound
            high = min(high, low + 20)
        return self.random.randint(int(low), int(high))

    def real(self, low: float | None, high: float | None) -> float:
        low, high = _closed(low, high)
        # 30% of the draws are a bound, or the allowed number closest to 0 or 1
        simple = [low, high, min(max(0.0, low), high), min(max(1.0, low), high)]
        return float(self.random.choice(simple) if self.random.random() < 0.3 else self.random.uniform(low, high))

    def seed(self) -> int:
        return self.random.getrandbits(16)


def _closed(low: Any, high: Any) -> tuple[Any, Any]:
    """Replace a missing bound by a finite number, at least 100 away from the other bound and from 0."""
    if low is None:
        low = -100 if high is None else min(high, 0) - 100
    return low, max(low, 0) + 100 if high is None else high
