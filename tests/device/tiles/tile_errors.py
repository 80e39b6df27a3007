"""Float64 references for attention with error bounds for floating-point results, and test values.

Bounds are first-order and derived from the type and the length of each sum: n additions of numbers of size m are off by
n * m * unit. Later operations propagate the error of their operands and add their own. All bounds are doubled, since
compilers may fuse and reorder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import vkjit as vk

__all__ = ["UNIT", "Attention", "as_numpy", "check", "values"]

Array = npt.NDArray[Any]
UNIT = {vk.f16: 2.0**-11, vk.bf16: 2.0**-8, vk.f32: 2.0**-24, vk.f64: 2.0**-53}
"""Half the distance between adjacent numbers, relative."""
EXP = 8.0
"""Maximum error of an exponential or logarithm in units, including the rounding of its argument."""
TINY = {vk.f16: 2.0**-24, vk.bf16: 2.0**-126, vk.f32: 2.0**-126, vk.f64: 2.0**-126}


def values(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> tuple[Any, Array]:
    """Return normally distributed numbers as a tensor, and their exact values in f64."""
    found = vk.tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).to(dtype)
    return found, as_numpy(found)


def as_numpy(x: Any) -> Array:
    """Return the values of a tensor in f64."""
    x = x.detach()
    return np.asarray((x if x.dtype is vk.f64 else x.to(vk.f32)).numpy(), np.float64)


def check(found: Any, expected: Array, error: Any, what: str = "") -> None:
    """Raise AssertionError if an element is off by more than twice the error plus a rounding to its type."""
    got = as_numpy(found)
    assert got.shape == expected.shape, what
    if found.dtype.is_float:
        error = 2 * np.asarray(error) + UNIT[found.dtype] * np.abs(expected) + TINY[found.dtype]
    worst = np.max(np.abs(got - expected) - error, initial=-1.0)
    assert worst <= 0, f"{what}: off by {worst:.3g} more than the bound"
    assert not np.isnan(got).any(), what


@dataclass(frozen=True)
class Attention:
    """Attention and its gradients with error bounds.

    Shapes: q and g (B, H, M, D), k and v (B, G, N, D), where g is the gradient of the result. `seen` (B, H, M, N)
    selects the scores that count; `added` is added to the scores.
    """

    q: Array
    k: Array
    v: Array
    g: Array
    seen: Array
    added: Any
    scale: float
    dtype: Any

    def results(self) -> dict[str, tuple[Array, Array]]:
        """Return (values, error) of o, dq, dk and dv, by name."""
        share = self.q.shape[1] // self.k.shape[1]
        k, v = (np.repeat(x, share, axis=1) for x in (self.k, self.v))
        (m, d), n = self.q.shape[2:], k.shape[2]
        u = UNIT[vk.f64 if self.dtype is vk.f64 else vk.f32]
        r = 0.0 if self.dtype in (vk.f32, vk.f64) else UNIT[self.dtype]
        s = np.where(self.seen, self.q @ _t(k) * self.scale + self.added, -np.inf)
        es = u * ((d + 2) * np.abs(self.q) @ _t(np.abs(k)) * abs(self.scale) + 2 * np.abs(self.added))
        es = np.where(self.seen, es, 0).max(axis=-1, keepdims=True, initial=0)
        top = s.max(axis=-1, keepdims=True, initial=-1e300)
        e = np.exp(s - top)
        total = e.sum(axis=-1, keepdims=True)
        p = e / np.where(total > 0, total, 1)
        spread = np.max(np.where(self.seen, top - s, 0), axis=-1, keepdims=True, initial=0) + np.abs(top) * (
            top > -1e299
        )
        ep = p * (2 * es + u * (n + 3 * EXP + spread))
        o = p @ v
        eo = (ep + r * p) @ np.abs(v) + u * (n + 3) * p @ np.abs(v)
        dp, edp = self.g @ _t(v), u * (d + 1) * np.abs(self.g) @ _t(np.abs(v))
        delta = (o * self.g).sum(axis=-1, keepdims=True)
        edelta = ((eo + (r + u * (d + 1)) * np.abs(o)) * np.abs(self.g)).sum(axis=-1, keepdims=True)
        ds = p * (dp - delta)
        eds = ep * np.abs(dp - delta) + p * (edp + edelta) + 3 * u * np.abs(ds)
        dq, dk, dv = ds @ k * self.scale, _t(ds) @ self.q * self.scale, _t(p) @ self.g
        edq = self._of(eds + r * np.abs(ds), np.abs(ds), np.abs(k), u * (n + 2)) * abs(self.scale)
        edk = self._of(_t(eds + r * np.abs(ds)), _t(np.abs(ds)), np.abs(self.q), u * (m * share + 2)) * abs(self.scale)
        edv = self._of(_t(ep + r * p), _t(p), np.abs(self.g), u * (m * share + 2))
        grouped = (*self.k.shape[:2], share, n, d)
        pairs = {"dk": (dk, edk), "dv": (dv, edv)}
        own = {name: (a.reshape(grouped).sum(axis=2), e.reshape(grouped).sum(axis=2)) for name, (a, e) in pairs.items()}
        return {"o": (o, eo), "dq": (dq, edq), **own}

    @staticmethod
    def _of(error: Array, size: Array, factor: Array, own: float) -> Array:
        """Return the error of a product whose left operand is off by `error`."""
        return np.asarray((error + own * size) @ factor)


def _t(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)
