"""f32 functions by special instructions of AVX-512: reciprocal square root estimates, scaling by powers of two, min/max.

The results of `exponential` and `rsqrt` are within the error bounds of the op table; strict kernels don't use them.
`extremum` is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from vkjit import dtypes
from vkjit.passes.math._gen_polynomials import EXP_F32

from .context import Generator
from .llvm_text import constant, intrinsic_suffix

__all__ = ["exponential", "extremum", "has_estimates", "has_ranges", "rsqrt"]

_LN2_HIGH = 0.693145751953125
"""The upper 16 bits of ln 2: products with exponents are exact."""

_ROUNDING_BIAS = 1.5 * 2**23
"""Adding and then subtracting it rounds a small f32 to the nearest integer."""


def has_estimates(g: Generator) -> bool:
    """True if the CPU has FMA and reciprocal square root estimates of 14 bits for vectors of the kernel's width."""
    return g.width in (8, 16) and "avx512vl" in g.features and "fma" in g.features


def _width(kind: str) -> int:
    return int(kind[1:].split(" ", maxsplit=1)[0]) if kind.startswith("<") else 0


def _number(kind: str, value: float) -> str:
    text = constant(value, dtypes.f32)
    return f"splat (float {text})" if kind.startswith("<") else text


class _Floats:
    """Builder of f32 arithmetic on values of one LLVM type `kind`: a vector or a scalar."""

    def __init__(self, g: Generator, kind: str) -> None:
        self.text = g.text
        self.kind = kind

    def number(self, value: float) -> str:
        return _number(self.kind, value)

    def op(self, name: str, *operands: str) -> str:
        return self.text.op(f"{name} {self.kind} {', '.join(operands)}")

    def fma(self, a: str, b: str, c: str) -> str:
        arguments = (f"{self.kind} {part}" for part in (a, b, c))
        return self.text.call(self.kind, f"llvm.fma.{intrinsic_suffix(self.kind)}", *arguments)

    def clamped(self, x: str, low: float, high: float) -> str:
        """Clamp x to [low, high]; NaN stays NaN."""
        truth = f"<{_width(self.kind)} x i1>"
        for word, bound in (("olt", low), ("ogt", high)):
            outside = self.text.op(f"fcmp {word} {self.kind} {x}, {self.number(bound)}")
            x = self.text.op(f"select {truth} {outside}, {self.kind} {self.number(bound)}, {self.kind} {x}")
        return x


def exponential(g: Generator, kind: str, x: str, *, base_two: bool) -> str:
    """Emit exp(x) or exp2(x): a polynomial of r times 2**k, where x = k ln 2 + r (for exp2: x = k + r / ln 2)."""
    width = _width(kind)
    if width in (8, 16):
        return _exponential(g, kind, x, base_two)
    return _in_eight(g, kind, x, lambda wide, part: _exponential(g, wide, part, base_two))


def _exponential(g: Generator, kind: str, x: str, base_two: bool) -> str:
    f = _Floats(g, kind)
    if base_two:
        x = f.clamped(x, -155.0, 130.0)
        k = f.op("fsub", f.op("fadd", x, f.number(_ROUNDING_BIAS)), f.number(_ROUNDING_BIAS))
        r = f.op("fmul", f.op("fsub", x, k), f.number(math.log(2)))
    else:
        x = f.clamped(x, -107.0, 90.0)
        k = f.op("fsub", f.fma(x, f.number(1 / math.log(2)), f.number(_ROUNDING_BIAS)), f.number(_ROUNDING_BIAS))
        r = f.fma(k, f.number(-_LN2_HIGH), x)
        r = f.fma(k, f.number(_LN2_HIGH - math.log(2)), r)
    total = f.number(EXP_F32[-1])
    for coefficient in (*reversed(EXP_F32[:-1]), 1.0, 1.0):
        total = f.fma(total, r, f.number(coefficient))
    return _scaled(g, kind, total, k)


