"""Operations whose inputs are invalid: indices out of range and wrong offsets, which a kernel has to report."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.stdlib_properties.catalogue import BOTH
from tests.stdlib_properties.operations import Operation

__all__ = ["REFUSED_INPUTS"]


def _below(rng: Any, shape: Any) -> Any:
    made = rng.integers(0, 5, shape)
    made.reshape(-1)[-1] = -7
    return made


def _above(count: int) -> Any:
    def make(rng: Any, shape: Any) -> Any:
        made = rng.integers(0, count, shape)
        made.reshape(-1)[0] = count
        return made

    return make


def _bags(mode: str) -> Any:
    """Bags of rows, of which the padding is left out."""
    return lambda F, xp, x, w, o: F.embedding_bag(x, w, o, mode=mode, padding_idx=1)


REFUSED_INPUTS = (
    Operation("embedding, below", lambda F, xp, x, w: F.embedding(x, w), [[(7,), (5, 3)]], BOTH, fixed={0: _below}, refused=True),
    Operation("embedding, above", lambda F, xp, x, w: F.embedding(x, w), [[(7,), (5, 3)]], BOTH, fixed={0: _above(5)},
              refused=True),
    Operation("embedding_bag, offsets that fall", _bags("sum"), [[(5,), (5, 3), (3,)]], fixed={
        0: lambda rng, shape: rng.integers(0, 4, shape), 2: lambda rng, shape: np.array([0, 4, 2])}, refused=True),
    Operation("embedding_bag, not from 0", _bags("sum"), [[(5,), (5, 3), (3,)]], fixed={
        0: lambda rng, shape: rng.integers(0, 4, shape), 2: lambda rng, shape: np.array([1, 2, 3])}, refused=True),
    Operation("embedding_bag, past the end", _bags("sum"), [[(5,), (5, 3), (3,)]], fixed={
        0: lambda rng, shape: rng.integers(0, 4, shape), 2: lambda rng, shape: np.array([0, 2, 6])}, refused=True),
    Operation("one_hot, below", lambda F, xp, x: F.one_hot(x, 6), [[(7,)]], fixed={0: _below}, gradients=False, refused=True),
    Operation("one_hot, above", lambda F, xp, x: F.one_hot(x, 6), [[(7,)]], fixed={0: _above(6)}, gradients=False, refused=True),
    Operation("cross_entropy, below", lambda F, xp, x, t: F.cross_entropy(x, t), [[(4, 5), (4,)]], BOTH, fixed={1: _below},
              refused=True),
    Operation("cross_entropy, above", lambda F, xp, x, t: F.cross_entropy(x, t), [[(4, 5), (4,)]], BOTH, fixed={1: _above(5)},
              refused=True),
    Operation("cross_entropy, lines, below", lambda F, xp, x, t: F.cross_entropy(x, t), [[(3, 5, 4), (3, 4)]], BOTH,
              fixed={1: _below}, refused=True),
    Operation("cross_entropy, lines, above", lambda F, xp, x, t: F.cross_entropy(x, t), [[(3, 5, 4), (3, 4)]], BOTH,
              fixed={1: _above(5)}, refused=True),
    Operation("nll_loss, below", lambda F, xp, x, t: F.nll_loss(x, t), [[(4, 5), (4,)]], fixed={1: _below}, refused=True),
    Operation("nll_loss, above", lambda F, xp, x, t: F.nll_loss(x, t), [[(4, 5), (4,)]], fixed={1: _above(5)}, refused=True),
    Operation("take, above", lambda F, xp, x, i: x[i], [[(5, 3), (9,)]], fixed={1: _above(5)}, refused=True),
    Operation("take, last axis", lambda F, xp, x, i: x[:, i], [[(5, 4), (9,)]], fixed={1: _above(4)}, refused=True),
    Operation("gather, above", lambda F, xp, x, i: xp.gather(x, 1, i), [[(3, 5), (3, 4)]], fixed={1: _above(5)}, refused=True),
    Operation("scatter, above", lambda F, xp, x, i, v: xp.scatter(x, 1, i, v), [[(3, 5), (3, 4), (3, 4)]], ("cpu",),
              fixed={1: _above(5)}, gradients=False, refused=True),
    Operation("scatter, below", lambda F, xp, x, i, v: xp.scatter(x, 1, i, v), [[(3, 5), (3, 4), (3, 4)]], ("cpu",),
              fixed={1: _below}, gradients=False, refused=True),
    Operation("scatter_add, above", lambda F, xp, x, i, v: xp.scatter_add(x, 1, i, v), [[(3, 5), (3, 4), (3, 4)]], ("cpu",),
              fixed={1: _above(5)}, gradients=False, refused=True),
)  # fmt: skip
