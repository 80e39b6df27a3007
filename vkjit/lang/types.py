"""Parameter annotations: `In`, `Out`, `InOut` and `Const` for kernels, `Array` for struct fields; and `bitcast`.

At run time, `vk.In[vk.f32, "M K"]` is an `ArrayAnnotation`. To a type checker it is `typing.Annotated`, so that `x[i]`
has the element type. Linters treat the strings with dimensions as forward references: disable their rules F722 and F821
for kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np

from ..errors import ArgumentError
from ._stub import kernel_only

__all__ = ["Array", "ArrayAnnotation", "Const", "ConstAnnotation", "In", "InOut", "Out", "bitcast"]


@dataclass(frozen=True, slots=True)
class ArrayAnnotation:
    """The annotation of an array.

    `mode` is "in", "out", "inout", or "array" for a field of a struct. `dtype` is the first subscript: a dtype, a
    TypeVar, a struct, a vector type, or a string with its name. `dims` is the string with the dimensions, such as
    "M K"; None if it is omitted.
    """

    mode: str
    dtype: Any
    dims: str | None


@dataclass(frozen=True, slots=True)
class ConstAnnotation:
    """The annotation `Const[type]` of a compile-time parameter; `type` is the class of its values."""

    type: Any


if TYPE_CHECKING:
    from typing import Annotated as Array, Annotated as In, Annotated as InOut, Annotated as Out

    _Value = TypeVar("_Value")
    Const = Annotated[_Value, "compile-time constant"]
else:

    class _ArrayForm:
        """The class of `In`, `Out`, `InOut` and `Array`, which are subscripted with a dtype and dimensions."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __getitem__(self, key: Any) -> ArrayAnnotation:
            dtype, dims = key, None  # the dimensions may be omitted
            if isinstance(key, tuple) and len(key) == 2:
                dtype, dims = key
            if isinstance(dtype, tuple) or not (dims is None or isinstance(dims, str)):
                raise ArgumentError(
                    f'vk.{self.name}[...] takes a dtype and dimensions, as in vk.{self.name}[vk.f32, "M N"]'
                )
            return ArrayAnnotation(self.name.lower(), dtype, dims)

        def __repr__(self) -> str:
            return f"vk.{self.name}"

    class _ConstForm:
        """The class of `Const`, which is subscripted with the type of its values."""

        def __getitem__(self, key: Any) -> ConstAnnotation:
            if isinstance(key, (int, float, complex, np.generic)):
                raise ArgumentError(
                    f"vk.Const[{key!r}] holds a value: Const takes the type of its values; the value is passed at the launch, "
                    f"or is the default, as in size: vk.Const[{type(key).__name__}] = {key!r}"
                )
            return ConstAnnotation(key)

        def __repr__(self) -> str:
            return "vk.Const"

    Array = _ArrayForm("Array")
    In = _ArrayForm("In")
    Out = _ArrayForm("Out")
    InOut = _ArrayForm("InOut")
    Const = _ConstForm()


@kernel_only
def bitcast(dtype: Any, value: Any) -> Any:
    """Reinterpret the bits of a value as another type of the same width: `vk.bitcast(vk.u32, x)`."""
