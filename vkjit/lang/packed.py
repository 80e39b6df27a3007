"""8-bit floats `vk.f8e4m3` and `vk.f8e5m2`: storage types whose values are `f32` in kernels.

Reading an array element decodes it; storing rounds to nearest, ties to even. Values that are too large become NaN
(f8e4m3, which has no infinity) or infinity (f8e5m2). In a kernel, `vk.f8e4m3(x)` rounds an f32 to a value of the type.
NumPy arrays have the types `float8_e4m3fn` and `float8_e5m2` of the package ml_dtypes, or contain the bits as uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..dtypes import Element
from ..errors import VkjitError

__all__ = ["PackedFloat", "f8e4m3", "f8e5m2"]


@dataclass(frozen=True, slots=True)
class PackedFloat:
    """An 8-bit float type: a sign bit, exponent bits with the bias `bias`, and `mantissa` bits.

    `largest`, `overflow` and `nan` are the encodings of the largest finite number, of numbers that are too large, and
    of NaN. `numpy` is the type's name in ml_dtypes.
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

    class f8e4m3(Element):  # noqa: N801  (to type checkers, dtypes are classes)
        """4 exponent bits, 3 mantissa bits, no infinity; the largest value is 448."""

    class f8e5m2(Element):  # noqa: N801
        """5 exponent bits, 2 mantissa bits; the largest finite value is 57344."""

else:
    f8e4m3 = PackedFloat("f8e4m3", mantissa=3, bias=7, largest=0x7E, overflow=0x7F, nan=0x7F, numpy="float8_e4m3fn")
    f8e5m2 = PackedFloat("f8e5m2", mantissa=2, bias=15, largest=0x7B, overflow=0x7C, nan=0x7E, numpy="float8_e5m2")
