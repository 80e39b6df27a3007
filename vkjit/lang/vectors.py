"""Short vectors: `vk.vec(vk.f32, 4)` is a vector type, and calling this type in a kernel makes a vector.

In annotations, `vk.Vec[vk.f32, 4]` is an equivalent that type checkers understand. For a vector type `V`, `V(x, y, z,
w)` takes the components, `V(s)` broadcasts a scalar, and `V(v)` converts the elements of a vector. Operators and
elementwise functions work lane by lane. `v.x`, `v.y`, `v.z`, `v.w` (or `v[0]`, ...) are the lanes. Swizzles such as
`v.xy` and `v.wzyx` are new vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, VkjitError
from ._stub import kernel_only

__all__ = ["Vec", "VectorType", "dot", "vec"]


@dataclass(frozen=True, slots=True)
class VectorType:
    """The type of vectors with `size` elements (2, 3 or 4) of `dtype`, which may be a type variable in annotations."""

    dtype: DType | TypeVar
    size: int

    def __call__(self, *_components: Any) -> Any:
        raise VkjitError(f"{self!r}(...) has a meaning inside kernels only")

    def __repr__(self) -> str:
        name = self.dtype.__name__ if isinstance(self.dtype, TypeVar) else repr(self.dtype)
        return f"vk.vec({name}, {self.size})"

    @property
    def element(self) -> DType:
        """The dtype of the lanes. Raises DTypeError if it is a type variable."""
        if isinstance(self.dtype, TypeVar):
            raise DTypeError(f"{self!r} isn't bound: {self.dtype.__name__} is a type variable")
        return self.dtype


def vec(dtype: Any, size: int) -> Any:
    """Return the type of vectors with `size` elements (2, 3 or 4) of `dtype`. Raises ArgumentError for other sizes and
    types.
    """
    if not isinstance(dtype, DType | TypeVar):
        raise ArgumentError(f"vk.vec takes a dtype first, found {dtype!r}: write e.g. vk.vec(vk.f32, 4)")
    if size not in (2, 3, 4):
        raise ArgumentError(f"vk.vec: a vector has 2, 3 or 4 elements, found {size!r}")
    return VectorType(dtype, size)


if TYPE_CHECKING:
    from typing import Annotated as Vec
else:

    class _VectorForm:
        """The class of `Vec`, which is subscripted with a dtype and a size."""

        def __getitem__(self, key: Any) -> Any:
            if not isinstance(key, tuple) or len(key) != 2:
                raise TypeError("vk.Vec[...] takes a dtype and a size, as in vk.Vec[vk.f32, 3]")
            return vec(*key)

        def __repr__(self) -> str:
            return "vk.Vec"

    Vec = _VectorForm()


@kernel_only
def dot(x: Any, y: Any) -> Any:
    """Return the dot product of two vectors, summed from the first lane on."""
