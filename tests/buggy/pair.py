"""A buggy kernel beside its correct twin, and the lines that are marked as mistaken."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vkjit.frontend import DeviceFunction

__all__ = ["Pair", "marked_lines", "pair"]

ALLOWED = {"dims", "elements", "where", "dtypes", "aliases"}
"""What a pair may say of its inputs; nothing of how they are searched."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A buggy kernel and its twin. `minimal`: the sizes of the smallest failing input, where they are known."""

    bad: Any
    good: Any
    reference: Callable[..., Any] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    minimal: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The buggy kernel's name."""
        return str(self.bad.name)


def pair(bad: Any, good: Any, reference: Any = None, minimal: Any = None, **inputs: Any) -> Pair:
    """A `Pair`; `inputs` are arguments of `check_kernel` that say what inputs there are."""
    if not set(inputs) <= ALLOWED:
        raise ValueError(f"{sorted(set(inputs) - ALLOWED)} would change how the search works")
    return Pair(bad, good, reference, inputs, minimal)


def marked_lines(kernel: Any) -> list[int]:
    """Numbers of the lines of the kernel, and of device functions beside it that it calls, that carry `# bug`."""
    function = kernel.spec.fn
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    found = []
    for one in (function, *(inspect.unwrap(f) for f in called if isinstance(f, DeviceFunction))):
        lines, first = inspect.getsourcelines(one)
        found += [first + i for i, line in enumerate(lines) if "# bug" in line]
    return found
