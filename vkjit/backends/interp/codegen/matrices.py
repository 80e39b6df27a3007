"""Cooperative matrices of any shape: a software model of what devices do in hardware.

The value of a matrix has one component per element that an invocation holds, so control flow merges matrices as it
merges vectors. Which invocation holds which element is unspecified for programs: element number e of a matrix, in the order of
a fixed permutation, is component e // S of lane e % S in a subgroup of S invocations. Programs that assume a layout fail here
as they do on devices.

Products of floats are summed in float64 and rounded once, at least as accurate as any order of additions. Integers wrap.
Invocations outside the mask hold undefined values; operations on matrices are for whole subgroups.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from vkjit.errors import BoundsError, InternalError, KernelError
from vkjit.ir import semantics
from vkjit.ir.core import Op
from vkjit.ir.matrices import memory_rows
from vkjit.ir.ops import op_name
from vkjit.ir.types import Array, Matrix, Scalar, Type

from .batch import Batch
from .compile import BATCH, Frame, FunctionCompiler, Step, plain
from .memory import Memory, Site
from .values import Lanes, Mask

__all__ = ["components_of"]

_SCRAMBLE = 0x9E3779B1


def components_of(matrix: Matrix, subgroup_size: int) -> int:
    """Elements that an invocation holds, some of them of no meaning where there are more places than elements."""
    return -(-matrix.rows * matrix.columns // subgroup_size)


def _order(matrix: Matrix) -> npt.NDArray[np.int64]:
    """The elements (by number in C order) in the order in which places are given to them."""
    keys = (np.arange(matrix.rows * matrix.columns, dtype=np.uint64) * np.uint64(_SCRAMBLE)) % np.uint64(1 << 32)
    return np.argsort(keys, kind="stable").astype(np.int64)


def _matrix(type: Type) -> Matrix:
    if not isinstance(type, Matrix):
        raise InternalError(f"expected a matrix, found {type}")
    return type


class _Subgroups:
    """The subgroups of a batch. Complete ones only: launches with others are refused."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.size = batch.grid.subgroup_size
        self.count = batch.size // self.size

    def gather(self, value: Lanes, matrix: Matrix) -> Lanes:
        """(g, subgroups, rows, columns) from what the lanes hold."""
        if value.shape[0] == 1:  # poison, of as many components as there have to be
            value = np.broadcast_to(value, (components_of(matrix, self.size), *value.shape[1:]))
        if value.shape[-1] == 1:
            value = np.broadcast_to(value, (*value.shape[:-1], self.size))
            count = 1
        else:
            count = self.count
        components, groups = value.shape[0], value.shape[1]
        places = value.reshape(components, groups, count, self.size).transpose(1, 2, 0, 3)
        flat = places.reshape(groups, count, components * self.size)
        elements = np.empty((groups, count, matrix.rows * matrix.columns), dtype=value.dtype)
        order = _order(matrix)
        elements[..., order] = flat[..., : len(order)]
        return elements.reshape(groups, count, matrix.rows, matrix.columns)

    def scatter(self, elements: Lanes, matrix: Matrix) -> Lanes:
        """The inverse: components first, then g and lanes."""
        groups, count = elements.shape[:2]
        components = components_of(matrix, self.size)
        flat = elements.reshape(groups, count, matrix.rows * matrix.columns)
        places: Lanes = np.zeros((groups, count, components * self.size), dtype=elements.dtype)
        order = _order(matrix)
        places[..., : len(order)] = flat[..., order]
        places = places.reshape(groups, count, components, self.size)
        if count != self.count:
            places = np.broadcast_to(places, (groups, self.count, components, self.size))
        lanes: Lanes = places.transpose(2, 0, 1, 3).reshape(components, groups, self.count * self.size)
        return lanes

    def first(self, value: Lanes) -> Lanes:
        """(g, subgroups, 1, 1): what the first lane of each subgroup holds; all hold the same."""
        if value.shape[-1] == 1:
            return value[..., None, None]
        return value[..., :: self.size][..., None, None]

    def active(self, mask: Mask, op: Op) -> npt.NDArray[np.bool_] | None:
        """Which subgroups take part, (g, subgroups, 1, 1); KernelError where one takes part in parts."""
        if mask is None:
            return None
        full = self.batch.full(mask).reshape(self.batch.count, self.count, self.size)
        every, some = full.all(axis=-1), full.any(axis=-1)
        if (some & ~every).any():
            torn = np.repeat(some & ~every, self.size, axis=-1) & ~self.batch.full(mask)
            message = "divergent matrix operation: this invocation doesn't take part where others of its subgroup do"
            raise self.batch.error(KernelError, message, op.loc, torn)
        return np.asarray(every)[..., None, None]


def _subgroups(frame: Frame) -> _Subgroups:
    return _Subgroups(frame[BATCH])


# -- memory


