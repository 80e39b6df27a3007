"""Reshaping layers."""

from __future__ import annotations

from collections.abc import Sequence

from vkjit.tensor.ops import views
from vkjit.tensor.tensor import Tensor

from .module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Flatten the axes from start_dim to end_dim, inclusive; by default all but the batch axis."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """(N, A, B, ...) -> (N, A B ...)."""
        return views.flatten(x, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split axis `dim` into axes of sizes `unflattened_size`. One of the sizes may be -1: it is inferred."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """(..., A B, ...) -> (..., A, B, ...)."""
        return views.unflatten(x, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Return the options shown by `repr`."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
