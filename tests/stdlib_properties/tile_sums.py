"""Properties of tiled reductions, scans, transposes and gradients, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import vkjit as vk
from tests.stdlib_properties.catalogue import KernelProperty
from vkjit.stdlib.attention import backward
from vkjit.stdlib.elementwise import tile_transpose
from vkjit.stdlib.rows import tile_reduce, tile_softmax_norm_backward

__all__ = ["TILE_SUMS"]

_F32 = {"dtypes": [vk.f32]}
_REDUCED = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}
_SCANNED = {"sum": np.cumsum, "prod": np.cumprod, "min": np.minimum.accumulate, "max": np.maximum.accumulate}


def _lines(kernel: Any, reference: Any, op: str, axis: int, y: str, result: Any = vk.f32) -> KernelProperty:
    """Test a kernel along one axis of x (A x P x Q), with one operation."""
    elements = {
        "AXIS": [axis], "OP": [op], "IDENTITY": [tile_reduce.identity(op, vk.f32)], "ACC": [vk.f32], "BR": [16], "BB": [8],
        "x": (0.5, 1.5) if op == "prod" else (-9.0, 9.0),
    }  # fmt: skip
    dims = {"A": (1, 2), "P": (1, 40), "Q": (1, 40), "y": y}
    inputs = {"elements": elements, "dims": dims, "dtypes": {"T": [vk.f32], "U": [result]}, "special": op != "prod"}
    return KernelProperty(kernel, reference, inputs, f"tile_{kernel.name}, {op} along {axis}")


def _along_lines() -> list[KernelProperty]:
    made = []
    for axis, rest in ((1, "A Q"), (2, "A P")):
        for op, function in _REDUCED.items():
            made.append(_lines(tile_reduce.reduce, lambda x, f=function, a=axis: f(x, axis=a), op, axis, rest))
        for op, place in (("min", np.argmin), ("max", np.argmax)):
            made.append(_lines(tile_reduce.arg_reduce, lambda x, f=place, a=axis: f(x, axis=a), op, axis, rest, vk.i64))
        for op, function in _SCANNED.items():
            made.append(_lines(tile_reduce.scan, lambda x, f=function, a=axis: f(x, axis=a), op, axis, "A P Q"))
    return made


def _softmax_gradient(g: Any, y: Any, LOG: Any) -> Any:
    if LOG:
        return g - np.exp(y) * g.sum(axis=1, keepdims=True)
    return y * (g - (g * y).sum(axis=1, keepdims=True))


def _norm_gradient(g: Any, x: Any, w: Any, eps: Any, CENTER: Any) -> Any:
    mean = x.mean(axis=1) if CENTER else np.zeros(len(x))
    row = x - mean[:, None]
    scale = 1 / np.sqrt((row**2).mean(axis=1) + eps)
    row, slope = row * scale[:, None], g * w
    rest = row * (slope * row).mean(axis=1, keepdims=True) + (slope.mean(axis=1, keepdims=True) if CENTER else 0)
    return {"dx": (slope - rest) * scale[:, None], "mean": mean, "scale": scale}


def _norm_parameters(g: Any, x: Any, mean: Any, scale: Any) -> Any:
    return (g * (x - mean[:, None]) * scale[:, None]).sum(axis=0), g.sum(axis=0)


def _chances(q: Any, k: Any, mask: Any, lse: Any, scale: Any, shift: Any, CAUSAL: Any, MASK: Any) -> Any:
    """Return exp(score - lse), (B, H, M, N)."""
    s = q @ np.swapaxes(k, 2, 3) * scale
    if MASK == "add":
        s = s + mask
    if CAUSAL:
        s = np.where(np.arange(s.shape[3]) <= np.arange(s.shape[2])[:, None] + shift, s, -np.inf)
    return np.exp(s - lse[..., None])


def _query_gradient(q: Any, k: Any, v: Any, mask: Any, do: Any, lse: Any, delta: Any, scale: Any, shift: Any,
                    CAUSAL: Any, MASK: Any) -> Any:  # fmt: skip
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    p = _chances(q, k, mask, lse, scale, shift, CAUSAL, MASK)
    return (p * (do @ np.swapaxes(v, 2, 3) - delta[..., None])) @ k * scale


def _key_gradients(q: Any, k: Any, v: Any, mask: Any, do: Any, lse: Any, delta: Any, scale: Any, shift: Any,
                   CAUSAL: Any, MASK: Any) -> Any:  # fmt: skip
    shape, share = k.shape, q.shape[1] // k.shape[1]
    k, v = (np.repeat(t, share, axis=1) for t in (k, v))
    p = _chances(q, k, mask, lse, scale, shift, CAUSAL, MASK)
    ds = p * (do @ np.swapaxes(v, 2, 3) - delta[..., None])
    found = (np.swapaxes(ds, 2, 3) @ q * scale, np.swapaxes(p, 2, 3) @ do)
    dk, dv = (t.reshape(shape[0], shape[1], share, *shape[2:]).sum(axis=2) for t in found)
    return {"dk": dk, "dv": dv}


_SCORES = {
    "SIZE": [16], "BM": [16], "BN": [16], "CAUSAL": [False, True], "MASK": ["", "add"], "HOLD": [False, True],
    "scale": (0.1, 1.0), "shift": (-3, 20), "lse": (2.0, 5.0), **dict.fromkeys(("q", "k", "v", "do", "mask", "delta"), (-2.0, 2.0)),
}  # fmt: skip
_HEADS = {
    **dict.fromkeys(("q", "do", "dq"), "B 2*G M D"), **dict.fromkeys(("lse", "delta"), "B 2*G M"), "mask": "B 2*G M N",
    "B": (1, 2), "G": (1, 2), "M": (1, 20), "N": (1, 35), "D": (1, 16),
}  # fmt: skip


def _attention(kernel: Any, reference: Any) -> KernelProperty:
    names = {p.name for p in kernel.spec.params}
    dims = {name: size for name, size in _HEADS.items() if name.isupper() or name in names}
    return KernelProperty(kernel, reference, {"elements": _SCORES, "dims": dims, **_F32})


TILE_SUMS: tuple[KernelProperty, ...] = (
    *_along_lines(),
    KernelProperty(tile_transpose.transpose, lambda x: np.swapaxes(x, 1, 2), {
        "elements": {"TILE": [16]}, "dims": {"B": (1, 2), "M": (1, 40), "N": (1, 40)}, **_F32}, "tile_transpose"),
    KernelProperty(tile_softmax_norm_backward.softmax_gradient, _softmax_gradient, {
        "elements": {"SIZE": [64], "LOG": [False, True], "ACC": [vk.f32], "g": (-3.0, 3.0), "y": (-3.0, 1.0)},
        "dims": {"R": (1, 3), "C": (1, 64)}, **_F32}, "softmax_gradient in tiles"),
    KernelProperty(tile_softmax_norm_backward.norm_gradient, _norm_gradient, {
        "elements": {"SIZE": [64], "CENTER": [False, True], "g": (-3.0, 3.0), "x": (-9.0, 9.0), "w": (-2.0, 2.0),
                     "eps": (0.01, 0.5)},
        "dims": {"R": (1, 3), "C": (1, 64)}, **_F32}, "norm_gradient in tiles"),
    KernelProperty(tile_softmax_norm_backward.norm_parameter_gradients, _norm_parameters, {
        "elements": {"BR": [16], "BC": [8], "g": (-3.0, 3.0), "x": (-9.0, 9.0), "mean": (-2.0, 2.0), "scale": (0.1, 2.0)},
        "dims": {"R": (1, 40), "C": (1, 20)}, **_F32}, "norm_parameters in tiles"),
    KernelProperty(backward.row_dot_products, lambda x, y: (x * y).sum(axis=3), {
        "elements": {"SIZE": [16], "BM": [16], "x": (-2.0, 2.0), "y": (-2.0, 2.0)},
        "dims": {"B": (1, 2), "H": (1, 2), "M": (1, 20), "D": (1, 16)}, **_F32}),
    _attention(backward.query_gradient, _query_gradient),
    _attention(backward.key_gradients, _key_gradients),
)  # fmt: skip
