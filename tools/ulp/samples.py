"""Operands for measuring the accuracy of mathematical functions: dense samples and hard cases.

Unary functions are tested on all values of f16. Wider types are sampled over the interval where the function varies
most, over all exponents, and around critical arguments: multiples of pi/2, 1, and the limits of the domain and the
range.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit.ir.semantics import silence_warnings

__all__ = ["BINARY", "UNARY", "operands_of"]

Values = Any

UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "sqrt", "rsqrt",
)  # fmt: skip
"""Unary functions, by their names in the op table."""
BINARY = ("pow", "atan2", "hypot", "div")
"""Binary functions, by their names in the op table."""

_SPECIAL = (0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, -3.0, 1.5, -1.5, 1000.0, -1000.0, np.inf, -np.inf, np.nan)


def operands_of(name: str, dtype: Any, count: int, seed: int = 0) -> list[Values]:
    """Return about `count` operands for a function; all 65,536 values for unary functions of f16."""
    kind, random = np.dtype(dtype), np.random.default_rng(seed)
    if name in UNARY:
        if kind == np.float16:
            return [np.arange(65536, dtype=np.uint16).view(np.float16)]
        return [_one(name, kind, count, random)]
    grid = [g.ravel() for g in np.meshgrid(_specials(kind), _specials(kind))]
    parts = _pairs(name, kind, count, random)
    return [np.concatenate([a, b]) for a, b in zip(grid, parts, strict=True)]


def _specials(kind: np.dtype[Any]) -> Values:
    info = np.finfo(kind)
    ends = [info.max, -info.max, info.tiny, -info.tiny, info.eps, info.smallest_subnormal, -info.smallest_subnormal]
    return np.array([*_SPECIAL, *ends], kind)


def _any_bits(kind: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    """Return random bit patterns, uniform over exponents, including NaN and infinities."""
    return random.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)


def _around(centre: Values, kind: np.dtype[Any]) -> Values:
    """Return the nearest representable numbers and those up to four ULPs away."""
    with silence_warnings():
        nearest = np.asarray(centre).astype(kind)
    bits = np.dtype(f"i{kind.itemsize}")
    return np.concatenate([(nearest.view(bits) + step).view(kind) for step in range(-4, 5)])


def _near(centre: float, kind: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    """Return numbers at all magnitudes of distance from a center, on both sides."""
    info = np.finfo(kind)
    return (centre + random.choice([-1.0, 1.0], count) * np.exp2(random.uniform(-info.nmant - 2, -1, count))).astype(
        kind
    )


def _exponents(kind: np.dtype[Any]) -> tuple[float, float]:
    """Return the binary logarithms of the smallest subnormal and the largest number."""
    info = np.finfo(kind)
    return float(info.minexp - info.nmant), float(info.maxexp)


def _interval(name: str, kind: np.dtype[Any]) -> tuple[float, float]:
    """Return the interval where a function varies most."""
    low, high = _exponents(kind)
    natural = (low * np.log(2) - 1, high * np.log(2) + 1)
    erfc_end = float(np.sqrt(-low * np.log(2)))
    return {
        "exp": natural,
        "exp2": (low - 1, high + 1),
        "expm1": (-40.0, natural[1]),
        "sin": (-100.0, 100.0),
        "cos": (-100.0, 100.0),
        "tan": (-100.0, 100.0),
        "asin": (-1.0, 1.0),
        "acos": (-1.0, 1.0),
        "atanh": (-1.0, 1.0),
        "acosh": (1.0, 20.0),
        "sinh": (-natural[1], natural[1]),
        "cosh": (-natural[1], natural[1]),
        "tanh": (-22.0, 22.0),
        "erf": (-6.5, 6.5),
        "erfc": (-6.5, erfc_end),
        "log1p": (-1.0, 3.0),
    }.get(name, (0.0, 4.0))


_CENTRES: dict[str, tuple[float, ...]] = {
    "exp": (0.0,),
    "exp2": (0.0,),
    "expm1": (0.0, 0.5, -0.5),
    "log": (1.0,),
    "log2": (1.0,),
    "log10": (1.0, 10.0),
    "log1p": (0.0, -1.0),
    "asin": (1.0, -1.0, 0.5, -0.5),
    "acos": (1.0, -1.0, 0.5, 0.0),
    "atan": (1.0, -1.0, 0.4375, 2.4375),
    "atanh": (1.0, -1.0, 0.0, 0.5),
    "acosh": (1.0, 2.0),
    "asinh": (0.0, 1.0, -1.0),
    "tanh": (0.0, 0.625, 1.0),
    "sinh": (0.0, 1.0, 22.0),
    "erf": (0.0, 0.84375, 1.25, -1.0),
    "erfc": (0.0, 0.84375, 1.25, 2.857),
}


def _one(name: str, kind: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    low, high = _interval(name, kind)
    hard: list[Values] = [_specials(kind), _around([low, high], kind)]
    for centre in _CENTRES.get(name, (0.0, 1.0)):
        hard += [_near(centre, kind, max(count // 16, 16), random), _around([centre], kind)]
    if name in ("sin", "cos", "tan"):
        hard += _angles(kind, count // 4, random)
    dense = random.uniform(low, high, count // 2).astype(kind)
    return np.concatenate([dense, _any_bits(kind, count // 4, random), *hard])


def _angles(kind: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return numbers around small and large multiples of pi/2, and angles up to the type's largest exponents."""
    top = min(_exponents(kind)[1] - 1, 1000)
    small = np.arange(1, max(count // 36, 8), dtype=np.float64)
    large = np.floor(np.exp2(random.uniform(10, 50, max(count // 36, 8))))
    huge = np.exp2(random.uniform(6, top, count // 2)) * random.choice([-1, 1], count // 2)
    with silence_warnings():
        return [_around(small * (np.pi / 2), kind), _around(large * (np.pi / 2), kind), huge.astype(kind)]


def _pairs(name: str, kind: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    return {"pow": _powers, "atan2": _general_pairs, "hypot": _general_pairs, "div": _general_pairs}[name](
        kind, count, random
    )


def _powers(kind: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return operands of pow whose results cover the full range.

    They are arbitrary bases, bases near 1, and bases of both signs with integer exponents.
    """
    low, high = _exponents(kind)
    third = count // 3
    base = np.exp2(random.uniform(low, high, third))
    exponent = random.uniform(low - 4, high + 4, third) / np.where(np.abs(np.log2(base)) < 1e-3, 1e-3, np.log2(base))
    near = _near(1.0, kind, third, random).astype(np.float64)
    with silence_warnings():
        steep = random.uniform(low - 4, high + 4, third) / np.log2(near)
    whole = random.integers(-40, 41, third).astype(np.float64)
    signed = np.exp2(random.uniform(-4, 4, third)) * random.choice([-1, 1], third)
    with silence_warnings():
        return [
            np.concatenate([base, near, signed]).astype(kind),
            np.concatenate([exponent, np.where(np.isfinite(steep), steep, 1.0), whole]).astype(kind),
        ]


def _general_pairs(kind: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return pairs with random exponents, and pairs of similar magnitude."""
    half = count // 2
    size = np.exp2(random.uniform(-10, 10, half))
    first = size * random.uniform(-1, 1, half)
    second = size * random.uniform(-1, 1, half)
    return [
        np.concatenate([_any_bits(kind, half, random), first.astype(kind)]),
        np.concatenate([_any_bits(kind, half, random), second.astype(kind)]),
    ]
