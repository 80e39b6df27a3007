"""One set of kernel arguments: the unit that a property test draws, runs, shrinks and prints.

A `Case` is plain data and independent of hypothesis. It stores carried values: NumPy arrays of types that NumPy can
compute with, such as float32 for bf16. `encode` and `decode` convert these to and from the memory representation.

An array parameter is an In, InOut or Out, after its annotation (`vk.In`, ...); an Out is only written. Before a launch
Outs are filled with poison, a known byte, so that elements that the kernel doesn't write can be detected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.frontend import KernelSpec

from .layouts import C_ORDER, Layout

__all__ = ["ArrayInput", "Case", "array", "decode", "encode", "out", "storage_of"]

NumpyArray = npt.NDArray[Any]


def storage_of(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type of one element in memory; bool is stored as uint8 so that any byte value stays visible."""
    return np.dtype(np.uint8) if dtype is dtypes.boolean else dtype.storage


def encode(values: NumpyArray, dtype: DType) -> NumpyArray:
    """Convert carried values of an element type to their memory representation.

    For bf16 the values, float32, are rounded; the result holds the bits of bf16 as uint16.
    """
    if dtype is dtypes.bf16:
        from vkjit.ir.semantics import to_bf16

        with np.errstate(all="ignore"):
            # float32 whose low 16 bits are zero; the high ones are the bits of the bf16
            rounded = np.ascontiguousarray(to_bf16(np.asarray(values, np.float32)))
        bits = np.asarray(rounded.view(np.uint32) >> np.uint32(16), np.uint16)
        return bits.reshape(np.shape(values))  # `ascontiguousarray` gives an array without axes one axis
    if dtype is dtypes.boolean:
        return np.asarray(values, np.bool_).view(np.uint8)
    return np.asarray(values, dtype.storage)


def decode(raw: NumpyArray, dtype: DType) -> NumpyArray:
    """Convert the memory representation of an element type to carried values."""
    if dtype is dtypes.bf16:  # the high half of a float32
        return np.asarray(raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return raw != 0 if dtype is dtypes.boolean else raw


@dataclass(frozen=True, slots=True)
class ArrayInput:
    """An array argument: element type, shape, carried values and memory layout. `values` is None for an Out."""

    dtype: DType
    shape: tuple[int, ...]
    values: NumpyArray | None
    layout: Layout = C_ORDER

    @property
    def distinct_shape(self) -> tuple[int, ...]:
        """The shape with axes of stride 0 reduced to 1.

        It is that of the elements in memory: an array with axes of stride 0 may have billions of elements in a few
        bytes.
        """
        return tuple(min(n, 1) if axis in self.layout.repeated else n for axis, n in enumerate(self.shape))

    @property
    def distinct(self) -> NumpyArray:
        """The values of the elements in memory, of shape `distinct_shape`. Raises InternalError for an Out."""
        if self.values is None:
            raise InternalError("an Out has no values")
        return self.values[tuple(slice(n) for n in self.distinct_shape)]


@dataclass(frozen=True, slots=True)
class Case:
    """The arguments of one launch: `arguments` by parameter name, an `ArrayInput` for an array.

    `dims` are the sizes of the named dimensions, and `dtypes` the element types of the type variables, from which the
    arguments were made. `aliases` are pairs of array parameters; the second one uses the memory of the first.
    """

    dims: Mapping[str, Any]
    dtypes: Mapping[str, DType]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[tuple[str, str], ...] = ()

    def arrays(self) -> dict[str, ArrayInput]:
        """Return the array arguments by name."""
        return {n: v for n, v in self.arguments.items() if isinstance(v, ArrayInput)}

    def with_argument(self, name: str, value: Any) -> Case:
        """Return the case with one argument replaced."""
        return replace(self, arguments={**self.arguments, name: value})

    def with_alias(self, pair: tuple[str, str]) -> Case:
        """Return the case in which the second array of the pair uses the memory of the first one."""
        return replace(self, aliases=(*self.aliases, pair))

    def settled(self) -> Case | None:
        """Return the case with the values of the first array in the second one, for each pair of aliased arrays.

        Returns None if the arrays of a pair differ in type, shape or layout.
        """
        case = self
        for first_name, second_name in self.aliases:
            first, second = case.arguments[first_name], case.arguments[second_name]
            if (first.dtype, first.shape, first.layout) != (second.dtype, second.shape, second.layout):
                return None
            if second.values is not None:
                case = case.with_argument(second_name, replace(second, values=first.values))
        return case

    def size(self) -> int:
        """Return the number of elements of all arrays in memory; an axis of stride 0 counts as one element."""
        return sum(int(np.prod(a.distinct_shape)) for a in self.arrays().values())

    def is_finite(self) -> bool:
        """True if no argument contains NaN or an infinity."""
        floats: list[Any] = [v.distinct for v in self.arrays().values() if v.values is not None and v.dtype.is_float]
        floats += [v for v in self.arguments.values() if isinstance(v, float)]
        return all(bool(np.isfinite(v).all()) for v in floats)

    def numpy_arguments(self, spec: KernelSpec, *, outs: bool = False) -> dict[str, Any]:
        """Return arguments for a call of the kernel as the user would write it: NumPy arrays, records and numbers.

        `spec` is `Kernel.expanded_spec`. Arrays have the case's strides; structs become structured arrays and records.
        Outs whose shape follows from the dimensions are left out unless `outs` is set, since the launch allocates them.
        """
        from .composites import assemble  # import cycle

        by_name: dict[str, Any] = {}
        for param in spec.params:
            value = self.arguments[param.name]
            if not isinstance(value, ArrayInput):
                by_name[param.name] = value
            elif value.values is not None or outs or param.dims is None or param.dims.evaluate(self.dims) is None:
                by_name[param.name] = strided(value)  # otherwise an Out that the launch allocates
        for first, second in self.aliases:
            by_name[second] = by_name[first]
        return assemble(spec, by_name, storage=True)


def strided(array: ArrayInput) -> NumpyArray:
    """Return a NumPy array with the values and strides of an input; an Out is filled with zeros."""
    placement = array.layout.place(array.shape)
    storage = array.dtype.storage
    memory = np.zeros(placement.count, storage)
    byte_strides = [s * storage.itemsize for s in placement.strides]
    view = np.lib.stride_tricks.as_strided(memory[placement.first :], array.shape, byte_strides)
    if array.values is not None and 0 not in array.shape:
        distinct = tuple(slice(n) for n in array.distinct_shape)  # the first element along axes of stride 0
        view[distinct] = encode(array.distinct, array.dtype).view(storage)
    return view


def array(values: Any, dtype: Any = None, **layout: Any) -> ArrayInput:
    """Make an array argument for `vk.testing.run` from values, a NumPy array or nested lists.

    dtype: the element type (default: that of the values). layout: fields of `Layout`, such as `step=2`.
    """
    given = np.asarray(values)
    element_type = dtypes.from_numpy(given.dtype) if dtype is None else dtype
    unrounded = ArrayInput(element_type, given.shape, given, Layout(**layout))
    carried = decode(encode(unrounded.distinct, element_type), element_type)
    # along axes of stride 0, only the first element was converted
    values = np.broadcast_to(carried, given.shape) if carried.shape != given.shape else carried
    return replace(unrounded, values=values)


def out(dtype: Any, shape: tuple[int, ...], **layout: Any) -> ArrayInput:
    """Make an argument for an Out of a kernel, for `vk.testing.run`, which fills it with a known byte."""
    return ArrayInput(dtype, shape, None, Layout(**layout))
