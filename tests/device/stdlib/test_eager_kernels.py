"""Fused kernels for small linear layers and losses on GPUs, tested on every device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.nn import functional as F
from vkjit.stdlib.registry import forcing_class

EPS = 2.0**-24


def values(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def leaf(array: Any, device: Any) -> Any:
    return vk.tensor(array, device=device).requires_grad_()


def close(found: Any, expected: Any, terms: int) -> None:
    """Check that values are within the error of sums of `terms` terms."""
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=4 * terms * EPS * max(np.abs(expected).max(), 1))


@pytest.mark.parametrize("shape", [(1, 1, 1), (33, 10, 70), (5, 3, 64, 31)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_linear_and_its_gradients(device: Any, shape: tuple[int, ...], biased: bool) -> None:
    *rows, outputs, inputs = shape
    x, w, b = values(*rows, inputs, seed=1), values(outputs, inputs, seed=2), values(outputs, seed=3)
    g = values(*rows, outputs, seed=4)
    tx, tw, tb = leaf(x, device), leaf(w, device), leaf(b, device)
    with forcing_class("gpu"):
        y = F.linear(tx, tw, tb if biased else None)
        y.backward(vk.tensor(g, device=device))
    terms = max(inputs, outputs, int(np.prod(rows)))
    close(y.detach(), x @ w.T + (b if biased else 0), terms)
    flat_g, flat_x = g.reshape(-1, outputs).astype(np.float64), x.reshape(-1, inputs)
    close(tx.grad, g @ w, terms)
    close(tw.grad, flat_g.T @ flat_x, terms)
    if biased:
        close(tb.grad, flat_g.sum(0), terms)
    else:
        assert tb.grad is None


def test_linear_of_views_and_of_frozen_weights(device: Any) -> None:
    x, w, b = values(40, 9, seed=1), values(40, 12, seed=2), values(12, seed=3)
    tx, tw, tb = vk.tensor(x, device=device), vk.tensor(w, device=device), leaf(b, device)
    with forcing_class("gpu"):
        y = F.linear(tx.t(), tw.t(), tb)
        y.sum().backward()
    close(y.detach(), x.T @ w + b, 40)
    close(tb.grad, np.full(12, 9.0), 9)
    assert tw.grad is None


def reference(x: Any, t: Any, weight: Any, ignored: int) -> tuple[float, Any]:
    """Return the mean cross entropy and its gradient, in f64."""
    shares = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    counts = t != ignored
    classes = np.where(counts, t, 0)
    scale = counts * (1.0 if weight is None else weight[classes].astype(np.float64))
    rows = np.arange(len(t))
    loss = -(scale * np.log(shares[rows, classes])).sum() / scale.sum()
    shares[rows, classes] -= 1
    return loss, shares * (scale / scale.sum())[:, None]


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (300, 10), (2, 700)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_mean_cross_entropy_and_its_gradient(device: Any, shape: tuple[int, int], weighted: bool) -> None:
    rows, classes = shape
    x, t = values(rows, classes, seed=1) * 5, np.random.default_rng(2).integers(0, classes, rows)
    t[1::5] = -1
    weight = np.abs(values(classes, seed=3)) + 0.5 if weighted else None
    scores = leaf(x, device)
    factors = None if weight is None else vk.tensor(weight, device=device)
    with forcing_class("gpu"):
        loss = F.cross_entropy(scores, vk.tensor(t, device=device), factors, ignore_index=-1)
        (twice,) = vk.autograd.grad(loss * 2, scores, create_graph=True)
        loss.backward()
    expected, slopes = reference(x, t, weight, -1)
    close(loss.detach(), expected, 32)
    close(scores.grad, slopes, 32)
    close(twice.detach(), 2 * slopes, 32)


def test_mean_cross_entropy_twice_differentiable_and_out_of_range(device: Any) -> None:
    x, t = values(6, 4, seed=1), np.array([0, 3, 2, 1, 0, 0])
    found = []
    for kind in ("gpu", "cpu"):
        scores = leaf(x, device)
        with forcing_class(kind):
            loss = F.cross_entropy(scores, vk.tensor(t, device=device))
            (slope,) = vk.autograd.grad(loss, scores, create_graph=True)
            (slope * slope).sum().backward()
        found.append(scores.grad.numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=16 * EPS)
    t[2] = 4
    with forcing_class("gpu"):
        for _ in range(3):  # the later calls take the fast path
            loss = F.cross_entropy(vk.tensor(x, device=device), vk.tensor(t, device=device))
            with pytest.raises(vk.KernelError, match="there are 4"):
                loss.item()
