"""Tests of models on the "meta" device and their later allocation, summaries, random layers, and CTC loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn, optim
from vkjit.errors import ArgumentError


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        yield


def make(device: Any = None) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 8, device=device), nn.ReLU(), nn.BatchNorm1d(8, device=device), nn.LSTMCell(8, 4, device=device)
    )


# -- meta models


def test_a_blueprint_has_shapes_and_no_values() -> None:
    model = make("meta")
    assert {name: p.shape for name, p in model.named_parameters()} == {n: p.shape for n, p in make().named_parameters()}
    assert model[0].weight.device.name == "meta"
    with pytest.raises(ArgumentError, match=r'"meta" has no values and can\'t be read'):
        model[0].weight.detach().numpy()


def test_a_blueprint_of_a_terabyte_takes_no_memory() -> None:
    layer = nn.Linear(1 << 19, 1 << 19, device="meta")
    assert nn.summary(layer).nbytes == ((1 << 38) + (1 << 19)) * 4


def test_computing_with_a_blueprint_is_an_error() -> None:
    layer = nn.Linear(3, 2, device="meta")
    with pytest.raises(ArgumentError, match="meta"):
        layer(vk.zeros(1, 3, device="meta"))


def test_a_blueprint_is_materialised_with_fresh_values_in_the_same_objects() -> None:
    model = make("meta")
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    weight = model[0].weight
    assert model.materialize() is model
    assert weight is model[0].weight is optimizer.param_groups[0]["params"][0]
    assert weight.device is vk.default_device()
    values = weight.detach().numpy()
    assert 0 < np.abs(values).max() <= 1 / np.sqrt(6)
    assert model[2].running_var.tolist() == [1.0] * 8


def test_a_blueprint_is_materialised_from_a_state() -> None:
    source = make()
    model = make("meta").materialize(state=source.state_dict())
    for (name, p), (_, q) in zip(model.named_parameters(), source.named_parameters(), strict=True):
        assert p.tolist() == q.tolist(), name


def test_a_table_with_padding_is_a_blueprint_too() -> None:
    layer = nn.Embedding(4, 3, padding_idx=1, device="meta").materialize()
    assert layer.weight[1].tolist() == [0.0, 0.0, 0.0]


def test_what_would_stay_without_values_is_an_error() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            self.scale = nn.Parameter(vk.ones(2, device="meta"))

    with pytest.raises(ArgumentError, match=r"the first scale: its module has no reset_parameters\(\)"):
        Scaled().materialize()
    with pytest.raises(ArgumentError, match="the first scale: the state lacks it"):
        Scaled().materialize(state={})
    assert Scaled().materialize(state={"scale": np.array([2.0, 3.0])}).scale.tolist() == [2, 3]


# -- summaries


def test_a_summary_counts_and_shows_shapes() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    found = nn.summary(model, vk.ones(5, 4), values=True)
    assert (found.parameters, found.trainable, found.nbytes) == (23, 8, 92)
    assert [row.shape for row in found.rows] == [(5, 2), (5, 3), (5, 3), (5, 2)]
    assert found.result_nbytes == (15 + 15 + 10) * 4
    assert found.rows[2].values is not None and found.rows[2].values.minimum >= 0
    text = str(found)
    assert "  Linear (0)" in text and "23 parameters, 8 of them trainable, 92 bytes" in text
    assert model.training and model[0]._hooks.after == {}


def test_shared_parameters_count_once() -> None:
    a, b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    b.weight = a.weight
    assert nn.summary(nn.Sequential(a, b)).parameters == 4


# -- random layers


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    vk.manual_seed(3)
    x = vk.randn(200, 200)
    found = nn.AlphaDropout(0.3)(x).numpy()
    # 40,000 samples of variance 1 and kurtosis below 6: five standard errors
    assert abs(found.mean()) < 5 / 200
    assert abs(found.var() - 1) < 5 * np.sqrt(5) / 200
    assert nn.AlphaDropout(0.3).eval()(x) is x
    channels = nn.FeatureAlphaDropout(0.5)(vk.ones(8, 9, 7)).numpy()
    assert (channels == channels[:, :, :1]).all() and len(np.unique(channels)) == 2


def test_rrelu_draws_slopes_in_training() -> None:
    vk.manual_seed(1)
    x = vk.full((1000,), -1.0)
    slopes = -nn.RReLU(0.2, 0.4)(x).numpy()
    assert 0.2 <= slopes.min() < 0.21 and 0.39 < slopes.max() < 0.4
    np.testing.assert_allclose(nn.RReLU(0.2, 0.4).eval()(x).numpy(), -0.3, rtol=1e-6)


def test_sparse_and_dirac_initialisation() -> None:
    matrix = nn.init.sparse_(vk.empty(10, 4), 0.3).numpy()
    assert ((matrix == 0).sum(0) == 3).all()
    x = vk.randn(1, 3, 5, 5)
    weight = nn.init.dirac_(vk.empty(3, 3, 3, 3))
    assert nn.functional.conv2d(x, weight, padding=1).tolist() == x.tolist()


def test_pooled_maxima_go_back_to_their_places() -> None:
    x = vk.randn(2, 3, 6, 4, requires_grad=True)
    y, at = nn.MaxPool2d(2, return_indices=True)(x)
    back = nn.MaxUnpool2d(2)(y, at)
    assert back.shape == x.shape
    assert nn.functional.max_pool2d(back.relu() + back.abs(), 2).shape == y.shape
    assert (back != 0).sum().item() == y.numel()
    back.sum().backward()
    assert x.grad is not None and x.grad.sum().item() == y.numel()


# -- CTC


def paths_probability(p: Any, labels: list[int], blank: int) -> float:
    """Sum the probabilities of all paths that collapse to the labels."""
    steps, classes = p.shape
    total = 0.0
    for path in itertools.product(range(classes), repeat=steps):
        merged = [c for c, _ in itertools.groupby(path)]
        if [c for c in merged if c != blank] == labels:
            total += float(np.prod([p[t, c] for t, c in enumerate(path)]))
    return total


@pytest.mark.parametrize("labels", [[], [1], [1, 2], [1, 1], [2, 1, 2]])
def test_ctc_is_the_sum_over_all_paths(labels: list[int]) -> None:
    logits = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(1, keepdims=True)
    x = vk.tensor(np.log(p).astype(np.float32), requires_grad=True)
    loss = nn.functional.ctc_loss(x, np.array(labels, np.int64), [5], [len(labels)], reduction="none")
    expected = -np.log(paths_probability(p, labels, 0))
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    loss.backward()
    assert x.grad is not None
    for place in ((0, 0), (2, 1), (4, 2)):  # gradient with respect to log p by finite differences
        moved = np.log(p)
        changes = []
        for sign in (1, -1):
            moved[place] += sign * 1e-4
            changes.append(-np.log(paths_probability(np.exp(moved), labels, 0)))
            moved[place] -= sign * 1e-4
        assert x.grad.numpy()[place] == pytest.approx((changes[0] - changes[1]) / 2e-4, abs=1e-4)


def test_a_target_that_does_not_fit_has_an_infinite_loss_or_none() -> None:
    x = vk.zeros(2, 1, 3).log_softmax(-1)
    long = np.array([[1, 2, 1]])
    assert nn.CTCLoss(reduction="none")(x, long, [2], [3]).tolist() == [float("inf")]
    assert nn.CTCLoss(reduction="none", zero_infinity=True)(x, long, [2], [3]).tolist() == [0.0]
    with pytest.raises(ArgumentError, match="a label of sequence 0 lies outside 0 to 2"):
        nn.functional.ctc_loss(x, np.array([[3]]), [2], [1])
