"""Quotients of tiles by numbers that many elements share, such as the sum of a row: products with one reciprocal.

Enters: a region that runs for each element, as `tile_map` has. Leaves: for its divisions of f32 by a number from outside, or by an
operand that has few elements, ``(x * inverse) * scale``. Division is bound to 2.5 ULP, as are these:

1. `scale` is 1, or a power of two where the reciprocal itself might not be a normal number; products with it are exact.
2. The reciprocal is bettered once. What is left of 1 is found by parts of 12 bits, whose products are exact, so that it doesn't
   matter whether the device fuses them: `inverse` is rounded, and so is the product, 2 ULP at most together.
3. By infinity, zero or NaN nothing is left that is a number; the reciprocal is right as it is then.

Kernels that are strict divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ... import dtypes
from ...ir.core import Op, Value
from ...ir.types import Scalar
from .held import Held, Workshop

__all__ = ["Quotients", "quotients_of"]

_FEW = 4
"""Elements for each divisor from which on a reciprocal pays."""
_F32, _BITS = Scalar(dtypes.f32), Scalar(dtypes.u32)
_HIGH = 0xFFFFF000
_FAR = 2.0**64


@dataclass(slots=True)
class Quotients:
    """The divisions that are products instead, and what their divisors have been turned into so far."""

    shop: Workshop
    divisions: frozenset[Op]
    known: dict[Value, tuple[Value, Value]] = field(default_factory=dict)

    def quotient(self, value: Value, divisor: Value) -> Value:
        """value / divisor."""
        if divisor not in self.known:
            self.known[divisor] = _inverse(self.shop, divisor)
        inverse, scale = self.known[divisor]
        b = self.shop.builder
        return b.emit("mul", b.emit("mul", value, inverse), scale)


def quotients_of(shop: Workshop, op: Op, slots: int, operands: Sequence[Held]) -> Quotients:
    """The divisions of an operation's region that pay, each run for so many slots of an invocation."""
    region = op.regions[0]
    inside = {value for inner in region.ops for value in inner.results}
    elements = region.args[len(region.args) - len(operands) :]
    counts = {argument: len(held.values) for argument, held in zip(elements, operands, strict=True)}
    found = []
    for inner in region.ops:
        if inner.name != "div" or inner.result.type != _F32 or inner.operands[1] in inside:
            continue
        if slots >= _FEW * counts.get(inner.operands[1], 1):
            found.append(inner)
    usable = shop.options.reciprocals and not shop.function.attrs.get("strict")
    return Quotients(shop, frozenset(found if usable else ()))


def _inverse(shop: Workshop, divisor: Value) -> tuple[Value, Value]:
    """`inverse` and `scale`, see the module's docstring."""
    b = shop.builder
    one = b.const(1.0, _F32)
    bits = b.emit("and", b.emit("bitcast", divisor, type=_BITS), b.const(0x7FFFFFFF, _BITS))
    size = b.emit("bitcast", bits, type=_F32)
    large, small = b.emit("gt", size, b.const(_FAR, _F32)), b.emit("lt", size, b.const(1 / _FAR, _F32))
    scale = b.emit("select", small, b.const(_FAR, _F32), one)
    scale = b.emit("select", large, b.const(1 / _FAR, _F32), scale)
    near = b.emit("mul", divisor, scale)
    first = b.emit("div", one, near)
    (high, low), (upper, lower) = _parts(shop, near), _parts(shop, first)
    left = b.emit("sub", one, b.emit("mul", high, upper))
    for x, y in ((high, lower), (low, upper), (low, lower)):
        left = b.emit("sub", left, b.emit("mul", x, y))
    better = b.emit("add", first, b.emit("mul", first, left))
    number = b.emit("and", b.emit("lt", left, b.const(0.5, _F32)), b.emit("gt", left, b.const(-0.5, _F32)))
    return b.emit("select", number, better, first), scale


def _parts(shop: Workshop, value: Value) -> tuple[Value, Value]:
    """The upper half of a number's digits, and the rest."""
    b = shop.builder
    bits = b.emit("and", b.emit("bitcast", value, type=_BITS), b.const(_HIGH, _BITS))
    high = b.emit("bitcast", bits, type=_F32)
    return high, b.emit("sub", value, high)
