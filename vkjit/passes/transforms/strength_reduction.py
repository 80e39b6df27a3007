"""Replace induction-variable multiplications by additions (strength reduction).

Works on the normal and primitive forms of the IR (see `ir.verify`)::

    for %lo, %hi, %step (%k: index) {          %first = mul %lo, %n : index
      %p = mul %k, %n : index                  %by = mul %step, %n : index
      ...                               ->     for %lo, %hi, %step, %first : index (%k: index, %p: index) {
      continue                                   ...
    }                                            %next = add %p, %by : index
                                                 continue %next
                                               }

1. One operand of the multiplication is the induction variable i, possibly cast, or x + i or x - i with a loop-invariant
   x. The other operand is loop-invariant. The additions are exact modulo 2**64.
2. Only 64-bit multiplications are replaced, as a 64-bit addition costs a fraction of a 64-bit multiplication on GPUs
   and software drivers. A 32-bit multiplication costs no more than an addition, and a multiplication by a power of two
   is a shift; neither is worth the register that a loop-carried value needs.
3. The multiplication must be directly in the loop's body, so that every iteration executes it, and the body's only
   `continue` must be its terminator. A `break` passes on the current product.
4. At most `max_products` multiplications are replaced per loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.rewrite import LOOPS, constant_of, exits_of, is_constant, replace_uses
from vkjit.ir.types import Scalar

from .algebraic_simplify import wrapped

__all__ = ["StrengthReduction"]


@dataclass(frozen=True, slots=True)
class StrengthReduction:
    """Reduce at most `max_products` multiplications per loop, if `enabled`.

    The pass is disabled for the LLVM back end, as LLVM has a strength reduction of its own.
    """

    enabled: bool = True
    max_products: int = 4
    name: ClassVar[str] = "strength_reduction"

    def run(self, module: Module) -> Module:
        if not self.enabled:
            return module
        for function in module.all_functions():
            reduction = _Reduction(self.max_products)
            reduction.region(function.body)
            replace_uses(function.body, reduction.replaced)
        return module


@dataclass(frozen=True, slots=True)
class _Product:
    """A multiplication `op` to reduce, with the induction variable i as part of one operand.

    It is i * factor if `start` is None, (start - i) * factor if `negative`, and (start + i) * factor otherwise.
    """

    op: Op
    factor: Value
    start: Value | None
    negative: bool


class _Reduction:
    """The rewrite of one function.

    `depth` has the loop depth of each value's definition, `loops` is the current depth, and `replaced` maps reduced
    products to loop-carried values.
    """

    def __init__(self, max_products: int) -> None:
        self.max_products = max_products
        self.depth: dict[Value, int] = {}
        self.loops = 0
        self.replaced: dict[Value, Value] = {}

    def region(self, region: Region) -> None:
        """Reduce multiplications in the loops of a region, inner loops first."""
        self.depth.update(dict.fromkeys(region.args, self.loops))
        source, region.ops = region.ops, []
        for op in source:
            is_loop = op.name in LOOPS
            self.loops += int(is_loop)
            for body in op.regions:
                self.region(body)
            if op.name == "for":
                self.loop(op, Builder(region, op.loc))
            self.loops -= int(is_loop)
            self.depth.update(dict.fromkeys(op.results, self.loops))
            region.ops.append(op)

    def loop(self, op: Op, before: Builder) -> None:
        """Reduce multiplications of a loop that meets rules 3 and 4; `before` appends to the preheader."""
        body = op.regions[0]
        exits = list(exits_of(body))
        if body.terminator.name != "continue" or sum(exit.name == "continue" for exit in exits) > 1:
            return
        candidates = [self.product(inner, body.args[0]) for inner in body.ops]
        products = [product for product in candidates if product is not None]
        for product in products[: self.max_products]:
            self.carry(op, product, exits, before)

    def outside(self, value: Value) -> bool:
        """True if a value is loop-invariant: a constant, or defined outside of the current loop."""
        return is_constant(value) or self.depth.get(value, self.loops) < self.loops

    def product(self, op: Op, induction: Value) -> _Product | None:
        """Return the multiplication of an operation that can be reduced by rules 1 and 2; None for other operations."""
        if op.name != "mul" or not isinstance(op.result.type, Scalar):
            return None
        dtype = op.result.type.dtype
        if not dtype.is_integer or dtype.bits != 64:
            return None
        for x, factor in (op.operands, op.operands[::-1]):
            if self.outside(factor) and not _is_power_of_two(factor):
                if _is_induction(x, induction):
                    return _Product(op, factor, None, negative=False)
                shifted = self.shifted(x, induction)
                if shifted is not None:
                    return _Product(op, factor, *shifted)
        return None

    def shifted(self, value: Value, induction: Value) -> tuple[Value, bool] | None:
        """Match start + i, i + start or start - i with the induction variable i; return (start, negative) or None."""
        op = value.op
        if op is None or op.name not in ("add", "sub"):
            return None
        x, y = op.operands
        if _is_induction(y, induction) and self.outside(x):
            return x, op.name == "sub"
        if op.name == "add" and _is_induction(x, induction) and self.outside(y):
            return y, False
        return None

    def carry(self, loop: Op, product: _Product, exits: list[Op], before: Builder) -> None:
        """Replace a multiplication by a loop-carried value: see the module's example."""
        body, type = loop.regions[0], product.op.result.type
        assert isinstance(type, Scalar)
        low, step = (self.in_preheader(value, type, before) for value in (loop.operands[0], loop.operands[2]))
        if product.start is not None:
            start = self.in_preheader(product.start, type, before)
            low = before.emit("sub" if product.negative else "add", start, low)
        factor = self.in_preheader(product.factor, type, before)
        first, increment = (_times(value, factor, before) for value in (low, step))
        carried = Value(type, body, len(body.args), product.op.result.name)
        body.args.append(carried)
        loop.operands.append(first)
        loop.results.append(Value(type, loop, len(loop.results)))
        body.ops.remove(product.op)
        self.replaced[product.op.result] = carried
        last = body.ops.pop()
        following = Builder(body, product.op.loc).emit("sub" if product.negative else "add", carried, increment)
        body.ops.append(last)
        for exit in exits:
            exit.operands.append(following if exit is last else carried)

    @staticmethod
    def in_preheader(value: Value, type: Scalar, before: Builder) -> Value:
        """Return a loop-invariant value, cast to the product's type in the preheader.

        A constant is emitted again, as its definition may be inside of the loop.
        """
        if is_constant(value):
            return before.const(wrapped(constant_of(value), type.dtype), type)
        return before.cast(value, type)


def _times(value: Value, factor: Value, builder: Builder) -> Value:
    """Emit value * factor, simplified if the value is 0 or 1."""
    number = constant_of(value)
    if number == 1:
        return factor
    return value if number == 0 else builder.emit("mul", value, factor)


def _is_induction(value: Value, induction: Value) -> bool:
    """True if a value is the induction variable, possibly cast."""
    op = value.op
    return value is induction or (op is not None and op.name == "cast" and op.operands[0] is induction)


def _is_power_of_two(value: Value) -> bool:
    """True for a constant power of two of either sign, and for 0."""
    number = abs(int(constant_of(value))) if is_constant(value) else 0
    return is_constant(value) and number & (number - 1) == 0