def _scaled(g: Generator, kind: str, x: str, k: str) -> str:
    """Emit x * 2**k by the instruction VSCALEFPS."""
    width = _width(kind)
    mask = f"i{width} -1"
    arguments = [f"{kind} {x}", f"{kind} {k}", f"{kind} zeroinitializer", mask]
    if width == 16:
        return g.text.call(kind, "llvm.x86.avx512.mask.scalef.ps.512", *arguments, "i32 4")
    return g.text.call(kind, "llvm.x86.avx512.mask.scalef.ps.256", *arguments)


def _in_eight(g: Generator, kind: str, x: str, function: Callable[[str, str], str]) -> str:
    """Apply a function of vectors of 8 lanes to a narrower vector or a scalar."""
    width, wide = _width(kind), "<8 x float>"
    if not width:
        whole = g.text.op(f"insertelement {wide} zeroinitializer, float {x}, i64 0")
        return g.text.op(f"extractelement {wide} {function(wide, whole)}, i64 0")
    lanes = ", ".join(f"i32 {min(lane, width)}" for lane in range(8))
    whole = g.text.op(f"shufflevector {kind} {x}, {kind} zeroinitializer, <8 x i32> <{lanes}>")
    lanes = ", ".join(f"i32 {lane}" for lane in range(width))
    return g.text.op(f"shufflevector {wide} {function(wide, whole)}, {wide} zeroinitializer, <{width} x i32> <{lanes}>")


# -- reciprocal square roots


def rsqrt(g: Generator, kind: str, x: str) -> str:
    """Emit 1 / sqrt(x): an estimate y of 14 bits and one Newton step, y * (1.5 - (x * y) * (y / 2)); within 2 ULP.

    The multiply units are the bottleneck, so integer instructions compute -y / 2 and bound the second factor from below
    by 0.5. If x is 0 or infinite, y is exact, and x * y is x86's default NaN, whose sign bit is set: as an integer it is
    less than 0.5, so the result is y * 0.5, which equals y. If x or y is NaN, so is the result, whatever the factor is.
    """
    width = _width(kind)
    name, mask = f"llvm.x86.avx512.rsqrt14.ps.{32 * width}", f"i{width} -1"
    f = _Floats(g, kind)
    words = f"<{width} x i32>"
    y = g.text.call(kind, name, f"{kind} {x}", f"{kind} zeroinitializer", mask)
    bits = g.text.op(f"add {words} {g.text.op(f'bitcast {kind} {y} to {words}')}, splat (i32 {0x7F800000})")
    factor = f.fma(f.op("fmul", x, y), g.text.op(f"bitcast {words} {bits} to {kind}"), f.number(1.5))
    factor_int = g.text.op(f"bitcast {kind} {factor} to {words}")
    bounded = g.text.call(words, f"llvm.smax.v{width}i32", f"{words} {factor_int}", f"{words} splat (i32 {0x3F000000})")
    return f.op("fmul", y, g.text.op(f"bitcast {words} {bounded} to {kind}"))


# -- extrema


def has_ranges(g: Generator, kind: str) -> bool:
    """True if the CPU has VRANGEPS for vectors of this type: a min/max of f32 that orders -0 below +0."""
    return _width(kind) in (8, 16) and kind.endswith("float>") and g.features >= {"avx512dq", "avx512vl"}


def extremum(g: Generator, kind: str, a: str, b: str, *, largest: bool) -> str:
    """Emit the maximum (or minimum) of two vectors: -0 is less than +0; NaN if either operand is NaN."""
    width = _width(kind)
    name = f"llvm.x86.avx512.mask.range.ps.{32 * width}"
    arguments = [f"{kind} {a}", f"{kind} {b}", f"i32 {5 if largest else 4}", f"{kind} zeroinitializer", f"i{width} -1"]
    chosen = g.text.call(kind, name, *arguments, *(["i32 4"] if width == 16 else []))
    ordered = g.text.op(f"fcmp ord {kind} {a}, {b}")
    return g.select(ordered, kind, chosen, g.text.op(f"fadd {kind} {a}, {b}"))
