"""One set of arguments of a kernel: what a property test draws, runs, shrinks and prints.

Enters: what was drawn. Leaves: `Case`, plain data that needs no hypothesis. Values are held as NumPy carries them
(bf16 as float32); `encode` and `decode` go to what lies in memory and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..dtypes import DType
from ..errors import InternalError
from ..frontend import KernelSpec
from .layouts import C_ORDER, Layout

__all__ = ["ArrayInput", "Case", "array", "decode", "encode", "out", "storage_of"]

NumpyArray = npt.NDArray[Any]


def storage_of(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of one element in memory; bool is a byte, so that any byte can be seen."""
    return np.dtype(np.uint8) if dtype is dtypes.boolean else dtype.storage


def encode(values: NumpyArray, dtype: DType) -> NumpyArray:
    """Carried values as they lie in memory; float32 values are rounded to bf16."""
    if dtype is dtypes.bf16:
        from ..ir.semantics import to_bf16

        with np.errstate(all="ignore"):
            rounded = np.ascontiguousarray(to_bf16(np.asarray(values, np.float32)))
        return np.asarray(rounded.view(np.uint32) >> np.uint32(16), np.uint16).reshape(np.shape(values))
    if dtype is dtypes.boolean:
        return np.asarray(values, np.bool_).view(np.uint8)
    return np.asarray(values, dtype.storage)


def decode(raw: NumpyArray, dtype: DType) -> NumpyArray:
    """What lies in memory as carried values."""
    if dtype is dtypes.bf16:
        return np.asarray(raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw != 0 if dtype is dtypes.boolean else raw


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """An array argument: `values` is None for an Out, which holds poison before the launch."""

    dtype: DType
    shape: tuple[int, ...]
    values: NumpyArray | None
    layout: Layout = C_ORDER

    @property
    def distinct_shape(self) -> tuple[int, ...]:
        """The shape without what axes of stride 0 repeat: there may be billions of elements in a few bytes."""
        return tuple(min(n, 1) if axis in self.layout.repeated else n for axis, n in enumerate(self.shape))

    @property
    def distinct(self) -> NumpyArray:
        """The values, each once, of `distinct_shape`. Only for arrays that have values."""
        if self.values is None:
            raise InternalError("an Out has no values")
        return self.values[tuple(slice(n) for n in self.distinct_shape)]


@dataclass(frozen=True, slots=True)
class Case:
    """Arguments by parameter name, with the sizes of dimension names and the types of type variables behind them.

    `aliases`: pairs of arrays that lie in the same memory, that of the first one.
    """

    dims: Mapping[str, Any]
    dtypes: Mapping[str, DType]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[tuple[str, str], ...] = ()

    def arrays(self) -> dict[str, ArrayInput]:
        """The array arguments."""
        return {n: v for n, v in self.arguments.items() if isinstance(v, ArrayInput)}

    def with_argument(self, name: str, value: Any) -> Case:
        """The same case with one argument replaced."""
        return replace(self, arguments={**self.arguments, name: value})

    def with_alias(self, pair: tuple[str, str]) -> Case:
        """The same case with the second array in the memory of the first one."""
        return replace(self, aliases=(*self.aliases, pair))

    def settled(self) -> Case | None:
        """The case with what lies in the same memory made equal; None where arrays of a pair don't fit any more."""
        made = self
        for first, second in self.aliases:
            one, two = made.arguments[first], made.arguments[second]
            if (one.dtype, one.shape, one.layout) != (two.dtype, two.shape, two.layout):
                return None
            if two.values is not None:
                made = made.with_argument(second, replace(two, values=one.values))
        return made

    def size(self) -> int:
        """Elements of all arrays; those that an axis repeats count once."""
        return sum(int(np.prod(a.distinct_shape)) for a in self.arrays().values())

    def is_finite(self) -> bool:
        """Whether no argument holds NaN or an infinity."""
        held: list[Any] = [v.distinct for v in self.arrays().values() if v.values is not None and v.dtype.is_float]
        held += [v for v in self.arguments.values() if isinstance(v, float)]
        return all(bool(np.isfinite(v).all()) for v in held)

    def numpy_arguments(self, spec: KernelSpec, *, outs: bool = False) -> dict[str, Any]:
        """Arguments to call the kernel with, for a specification with structs taken apart: NumPy arrays that have the case's
        strides, structured ones and records for structs. Outs are left out where their shape follows from the dimensions,
        unless `outs` asks for them."""
        from .composites import whole  # which needs to know what a case is

        made: dict[str, Any] = {}
        for param in spec.params:
            value = self.arguments[param.name]
            if not isinstance(value, ArrayInput):
                made[param.name] = value
            elif value.values is not None or outs or param.dims is None or param.dims.evaluate(self.dims) is None:
                made[param.name] = strided(value)
        for one, two in self.aliases:
            made[two] = made[one]
        return whole(spec, made, storage=True)


def strided(array: ArrayInput) -> NumpyArray:
    """A NumPy array with the values and strides of an input; an Out holds zeros."""
    placement = array.layout.place(array.shape)
    storage = array.dtype.storage
    memory = np.zeros(placement.count, storage)
    steps = [s * storage.itemsize for s in placement.strides]
    view = np.lib.stride_tricks.as_strided(memory[placement.first :], array.shape, steps)
    if array.values is not None and 0 not in array.shape:
        once = tuple(slice(n) for n in array.distinct_shape)
        view[once] = encode(array.distinct, array.dtype).view(storage)
    return view


def array(values: Any, dtype: Any = None, **layout: Any) -> ArrayInput:
    """An array argument for `vk.testing.run`: values, element type (default: the values' own), and fields of
    `Layout`."""
    held = np.asarray(values)
    kind = dtypes.from_numpy(held.dtype) if dtype is None else dtype
    made = ArrayInput(kind, held.shape, held, Layout(**layout))
    carried = decode(encode(made.distinct, kind), kind)
    return replace(made, values=np.broadcast_to(carried, held.shape) if carried.shape != held.shape else carried)


def out(dtype: Any, shape: tuple[int, ...], **layout: Any) -> ArrayInput:
    """An Out for `vk.testing.run`: it holds poison before the launch."""
    return ArrayInput(dtype, shape, None, Layout(**layout))
