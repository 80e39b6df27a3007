"""Joins products and sums of floats to fused ones, where that is allowed.

Enters and leaves: any form, before what must not be fused is expanded (`lower_math`, `lower_arithmetic`)::

    %p = mul %a, %b : f32            %s = fma %a, %b, %c : f32
    %s = add %p, %c : f32     ->

1. The product has no other use and stands in the same region: otherwise it would be computed twice, or more often.
2. `p - c` is fma(a, b, -c), and `c - p` is fma(-a, b, c): exact, and negations cost GPUs nothing.
3. Where both sides of a sum are such products, the first is fused.
4. Kernels with `strict`, operations marked `exact`, and what isn't computed in f16, f32 or f64 stay as they are.

Drivers don't fuse by themselves where signed zeros and infinities have to be kept, so this halves the instructions of
what computes most. Results differ from the unfused ones by less than a rounding of the product.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from .. import dtypes
from ..ir.builder import Builder
from ..ir.core import Module, Op, Region, Value
from ..ir.rewrite import constant_of, is_constant, rewrite_region, use_counts
from ..ir.types import Scalar, Vector

__all__ = ["FuseMultiplyAdd"]

_FUSED = frozenset({dtypes.f16, dtypes.f32, dtypes.f64})


@dataclass(frozen=True, slots=True)
class FuseMultiplyAdd:
    """Does nothing where `wanted` is False: software drivers compute fused sums in two steps anyway."""

    wanted: bool = True
    name: ClassVar[str] = "fuse_multiply_add"

    def run(self, module: Module) -> Module:
        if not self.wanted or module.kernel.attrs.get("strict"):
            return module  # rule 4
        for function in module.all_functions():
            rewrite_region(function.body, _Fusion(use_counts(function.body)).rule)
        return module


@dataclass(slots=True)
class _Fusion:
    """One function. `home` holds the region of each product that may be fused."""

    uses: Counter[Value]
    home: dict[Op, Region] = field(default_factory=dict)

    def rule(self, op: Op, builder: Builder) -> list[Value] | None:
        if op.name not in ("add", "sub", "mul") or op.attrs.get("exact") or not _fusible(op.result):
            return None
        if op.name == "mul":
            self.home[op] = builder.region
            return None
        x, y = op.operands
        for product, other, place in ((x, y, 0), (y, x, 1)):
            if self.single(product, builder.region):
                return [self.fused(op, product, other, place, builder)]
        return None

    def single(self, value: Value, region: Region) -> bool:
        """Rule 1. (After a product was fused it is dead, and `dce` removes it.)"""
        op = value.op
        return op is not None and self.home.get(op) is region and self.uses[value] == 1

    def fused(self, op: Op, product: Value, other: Value, place: int, builder: Builder) -> Value:
        """Rules 2 and 3."""
        assert product.op is not None
        a, b = product.op.operands
        if op.name == "sub":
            if place == 0:
                other = _negated(other, builder)
            elif is_constant(b):
                b = _negated(b, builder)
            else:
                a = _negated(a, builder)
        return builder.emit("fma", a, b, other)


def _negated(value: Value, builder: Builder) -> Value:
    if is_constant(value):
        return builder.const(-float(constant_of(value)), value.type)
    return builder.emit("neg", value)


def _fusible(value: Value) -> bool:
    return isinstance(value.type, (Scalar, Vector)) and value.type.dtype in _FUSED
