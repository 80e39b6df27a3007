"""Cooperative matrices of a subgroup: `sg.matrix`, `sg.load`, `sg.store`, `sg.mma`, and arithmetic on them.

Enters: calls of a subgroup's methods, operators with a matrix on one side, `vk.f16(matrix)`. Leaves: `mat_*`
operations. A matrix is one run-time value, so that loops carry it and tuples hold it; it has no elements that a kernel
could name. The shapes are those of slices, known at compile time; whether the device has a product of these shapes and
types is asked later (`passes.check_matrices`).
"""

from __future__ import annotations

import math

from ..dtypes import DType
from ..ir.core import Value
from ..ir.matrices import LAYOUTS, USES
from ..ir.types import Array, Matrix, Vector
from .annotations import dtype_of
from .collectives import ScopeValue, emit, method
from .context import Call, Context, Place
from .conversions import as_exactly, static_value
from .elementwise import is_tile
from .lazy import SliceTarget, check_sources, note_write
from .memory import one_of
from .tiles import load_tile, product
from .values import KernelValue, Lazy, describe_value, is_matrix

__all__ = ["cast_matrix", "map_matrices", "negative", "store_matrix"]

_SIGNS = {"add": "+", "sub": "-", "mul": "*"}


# -- making and loading
@method("matrix", "subgroup")
def _matrix(
    ctx: Context,
    call: Call,
    _scope: ScopeValue,
    shape: KernelValue,
    dtype: KernelValue,
    value: KernelValue,
    use: KernelValue,
) -> KernelValue:
    sizes = [static_value(size) for size in shape] if isinstance(shape, tuple) else []
    if len(sizes) != 2 or any(size is None or isinstance(size, bool | float) or size < 1 for size in sizes):
        raise ctx.error(
            call.node, "the shape of a matrix is two sizes known at compile time", "sg.matrix((16, 16), vk.f32)"
        )
    found = _element(ctx, call.node, dtype)
    kind = Matrix(found, int(sizes[0] or 0), int(sizes[1] or 0), one_of(ctx, call, "use", use, USES))
    return emit(ctx, "mat_fill", as_exactly(ctx, call.node, value, found, "the value"), type=kind)


def _element(ctx: Context, node: Place, dtype: KernelValue) -> DType:
    found = dtype_of(dtype)
    if found is None or found.kind not in ("float", "int", "uint"):
        raise ctx.error(node, f"the elements of a matrix are numbers, found {describe_value(dtype)}", "write vk.f16")
    return found


@method("load", "subgroup")
def _load(
    ctx: Context,
    call: Call,
    scope: ScopeValue,
    source: KernelValue,
    use: KernelValue,
    layout: KernelValue,
    dtype: KernelValue,
    pad: KernelValue,
) -> KernelValue:
    if use == "":
        return load_tile(ctx, call, scope, source, pad)
    place = _slice(ctx, call, source, 'sg.load(a[i:i+16, k:k+16], "a")')
    assert isinstance(source, Lazy)
    word = one_of(ctx, call, "use", use, USES)
    order = one_of(ctx, call, "layout", layout, LAYOUTS)
    array = _array(place)
    element = array.dtype if dtype is None else _element(ctx, call.node, dtype)
    rows, columns = _extents(ctx, call.node, source, array, element)
    if order == "column":
        rows, columns = columns, rows
    check_sources(ctx, call.node, source)
    kind = Matrix(element, rows, columns, word)
    _check_pitch(ctx, call.node, array, (rows if order == "column" else columns) * element.itemsize)
    at, pitch = _first(ctx, place)
    return emit(ctx, "mat_load", place.array, *at, pitch, layout=order, type=kind)


def _array(place: SliceTarget) -> Array:
    kind = place.array.type
    assert isinstance(kind, Array)
    return kind


def _slice(ctx: Context, call: Call, value: KernelValue, example: str) -> SliceTarget:
    """Where a slice of two dimensions lies."""
    if not isinstance(value, Lazy) or not isinstance(value.target, SliceTarget):
        raise ctx.error(call.node, f"expected a slice of an array, found {describe_value(value)}", example)
    place = value.target
    if len(value.shape) != 2 or place.axes[-2:] != (0, 1):
        raise ctx.error(
            call.node,
            "a matrix lies in a slice along the last two dimensions of an array",
            "index the others: x[g, i:i+16, k:k+16]",
        )
    if _array(place).space == "global" and not _array(place).contiguous:
        raise ctx.error(
            call.node,
            "the array isn't contiguous: a matrix is read in rows of neighbours",
            "pass a contiguous array, or copy the part into shared memory first",
        )
    return place


def _extents(ctx: Context, node: Place, lazy: Lazy, array: Array, element: DType) -> tuple[int, int]:
    """Rows and columns of a slice, counted in elements of the matrix."""
    if None in lazy.sizes or len(lazy.sizes) != 2:
        raise ctx.error(
            node,
            "the sizes of the slice must be known at compile time",
            "write both dimensions as start:start+SIZE, with a vk.Const[int] SIZE",
        )
    rows, columns = (int(size or 0) for size in lazy.sizes)
    if array.dtype.kind == "bool":
        raise ctx.error(node, "an array of bools holds no matrix", "keep 0 and 1 as vk.i8")
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    if lanes == 3:
        raise ctx.error(node, "an array of vectors of three holds no matrix", "use vectors of two or four")
    size = columns * lanes * array.dtype.itemsize
    if size % element.itemsize:
        raise ctx.error(node, f"{size} bytes aren't whole elements of {element!r}", "choose another size")
    return rows, size // element.itemsize


