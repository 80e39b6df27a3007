"""Lowering of elementwise operations to one instruction each, and of constants and vector components.

The column `spirv` of the op table names the instruction, core or of GLSL.std.450, for the kind of the first operand.
Float arithmetic in strict kernels or in operations marked `exact` is decorated with NoContraction.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.errors import InternalError
from vkjit.ir.core import Op
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.types import INDEX

from .context import Context, dtype_of, kind_of

__all__ = ["HANDLERS", "PLAIN", "plain"]

_CONTRACTIBLE = frozenset({"OpFAdd", "OpFSub", "OpFMul", "OpFDiv", "OpFNegate"})
_NO_64_BIT = frozenset(
    {
        "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Atan2", "Pow",
        "Exp", "Log", "Exp2", "Log2",
    }
)  # fmt: skip
"""GLSL.std.450 instructions that exist for 16 and 32 bits only."""

PLAIN: dict[OpName, dict[str, tuple[bool, str]]] = {
    name: {
        kind: (True, spelling[5:]) if spelling.startswith("glsl:") else (False, f"Op{spelling}")
        for kind, spelling in row.spirv.items()
    }
    for name, row in OPS.items()
    if row.spirv
}
"""For each operation and operand kind: (True for GLSL.std.450, instruction)."""


def plain(ctx: Context, op: Op) -> None:
    """Lower an operation to the instruction that the op table names."""
    kinds = PLAIN[op.name]
    source = op.operands[0].type
    instruction = kinds.get("any") or kinds.get(kind_of(source))
    if instruction is None:
        raise InternalError(f"{op.name} of {source} at {op.loc} has to be lowered before emission")
    glsl, opname = instruction
    operands = [ctx.get(operand) for operand in op.operands]
    result = op.result
    type_id = ctx.type(result.type)
    if glsl:
        if opname in _NO_64_BIT and dtype_of(source).bits == 64:
            raise InternalError(f"{op.name} of {source} at {op.loc} has to be lowered: only 32 bits exist")
        ctx.values[result] = ctx.block.glsl(opname, type_id, *operands)
        return
    value = ctx.values[result] = ctx.block.emit(opname, type_id, *operands)
    if opname in _CONTRACTIBLE and ctx.exact(op):
        ctx.writer.decorate(value, "NoContraction")


def _constant(ctx: Context, op: Op) -> None:
    type_, value = op.attrs["type"], op.attrs["value"]
    ctx.values[op.result] = ctx.constant(type_, value)
    if type_ == INDEX and isinstance(value, int) and -(1 << 31) <= value < 1 << 31:
        ctx.narrow[op.result] = (ctx.word(value), True)


def _poison(ctx: Context, op: Op) -> None:
    ctx.values[op.result] = ctx.writer.undef(ctx.type(op.attrs["type"]))


def _vec_extract(ctx: Context, op: Op) -> None:
    type_id = ctx.type(op.attrs["type"])
    ctx.values[op.result] = ctx.block.emit("OpCompositeExtract", type_id, ctx.get(op.operands[0]), op.attrs["lane"])


def _vec_insert(ctx: Context, op: Op) -> None:
    vector, component = (ctx.get(operand) for operand in op.operands)
    type_id = ctx.type(op.result.type)
    ctx.values[op.result] = ctx.block.emit("OpCompositeInsert", type_id, component, vector, op.attrs["lane"])


def _assume_uniform(ctx: Context, op: Op) -> None:
    ctx.values[op.result] = ctx.get(op.operands[0])
    if op.operands[0] in ctx.narrow:
        ctx.narrow[op.result] = ctx.narrow[op.operands[0]]


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {
    **dict.fromkeys(PLAIN, plain),
    "const": _constant,
    "poison": _poison,
    "vec_extract": _vec_extract,
    "vec_insert": _vec_insert,
    "assume_uniform": _assume_uniform,
}
