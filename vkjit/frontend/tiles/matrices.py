"""Cooperative matrices of a subgroup: construction, loads and stores, products, arithmetic and conversion.

With sg = `vk.subgroup()`, these are `sg.matrix`, `sg.load`, `sg.store`, `sg.mma`, operators and calls of dtypes. They
lower to `mat_*` operations. A matrix is a single run-time value that loops can carry and tuples can hold; its elements
can't be accessed individually. A matrix is loaded from a slice whose sizes are known at compile time, and has the
slice's shape. Its use, "a", "b" or "acc", says which operand of a product it can be. The pass
`passes.analysis.check_matrices` checks later that the device supports the shapes and types.
"""

from __future__ import annotations

from vkjit.dtypes import DType
from vkjit.ir.core import Value
from vkjit.ir.matrices import LAYOUTS, USES
from vkjit.ir.types import Array, Matrix, Vector

from ..context import Call, Context, Place
from ..intrinsics import one_of
from ..kernel_values import KernelValue, Lazy, describe_value, is_matrix, is_tile
from ..signature.annotations import dtype_of
from ..values.conversions import as_exactly, static_value
from ..values.lazy import SliceTarget, check_sources, note_write
from ..values.scopes import ScopeValue, emit, method, uses_lanes
from .tiles import emit_mma, load_tile

__all__ = ["cast_matrix", "map_matrices", "store_matrix", "unary_matrix"]

_OPERATORS = ("add", "sub", "mul")
"""The binary operators of matrices, all elementwise."""


# -- construction and loads
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
    """Lower `sg.matrix(shape, dtype, value, use)`: a matrix with all elements equal to `value`."""
    sizes = [static_value(size) for size in shape] if isinstance(shape, tuple) else []
    if len(sizes) != 2 or any(size is None or isinstance(size, bool | float) or size < 1 for size in sizes):
        raise ctx.error(
            call.node, "the shape of a matrix is two sizes known at compile time", "sg.matrix((16, 16), vk.f32)"
        )
    element_type = _element(ctx, call.node, dtype)
    # None was rejected above; `or 0` is for the type checker.
    kind = Matrix(element_type, int(sizes[0] or 0), int(sizes[1] or 0), one_of(ctx, call, "use", use, USES))
    return emit(ctx, "mat_fill", as_exactly(ctx, call.node, value, element_type, "the value"), type=kind)


def _element(ctx: Context, node: Place, dtype: KernelValue) -> DType:
    """Return the element type for a `dtype` argument. Raises CompileError unless it is a type of numbers."""
    element_type = dtype_of(dtype)
    if element_type is None or element_type.kind not in ("float", "int", "uint"):
        raise ctx.error(node, f"the elements of a matrix are numbers, found {describe_value(dtype)}", "write vk.f16")
    return element_type


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
    """Lower `sg.load(slice, use, ...)` to a matrix; without `use`, to a tile.

    `layout="column"` reads the transposed slice. With `dtype`, the memory's bytes are read as elements of that type.
    """
    if use == "":
        return load_tile(ctx, call, scope, source, pad)
    slice_ = _slice(ctx, call, source, 'sg.load(a[i:i+16, k:k+16], "a")')
    assert isinstance(source, Lazy)
    use_name = one_of(ctx, call, "use", use, USES)
    order = one_of(ctx, call, "layout", layout, LAYOUTS)
    array = _array(slice_)
    element = array.dtype if dtype is None else _element(ctx, call.node, dtype)
    slice_rows, slice_columns = _extents(ctx, call.node, source, array, element)
    rows, columns = (slice_columns, slice_rows) if order == "column" else (slice_rows, slice_columns)
    check_sources(ctx, call.node, source)
    kind = Matrix(element, rows, columns, use_name)
    _check_pitch(ctx, call.node, array, slice_columns * element.itemsize)
    at, pitch = _first_and_pitch(ctx, slice_)
    return emit(ctx, "mat_load", slice_.array, *at, pitch, layout=order, type=kind)


def _array(slice_: SliceTarget) -> Array:
    """Return the type of the array that a slice belongs to."""
    kind = slice_.array.type
    assert isinstance(kind, Array)
    return kind


