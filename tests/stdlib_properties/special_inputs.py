"""Properties of operations for special inputs: repeated and padding indices, masked rows, NaN, class weights, empty bags."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stdlib_properties.catalogue import BOTH
from tests.stdlib_properties.operations import Operation

__all__ = ["SPECIAL_INPUTS"]


def _repeated(rng: Any, shape: Any) -> Any:
    """Few different indices, the first one again and again."""
    made = rng.integers(0, 3, shape)
    made.reshape(-1)[::2] = 0
    return made


def _masked(rng: Any, shape: Any) -> Any:
    """-inf nearly everywhere, and from the beginning."""
    made = np.full(shape, -np.inf, np.float32)
    made[..., -3:-1] = 0
    return made


def _weights(rng: Any, shape: Any) -> Any:
    return rng.uniform(0.5, 2, shape).astype(np.float32)


def _odd(rng: Any, shape: Any) -> Any:
    """NaN among numbers, and nothing but -inf in the first rows."""
    made = rng.standard_normal(shape).astype(np.float32)
    made[..., :2, :] = -np.inf
    made[..., -2, -2] = np.nan
    return made


def _bags(mode: str) -> Any:
    """Bags of rows, of which the padding is left out."""
    return lambda F, xp, x, w, o: F.embedding_bag(x, w, o, mode=mode, padding_idx=1)


def _beginnings(rng: Any, shape: Any) -> Any:
    """Where bags begin, in indices of nine: an empty one among them."""
    return np.array([0, 3, 3, 7])[: shape[0]]


ALL: Any = (*BOTH, "llvm")

SPECIAL_INPUTS = (
    Operation("max_pool, NaN", lambda F, xp, x: F.max_pool2d(x, 2, 1), [[(1, 2, 5, 6)]], ALL, fixed={0: _odd}, gradients=False),
    Operation("embedding, repeated", lambda F, xp, x, w: F.embedding(x, w), [[(9,), (5, 3)], [(40,), (4, 35)]], BOTH,
              fixed={0: _repeated}),
    Operation("embedding, padding", lambda F, xp, x, w: F.embedding(x, w, padding_idx=1), [[(9,), (5, 3)]], BOTH,
              fixed={0: _repeated}),
    *(Operation(f"embedding_bag, {mode}", _bags(mode), [[(9,), (16, 9), (4,)], [(12,), (16, 35), (1,)]], fixed={
        0: lambda rng, shape: rng.permutation(16)[: shape[0]], 2: _beginnings}) for mode in ("sum", "mean", "max")),
    Operation("ctc_loss, repeated", lambda F, xp, x: F.ctc_loss(
        F.log_softmax(x, dim=2), xp.tensor([[1, 1, 2], [2, 2, 2], [3, 1, 3]]), (9, 8, 7), (3, 3, 3)), [[(9, 3, 4)]]),
    Operation("smoothing", lambda F, xp, x, t: F.cross_entropy(x, t, label_smoothing=0.3), [[(6, 5), (6,)], [(3, 300), (3,)]],
              BOTH, fixed={1: lambda rng, shape: rng.integers(0, 5, shape)}),
    Operation("weighted nll", lambda F, xp, x, t, w: F.nll_loss(x, t, w), [[(6, 5), (6,), (5,)]], BOTH,
              fixed={1: lambda rng, shape: rng.integers(0, 5, shape), 2: _weights}),
    Operation("masked softmax", lambda F, xp, x, m: F.softmax(x + m, dim=1), [[(3, 40), (3, 40)], [(2, 300), (2, 300)]],
              BOTH, fixed={1: _masked}),
    Operation("masked log_softmax", lambda F, xp, x, m: F.log_softmax(x + m, dim=1)[:, -3:-1], [[(3, 40), (3, 40)]], BOTH,
              fixed={1: _masked}),
    Operation("masked softmax, long", lambda F, xp, x, m: F.softmax(x + m, dim=1), [[(1, 9000)] * 2, [(1, 20_000)] * 2], ("gpu",),
              fixed={1: _masked}, gradients=False),
)  # fmt: skip