def _check_pitch(ctx: Context, node: Place, array: Array, line: int) -> None:
    """Rows of shared arrays begin at multiples of 16 bytes (or of what a row of the matrix takes, if that is less)."""
    if array.shape is None:
        return
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    size, unit = array.shape[-1] * lanes * array.dtype.itemsize, min(16, line)
    if size % unit:
        raise ctx.error(
            node,
            f"the rows of the array are {size} bytes apart: devices read matrices at multiples of {unit} bytes",
            f"make its rows {-(-size // unit) * unit} bytes long, or {-(-size // unit) * unit + unit}",
        )


def _first(ctx: Context, place: SliceTarget) -> tuple[list[Value], Value]:
    """The indices of a slice's first element, and the distance between its rows."""
    array, rank = _array(place), len(place.starts)
    if array.shape is not None:
        return list(place.starts), ctx.builder.index(math.prod(array.shape[rank - 1 :]))
    return list(place.starts), ctx.builder.emit("stride", place.array, axis=rank - 2)


# -- storing
def store_matrix(ctx: Context, call: Call, target: KernelValue, matrix: Value, layout: str = "row") -> None:
    """`sg.store(c[i:i+16, j:j+16], matrix)`: the slice has the matrix' size, and lies inside its array."""
    place = _slice(ctx, call, target, "sg.store(c[i:i+16, j:j+16], acc)")
    assert isinstance(target, Lazy)
    assert isinstance(matrix.type, Matrix)
    array, kind = _array(place), matrix.type
    if array.access == "in" and array.space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    if array.dtype is not kind.dtype and not isinstance(array.element, Vector):
        raise ctx.error(
            call.node,
            f"a matrix of {kind.dtype!r} can't be stored to an array of {array.dtype!r}",
            f"convert it: {array.dtype!r}(acc)",
        )
    found = _extents(ctx, call.node, target, array, kind.dtype)
    if found != (kind.rows, kind.columns):
        raise ctx.error(
            call.node,
            f"the slice holds {found[0]} x {found[1]} elements, the matrix is {describe(kind)}",
            f"take a slice of that size: c[i:i+{kind.rows}, j:j+{kind.columns}]",
        )
    _check_pitch(ctx, call.node, array, kind.columns * kind.dtype.itemsize)
    at, pitch = _first(ctx, place)
    emit_store(ctx, place.array, at, pitch, matrix, layout)
    note_write(ctx, place.array)


def emit_store(ctx: Context, array: Value, at: list[Value], pitch: Value, matrix: Value, layout: str) -> None:
    """The operation that stores."""
    ctx.session.module.kernel.attrs["subgroups"] = True
    ctx.builder.op("mat_store", array, *at, pitch, matrix, layout=layout)


def describe(kind: Matrix) -> str:
    """A matrix type in words."""
    return f"{kind.rows} x {kind.columns} of {kind.dtype!r} ({kind.use})"


# -- products and arithmetic
@method("mma", "subgroup")
def _mma(ctx: Context, call: Call, scope: ScopeValue, a: KernelValue, b: KernelValue, acc: KernelValue) -> KernelValue:
    if is_tile(acc):
        return product(ctx, call, scope, a, b, acc)
    kinds: list[Matrix] = []
    for name, use, value in zip(("a", "b", "acc"), USES, (a, b, acc), strict=True):
        if not is_matrix(value):
            raise ctx.error(
                call.node, f"{name} is a matrix, found {describe_value(value)}", f'load it with use="{use}": sg.load'
            )
        assert isinstance(value.type, Matrix)
        if value.type.use != use:
            raise ctx.error(
                call.node, f'{name} is a matrix for use "{value.type.use}", expected "{use}"', f'use="{use}"'
            )
        kinds.append(value.type)
    left, right, sums = kinds
    if (left.rows, right.columns, left.columns) != (sums.rows, sums.columns, right.rows):
        found = ", ".join(map(describe, kinds))
        raise ctx.error(call.node, f"{found}: they don't go together", "m x k, k x n and m x n elements")
    return emit(ctx, "mat_mma", a, b, acc, type=sums)  # type: ignore[arg-type]


def map_matrices(ctx: Context, node: Place, name: str, a: KernelValue, b: KernelValue) -> Value:
    """`a + b`, `a - b`, `a * b`, where one is a matrix and the other one of its type, or a number for all elements."""
    kind = next(value.type for value in (a, b) if is_matrix(value))
    assert isinstance(kind, Matrix)
    if name not in _SIGNS:
        raise ctx.error(node, "matrices have +, - and *", "store the matrix, and work on its elements")
    operands = []
    for value in (a, b):
        if not is_matrix(value):
            number = as_exactly(ctx, node, value, kind.dtype, "the number")
            value = emit(ctx, "mat_fill", number, type=kind)
        if value.type != kind:
            assert isinstance(value.type, Matrix)
            found = f"{describe(kind)} and {describe(value.type)}: they aren't of one type"
            raise ctx.error(node, found, "convert one: vk.f32(acc)")
        operands.append(value)
    return emit(ctx, "mat_map", *operands, op=name, type=kind)


def negative(ctx: Context, node: Place, name: str, value: Value) -> Value:
    """`-a`, `+a`."""
    if name == "pos":
        return value
    if name != "neg":
        raise ctx.error(node, "matrices have +, - and *", "store the matrix, and work on its elements")
    return emit(ctx, "mat_map", value, op="neg", type=value.type)


def cast_matrix(ctx: Context, node: Place, value: Value, dtype: DType) -> Value:
    """`vk.f16(acc)`: every element converted; to floats only."""
    kind = value.type
    assert isinstance(kind, Matrix)
    if kind.dtype is dtype:
        return value
    if not dtype.is_float:
        raise ctx.error(node, f"matrices are converted to floats only, not to {dtype!r}", "store it, and convert then")
    return emit(ctx, "mat_cast", value, type=Matrix(dtype, kind.rows, kind.columns, kind.use))
