"""Property tests of kernels written with tiles, against NumPy, at random sizes and values on the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

import vkjit as vk
from tests.selection import examples
from vkjit.stdlib.attention.forward import attention
from vkjit.stdlib.matmul.tiles import gemm
from vkjit.stdlib.rows.tile_softmax_norm import softmax

SIZES = st.integers(0, 40)
EPS = float(np.finfo(np.float32).eps)


@settings(max_examples=examples(25), deadline=None)
@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), st.integers(0, 99))
def test_products(m: int, k: int, n: int, a_turned: bool, b_turned: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    a = random.normal(size=(1, k, m) if a_turned else (1, m, k)).astype(np.float32)
    b = random.normal(size=(1, n, k) if b_turned else (1, k, n)).astype(np.float32)
    a, b = a.swapaxes(1, 2) if a_turned else a, b.swapaxes(1, 2) if b_turned else b
    with vk.use_device("interpreter"):
        c = gemm(a, b, np.zeros(n, np.float32), BM=16, BN=16, BK=8)
    bound = (k + 1) * EPS * np.matmul(np.abs(a), np.abs(b), dtype=np.float64)
    assert (np.abs(c - np.matmul(a, b, dtype=np.float64)) <= bound).all()


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(0, 5), st.integers(1, 64), st.floats(-1e4, 1e4, width=32), st.integers(0, 99))
def test_softmax_does_not_change_with_a_shift(rows: int, columns: int, shift: float, seed: int) -> None:
    x = (np.random.default_rng(seed).integers(-64, 65, (rows, columns)) / 8).astype(np.float32)
    moved = x + np.float32(round(shift))  # exact: multiples of 1/8 up to 2**14 fit into f32
    with vk.use_device("interpreter"):
        found, again = softmax(x, SIZE=64), softmax(moved, SIZE=64)
    np.testing.assert_array_equal(found, again)
    np.testing.assert_allclose(found.sum(axis=1), np.ones(rows), rtol=(columns + 4) * EPS)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(1, 20), st.integers(1, 30), st.integers(1, 16), st.integers(0, 99))
def test_attention_gives_means_of_the_values(m: int, n: int, d: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    q, k = (random.normal(size=(1, 1, rows, d)).astype(np.float32) for rows in (m, n))
    v = np.broadcast_to(random.normal(size=(1, 1, 1, d)), (1, 1, n, d)).astype(np.float32)
    with vk.use_device("interpreter"):
        o, _ = attention(q, k, v, q, scale=1.0, shift=0, SIZE=16, BM=16, BN=16)
    wanted = np.broadcast_to(v[:, :, :1], o.shape)
    assert (np.abs(o - wanted) <= (n + 8) * 2 * EPS * np.abs(wanted) + 1e-30).all()
