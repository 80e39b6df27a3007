"""Error bounds of floating-point results, derived from the type and the length of sums.

With u the unit roundoff of a type (half the relative distance between adjacent numbers), a sum of n terms in any order
is off by at most (n - 1) u times the sum of the terms' absolute values, to first order in u. It follows:

- products and sums that are linear in each input (convolution, average pooling, embedding, and their gradients):
  (n + 3) u times the same operation on absolute values, which the reference computes and `linear` takes;
- softmax: `softmax_bound`, log-softmax: `log_softmax_bound`, normalization: `norm_bound` and `norm_gradient_bound`.

For f16 and bf16, sums are kept in f32, and results are rounded once more, by `stored`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
TINY = 2.0**-126
"""The smallest normal f32: devices may flush smaller values to zero."""

__all__ = [
    "TINY",
    "UNIT",
    "linear",
    "log_softmax_bound",
    "norm_bound",
    "norm_gradient_bound",
    "softmax_bound",
    "stored",
]


def linear(magnitude: Any, terms: int, dtype: str = "f32") -> Any:
    """Return the bound for sums of `terms` products; `magnitude` is the operation on absolute values."""
    return UNIT[dtype] * (terms + 3) * np.abs(np.asarray(magnitude, np.float64)) + TINY


def stored(expected: Any, dtype: str) -> Any:
    """Return the bound for rounding a result to its type."""
    return UNIT[dtype] * np.abs(np.asarray(expected, np.float64)) + (2.0**-24 if dtype == "f16" else TINY)


def softmax_bound(y: Any, spread: float, length: int) -> Any:
    """exp is off by 3 units, its argument (at most `spread`) is rounded, and `length` positive terms are summed."""
    return UNIT["f32"] * (2 * spread + length + 12) * np.abs(y) + TINY


def log_softmax_bound(y: Any, largest: float, spread: float, length: int) -> Any:
    """Two subtractions, and a logarithm of a sum with the same relative error as for softmax."""
    return UNIT["f32"] * (2 * np.abs(y) + 2 * largest + 2 * spread + length + 16) + TINY


def norm_bound(y: Any, x: Any, scale: Any, length: int, weight: float = 1.0, bias: float = 0.0) -> Any:
    """The mean is off by length u mean(abs(x)), the scale by (length + 8) u relative; both affect y = x hat w + b."""
    size = float(np.max(np.abs(x), initial=0.0)) * float(np.max(scale, initial=0.0))
    return UNIT["f32"] * (length + 16) * (np.abs(y) + bias + 2 * weight * (size + 1)) + TINY


def norm_gradient_bound(x: Any, g: Any, scale: Any, length: int, weight: float = 1.0) -> float:
    """scale (g w - mean(g w) - x hat mean(g w x hat)) has three terms, each off like a sum of `length` terms."""
    rate = float(np.max(scale, initial=0.0))
    value = float(np.max(np.abs(x), initial=0.0)) * rate + 1
    slope = float(np.max(np.abs(g), initial=0.0)) * weight
    return UNIT["f32"] * (length + 16) * 4 * slope * (rate + 1) * value * value + TINY