def _slice(ctx: Context, call: Call, value: KernelValue, example: str) -> SliceTarget:
    """Return the location of a slice that a matrix is read from or written to.

    Raises CompileError, with the hint `example`, if the value isn't such a slice.
    """
    if not isinstance(value, Lazy) or not isinstance(value.target, SliceTarget):
        raise ctx.error(call.node, f"expected a slice of an array, found {describe_value(value)}", example)
    slice_ = value.target
    if len(value.shape) != 2 or slice_.axes[-2:] != (0, 1):
        raise ctx.error(
            call.node,
            "a matrix lies in a slice along the last two dimensions of an array",
            "index the others: x[g, i:i+16, k:k+16]",
        )
    if _array(slice_).space == "global" and not _array(slice_).contiguous:
        raise ctx.error(
            call.node,
            "the array isn't contiguous: a matrix is read in rows of neighbours",
            "pass a contiguous array, or copy the part into shared memory first",
        )
    return slice_


def _extents(ctx: Context, node: Place, lazy: Lazy, array: Array, element: DType) -> tuple[int, int]:
    """Return the number of rows and columns of a slice that is read or written as elements of type `element`.

    The array's elements may have another type, or be vectors: a row has as many elements as fit into its bytes.
    """
    if None in lazy.sizes or len(lazy.sizes) != 2:
        raise ctx.error(
            node,
            "the sizes of the slice must be known at compile time",
            "write both dimensions as start:start+SIZE, with a vk.Const[int] SIZE",
        )
    rows, columns = (int(size or 0) for size in lazy.sizes)  # no size is None; `or 0` is for the type checker
    if array.dtype.kind == "bool":
        raise ctx.error(node, "an array of bools holds no matrix", "keep 0 and 1 as vk.i8")
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    if lanes == 3:
        raise ctx.error(node, "an array of vectors of three holds no matrix", "use vectors of two or four")
    size = columns * lanes * array.dtype.itemsize
    if size % element.itemsize:
        raise ctx.error(node, f"{size} bytes aren't whole elements of {element!r}", "choose another size")
    return rows, size // element.itemsize


