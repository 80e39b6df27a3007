"""Operands for measuring the accuracy of mathematical functions (`measure`): dense samples and hard cases.

Unary functions of f16 are tested on all values. For wider types, operands are sampled over the interval where the
function varies most, over all exponents, and around critical operands: multiples of pi/2, 1, the limits of the domain
and of the range, and points where implementations switch between approximations.
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
    """Return about `count` operands for a function, as a list of one or two arrays of the given NumPy dtype.

    For unary functions of f16 they are all 65,536 values.
    """
    np_type, random = np.dtype(dtype), np.random.default_rng(seed)
    if name in UNARY:
        if np_type == np.float16:
            return [np.arange(65536, dtype=np.uint16).view(np.float16)]
        return [_unary_operands(name, np_type, count, random)]
    # all pairs of special values, and random pairs
    grid = [g.ravel() for g in np.meshgrid(_specials(np_type), _specials(np_type))]
    parts = _binary_operands(name, np_type, count, random)
    return [np.concatenate([a, b]) for a, b in zip(grid, parts, strict=True)]


def _specials(np_type: np.dtype[Any]) -> Values:
    """Return special values of a type: small numbers, the limits of its range, infinities and NaN."""
    info = np.finfo(np_type)
    ends = [info.max, -info.max, info.tiny, -info.tiny, info.eps, info.smallest_subnormal, -info.smallest_subnormal]
    return np.array([*_SPECIAL, *ends], np_type)


def _any_bits(np_type: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    """Return random bit patterns, uniform over exponents, including NaN and infinities."""
    return random.integers(0, 256, count * np_type.itemsize, np.uint8).view(np_type)


def _around(center: Values, np_type: np.dtype[Any]) -> Values:
    """Return the representable numbers nearest to the centers, and those up to four ULPs away: nine for each center."""
    with silence_warnings():
        nearest = np.asarray(center).astype(np_type)
    bits = np.dtype(f"i{np_type.itemsize}")
    return np.concatenate([(nearest.view(bits) + step).view(np_type) for step in range(-4, 5)])


def _near(center: float, np_type: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    """Return `count` random numbers around `center`, on both sides, whose distances cover many orders of magnitude.

    Distances range from about one ULP of 1 to 1/2, uniformly in their exponent.
    """
    info = np.finfo(np_type)
    signs = random.choice([-1.0, 1.0], count)
    distances = np.exp2(random.uniform(-info.nmant - 2, -1, count))
    return (center + signs * distances).astype(np_type)


def _exponents(np_type: np.dtype[Any]) -> tuple[float, float]:
    """Return the binary logarithms of the smallest subnormal and the largest number."""
    info = np.finfo(np_type)
    return float(info.minexp - info.nmant), float(info.maxexp)


def _interval(name: str, np_type: np.dtype[Any]) -> tuple[float, float]:
    """Return the interval where a function varies most. Beyond it, exp overflows and tanh is constant, for example."""
    low, high = _exponents(np_type)
    natural = (low * np.log(2) - 1, high * np.log(2) + 1)  # exp underflows below and overflows above
    erfc_end = float(np.sqrt(-low * np.log(2)))  # erfc(x), roughly exp(-x^2), underflows above
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


# Zeros and poles of the functions, and arguments at which common implementations (such as FreeBSD's libm) switch
# between approximations, such as 0.4375 for atan and 0.84375 for erf.
_CRITICAL: dict[str, tuple[float, ...]] = {
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


def _unary_operands(name: str, np_type: np.dtype[Any], count: int, random: np.random.Generator) -> Values:
    """Return operands for a unary function: half of them over its interval, a quarter random bits, and hard cases."""
    low, high = _interval(name, np_type)
    parts: list[Values] = [_specials(np_type), _around([low, high], np_type)]
    for center in _CRITICAL.get(name, (0.0, 1.0)):
        parts += [_near(center, np_type, max(count // 16, 16), random), _around([center], np_type)]
    if name in ("sin", "cos", "tan"):
        parts += _angles(np_type, count // 4, random)
    dense = random.uniform(low, high, count // 2).astype(np_type)
    return np.concatenate([dense, _any_bits(np_type, count // 4, random), *parts])


def _angles(np_type: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return numbers around small and large multiples of pi/2, and angles up to the type's largest exponents."""
    top = min(_exponents(np_type)[1] - 1, 1000)  # the angles are computed in f64, which overflows at 2^1024
    # a quarter of the numbers each around small and large multiples: `_around` returns nine for each
    centers = max(count // (4 * 9), 8)
    small = np.arange(1, centers, dtype=np.float64)
    large = np.floor(np.exp2(random.uniform(10, 50, centers)))
    huge = np.exp2(random.uniform(6, top, count // 2)) * random.choice([-1, 1], count // 2)
    with silence_warnings():
        return [_around(small * (np.pi / 2), np_type), _around(large * (np.pi / 2), np_type), huge.astype(np_type)]


def _binary_operands(name: str, np_type: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return random operands for a binary function."""
    make_pairs = {"pow": _power_pairs, "atan2": _general_pairs, "hypot": _general_pairs, "div": _general_pairs}[name]
    return make_pairs(np_type, count, random)


def _power_pairs(np_type: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return operands of pow, with results over the whole range of the type and somewhat beyond.

    A third each are arbitrary positive bases, bases near 1 with large exponents, and bases of both signs with integer
    exponents.
    """
    low, high = _exponents(np_type)
    count_each = count // 3
    base = np.exp2(random.uniform(low, high, count_each))
    # exponent = log2(result) / log2(base), for a result with a random binary logarithm
    log_base = np.where(np.abs(np.log2(base)) < 1e-3, 1e-3, np.log2(base))  # without divisions by almost 0
    exponent = random.uniform(low - 4, high + 4, count_each) / log_base
    near = _near(1.0, np_type, count_each, random).astype(np.float64)
    with silence_warnings():
        large = random.uniform(low - 4, high + 4, count_each) / np.log2(near)
    integer_exponents = random.integers(-40, 41, count_each).astype(np.float64)
    signed = np.exp2(random.uniform(-4, 4, count_each)) * random.choice([-1, 1], count_each)
    with silence_warnings():
        return [
            np.concatenate([base, near, signed]).astype(np_type),
            np.concatenate([exponent, np.where(np.isfinite(large), large, 1.0), integer_exponents]).astype(np_type),
        ]


def _general_pairs(np_type: np.dtype[Any], count: int, random: np.random.Generator) -> list[Values]:
    """Return pairs of operands: half of them random bits, half numbers of similar magnitude."""
    half = count // 2
    size = np.exp2(random.uniform(-10, 10, half))
    first = size * random.uniform(-1, 1, half)
    second = size * random.uniform(-1, 1, half)
    return [
        np.concatenate([_any_bits(np_type, half, random), first.astype(np_type)]),
        np.concatenate([_any_bits(np_type, half, random), second.astype(np_type)]),
    ]
