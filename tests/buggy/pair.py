"""Pairs of a buggy kernel and its correct twin, and the lines marked as faulty."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vkjit.frontend import DeviceFunction

__all__ = ["Pair", "marked_lines", "pair"]

ALLOWED = {"dims", "elements", "where", "dtypes", "aliases"}
"""Arguments a pair may pass: they constrain the inputs but not the search."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A buggy kernel and its correct twin. `minimal`: the sizes of the smallest failing input, if known."""

    bad: Any
    good: Any
    reference: Callable[..., Any] | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    minimal: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the buggy kernel."""
        return str(self.bad.name)


def pair(bad: Any, good: Any, reference: Any = None, minimal: Any = None, **inputs: Any) -> Pair:
    """Create a `Pair`; `inputs` are the arguments of `check_kernel` that constrain the inputs."""
    if not set(inputs) <= ALLOWED:
        raise ValueError(f"{sorted(set(inputs) - ALLOWED)} would change how the search works")
    return Pair(bad, good, reference, inputs, minimal)


def marked_lines(kernel: Any) -> list[int]:
    """Return the line numbers marked `# bug` in a kernel and in the device functions that it calls."""
    function = kernel.spec.fn
    called = [function.__globals__.get(name) for name in function.__code__.co_names]
    found = []
    for one in (function, *(inspect.unwrap(f) for f in called if isinstance(f, DeviceFunction))):
        lines, first = inspect.getsourcelines(one)
        found += [first + i for i, line in enumerate(lines) if "# bug" in line]
    return found
