"""`ElementArray`, the type of array fields in structs.

It has a module of its own because `import vkjit` imports it but not the IR.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ElementArray"]


@dataclass(frozen=True, slots=True)
class ElementArray:
    """The type of a struct's array field (`vk.Array[vk.f32, "3 3"]`): element type and static shape."""

    dtype: object
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"array of {self.dtype!r} with shape {self.shape}"
