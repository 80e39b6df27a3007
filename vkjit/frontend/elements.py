"""The type of a struct's field that is an array. Loaded with the package, so that it needs nothing of the IR."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ElementArray"]


@dataclass(frozen=True, slots=True)
class ElementArray:
    """The type of a struct's field that is an array of known shape."""

    dtype: object
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"array of {self.dtype!r} with shape {self.shape}"
