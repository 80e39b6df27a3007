"""Properties of tile kernels, cooperative matrix kernels and random number generators, compared with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import vkjit as vk
from tests.stdlib_properties.catalogue import KernelProperty
from tests.stdlib_properties.operations import Operation
from tests.stdlib_properties.philox import philox
from tests.stdlib_properties.tile_products import TILE_PRODUCTS
from vkjit.runtime.matrix_shapes import native_shape
from vkjit.stdlib.attention import forward, small
from vkjit.stdlib.matmul import cooperative_plan, tiles, vec4
from vkjit.stdlib.random import random
from vkjit.stdlib.rows import tile_softmax_norm

__all__ = ["TILE_KERNELS", "TILE_OPERATIONS"]

_F32 = {"dtypes": [vk.f32]}

# -- rows


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _layer_norm(x: Any, w: Any, b: Any, eps: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps) * w + b


def _rms_norm(x: Any, w: Any, eps: Any) -> Any:
    return x / np.sqrt((x**2).mean(axis=1, keepdims=True) + eps) * w


_ROWS = {"SIZE": [64], "x": (-9.0, 9.0), "w": (-2.0, 2.0), "b": (-2.0, 2.0), "eps": (0.01, 0.5)}


def _rows(kernel: Any, reference: Any) -> KernelProperty:
    names = {p.name for p in kernel.spec.params}
    inputs = {"elements": {k: v for k, v in _ROWS.items() if k in names}, "dims": {"R": (1, 3), "C": (1, 64)}, **_F32}
    return KernelProperty(kernel, reference, inputs, f"{kernel.name} in tiles")


# -- matrix products

_erf = np.vectorize(math.erf, otypes=[np.float64])
_ACTIVATED = {
    "": lambda x: x, "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + _erf(x * math.sqrt(0.5))),
}  # fmt: skip
_TILE = {"BM": [16], "BN": [32], "BK": [16], "ACC": [vk.f32], "THREADS": [64], "a": (-2.0, 2.0), "b": (-2.0, 2.0)}
_END = {"ACTIVATION": list(tiles.ACTIVATIONS), "BIASED": [False, True], "bias": (-2.0, 2.0)}
_SIZES = {"B": (1, 2), "M": (1, 33), "N": (1, 40), "K": (0, 35)}


def _ended(c: Any, bias: Any, ACTIVATION: Any, BIASED: Any) -> Any:
    return _ACTIVATED[ACTIVATION](c + bias if BIASED else c)


def _gemm(a: Any, b: Any, bias: Any, ACTIVATION: Any, BIASED: Any) -> Any:
    return _ended(a @ b, bias, ACTIVATION, BIASED)


def _transposed(a: Any, b: Any, bias: Any, ACTIVATION: Any, BIASED: Any) -> Any:
    return _ended(np.swapaxes(a, 1, 2) @ np.swapaxes(b, 1, 2), bias, ACTIVATION, BIASED)


def _parts(a: Any, b: Any, parts: Any, chunk: Any) -> Any:
    made = np.zeros(parts.shape)
    for s in range(len(parts)):
        k = slice(s * chunk, (s + 1) * chunk)
        made[s] = a[:, :, k] @ b[:, k]
    return made


def _of_parts(parts: Any, bias: Any, ACTIVATION: Any, BIASED: Any) -> Any:
    return _ended(parts.sum(axis=0), bias, ACTIVATION, BIASED)


def _views(transposed: bool, reference: Any) -> KernelProperty:
    shapes = {"a": "B K M", "b": "B N K"} if transposed else {"a": "B M K", "b": "B K N"}
    elements = {**_TILE, **_END, "A_TRANSPOSED": [transposed], "B_TRANSPOSED": [transposed]}
    label = "gemm_transposed, transposed" if transposed else "gemm_transposed"
    return KernelProperty(
        tiles.gemm_transposed, reference, {"elements": elements, "dims": {**_SIZES, **shapes}, **_F32}, label
    )


_SCORES = {"scale": (0.1, 1.0), "shift": (-3, 20), **dict.fromkeys("qkv", (-3.0, 3.0))}


def _attention(q: Any, k: Any, v: Any, scale: Any, shift: Any, CAUSAL: Any) -> Any:
    heads = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, heads, axis=1), np.repeat(v, heads, axis=1)
    s = q @ np.swapaxes(k, 2, 3) * scale
    rows, columns = s.shape[2:]
    if CAUSAL:
        s = np.where(np.arange(columns) <= np.arange(rows)[:, None] + shift, s, -np.inf)
    top = s.max(axis=3, keepdims=True)
    e = np.exp(s - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=3, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(np.isfinite(top), top, np.finfo(np.float32).min) + np.log(np.where(total > 0, total, 1))
        return {"o": e / np.where(total > 0, total, 1) @ v, "lse": lse[..., 0]}


def _attention_gradients(q: Any, k: Any, v: Any, grad: Any, lse: Any, scale: Any, shift: Any, CAUSAL: Any) -> Any:
    """The weights are exp(score - lse) for any lse."""
    heads = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, heads, axis=1), np.repeat(v, heads, axis=1)
    weights = np.exp(q @ np.swapaxes(keys, 2, 3) * scale - lse[..., None])
    rows, columns = weights.shape[2:]
    if CAUSAL:
        weights = np.where(np.arange(columns) <= np.arange(rows)[:, None] + shift, weights, 0)
    slopes = grad @ np.swapaxes(values, 2, 3)
    slopes = weights * (slopes - (weights * slopes).sum(axis=3, keepdims=True)) * scale

    def of_keys(x: Any) -> Any:
        return x.reshape(*k.shape[:2], heads, *k.shape[2:]).sum(axis=2)

    of_key, of_value = of_keys(np.swapaxes(slopes, 2, 3) @ q), of_keys(np.swapaxes(weights, 2, 3) @ grad)
    return {"dq": slopes @ keys, "dk": of_key, "dv": of_value}


# -- random numbers


def _words(seed: Any, counter: Any, y: Any, stream: int = 0) -> Any:
    """Return a random word for each element of `y`."""
    return philox(int(seed), -(-len(y) // 4), int(counter), stream).reshape(-1)[: len(y)]


def _uniform(y: Any, seed: Any, counter: Any, low: Any, span: Any, BITS: Any) -> Any:
    return low + span * ((_words(seed, counter, y) >> np.uint64(32 - BITS)) * 2.0**-BITS)


def _uniform_double(y: Any, seed: Any, counter: Any, low: Any, span: Any) -> Any:
    first, second = (_words(seed, counter, y, stream) for stream in (0, 1))
    return low + span * (((first << np.uint64(21)) ^ (second >> np.uint64(11))) * 2.0**-53)


def _normal(y: Any, seed: Any, counter: Any, mean: Any, deviation: Any) -> Any:
    words = philox(int(seed), -(-len(y) // 4), int(counter), 0).reshape(-1, 2) >> np.uint64(8)
    radius, angle = np.sqrt(-2 * np.log((words[:, 0] + 1) * 2.0**-24)), words[:, 1] * 2.0**-24 * 2 * math.pi
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return mean + deviation * pairs.reshape(-1)[: len(y)]


def _integers(y: Any, seed: Any, counter: Any, low: Any, span: Any) -> Any:
    words = (_words(seed, counter, y) << np.uint64(32)) | _words(seed, counter, y, 1)
    inside = words % np.uint64(span) if span else words
    return (inside.astype(np.int64) + np.int64(low)).astype(y.dtype)


def _coins(y: Any, probability: Any, seed: Any, counter: Any) -> Any:
    return ((_words(seed, counter, y) >> np.uint64(8)) * 2.0**-24 < probability.astype(np.float32)).astype(y.dtype)


_DRAWN = {"seed": (0, 2**63), "counter": [0, 7, 2**32 - 2, 2**40]}


def _drawn(kernel: Any, reference: Any, types: dict[str, list[Any]], **elements: Any) -> KernelProperty:
    inputs = {"elements": {**_DRAWN, **elements}, "dims": {"N": (1, 300)}, "dtypes": types}
    return KernelProperty(kernel, reference, inputs, f"random {kernel.name}")


TILE_KERNELS: tuple[KernelProperty, ...] = (
    _rows(tile_softmax_norm.softmax, _softmax),
    _rows(tile_softmax_norm.log_softmax, lambda x: np.log(_softmax(x))),
    _rows(tile_softmax_norm.layer_norm, _layer_norm),
    _rows(tile_softmax_norm.rms_norm, _rms_norm),
    KernelProperty(tiles.gemm, _gemm, {"elements": {**_TILE, **_END}, "dims": _SIZES, **_F32}),
    _views(False, _gemm),
    _views(True, _transposed),
    KernelProperty(tiles.gemm_split_k, _parts, {
        "elements": {**_TILE, "A_TRANSPOSED": [False], "B_TRANSPOSED": [False], "chunk": [16, 32]},
        "dims": {**_SIZES, "S": (1, 3), "a": "B M K", "b": "B K N"}, **_F32}),
    KernelProperty(tiles.gemm_reduce_split_k, _of_parts, {
        "elements": {"BM": [16], "BN": [32], "ACC": [vk.f32], **_END, "parts": (-2.0, 2.0)},
        "dims": {"B": (1, 2), "M": (1, 33), "N": (1, 40), "S": (1, 3)}, **_F32}),
    KernelProperty(forward.attention, _attention, {
        "elements": {"SIZE": [16], "BM": [16], "BN": [16], "CAUSAL": [False, True], "MASK": [""],
                     **_SCORES},
        "dims": {"q": "B 2*G M D", "o": "B 2*G M D", "lse": "B 2*G M", "B": (1, 2), "G": (1, 2), "M": (1, 20), "N": (1, 35),
                 "D": (1, 16)}, **_F32}),
    KernelProperty(small.attend_row, _attention, {
        "elements": {"SIZE": [16], "SCORES": [64], "CAUSAL": [False, True], "MASK": [""], **_SCORES},
        "dims": {"q": "B 2*G M D", "o": "B 2*G M D", "lse": "B 2*G M", "B": (1, 2), "G": (1, 2), "M": (1, 9), "N": (1, 35),
                 "D": (1, 16)}, **_F32}),
    KernelProperty(small.gradients_of_head, _attention_gradients, {
        "elements": {"SIZE": [16], "SCORES": [256], "ITEMS": [16], "CAUSAL": [False, True], "MASK": [""], **_SCORES,
                     "grad": (-2.0, 2.0), "lse": (0.0, 9.0)},
        "dims": {**dict.fromkeys(("q", "grad", "dq"), "B 2*G M D"), "lse": "B 2*G M", "B": (1, 2), "G": (1, 2), "M": (1, 14),
                 "N": (1, 16), "D": (1, 16)}, **_F32}),
    _drawn(random.uniform, _uniform, {"T": [vk.f32]}, low=(-2.0, 2.0), span=(0.5, 3.0), BITS=[24, 11]),
    _drawn(random.uniform_f64, _uniform_double, {}, low=(-2.0, 2.0), span=(0.5, 3.0)),
    _drawn(random.normal, _normal, {"T": [vk.f32]}, mean=(-2.0, 2.0), deviation=(0.5, 3.0)),
    _drawn(random.integers, _integers, {"T": [vk.i64]}, low=(-9, 9), span=[0, 1, 7, 2**40 + 1]),
    _drawn(random.bernoulli, _coins, {"T": [vk.i32], "P": [vk.f32]}, probability=(0.0, 1.0)),
)  # fmt: skip


# -- GPU kernels, launched as products


def _in_vectors(_: Any, xp: Any, x: Any, y: Any) -> Any:
    if xp is not vk:
        return x @ y
    c = vk.zeros((x.shape[0], x.shape[1], y.shape[2]))
    assert vec4.multiply_vec4(x._array, y._array, c._array)
    return c


def _on_matrices(halves: int) -> Any:
    """Multiply 8-bit integers with cooperative matrices and 32-bit accumulators."""

    def call(_: Any, xp: Any, x: Any, y: Any) -> Any:
        if xp is not vk:
            return x.long() @ y.long()
        c = vk.zeros((x.shape[0], x.shape[1], y.shape[2]), dtype=vk.i32)
        shape = native_shape(vk.device().caps.matrices, "i8", "i8", "i32")
        assert shape is not None
        tile = cooperative_plan.TileShape(64, 64, 64, 2, 2, halves, early_loads=halves > 1)
        assert cooperative_plan.multiply_coopmat_tile(x._array, y._array, c._array, vk.i32, shape, tile)
        return c

    return call


def _bytes(rng: Any, shape: Any) -> Any:
    return rng.integers(-100, 100, shape).astype(np.int8)


_FIXED: dict[int, Any] = {0: _bytes, 1: _bytes}

TILE_OPERATIONS: tuple[Operation, ...] = (
    Operation("large products in vectors", _in_vectors, [[(2, 132, 20), (2, 20, 136)], [(1, 128, 16), (1, 16, 128)]],
              ("gpu",), gradients=False),
    Operation("large products in vectors, turned", lambda F, xp, x, y: _in_vectors(F, xp, x.transpose(1, 2), y.transpose(1, 2)),
              [[(1, 20, 132), (1, 136, 20)]], ("gpu",), gradients=False),
    Operation("large products on matrices", _on_matrices(1), [  # more tiles across than down; two and three slices along K
        [(2, 80, 144), (2, 144, 160)], [(1, 64, 128), (1, 128, 64)], [(1, 64, 192), (1, 192, 64)]],
              ("gpu",), fixed=_FIXED, gradients=False),
    Operation("large products on matrices, early", _on_matrices(2), [
        [(1, 80, 144), (1, 144, 96)], [(1, 64, 384), (1, 384, 64)]], ("gpu",), fixed=_FIXED,
              gradients=False),
    *TILE_PRODUCTS,
)  # fmt: skip