class _Place:
    """A matrix in memory: the operands of a load or store, by slot."""

    def __init__(self, compiler: FunctionCompiler, op: Op, matrix: Matrix) -> None:
        array = op.operands[0].type
        if not isinstance(array, Array):
            raise InternalError(f"{op.name} needs an array, found {array}")
        slots = compiler.slots(op.operands)
        self.op, self.matrix = op, matrix
        self.array, self.indices, self.pitch = slots[0], slots[1 : 1 + array.rank], slots[1 + array.rank]
        self.element = array.element
        self.item = array.dtype.itemsize * getattr(array.element, "size", 1)
        self.rows, self.units = memory_rows(op)

    def positions(self, frame: Frame, subgroups: _Subgroups) -> tuple[list[Lanes], Memory]:
        """Indices of all elements of the array that the matrix covers, and the array as it is to be accessed.

        Row after row by the pitch, so a linear array, or the last two axes of a strided one.
        """
        memory: Memory = frame[self.array]
        row = np.arange(self.rows, dtype=np.int64)[:, None]
        column = np.arange(self.units, dtype=np.int64)[None, :]
        indices = [subgroups.first(frame[slot]).astype(np.int64) for slot in self.indices]
        if len(indices) == 1:
            return [indices[0] + row * subgroups.first(frame[self.pitch]) + column], memory
        indices[-2], indices[-1] = indices[-2] + row, indices[-1] + column
        return indices, memory


def _inside(
    indices: list[Lanes], memory: Memory, subgroups: _Subgroups, active: npt.NDArray[np.bool_] | None, op: Op
) -> None:
    """BoundsError for a subgroup whose matrix doesn't lie inside the array."""
    first = getattr(memory, "first", 0) if memory.is_linear else 0
    for axis, (index, extent) in enumerate(zip(indices, memory.extents, strict=True)):
        outside = (index < -first) | (index >= extent)
        torn = np.any(outside & (True if active is None else active), axis=(-1, -2))
        if not torn.any():
            continue
        batch = subgroups.batch
        group, number = (int(place[0]) for place in np.nonzero(np.broadcast_to(torn, (batch.count, subgroups.count))))
        bad = np.broadcast_to(outside, (batch.count, subgroups.count, *outside.shape[-2:]))[group, number]
        found = np.broadcast_to(index, (batch.count, subgroups.count, *outside.shape[-2:]))[group, number][bad][0]
        raise BoundsError(
            f"index {found} of a matrix is outside {memory.name or 'the array'}, shape {memory.extents} (axis {axis})",
            kernel=batch.log.kernel,
            loc=op.loc,
            invocation=batch.invocation(group, number * subgroups.size),
        )


def _aligned(
    indices: list[Lanes], place: _Place, frame: Frame, subgroups: _Subgroups, active: npt.NDArray[np.bool_] | None
) -> None:
    """KernelError for a matrix whose rows don't begin at multiples of 16 bytes: devices can't read it."""
    op, item = place.op, place.item
    unit = min(16, place.units * item)
    pitch = subgroups.first(frame[place.pitch]).astype(np.int64)
    wrong = ((indices[-1][..., :1, :1] * item) % unit != 0) | ((pitch * item) % unit != 0)
    if active is not None:
        wrong = wrong & active
    if not wrong.any():
        return
    batch = subgroups.batch
    shape = (batch.count, subgroups.count, 1, 1)
    group, number = (int(found[0]) for found in np.nonzero(np.broadcast_to(wrong, shape))[:2])
    raise KernelError(
        f"a matrix in memory whose rows don't begin at multiples of {unit} bytes: devices can't read or write it",
        kernel=batch.log.kernel,
        loc=op.loc,
        invocation=batch.invocation(group, number * subgroups.size),
    )


def _flattened(indices: list[Lanes], subgroups: _Subgroups) -> list[Lanes]:
    """Indices (g, subgroups, rows, units) as (g, many): what memories take, one place after the other."""
    groups = subgroups.batch.count
    shape = np.broadcast_shapes(*(index.shape for index in indices), (groups, subgroups.count, 1, 1))
    return [np.broadcast_to(index, shape).reshape(groups, -1) for index in indices]


def _mask_of(active: npt.NDArray[np.bool_] | None, place: _Place) -> Mask:
    if active is None:
        return None
    groups, count = active.shape[:2]
    return np.broadcast_to(active, (groups, count, place.rows, place.units)).reshape(groups, -1)


@plain("mat_load")
def _load(compiler: FunctionCompiler, op: Op) -> Step:
    matrix = _matrix(op.result.type)
    place, target = _Place(compiler, op, matrix), compiler.define(op.result)
    transposed = op.attrs["layout"] == "column"

    def step(frame: Frame, mask: Mask) -> None:
        subgroups = _subgroups(frame)
        indices, memory = place.positions(frame, subgroups)
        active = subgroups.active(mask, op)
        _inside(indices, memory, subgroups, active, op)
        _aligned(indices, place, frame, subgroups, active)
        flat = _flattened(indices, subgroups)
        found = memory.load(flat, _mask_of(active, place), Site(frame[BATCH], op.loc))
        shape = (subgroups.batch.count, subgroups.count, place.rows, place.units)
        elements = _as_elements(found.reshape(*found.shape[:-2], *shape), place)
        frame[target] = subgroups.scatter(elements.swapaxes(-1, -2) if transposed else elements, matrix)

    return step


