"""`ElementArray`, the type of array fields in structs. Imported with the package, so it doesn't depend on the IR."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ElementArray"]


@dataclass(frozen=True, slots=True)
class ElementArray:
    """The type of a struct's array field, of static shape."""

    dtype: object
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"array of {self.dtype!r} with shape {self.shape}"
