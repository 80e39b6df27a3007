"""Operands for bit-exact comparison: random bit patterns, close pairs, special values and rounding ties.

Operands are arrays of the type's NumPy representation (ml_dtypes for bf16).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.semantics import silence_warnings

__all__ = ["array_type", "pairs", "single"]

Values = Any


def array_type(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy type for arrays of this element type. Raises ImportError for bf16 without ml_dtypes."""
    if dtype is dtypes.bf16:
        import ml_dtypes

        carried: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return carried
    return dtype.storage


def pairs(dtype: DType, count: int, seed: int) -> tuple[Values, Values]:
    """Return `count` pairs: a quarter of special values, a quarter close to each other, the rest random bits."""
    random = np.random.default_rng(seed)
    kind = array_type(dtype)
    special = _special(dtype)
    quarter = count // 4
    left, right = special[random.integers(0, len(special), quarter)], special[random.integers(0, len(special), quarter)]
    near = _random(dtype, quarter, random)
    close = _nearby(near, dtype, random)
    remaining = count - 2 * quarter
    first = np.concatenate([left, near, _random(dtype, remaining, random)]).astype(kind, copy=False)
    second = np.concatenate([right, close, _random(dtype, remaining, random)]).astype(kind, copy=False)
    return first, second


def single(dtype: DType, count: int, seed: int) -> Values:
    """Return operands of unary functions and conversions, including rounding ties and integer limits."""
    if dtype.bits <= 16 and count >= 65536:
        return (
            np.arange(65536, dtype=np.uint16).view(np.uint8 if dtype.bits == 8 else np.uint16).view(array_type(dtype))
        )
    random = np.random.default_rng(seed)
    special = _special(dtype)
    half = count // 2
    hard = _halfway(dtype, max(half - len(special), 0), random)
    parts = [special, hard, _random(dtype, max(count - len(special) - len(hard), 1), random)]
    return np.concatenate(parts).astype(array_type(dtype), copy=False)


def _random(dtype: DType, count: int, random: np.random.Generator) -> Values:
    kind = array_type(dtype)
    if dtype.kind == "bool":
        return random.integers(0, 2, count).astype(np.bool_)
    return random.integers(0, 256, count * kind.itemsize, np.uint8).view(kind)


def _nearby(values: Values, dtype: DType, random: np.random.Generator) -> Values:
    """Return the values moved by up to three ULPs or units; floats with random sign."""
    if dtype.kind == "bool":
        return values
    bits = np.dtype(f"u{values.dtype.itemsize}")
    moved = values.view(bits) + random.integers(-3, 4, len(values)).astype(bits)
    if dtype.is_float:
        moved ^= random.integers(0, 2, len(values)).astype(bits) << bits.type(8 * bits.itemsize - 1)
    return moved.view(values.dtype)


def _special(dtype: DType) -> Values:
    if dtype.kind == "bool":
        return np.array([False, True])
    kind = array_type(dtype)
    if not dtype.is_float:
        info = np.iinfo(kind)
        numbers = {0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.min, info.min + 1, info.min // 2, 10}
        numbers |= {n for n in (-1, -2, -3, -7, 31, 32, 63, 64, 127, 128, 255, 256) if info.min <= n <= info.max}
        return np.array(sorted(numbers), kind)
    info_ = _float_info(kind)
    tiny, most, least = float(info_.tiny), float(info_.max), float(info_.smallest_subnormal)
    numbers_ = [0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 0.5, 10.0, 1 / 3, tiny, most, least, 3 * least, tiny - least, tiny / 2]
    numbers_ += [float(info_.eps), 1 + float(info_.eps), 2**31, 2**32, 2**53, 2**63, 255.5, 127.5, 32767.5, most / 2]
    with silence_warnings():
        positive = np.array([*numbers_, np.inf]).astype(kind)
    return np.concatenate([positive, -positive, np.array([np.nan], kind)])


def _float_info(kind: np.dtype[Any]) -> Any:
    if kind.name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.finfo(kind)
    return np.finfo(kind)


def _halfway(dtype: DType, count: int, random: np.random.Generator) -> Values:
    """Return midpoints between adjacent numbers of narrower types, integer limits, and values close to either."""
    if dtype.kind == "bool" or count == 0:
        return _random(dtype, 0, random)
    kind = array_type(dtype)
    share = count // 4
    digits = random.choice([7, 8, 10, 11, 23, 24, 52], share)
    whole = np.floor(np.exp2(digits + random.uniform(0, 1, share)))
    scale = np.exp2(random.integers(-30, 40, share)) if dtype.is_float else np.exp2(random.integers(0, 12, share))
    middles = (whole + 0.5) * 2 * scale * random.choice([-1.0, 1.0], share)
    ends = np.exp2(random.choice([7, 8, 15, 16, 31, 32, 63, 64], share)) * random.choice([-1.0, 1.0], share)
    ends += random.choice([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5], share)
    with silence_warnings():
        if dtype.is_float:
            values = np.concatenate([middles, ends]).astype(kind)
        else:
            info = np.iinfo(kind)
            clipped = np.clip(np.concatenate([middles, ends]), float(info.min), float(info.max) * (1 - 2**-53))
            values = clipped.astype(kind)
    return np.concatenate([values, _nearby(values, dtype, random)])