@plain("mat_store")
def _store(compiler: FunctionCompiler, op: Op) -> Step:
    matrix = _matrix(op.operands[-1].type)
    place, source = _Place(compiler, op, matrix), compiler.slot(op.operands[-1])
    transposed = op.attrs["layout"] == "column"

    def step(frame: Frame, mask: Mask) -> None:
        subgroups = _subgroups(frame)
        indices, memory = place.positions(frame, subgroups)
        active = subgroups.active(mask, op)
        _inside(indices, memory, subgroups, active, op)
        _aligned(indices, place, frame, subgroups, active)
        elements = subgroups.gather(frame[source], matrix)
        if transposed:
            elements = elements.swapaxes(-1, -2)
        whole = np.broadcast_to(elements, (subgroups.batch.count, subgroups.count, *elements.shape[2:]))
        units = _as_units(whole, place)
        value = units.reshape(*units.shape[:-4], subgroups.batch.count, -1)
        memory.store(_flattened(indices, subgroups), value, _mask_of(active, place), Site(frame[BATCH], op.loc))

    return step


def _bits(dtype_name: str, values: Lanes) -> Lanes:
    """Values as they lie in memory."""
    if dtype_name == "bf16":
        words: Lanes = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> np.uint32(16)
        return words.astype(np.uint16)
    return np.ascontiguousarray(values)


def _values(matrix: Matrix, raw: npt.NDArray[np.uint8]) -> Lanes:
    """Bytes as elements of the matrix."""
    if matrix.dtype.name == "bf16":
        words: Lanes = raw.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return words.view(np.float32)
    return np.asarray(raw.view(matrix.dtype.numpy))


def _as_elements(found: Lanes, place: _Place) -> Lanes:
    """(..., rows, columns) of the matrix from elements of the array, whose components come first."""
    if place.element == Scalar(place.matrix.dtype):
        return found
    dtype = place.element.dtype.name
    packed = _bits(dtype, np.moveaxis(found, 0, -1) if found.ndim > 4 else found)
    raw = packed.view(np.uint8).reshape(*found.shape[-4:-1], -1)
    return _values(place.matrix, raw)


def _as_units(elements: Lanes, place: _Place) -> Lanes:
    """The inverse of `_as_elements`."""
    if place.element == Scalar(place.matrix.dtype):
        return elements
    raw = _bits(place.matrix.dtype.name, elements).view(np.uint8).reshape(*elements.shape[:-1], -1)
    lanes = getattr(place.element, "size", 1)
    dtype = place.element.dtype
    kind = Matrix(dtype, 1, 1, "acc")
    values = _values(kind, raw)
    if lanes == 1:
        return values
    return np.moveaxis(values.reshape(*values.shape[:-1], -1, lanes), -1, 0)


# -- arithmetic


@plain("mat_fill")
def _fill(compiler: FunctionCompiler, op: Op) -> Step:
    matrix, source, target = _matrix(op.result.type), compiler.slot(op.operands[0]), compiler.define(op.result)

    def step(frame: Frame, _mask: Mask) -> None:
        value: Lanes = frame[source]
        components = components_of(matrix, frame[BATCH].grid.subgroup_size)
        frame[target] = np.broadcast_to(value, (components, *value.shape)).copy()

    return step


@plain("mat_mma")
def _multiply_add(compiler: FunctionCompiler, op: Op) -> Step:
    slots, kinds = compiler.slots(op.operands), [_matrix(value.type) for value in op.operands]
    matrix, target = _matrix(op.result.type), compiler.define(op.result)
    wide = np.float64 if matrix.dtype.is_float else np.int64

    def step(frame: Frame, _mask: Mask) -> None:
        subgroups = _subgroups(frame)
        a, b, acc = (subgroups.gather(frame[slot], kind).astype(wide) for slot, kind in zip(slots, kinds, strict=True))
        total = acc + np.matmul(a, b)
        rounded = total.astype(matrix.dtype.numpy)
        if matrix.dtype.name == "bf16":
            rounded = semantics.to_bf16(rounded)
        frame[target] = subgroups.scatter(rounded, matrix)

    return step


@plain("mat_map")
def _map(compiler: FunctionCompiler, op: Op) -> Step:
    slots, matrix, target = compiler.slots(op.operands), _matrix(op.result.type), compiler.define(op.result)
    function: Callable[..., Lanes] = semantics.MEANING[op_name(op.attrs["op"])]

    def step(frame: Frame, _mask: Mask) -> None:
        result = function(*(frame[slot] for slot in slots))
        frame[target] = semantics.to_bf16(result) if matrix.dtype.name == "bf16" else result

    return step


@plain("mat_cast")
def _cast(compiler: FunctionCompiler, op: Op) -> Step:
    (source,), target = compiler.slots(op.operands), compiler.define(op.result)
    old, new = _matrix(op.operands[0].type).dtype, _matrix(op.result.type).dtype

    def step(frame: Frame, _mask: Mask) -> None:
        frame[target] = semantics.cast(frame[source], old, new)

    return step
