"""Operands for the bit-exact comparison in `compare`: random bits, close pairs, special values and rounding ties.

Operands are NumPy arrays of the element type, with the type of ml_dtypes for bf16.
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

        bf16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bf16
    return dtype.storage


def pairs(dtype: DType, count: int, seed: int) -> tuple[Values, Values]:
    """Return `count` pairs of operands of binary operations.

    A quarter of the pairs are two special values, a quarter are close to each other, and the rest are random bits.
    """
    random = np.random.default_rng(seed)
    np_type = array_type(dtype)
    special = _special_values(dtype)
    quarter = count // 4
    first_special = special[random.integers(0, len(special), quarter)]
    second_special = special[random.integers(0, len(special), quarter)]
    first_close = _random(dtype, quarter, random)
    second_close = _nearby(first_close, dtype, random)
    remaining = count - 2 * quarter
    first = np.concatenate([first_special, first_close, _random(dtype, remaining, random)])
    second = np.concatenate([second_special, second_close, _random(dtype, remaining, random)])
    return first.astype(np_type, copy=False), second.astype(np_type, copy=False)


def single(dtype: DType, count: int, seed: int) -> Values:
    """Return about `count` operands of unary operations and conversions.

    For 8-bit and 16-bit types and a `count` of at least 65,536, they are all values. Otherwise half of them are
    special values and candidates for rounding ties (see `_hard_to_convert`), and the rest random bits.
    """
    if dtype.bits <= 16 and count >= 65536:
        # all 16-bit patterns, or for 8-bit types their bytes
        bits = np.arange(65536, dtype=np.uint16).view(np.uint8 if dtype.bits == 8 else np.uint16)
        return bits.view(array_type(dtype))
    random = np.random.default_rng(seed)
    special = _special_values(dtype)
    half = count // 2
    hard = _hard_to_convert(dtype, max(half - len(special), 0), random)
    parts = [special, hard, _random(dtype, max(count - len(special) - len(hard), 1), random)]
    return np.concatenate(parts).astype(array_type(dtype), copy=False)


def _random(dtype: DType, count: int, random: np.random.Generator) -> Values:
    """Return values with random bits, including NaN and infinities."""
    np_type = array_type(dtype)
    if dtype.kind == "bool":
        return random.integers(0, 2, count).astype(np.bool_)
    return random.integers(0, 256, count * np_type.itemsize, np.uint8).view(np_type)


def _nearby(values: Values, dtype: DType, random: np.random.Generator) -> Values:
    """Return the values moved by up to three units (integers) or ULPs (floats); floats also get a random sign."""
    if dtype.kind == "bool":
        return values
    bits = np.dtype(f"u{values.dtype.itemsize}")
    moved = values.view(bits) + random.integers(-3, 4, len(values)).astype(bits)
    if dtype.is_float:  # flip the sign bit of a random half
        moved ^= random.integers(0, 2, len(values)).astype(bits) << bits.type(8 * bits.itemsize - 1)
    return moved.view(values.dtype)


def _special_values(dtype: DType) -> Values:
    """Return values at which operations often go wrong: zeros, limits of ranges and conversions, infinities, NaN."""
    if dtype.kind == "bool":
        return np.array([False, True])
    np_type = array_type(dtype)
    if not dtype.is_float:
        info = np.iinfo(np_type)
        integers = {0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.min, info.min + 1, info.min // 2, 10}
        integers |= {n for n in (-1, -2, -3, -7, 31, 32, 63, 64, 127, 128, 255, 256) if info.min <= n <= info.max}
        return np.array(sorted(integers), np_type)
    limits = _float_info(np_type)
    # the smallest normal, the largest, and the smallest subnormal number
    tiny, high, small = float(limits.tiny), float(limits.max), float(limits.smallest_subnormal)
    floats = [0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 0.5, 10.0, 1 / 3, tiny, high, small, 3 * small, tiny - small, tiny / 2]
    floats += [float(limits.eps), 1 + float(limits.eps), 2**31, 2**32, 2**53, 2**63, 255.5, 127.5, 32767.5, high / 2]
    with silence_warnings():
        positive = np.array([*floats, np.inf]).astype(np_type)
    return np.concatenate([positive, -positive, np.array([np.nan], np_type)])


def _float_info(np_type: np.dtype[Any]) -> Any:
    """Return `np.finfo`, or its counterpart of ml_dtypes for bf16."""
    if np_type.name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.finfo(np_type)
    return np.finfo(np_type)


def _hard_to_convert(dtype: DType, count: int, random: np.random.Generator) -> Values:
    """Return about `count` values that are hard to convert to other types.

    They are midpoints between adjacent floats of narrower types (rounding ties), limits of integer types, and values
    close to these.
    """
    if dtype.kind == "bool" or count == 0:
        return _random(dtype, 0, random)
    np_type = array_type(dtype)
    share = count // 4  # of the midpoints and of the limits; values close to both make up the other half
    # integers with about as many bits as the mantissas of bf16, f16, f32 and f64; adding 1/2 makes them midpoints
    digits = random.choice([7, 8, 10, 11, 23, 24, 52], share)
    significands = np.floor(np.exp2(digits + random.uniform(0, 1, share)))
    scale = np.exp2(random.integers(-30, 40, share)) if dtype.is_float else np.exp2(random.integers(0, 12, share))
    # the factor 2 makes the midpoints integers, as operands of an integer type have to be
    midpoints = (significands + 0.5) * 2 * scale * random.choice([-1.0, 1.0], share)
    # limits of the integer types, and values up to 1.5 away
    limits = np.exp2(random.choice([7, 8, 15, 16, 31, 32, 63, 64], share)) * random.choice([-1.0, 1.0], share)
    limits += random.choice([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5], share)
    with silence_warnings():
        if dtype.is_float:
            values = np.concatenate([midpoints, limits]).astype(np_type)
        else:
            info = np.iinfo(np_type)
            # the factor keeps 64-bit maxima, which f64 rounds up, within the type
            clipped = np.clip(np.concatenate([midpoints, limits]), float(info.min), float(info.max) * (1 - 2**-53))
            values = clipped.astype(np_type)
    return np.concatenate([values, _nearby(values, dtype, random)])
