"""Lowering of cooperative matrix operations (`mat_*`) to SPV_KHR_cooperative_matrix, at subgroup scope.

- A matrix in memory begins at an element of an array, which may have any element type; its stride counts elements of
  the array. Loads and stores have the same memory operands as those of single elements.
- There is one integer type per width, so the signedness of the components is given as operands of the multiply-add.
- In matrices, bf16 is a SPIR-V type, although scalars are represented as f32.
- Loops that multiply matrices are marked DontUnroll: if the driver unrolled them and hoisted loads, the fragments would
  no longer fit into registers.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit import dtypes
from vkjit.errors import InternalError
from vkjit.ir.core import Op, Value
from vkjit.ir.ops import OpName
from vkjit.ir.types import Array, Matrix

from .context import Context
from .memory import place_of

__all__ = ["HANDLERS", "multiplies"]

_LAYOUTS = {"row": 0, "column": 1}
_FLOAT = {"add": "OpFAdd", "sub": "OpFSub", "mul": "OpFMul", "neg": "OpFNegate"}
_INTEGER = {"add": "OpIAdd", "sub": "OpISub", "mul": "OpIMul", "neg": "OpSNegate"}


def _matrix(value: Value) -> Matrix:
    if not isinstance(value.type, Matrix):
        raise InternalError(f"expected a matrix, found {value.type}")
    return value.type


def multiplies(op: Op) -> bool:
    """True if a loop contains a matrix multiply-add, at any depth."""
    return any(inner.name == "mat_mma" for region in op.regions for inner in region.walk())


def _word(ctx: Context, value: Value) -> int:
    """Return an index as 32 bits."""
    op = value.op
    if op is not None and op.name == "const":
        return ctx.word(int(op.attrs["value"]))
    if value in ctx.narrow:
        return ctx.narrow[value][0]
    return ctx.block.emit("OpUConvert", ctx.uint, ctx.get(value))


def _rank(op: Op) -> int:
    array = op.operands[0].type
    if not isinstance(array, Array):
        raise InternalError(f"{op.name} at {op.loc} needs an array, found {array}")
    return array.rank


def _load(ctx: Context, op: Op) -> None:
    place, pitch = place_of(ctx, op), op.operands[1 + _rank(op)]
    ctx.values[op.result] = ctx.block.emit(
        "OpCooperativeMatrixLoadKHR",
        ctx.type(op.result.type),
        place.pointer,
        ctx.word(_LAYOUTS[op.attrs["layout"]]),
        _word(ctx, pitch),
        *place.operands,
    )


def _store(ctx: Context, op: Op) -> None:
    place, (pitch, matrix) = place_of(ctx, op), op.operands[1 + _rank(op) :]
    ctx.block.emit_void(
        "OpCooperativeMatrixStoreKHR",
        place.pointer,
        ctx.get(matrix),
        ctx.word(_LAYOUTS[op.attrs["layout"]]),
        _word(ctx, pitch),
        *place.operands,
    )


def _fill(ctx: Context, op: Op) -> None:
    target, value = _matrix(op.result), ctx.get(op.operands[0])
    if target.dtype is dtypes.bf16:
        value = ctx.block.emit("OpFConvert", ctx.writer.type_bfloat16(), value)
    ctx.values[op.result] = ctx.block.emit("OpCompositeConstruct", ctx.type(target), value)


def _multiply_add(ctx: Context, op: Op) -> None:
    names = ("MatrixA", "MatrixB", "MatrixC", "MatrixResult")
    signed = [
        f"{name}SignedComponentsKHR"
        for name, value in zip(names, (*op.operands, op.result), strict=True)
        if _matrix(value).dtype.kind == "int"
    ]
    operands = [ctx.get(value) for value in op.operands]
    flags = ("|".join(signed),) if signed else ()
    ctx.values[op.result] = ctx.block.emit("OpCooperativeMatrixMulAddKHR", ctx.type(op.result.type), *operands, *flags)


def _map(ctx: Context, op: Op) -> None:
    matrix = _matrix(op.result)
    names = _FLOAT if matrix.dtype.is_float else _INTEGER
    result = ctx.block.emit(names[op.attrs["op"]], ctx.type(matrix), *(ctx.get(v) for v in op.operands))
    if matrix.dtype.is_float and ctx.exact(op):
        ctx.writer.decorate(result, "NoContraction")
    ctx.values[op.result] = result


def _cast(ctx: Context, op: Op) -> None:
    source, target = _matrix(op.operands[0]).dtype, _matrix(op.result).dtype
    value = ctx.get(op.operands[0])
    if source.is_float and target.is_float:
        name = "OpFConvert"
    elif target.is_float:
        name = "OpConvertSToF" if source.is_signed else "OpConvertUToF"
    else:
        raise InternalError(f"no conversion of matrices from {source.name} to {target.name}")
    ctx.values[op.result] = value if source is target else ctx.block.emit(name, ctx.type(op.result.type), value)


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    "mat_load": _load,
    "mat_store": _store,
    "mat_fill": _fill,
    "mat_mma": _multiply_add,
    "mat_map": _map,
    "mat_cast": _cast,
}
