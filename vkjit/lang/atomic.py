"""Atomic operations on one array element: `vk.atomic.add(x, i, v)` or, for several axes, `vk.atomic.add(x, (i, j), v)`.

`order` is the memory order: "relaxed", "acquire", "release" or "acq_rel". `scope` is the memory scope: "workgroup" or
"device". Read-modify-write operations return the old value. Floats support add, sub, min, max, exchange, load and
store.

Example, a histogram::

    @vk.kernel(over="x")
    def histogram(x: vk.In[vk.i32, "N"], counts: vk.InOut[vk.i32, "B"]):
        vk.atomic.add(counts, x[vk.global_id(0)], 1)
"""

from __future__ import annotations

from typing import Any

from ._stub import kernel_only

__all__ = ["add", "and_", "cas", "exchange", "load", "max", "min", "or_", "store", "sub", "xor"]


@kernel_only
def add(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically add `value` to an element and return its old value."""


@kernel_only
def sub(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically subtract `value` from an element and return its old value."""


@kernel_only
def min(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by the minimum of it and `value`; return its old value."""


@kernel_only
def max(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by the maximum of it and `value`; return its old value."""


@kernel_only
def and_(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by its bitwise AND with `value`; return its old value."""


@kernel_only
def or_(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by its bitwise OR with `value`; return its old value."""


@kernel_only
def xor(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by its bitwise XOR with `value`; return its old value."""


@kernel_only
def exchange(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically replace an element by `value` and return its old value."""


@kernel_only
def cas(array: Any, index: Any, expected: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically compare and swap: store `value` if the element equals `expected`. Returns the element's old value."""


@kernel_only
def load(array: Any, index: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically load an element."""


@kernel_only
def store(array: Any, index: Any, value: Any, *, order: str = "relaxed", scope: str = "device") -> Any:
    """Atomically store `value` to an element."""
