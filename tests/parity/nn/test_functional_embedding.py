"""Embeddings, one-hot vectors and activations against PyTorch; dropout by its statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import check_linear, functional, normal, torch
from tests.parity.reference import SHAPES, Case, normal as draw, run, run_all
from vkjit.nn import functional as F

INDICES: list[tuple[tuple[int, ...], int, int]] = [
    ((1,), 1, 1), ((5,), 3, 4), ((2, 3), 7, 5), ((0,), 3, 4), ((4, 0), 3, 4), ((), 5, 3), ((31,), 2, 17), ((13,), 1, 1),
    ((2, 3, 4), 100, 3), ((257,), 11, 2), ((64,), 64, 1), ((3,), 1000, 33), ((1, 1), 2, 64), ((100,), 1, 5), ((17,), 17, 17),
    ((8_300,), 5, 2), ((600,), 500, 1), ((2, 7), 9, 31), ((41,), 40, 3), ((6, 5), 4, 2),
]  # fmt: skip


@pytest.mark.parametrize("padding", [None, 0, -1])
def test_embedding_and_gradient(device: Any, padding: int | None) -> None:
    for number, (shape, rows, width) in enumerate(INDICES):
        if padding == 0 and len(shape) == 1 and shape[0] > 1000:
            continue
        where = np.random.default_rng(number).integers(0, rows, shape)
        mine, other = vk.tensor(where), torch.tensor(where)
        check_linear(
            lambda w, i=mine: F.embedding(i, w, padding),
            lambda w, i=other: functional.embedding(i, w, padding),
            [normal(number, rows, width)],
            f"embedding {shape} {rows} {width} {padding}",
            terms=1,
            gradient_terms=[max(1, where.size)],
        )


def test_gradient_is_the_same_every_time(device: Any) -> None:
    where = vk.tensor(np.random.default_rng(1).integers(0, 7, 3000))
    gradients = []
    for _ in range(3):
        table = vk.tensor(normal(1, 7, 5), requires_grad=True)
        F.embedding(where, table).backward(vk.tensor(normal(2, 3000, 5)))
        assert table.grad is not None
        gradients.append(table.grad.numpy())
    assert np.array_equal(gradients[0], gradients[1])
    assert np.array_equal(gradients[0], gradients[2])


def test_one_hot(device: Any) -> None:
    for shape in SHAPES:
        where = np.random.default_rng(len(shape)).integers(0, 6, shape)
        found = F.one_hot(vk.tensor(where), 6)
        assert found.dtype is vk.i64
        assert np.array_equal(found.numpy(), functional.one_hot(torch.tensor(where), 6).numpy())
        if where.size:
            assert F.one_hot(vk.tensor(where)).shape == (*shape, int(where.max()) + 1)


@pytest.mark.parametrize("shape", [(10_000,), (100, 7, 13), (3,), (0, 4)], ids=str)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout(device: Any, shape: tuple[int, ...], p: float) -> None:
    vk.manual_seed(5)
    x = vk.tensor(np.abs(normal(1, *shape)) + 0.5, requires_grad=True)
    y = F.dropout(x, p)
    kept = y.detach().numpy() != 0
    # kept elements are divided by 1 - p: one rounding for the scale and one for the product
    expected = np.where(kept, x.detach().numpy() / np.float32(1 - p), 0)
    assert np.allclose(y.detach().numpy(), expected, rtol=2.0**-22, atol=0)
    if kept.size > 1000:  # within five standard deviations of the binomial distribution
        assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.size)
    y.sum().backward()
    assert x.grad is not None
    assert np.array_equal(x.grad.numpy() != 0, kept)
    vk.manual_seed(5)
    assert np.array_equal(F.dropout(x, p).detach().numpy(), y.detach().numpy())


def test_dropout_at_the_ends(device: Any) -> None:
    x = vk.tensor(normal(1, 50))
    assert F.dropout(x, 0.3, training=False) is x
    assert F.dropout(x, 0.0) is x
    assert not F.dropout(x, 1.0).numpy().any()
    channels = F.dropout2d(vk.tensor(np.ones((20, 10, 3, 4), np.float32)), 0.5).numpy()
    assert set(np.unique(channels)) == {0.0, 2.0}
    assert np.array_equal(channels.min((2, 3)), channels.max((2, 3)))


ACTIVATIONS: list[Case] = [
    Case("hardtanh", F.hardtanh, functional.hardtanh, draw, ulp=None),
    Case("hardtanh -2 0.5", lambda x: F.hardtanh(x, -2, 0.5), lambda x: functional.hardtanh(x, -2, 0.5), draw, ulp=2),
    Case("relu6", lambda x: F.relu6(x * 6), lambda x: functional.relu6(x * 6), draw, ulp=4),
    Case("hardsigmoid", F.hardsigmoid, functional.hardsigmoid, draw, ulp=4, scale=lambda x: 1 + abs(x)),
    Case("hardswish", F.hardswish, functional.hardswish, draw, ulp=8, scale=abs),
    Case("mish", F.mish, functional.mish, draw, ulp=32, scale=abs),
    Case("selu", F.selu, functional.selu, draw, ulp=32, scale=lambda x: 1 + 0 * x),
    Case("celu", lambda x: F.celu(x, 0.7), lambda x: functional.celu(x, 0.7), draw, ulp=16, scale=lambda x: 1 + 0 * x),
    Case("softsign", F.softsign, functional.softsign, draw, ulp=8),
    Case("tanhshrink", F.tanhshrink, functional.tanhshrink, draw, ulp=16, scale=abs),
    Case("hardshrink", F.hardshrink, functional.hardshrink, draw, ulp=None),
    Case("softshrink", F.softshrink, functional.softshrink, draw, ulp=4, scale=abs),
    Case("threshold", lambda x: F.threshold(x, 0.1, 7), lambda x: functional.threshold(x, 0.1, 7), draw, ulp=None),
    Case(
        "softmin",
        lambda x: F.softmin(x * 1, -1),
        lambda x: functional.softmin(x * 1, -1),
        draw,
        ulp=64,
        scale=lambda x: 1 + 0 * x,
    ),  # fmt: skip
]


@pytest.mark.parametrize("case", ACTIVATIONS, ids=[c.name for c in ACTIVATIONS])
def test_activations(device: Any, case: Case) -> None:
    run_all(case)


def test_glu(device: Any) -> None:
    for number, shape in enumerate([(2,), (4, 6), (3, 2, 5), (0, 4), (2, 34), (6, 1)]):
        dim = next(i for i, e in enumerate(shape) if e % 2 == 0 and e)
        pair = (lambda x, d=dim: F.glu(x, d), lambda x, d=dim: functional.glu(x, d))
        case = Case(f"glu {number}", *pair, draw, ulp=16, scale=lambda *_: 8)
        run(case, [shape])


def test_prelu(device: Any) -> None:
    case = Case("prelu", F.prelu, functional.prelu, draw, ulp=4, inputs=2, scale=lambda x, _: abs(x))
    pairs: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((4, 3), (3,)), ((4, 3, 5), (3,)), ((2, 1, 2, 2), (1,)), ((7,), (1,)), ((2, 17, 3), (17,)), ((2, 17, 3), (1,)),
    ]  # fmt: skip
    for shape, slopes in pairs:
        run(case, [shape, slopes])
