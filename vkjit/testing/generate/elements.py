"""Element values of arrays and scalars: the user's constraints, fill patterns and special values.

An array is filled from a pattern and a seed instead of being drawn element by element, so that the size of a test case
doesn't affect the number of hypothesis draws. Special values are NaN, infinities, -0, subnormals and the limits of the
type; the caller replaces some elements by them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError
from vkjit.frontend import parse_dims

__all__ = ["PATTERNS", "SPECIAL_KINDS", "Domain", "domain_of", "fill", "special_kinds_of", "special_values"]

PATTERNS = ("ones", "zeros", "counting", "small", "random", "wide")
"""Fill patterns, simplest first.

"ones" and "zeros" fill an array with 1 or 0. "counting" gives 1, 2, 3, ..., with a period of 61. "small" gives small
random integers, "random" random numbers (for integers from the whole range), and "wide" random floats of many
magnitudes (for integers the same as "random").
"""

SPECIAL_KINDS = ("nan", "inf", "negative_zero", "subnormal", "extreme")
"""The kinds of special values that `special=` accepts (see `special_values`)."""

_PERIOD = 61  # of "counting"; a prime, so that equal values aren't at the same place in different blocks


@dataclass(frozen=True, slots=True)
class Domain:
    """The values that an argument may have, from the user's `elements=`.

    They are a range from `low` to `high`, both inclusive (None: no bound), or `choices`, or they are drawn from a
    hypothesis `strategy` of elements. Bounds and choices may be expressions over dimension names, such as "N-1" and
    "-N".
    """

    low: Any = None
    high: Any = None
    choices: tuple[Any, ...] | None = None
    strategy: Any = None

    @property
    def free(self) -> bool:
        """True if the user gave no constraint."""
        return self.low is None and self.high is None and self.choices is None and self.strategy is None

    def bounds(self, env: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the bounds of the range, evaluated for sizes by dimension name."""
        return _evaluate(self.low, env), _evaluate(self.high, env)

    def allows(self, values: npt.NDArray[Any], env: Mapping[str, Any]) -> bool:
        """True if all values are in the range or among the choices for these sizes; always False for a strategy."""
        if self.strategy is not None:
            return False
        if self.choices is not None:
            return bool(np.isin(values, [_evaluate(c, env) for c in self.choices]).all())
        low, high = self.bounds(env)
        return bool((low is None or (values >= low).all()) and (high is None or (values <= high).all()))


def domain_of(name: str, given: Any) -> Domain:
    """Convert an entry of the user's `elements=`. Raises ArgumentError for unsupported values."""
    if given is None:
        return Domain()
    if hasattr(given, "example"):
        return Domain(strategy=given)
    if isinstance(given, (list, set, frozenset)):
        return Domain(choices=tuple(given))
    if isinstance(given, tuple) and len(given) == 2:
        return Domain(*given)
    if isinstance(given, (str, bool, int, float, np.generic)):
        return Domain(choices=(given,))
    raise ArgumentError(
        f"elements: {name} is {given!r}: expected a (low, high) pair, a list of values, one value, a text over "
        "dimension names, or a hypothesis strategy"
    )


def _evaluate(value: Any, env: Mapping[str, Any]) -> Any:
    """Return a number unchanged, or the value of an expression over dimension names. `env` maps names to sizes.

    Raises ArgumentError for an expression that can't be evaluated.
    """
    if not isinstance(value, str):
        return value
    text = "".join(value.split())  # a single expression; spaces would separate dimensions: "N - 1"
    shape = parse_dims(f"0{text}" if text.startswith("-") else text).evaluate(env)  # "-N" isn't parsed, "0-N" is
    if shape is None or len(shape) != 1:
        raise ArgumentError(f"{value!r} can't be computed from the dimensions {', '.join(env) or '(there are none)'}")
    return shape[0]


def limits(dtype: DType) -> tuple[Any, Any]:
    """Return the smallest and the largest finite value of a type."""
    if dtype is dtypes.boolean:
        return False, True
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return int(info.min), int(info.max)
    # NumPy represents bf16 as f32, so the largest bf16 is given as a literal
    top = float(np.finfo(dtype.numpy).max) if dtype is not dtypes.bf16 else 3.3895313892515355e38
    return -top, top


def fill(
    pattern: str, seed: int, shape: tuple[int, ...], dtype: DType, low: Any = None, high: Any = None
) -> npt.NDArray[Any]:
    """Return an array filled with a pattern (see `PATTERNS`), within [low, high] (None: the limits of the type).

    `seed` determines the values of the patterns "small", "random" and "wide".
    """
    count = math.prod(shape)
    if dtype is dtypes.boolean:
        return _booleans(pattern, seed, count).reshape(shape)
    lowest, highest = limits(dtype)
    low = lowest if low is None else max(low, lowest)
    high = highest if high is None else min(high, highest)
    with np.errstate(all="ignore"):
        values = (
            _integers(pattern, seed, count, low, high) if dtype.is_integer else _floats(pattern, seed, count, low, high)
        )
        return values.astype(dtype.numpy).reshape(shape)


