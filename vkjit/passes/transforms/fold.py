"""Constant folding, and algebraic simplification by the rules of `algebraic_simplify`.

Works on any form of the IR (see `ir.verify`). Constants are folded by the functions of `ir.semantics`, which the
interpreter runs, too::

    %a = const 2 : i32
    %b = const 3 : i32              %c = const 6 : i32
    %c = mul %a, %b : i32    ->     %e = const 7 : i32
    %d = const 1 : i32
    %e = add %c, %d : i32

Constant operands of commutative operations are moved to the right first. Unused operations are left to `dce`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir import semantics
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Value
from vkjit.ir.ops import OPS
from vkjit.ir.rewrite import constant_of, is_constant, rewrite_region
from vkjit.ir.types import Scalar, Type, Vector

from .algebraic_simplify import IDENTITIES

__all__ = ["Fold", "evaluate"]


@dataclass(frozen=True, slots=True)
class Fold:
    """Fold constants and apply algebraic simplifications."""

    name: ClassVar[str] = "fold"

    def run(self, module: Module) -> Module:
        with semantics.silence_warnings():
            for function in module.all_functions():
                rewrite_region(function.body, fold_op)
        return module


def fold_op(op: Op, builder: Builder) -> list[Value] | None:
    """Simplify one operation (a rule for `rewrite_region`); return the values that replace its results, or None."""
    info = OPS[op.name]
    if info.commutative and is_constant(op.operands[0]) and not is_constant(op.operands[1]):
        op.operands.reverse()
    if op.operands and info.elementwise and all(is_constant(v) for v in op.operands):
        value = evaluate(op)
        return None if value is None else [builder.const(value, op.result.type)]
    rule = IDENTITIES.get(op.name)
    return rule(op, builder) if rule is not None else None


def evaluate(op: Op) -> bool | int | float | None:
    """Evaluate an elementwise operation on constant operands (scalars or splats), as a Python number.

    Returns None if it can't be evaluated.
    """
    target = _dtype(op.result.type)
    source = _dtype(op.operands[0].type)
    if target is None or source is None:
        return None
    operands = [_array(constant_of(v), v.type) for v in op.operands]
    if op.name == "cast":
        result = semantics.cast(operands[0], source, target)
    elif op.name == "bitcast":
        result = _bitcast(operands[0], source, target)
    else:
        meaning = OPS[op.name].meaning
        if meaning is None:
            return None
        result = np.asarray(meaning(*operands), dtype=target.numpy)
        if target is dtypes.bf16:
            result = semantics.to_bf16(result)
    number: bool | int | float = np.asarray(result).reshape(()).item()
    return number


def _dtype(type: Type) -> DType | None:
    return type.dtype if isinstance(type, (Scalar, Vector)) else None


def _array(value: Any, type: Type) -> Any:
    """Return a constant as a NumPy scalar array of its type; bf16 values are held in float32."""
    dtype = _dtype(type)
    if dtype is dtypes.bf16:
        return semantics.to_bf16(np.asarray(value))
    return np.array(value, dtype=dtype.numpy if dtype is not None else None)


def _bitcast(value: Any, source: DType, target: DType) -> Any:
    """Reinterpret a NumPy value; the bits of a bf16 value are the upper half of its float32."""
    bits = value
    if source is dtypes.bf16:
        bits = (value.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if target is dtypes.bf16:
        return (bits.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    return bits.view(target.numpy)
