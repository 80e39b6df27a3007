"""Division by shared divisors, such as the sum of a row: multiplication by one reciprocal.

`memory.map_region` inlines the region of a `tile_map` once for each element that an invocation holds. In it, f32
divisions by a value from outside of the region, or by an element of a broadcast operand, have the same divisor for many
elements. They become ``(x * inverse) * scale``, where `inverse` and `scale` are computed once for each divisor. The
error bound of division, 2.5 ULP, holds:

1. `inverse` is the reciprocal of divisor * `scale`. `scale` is 1, or a power of two if the divisor's own reciprocal
   might not be a normal number. Multiplying by a power of two is exact.
2. `inverse` is refined by one Newton step. The step's residual, 1 - divisor * estimate, is computed from parts of 12
   bits, whose products are exact, so the result is the same if the device fuses multiplications and additions. The
   roundings of `inverse` and of the product add up to 2 ULP at most.
3. For an infinite, zero or NaN divisor, the residual is NaN. The unrefined reciprocal is correct for these and is used.

Kernels with the attribute `strict` divide instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vkjit import dtypes
from vkjit.ir.core import Op, Value
from vkjit.ir.types import Scalar

from .tile_state import Held, LoweringContext

__all__ = ["SharedDivisions", "shared_divisions"]

_MIN_ELEMENTS = 4
"""The number of elements per divisor from which a reciprocal costs less than the divisions."""
_F32, _BITS = Scalar(dtypes.f32), Scalar(dtypes.u32)
_HIGH_MASK = 0xFFFFF000
"""The sign, the exponent and the upper 11 stored bits of an f32's significand."""
_SCALE = 2.0**64
"""Divisors above this magnitude, or below its reciprocal, are scaled before inversion."""


@dataclass(slots=True)
class SharedDivisions:
    """The divisions to replace in the region of a `tile_map`.

    `inverses` caches the (inverse, scale) of each divisor that `quotient` was called for.
    """

    context: LoweringContext
    divisions: frozenset[Op]
    inverses: dict[Value, tuple[Value, Value]] = field(default_factory=dict)

    def quotient(self, value: Value, divisor: Value) -> Value:
        """Return value / divisor, computed by two multiplications."""
        if divisor not in self.inverses:
            self.inverses[divisor] = _inverse(self.context, divisor)
        inverse, scale = self.inverses[divisor]
        b = self.context.builder
        return b.emit("mul", b.emit("mul", value, inverse), scale)


def shared_divisions(context: LoweringContext, op: Op, slots: int, operands: Sequence[Held]) -> SharedDivisions:
    """Return the divisions to replace in the region of a `tile_map`, which an invocation runs for `slots` elements.

    `operands` are the operands of the `tile_map` in registers.
    """
    region = op.regions[0]
    inside = {value for inner in region.ops for value in inner.results}
    elements = region.args[len(region.args) - len(operands) :]
    counts = {argument: len(tile.values) for argument, tile in zip(elements, operands, strict=True)}
    divisions = []
    for inner in region.ops:
        if inner.name != "div" or inner.result.type != _F32 or inner.operands[1] in inside:
            continue
        # A divisor from outside of the region has a single value, an operand of the `tile_map` one per slot.
        if slots >= _MIN_ELEMENTS * counts.get(inner.operands[1], 1):
            divisions.append(inner)
    usable = context.options.reciprocals and not context.function.attrs.get("strict")
    return SharedDivisions(context, frozenset(divisions if usable else ()))


def _inverse(context: LoweringContext, divisor: Value) -> tuple[Value, Value]:
    """Return the `inverse` and `scale` of a divisor, as the module's docstring defines them."""
    b = context.builder
    one = b.const(1.0, _F32)
    bits = b.emit("and", b.emit("bitcast", divisor, type=_BITS), b.const(0x7FFFFFFF, _BITS))
    magnitude = b.emit("bitcast", bits, type=_F32)
    large, small = b.emit("gt", magnitude, b.const(_SCALE, _F32)), b.emit("lt", magnitude, b.const(1 / _SCALE, _F32))
    scale = b.emit("select", small, b.const(_SCALE, _F32), one)
    scale = b.emit("select", large, b.const(1 / _SCALE, _F32), scale)
    scaled = b.emit("mul", divisor, scale)
    estimate = b.emit("div", one, scaled)
    scaled_high, scaled_low = _parts(context, scaled)
    estimate_high, estimate_low = _parts(context, estimate)
    residual = b.emit("sub", one, b.emit("mul", scaled_high, estimate_high))
    for x, y in ((scaled_high, estimate_low), (scaled_low, estimate_high), (scaled_low, estimate_low)):
        residual = b.emit("sub", residual, b.emit("mul", x, y))
    refined = b.emit("add", estimate, b.emit("mul", estimate, residual))
    # False if the residual is NaN (rule 3).
    in_range = b.emit("and", b.emit("lt", residual, b.const(0.5, _F32)), b.emit("gt", residual, b.const(-0.5, _F32)))
    return b.emit("select", in_range, refined, estimate), scale


def _parts(context: LoweringContext, value: Value) -> tuple[Value, Value]:
    """Return a float's upper 12 significant bits as a float, and the remainder."""
    b = context.builder
    bits = b.emit("and", b.emit("bitcast", value, type=_BITS), b.const(_HIGH_MASK, _BITS))
    high = b.emit("bitcast", bits, type=_F32)
    return high, b.emit("sub", value, high)
