"""Floats of 8 bits: `vk.f8e4m3` and `vk.f8e5m2`, types of memory whose values are `f32` in kernels.

Reading an element decodes it, storing one rounds to nearest, ties to even; what is too large becomes NaN (e4m3, which has no
infinity) or infinity (e5m2). Called in a kernel, the type rounds a number. In NumPy they are the types `float8_e4m3fn` and
`float8_e5m2` of the package ml_dtypes, or their bits as uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import Element
from ..errors import VkjitError

__all__ = ["PackedFloat", "f8e4m3", "f8e5m2"]


@dataclass(frozen=True, slots=True)
class PackedFloat:
    """A float of one sign bit, exponent bits and `mantissa` bits; `numpy` is its name in ml_dtypes.

    `largest` is the bits of the largest finite number, `overflow` those of what is larger, `nan` those of NaN.
    """

    name: str
    mantissa: int
    bias: int
    largest: int
    overflow: int
    nan: int
    numpy: str

    def __call__(self, _value: Any = 0) -> Any:
        raise VkjitError(f"{self!r}(x) has a meaning inside kernels only")

    def __repr__(self) -> str:
        return f"vk.{self.name}"


if TYPE_CHECKING:

    class f8e4m3(Element):  # noqa: N801  (a class to a type checker)
        """Four bits of exponent, three of mantissa, no infinity; up to 448."""

    class f8e5m2(Element):  # noqa: N801
        """Five bits of exponent, two of mantissa; up to 57344."""

else:
    f8e4m3 = PackedFloat("f8e4m3", 3, 7, 0x7E, 0x7F, 0x7F, "float8_e4m3fn")
    f8e5m2 = PackedFloat("f8e5m2", 2, 15, 0x7B, 0x7C, 0x7E, "float8_e5m2")
