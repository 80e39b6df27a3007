"""Atomic operations on one element: `vk.atomic.add(x, i, v)`, `vk.atomic.add(x, (i, j), v)`.

`order` is "relaxed", "acquire", "release" or "acq_rel"; `scope` is "workgroup" or "device". Read-modify-write
operations give the old value. Floats have add, sub, min, max, exchange, load and store.
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["add", "and_", "cas", "exchange", "load", "max", "min", "or_", "store", "sub", "xor"]


@kernel_only
def add(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Adds `value`; gives the old element."""


@kernel_only
def sub(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Subtracts `value`; gives the old element."""


@kernel_only
def min(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores the minimum of element and `value`; gives the old element."""


@kernel_only
def max(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores the maximum of element and `value`; gives the old element."""


@kernel_only
def and_(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores the bitwise and of element and `value`; gives the old element."""


@kernel_only
def or_(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores the bitwise or of element and `value`; gives the old element."""


@kernel_only
def xor(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores the bitwise exclusive or of element and `value`; gives the old element."""


@kernel_only
def exchange(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores `value`; gives the old element."""


@kernel_only
def cas(array: Any, index: Any, expected: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Stores `value` if the element equals `expected`; gives the old element either way."""


@kernel_only
def load(array: Any, index: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """The element, read atomically."""


@kernel_only
def store(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Writes `value` atomically."""
