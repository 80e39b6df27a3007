"""Decode a kernel's arguments from its argument block.

Uses the artifact's fields and a function that maps addresses to host bytes. Returns the values of the kernel's
parameters, and the position of this launch in the whole grid. Arrays without an address field are never accessed;
strides that have no field are those of C order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit.errors import InternalError
from vkjit.ir.core import Function
from vkjit.ir.types import Array
from vkjit.runtime.artifact import ArgField, KernelArtifact
from vkjit.runtime.device import contiguous_strides

from ..codegen.batch import Triple
from ..codegen.memory import GlobalArray
from ..codegen.storage import Codec
from ..codegen.values import literal

__all__ = ["Arguments"]

_Find = Callable[[int], tuple[npt.NDArray[np.uint8], int]]
_NO_BYTES = np.zeros(0, dtype=np.uint8)


class Arguments:
    """Decoder for one kernel's argument block."""

    def __init__(self, artifact: KernelArtifact, kernel: Function) -> None:
        self._name = artifact.name
        self._size = artifact.block_size
        self._fields = {(field.role, field.arg, field.axis): field for field in artifact.fields}
        numbers = tuple(kernel.attrs.get("arg_index", range(len(kernel.params))))
        self._params = list(zip(numbers, kernel.params, strict=True))

    def decode(self, block: bytes, find: _Find) -> tuple[list[Any], Triple, Triple | None]:
        """Return the parameter values, the first workgroup, and the whole grid (None if this launch is all of it)."""
        if len(block) != self._size:
            raise InternalError(f"kernel {self._name} takes {self._size} bytes of arguments, found {len(block)}")
        values: list[Any] = []
        for number, param in self._params:
            if isinstance(param.type, Array):
                values.append(self._array(block, number, param.type, param.name, find))
            else:
                field = self._fields.get(("scalar", number, 0))
                values.append(literal(0 if field is None else _read(block, field), param.type))
        base = [self._count(block, "base", -1, axis, 0) for axis in range(3)]
        total = [self._count(block, "groups", -1, axis, 0) for axis in range(3)]
        whole = (max(total[0], 1), max(total[1], 1), max(total[2], 1)) if any(total) else None
        return values, (base[0], base[1], base[2]), whole

    def _count(self, block: bytes, role: str, arg: int, axis: int, default: int) -> int:
        field = self._fields.get((role, arg, axis))
        return default if field is None else int(_read(block, field))

    def _array(self, block: bytes, number: int, type: Array, name: str, find: _Find) -> GlobalArray:
        codec = Codec.of(type.element)
        place = self._fields.get(("address", number, 0))
        extents = () if type.linear else self._extents(block, number, type.rank)
        # An empty view may begin anywhere, even past its buffer's end.
        data, byte = (_NO_BYTES, 0) if place is None or 0 in extents else find(int(_read(block, place)))
        cells, first = codec.cells(data, byte)
        if type.linear:
            return GlobalArray(cells, first, codec, (len(cells) - first,), (1,), name, is_linear=True)
        packed = contiguous_strides(extents)
        strides = tuple(self._count(block, "stride", number, axis, packed[axis]) for axis in range(type.rank))
        return GlobalArray(cells, first, codec, extents, strides, name)

    def _extents(self, block: bytes, number: int, rank: int) -> tuple[int, ...]:
        return tuple(self._count(block, "extent", number, axis, 0) for axis in range(rank))


def _read(block: bytes, field: ArgField) -> Any:
    if field.dtype.kind == "bool":
        return any(block[field.offset : field.offset + field.size])
    return np.frombuffer(block, dtype=field.dtype.numpy, count=1, offset=field.offset)[0].item()