def _check_pitch(ctx: Context, node: Place, array: Array, row_bytes: int) -> None:
    """Raise CompileError unless the row pitch of a shared array, in bytes, is a multiple of min(16, `row_bytes`).

    Devices require this alignment for the rows of a matrix. `row_bytes` is the size of a matrix row in memory.
    """
    if array.shape is None:
        return
    lanes = array.element.size if isinstance(array.element, Vector) else 1
    pitch = array.shape[-1] * lanes * array.dtype.itemsize
    alignment = min(16, row_bytes)
    if pitch % alignment:
        rounded_up = -(-pitch // alignment) * alignment
        raise ctx.error(
            node,
            f"the rows of the array are {pitch} bytes apart: devices read matrices at multiples of {alignment} bytes",
            f"make its rows {rounded_up} bytes long, or {rounded_up + alignment}",
        )


def _first_and_pitch(ctx: Context, slice_: SliceTarget) -> tuple[list[Value], Value]:
    """Return the indices of a slice's first element, and its row pitch: the stride between rows in array elements."""
    array, first = _array(slice_), list(slice_.starts)
    if array.shape is not None:
        return first, ctx.builder.index(array.shape[-1])
    return first, ctx.builder.emit("stride", slice_.array, axis=array.rank - 2)


# -- stores
def store_matrix(ctx: Context, call: Call, target: KernelValue, matrix: Value, layout: str = "row") -> None:
    """Lower `sg.store(c[i:i+16, j:j+16], matrix)`; the slice has the matrix's shape and must lie inside its array."""
    slice_ = _slice(ctx, call, target, "sg.store(c[i:i+16, j:j+16], acc)")
    assert isinstance(target, Lazy)
    assert isinstance(matrix.type, Matrix)
    array, kind = _array(slice_), matrix.type
    if array.access == "in" and array.space == "global":
        raise ctx.error(call.node, "this array is an input: it can't be written", "annotate it as vk.Out or vk.InOut")
    if array.dtype is not kind.dtype and not isinstance(array.element, Vector):
        raise ctx.error(
            call.node,
            f"a matrix of {kind.dtype!r} can't be stored to an array of {array.dtype!r}",
            f"convert it: {array.dtype!r}(acc)",
        )
    extents = _extents(ctx, call.node, target, array, kind.dtype)
    if extents != (kind.rows, kind.columns):
        raise ctx.error(
            call.node,
            f"the slice holds {extents[0]} x {extents[1]} elements, the matrix is {describe(kind)}",
            f"take a slice of that size: c[i:i+{kind.rows}, j:j+{kind.columns}]",
        )
    _check_pitch(ctx, call.node, array, kind.columns * kind.dtype.itemsize)
    at, pitch = _first_and_pitch(ctx, slice_)
    emit_store(ctx, slice_.array, at, pitch, matrix, layout)
    note_write(ctx, slice_.array)


def emit_store(ctx: Context, array: Value, at: list[Value], pitch: Value, matrix: Value, layout: str) -> None:
    """Emit a `mat_store` at the indices `at`; `pitch` is the stride between rows, `layout` is "row" or "column"."""
    uses_lanes(ctx)
    ctx.builder.op("mat_store", array, *at, pitch, matrix, layout=layout)


def describe(kind: Matrix) -> str:
    """Format a matrix type for messages."""
    return f"{kind.rows} x {kind.columns} of {kind.dtype!r} ({kind.use})"


# -- products and arithmetic
@method("mma", "subgroup")
def _mma(ctx: Context, call: Call, scope: ScopeValue, a: KernelValue, b: KernelValue, acc: KernelValue) -> KernelValue:
    """Lower `sg.mma(a, b, acc)`, acc + a @ b, of matrices or tiles."""
    if is_tile(acc):
        return emit_mma(ctx, call, scope, a, b, acc)
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
    a_type, b_type, acc_type = kinds
    if (a_type.rows, b_type.columns, a_type.columns) != (acc_type.rows, acc_type.columns, b_type.rows):
        operand_types = ", ".join(map(describe, kinds))
        raise ctx.error(call.node, f"{operand_types}: they don't go together", "m x k, k x n and m x n elements")
    return emit(ctx, "mat_mma", a, b, acc, type=acc_type)  # type: ignore[arg-type]


def map_matrices(ctx: Context, node: Place, name: str, a: KernelValue, b: KernelValue) -> Value:
    """Lower elementwise `a + b`, `a - b`, `a * b` of two matrices of the same type, or of a matrix and a scalar.

    `name` is the operation: "add", "sub" or "mul". Raises CompileError for any other.
    """
    kind = next(value.type for value in (a, b) if is_matrix(value))
    assert isinstance(kind, Matrix)
    if name not in _OPERATORS:
        raise ctx.error(node, "matrices have +, - and *", "store the matrix, and work on its elements")
    operands = []
    for value in (a, b):
        if not is_matrix(value):
            scalar = as_exactly(ctx, node, value, kind.dtype, "the number")
            value = emit(ctx, "mat_fill", scalar, type=kind)
        if value.type != kind:
            assert isinstance(value.type, Matrix)
            both_types = f"{describe(kind)} and {describe(value.type)}: they aren't of one type"
            raise ctx.error(node, both_types, "convert one: vk.f32(acc)")
        operands.append(value)
    return emit(ctx, "mat_map", *operands, op=name, type=kind)


def unary_matrix(ctx: Context, node: Place, name: str, value: Value) -> Value:
    """Lower unary `-a` (`name` is "neg") or `+a` ("pos") of a matrix. Raises CompileError for any other operator."""
    if name == "pos":
        return value
    if name != "neg":
        raise ctx.error(node, "matrices have +, - and *", "store the matrix, and work on its elements")
    return emit(ctx, "mat_map", value, op="neg", type=value.type)


def cast_matrix(ctx: Context, node: Place, value: Value, dtype: DType) -> Value:
    """Lower `vk.f16(acc)`: convert every element; float types only."""
    kind = value.type
    assert isinstance(kind, Matrix)
    if kind.dtype is dtype:
        return value
    if not dtype.is_float:
        raise ctx.error(node, f"matrices are converted to floats only, not to {dtype!r}", "store it, and convert then")
    return emit(ctx, "mat_cast", value, type=Matrix(dtype, kind.rows, kind.columns, kind.use))
