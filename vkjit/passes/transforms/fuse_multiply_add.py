"""Contract float multiplications and additions to fused multiply-adds.

Works on any form of the IR (see `ir.verify`). The pass runs before `lower_math` and `lower_arithmetic`, as the formulas
that these insert must not be contracted::

    %p = mul %a, %b : f32            %s = fma %a, %b, %c : f32
    %s = add %p, %c : f32     ->

1. The product must have no other use and be in the same region; otherwise it would be computed more often than before.
2. With p = a * b, `p - c` becomes fma(a, b, -c), and `c - p` becomes fma(-a, b, c). Negation is exact, and free on
   GPUs.
3. If both operands of an addition are such products, the first is fused.
4. Kernels with `strict`, operations marked `exact`, and types other than f16, f32 and f64 are left alone.

Drivers don't contract by themselves if signed zeros and infinities must be preserved, so this pass halves the
instruction count of the most arithmetic-heavy code. Results differ from the unfused ones by at most the rounding of the
product.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar

from vkjit import dtypes
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.rewrite import constant_of, is_constant, rewrite_region, use_counts
from vkjit.ir.types import Scalar, Vector

__all__ = ["FuseMultiplyAdd"]

_FUSED = frozenset({dtypes.f16, dtypes.f32, dtypes.f64})


@dataclass(frozen=True, slots=True)
class FuseMultiplyAdd:
    """Contract multiplications and additions to fused multiply-adds, if `enabled`.

    The pass is disabled for CPUs: LLVM contracts on its own, and Vulkan drivers that run on the CPU compute an fma in
    two steps anyway.
    """

    enabled: bool = True
    name: ClassVar[str] = "fuse_multiply_add"

    def run(self, module: Module) -> Module:
        if not self.enabled or module.kernel.attrs.get("strict"):
            return module  # rule 4
        for function in module.all_functions():
            rewrite_region(function.body, _Fusion(use_counts(function.body)).rule)
        return module


@dataclass(slots=True)
class _Fusion:
    """The rewrite of one function.

    `uses` counts the uses of values. `product_regions` maps each multiplication that may be fused to its region.
    """

    uses: Counter[Value]
    product_regions: dict[Op, Region] = field(default_factory=dict)

    def rule(self, op: Op, builder: Builder) -> list[Value] | None:
        """Fuse an addition or subtraction with a product, or record a multiplication. A rule for `rewrite_region`."""
        if op.name not in ("add", "sub", "mul") or op.attrs.get("exact") or not _fusible(op.result):
            return None
        if op.name == "mul":
            self.product_regions[op] = builder.region
            return None
        x, y = op.operands
        for product, other, position in ((x, y, 0), (y, x, 1)):
            if self.single(product, builder.region):
                return [self.fused(op, product, other, position, builder)]
        return None

    def single(self, value: Value, region: Region) -> bool:
        """True if a value is a product in `region` with a single use (rule 1)."""
        op = value.op
        return op is not None and self.product_regions.get(op) is region and self.uses[value] == 1

    def fused(self, op: Op, product: Value, other: Value, position: int, builder: Builder) -> Value:
        """Emit the fma that replaces `op` (rule 2); `position` is the index of the product among its operands."""
        assert product.op is not None
        a, b = product.op.operands
        if op.name == "sub":
            if position == 0:  # product - other
                other = _negated(other, builder)
            elif is_constant(b):  # other - product: negate either factor; a constant's negation costs nothing
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