def _booleans(pattern: str, seed: int, count: int) -> npt.NDArray[np.bool_]:
    """Return booleans filled with a pattern; "small" and "wide" are random."""
    if pattern in ("ones", "zeros"):
        return np.full(count, pattern == "ones")
    if pattern == "counting":
        return np.asarray(np.arange(count) % 3 != 1)
    return np.random.default_rng(seed).random(count) < 0.5


def _integers(pattern: str, seed: int, count: int, low: int, high: int) -> npt.NDArray[Any]:
    """Return integers in [low, high] filled with a pattern; 0 and 1 become the closest integers in the range."""
    numpy_type: Any = np.uint64 if high > 2**63 - 1 else np.int64
    nearest = max(low, min(0, high))  # the allowed integer closest to 0
    rng = np.random.default_rng(seed)
    if pattern == "zeros":
        return np.full(count, nearest, numpy_type)
    if pattern == "ones":
        return np.full(count, max(low, min(1, high)), numpy_type)
    if pattern == "counting":
        start = max(low, min(1, high))
        period = min(_PERIOD, high - start + 1)
        return np.asarray(np.arange(count) % period + start, numpy_type)
    if pattern == "small":
        return rng.integers(max(low, nearest - 5), min(high, nearest + 9), count, endpoint=True, dtype=numpy_type)
    return rng.integers(low, high, count, endpoint=True, dtype=numpy_type)


def _floats(pattern: str, seed: int, count: int, low: float, high: float) -> npt.NDArray[Any]:
    """Return floats in [low, high] filled with a pattern; 0 and 1 become the closest numbers in the range."""
    nearest = max(low, min(0.0, high))  # the allowed number closest to 0
    rng = np.random.default_rng(seed)
    if pattern == "zeros":
        return np.full(count, nearest)
    if pattern == "ones":
        return np.full(count, max(low, min(1.0, high)))
    if pattern == "counting":
        return np.asarray(np.clip(1.0 + np.arange(count) % _PERIOD, low, high))
    if pattern == "small":
        return np.asarray(np.clip(rng.integers(-4, 4, count, endpoint=True).astype(np.float64), low, high))
    if high - low < 16:  # clipped normal values would mostly be equal to the bounds
        return rng.uniform(low, high, count)
    values = rng.standard_normal(count) * 2
    if pattern == "wide":
        values *= 2.0 ** rng.integers(-6, 4, count)
    return np.clip(values, low, high)


def special_values(dtype: DType, kinds: Sequence[str]) -> list[Any]:
    """Return the special values of a type that belong to the given kinds (see `SPECIAL_KINDS`).

    The kind "extreme" comprises the limits of the type, for integers also the numbers next to them and -1, for floats
    also the smallest normal numbers. Integers have only values of this kind, and bools have none.
    """
    if dtype is dtypes.boolean:
        return []
    low, high = limits(dtype)
    if dtype.is_integer:
        return [high, low, high - 1, *([-1, low + 1] if dtype.is_signed else [])] if "extreme" in kinds else []
    normal = float(np.finfo(dtype.numpy).tiny)  # the smallest normal number, for bf16 that of f32
    mantissa_bits = 7 if dtype is dtypes.bf16 else np.finfo(dtype.numpy).nmant
    subnormal = normal * 2.0**-mantissa_bits  # the smallest subnormal number
    table = {
        "nan": [math.nan], "inf": [math.inf, -math.inf], "negative_zero": [-0.0],
        "subnormal": [subnormal, -subnormal, normal / 2], "extreme": [high, low, normal, -normal],
    }  # fmt: skip
    return [value for kind in SPECIAL_KINDS if kind in kinds for value in table[kind]]


DEFAULT_KINDS = ("nan", "inf")
"""The kinds of special values that a check mixes in by default (`special=None`)."""


def special_kinds_of(special: bool | Sequence[str] | None) -> tuple[str, ...]:
    """Return the kinds of special values that the user's `special=` selects.

    None selects `DEFAULT_KINDS`, True all, False none. Raises ArgumentError for an unknown kind.
    """
    if special is None:
        return DEFAULT_KINDS
    if isinstance(special, bool):
        return SPECIAL_KINDS if special else ()
    kinds = (special,) if isinstance(special, str) else special
    if not isinstance(kinds, Sequence):
        raise ArgumentError(f"special is True, False or a list of {', '.join(SPECIAL_KINDS)}, found {special!r}")
    unknown = [k for k in kinds if k not in SPECIAL_KINDS]
    if unknown:
        raise ArgumentError(f"special: no kind is named {unknown[0]!r}: expected some of {', '.join(SPECIAL_KINDS)}")
    return tuple(kinds)
