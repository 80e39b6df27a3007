"""How far results in floating point may be off, derived from the type and the length of the sums.

With u the unit roundoff of a type (half the distance of neighbours, relative), a sum of n terms in any order is off by at most
(n - 1) u times the sum of the terms' absolute values, to first order in u. From this follow:

- products and sums that are linear in each input (convolution, average pooling, embedding; and their gradients): (n + 3) u
  times the same operation on absolute values, which `linear` takes as computed by the reference;
- softmax: `softmax_bound`, log-softmax: `log_softmax_bound`, normalisation: `norm_bound` and `norm_gradient_bound`.

Sums are kept in f32 where the type is f16 or bf16; those results are rounded once more, by `stored` relative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
TINY = 2.0**-126
"""The least normal f32: below it devices may flush to zero."""

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
    """For sums of `terms` products; `magnitude`: the operation on absolute values."""
    return UNIT[dtype] * (terms + 3) * np.abs(np.asarray(magnitude, np.float64)) + TINY


def stored(expected: Any, dtype: str) -> Any:
    """The rounding of a result to its type."""
    return UNIT[dtype] * np.abs(np.asarray(expected, np.float64)) + (2.0**-24 if dtype == "f16" else TINY)


def softmax_bound(y: Any, spread: float, length: int) -> Any:
    """exp is right to 3 units; its argument, a difference of up to `spread`, is rounded; the sum has `length` positive terms."""
    return UNIT["f32"] * (2 * spread + length + 12) * np.abs(y) + TINY


def log_softmax_bound(y: Any, largest: float, spread: float, length: int) -> Any:
    """Two subtractions, and a logarithm of a sum whose relative error is as for softmax."""
    return UNIT["f32"] * (2 * np.abs(y) + 2 * largest + 2 * spread + length + 16) + TINY


def norm_bound(y: Any, x: Any, scale: Any, length: int, weight: float = 1.0, bias: float = 0.0) -> Any:
    """The mean is off by length u mean(abs(x)), the scale by (length + 8) u relative; both reach y = x hat w + b."""
    size = float(np.max(np.abs(x), initial=0.0)) * float(np.max(scale, initial=0.0))
    return UNIT["f32"] * (length + 16) * (np.abs(y) + bias + 2 * weight * (size + 1)) + TINY


def norm_gradient_bound(x: Any, g: Any, scale: Any, length: int, weight: float = 1.0) -> float:
    """The gradient is scale (g w - mean(g w) - x hat mean(g w x hat)): three terms, each off like a sum of `length` terms."""
    rate = float(np.max(scale, initial=0.0))
    value = float(np.max(np.abs(x), initial=0.0)) * rate + 1
    slope = float(np.max(np.abs(g), initial=0.0)) * weight
    return UNIT["f32"] * (length + 16) * 4 * slope * (rate + 1) * value * value + TINY
