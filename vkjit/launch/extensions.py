"""Services that upper layers provide to kernels and tensors.

`Kernel.inspect`, `Kernel.tune`, sanitized launches and `Tensor.__array_namespace__` are implemented by packages that
import this one or that are layered above `tensor`. `vkjit/__init__` registers each as a function that imports the
implementation on use, so that imports only go down the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["get", "provide"]

_providers: dict[str, Callable[[], Callable[..., Any]]] = {}


def provide(name: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Register a service: `load` imports and returns its implementation. Raises ValueError if the name is taken."""
    if name in _providers:
        raise ValueError(f"service {name!r} is provided twice")
    _providers[name] = load


def get(name: str) -> Callable[..., Any]:
    """Return the implementation of a service."""
    return _providers[name]()
