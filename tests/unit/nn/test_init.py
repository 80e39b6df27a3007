"""Tests of initializers: bounds and moments of the values drawn, defaults of layers as in PyTorch, seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn
from vkjit.errors import ArgumentError, DTypeError, ShapeError

SHAPE = (64, 32, 3, 3)
FAN_IN, FAN_OUT, COUNT = 32 * 9, 64 * 9, 64 * 32 * 9


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    vk.manual_seed(7)
    with vk.use_device("interpreter"):
        yield


def drawn(function: Any, *args: Any, shape: Any = SHAPE, **options: Any) -> Any:
    tensor = vk.empty(*shape)
    assert function(tensor, *args, **options) is tensor
    return tensor.numpy()


UNIFORM = [
    (nn.init.uniform_, (-0.5, 0.5), {}, 0.5),
    (nn.init.xavier_uniform_, (), {}, math.sqrt(6 / (FAN_IN + FAN_OUT))),
    (nn.init.xavier_uniform_, (), {"gain": 2.0}, 2 * math.sqrt(6 / (FAN_IN + FAN_OUT))),
    (nn.init.kaiming_uniform_, (), {"nonlinearity": "relu"}, math.sqrt(6 / FAN_IN)),
    (nn.init.kaiming_uniform_, (), {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(6 / FAN_OUT)),
    (nn.init.kaiming_uniform_, (), {"a": math.sqrt(5)}, 1 / math.sqrt(FAN_IN)),
]
NORMAL = [
    (nn.init.normal_, (0.0, 0.3), {}, 0.3),
    (nn.init.xavier_normal_, (), {}, math.sqrt(2 / (FAN_IN + FAN_OUT))),
    (nn.init.kaiming_normal_, (), {"nonlinearity": "relu"}, math.sqrt(2 / FAN_IN)),
]


@pytest.mark.parametrize(("function", "args", "options", "bound"), UNIFORM)
def test_uniform_numbers_fill_their_interval(function: Any, args: Any, options: Any, bound: float) -> None:
    values = drawn(function, *args, **options)
    assert np.abs(values).max() <= bound * (1 + 1e-6)
    # the largest of n uniform numbers is further than 20/n from the bound with a probability of e^-20
    assert np.abs(values).max() >= bound * (1 - 20 / COUNT)
    assert abs(values.mean()) <= 6 * bound / math.sqrt(3 * COUNT)


@pytest.mark.parametrize(("function", "args", "options", "deviation"), NORMAL)
def test_normal_numbers_have_their_deviation(function: Any, args: Any, options: Any, deviation: float) -> None:
    values = drawn(function, *args, **options).astype(np.float64)
    assert abs(values.mean()) <= 6 * deviation / math.sqrt(COUNT)
    assert abs(values.std() / deviation - 1) <= 6 / math.sqrt(2 * COUNT)


def test_truncated_numbers_stay_within_their_bounds() -> None:
    values = drawn(nn.init.trunc_normal_, 0.0, 1.0, -1.0, 0.5)
    assert values.min() >= -1 and values.max() <= 0.5
    assert values.min() < -0.99 and values.max() > 0.49
    with pytest.raises(ArgumentError, match="widen it"):
        drawn(nn.init.trunc_normal_, 0.0, 1.0, 8.0, 9.0)
    with pytest.raises(ArgumentError, match="a < b"):
        drawn(nn.init.trunc_normal_, 0.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (5, 5), (3, 2, 2, 2)])
def test_orthogonal_rows_or_columns(shape: tuple[int, ...]) -> None:
    values = drawn(nn.init.orthogonal_, 2.0, shape=shape).reshape(shape[0], -1).astype(np.float64)
    product = values @ values.T if len(values) <= values.shape[1] else values.T @ values
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-5)


def test_constants() -> None:
    assert (drawn(nn.init.constant_, 2.5, shape=(3,)) == 2.5).all()
    assert (drawn(nn.init.ones_, shape=(3,)) == 1).all()
    assert (drawn(nn.init.zeros_, shape=(3,)) == 0).all()
    np.testing.assert_array_equal(drawn(nn.init.eye_, shape=(2, 3)), np.eye(2, 3))


def test_what_cannot_be_initialised_is_refused() -> None:
    with pytest.raises(DTypeError, match="uniform_ fills float tensors"):
        nn.init.uniform_(vk.zeros(2, dtype=vk.i32))
    with pytest.raises(ShapeError, match="at least 2 axes"):
        nn.init.xavier_uniform_(vk.zeros(2))
    with pytest.raises(ShapeError, match="a matrix"):
        nn.init.eye_(vk.zeros(2, 2, 2))
    with pytest.raises(ArgumentError, match="no gain for 'swish'"):
        nn.init.calculate_gain("swish")
    with pytest.raises(ArgumentError, match="fan_in"):
        nn.init.kaiming_normal_(vk.zeros(2, 2), mode="fan")
    with pytest.raises(ArgumentError, match="at least 0"):
        nn.init.normal_(vk.zeros(2), std=-1)


@pytest.mark.parametrize("name", ["xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 3, 0)])
def test_empty_weights_are_left_with_a_warning(name: str, shape: tuple[int, ...]) -> None:
    with pytest.warns(UserWarning, match="zero-element tensors is a no-op"):
        drawn(getattr(nn.init, name), shape=shape)


def test_dirac_leaves_empty_kernels() -> None:
    drawn(nn.init.dirac_, shape=(4, 3, 0))


@pytest.mark.parametrize(
    ("make", "fan_in"),
    [
        (lambda: nn.Linear(300, 40), 300),
        (lambda: nn.Conv2d(20, 30, 3), 180),
        (lambda: nn.Conv2d(20, 30, 3, groups=2), 90),
        (lambda: nn.Conv1d(20, 30, 5), 100),
    ],
)
def test_layers_start_within_pytorchs_bounds(make: Any, fan_in: int) -> None:
    layer = make()
    bound = 1 / math.sqrt(fan_in)
    for parameter in (layer.weight, layer.bias):
        largest = np.abs(parameter.detach().numpy()).max()
        assert bound * (1 - 20 / parameter.numel()) <= largest <= bound * (1 + 1e-6)


def test_an_embedding_starts_normal_and_attention_by_xavier() -> None:
    table = nn.Embedding(200, 50).weight.detach().numpy()
    assert abs(table.std() - 1) < 0.05
    attention = nn.MultiheadAttention(16, 2)
    assert attention.in_proj_weight is not None
    assert np.abs(attention.in_proj_weight.detach().numpy()).max() <= math.sqrt(6 / (16 + 48)) * (1 + 1e-6)
    assert attention.in_proj_bias is not None and not attention.in_proj_bias.detach().numpy().any()


def test_one_seed_gives_the_same_layers() -> None:
    layers = []
    for _ in range(2):
        vk.manual_seed(3)
        layers.append([p.detach().numpy() for p in (*nn.Linear(3, 4).parameters(), *nn.Conv2d(1, 2, 3).parameters())])
    for first, second in zip(*layers, strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(nn.Linear(3, 4).weight.detach().numpy(), layers[0][0])


@pytest.mark.parametrize("name", [n for n in vars(nn.init) if n.endswith("_") and not n.startswith("_")])
@pytest.mark.parametrize(
    "value", [None, "x", [1.0], 5, np.ones((2, 3), np.float32), {}, object()], ids=lambda v: type(v).__name__
)
def test_only_tensors_are_filled(name: str, value: Any) -> None:
    arguments = {"constant_": (1.0,), "sparse_": (0.5,)}.get(name, ())
    with pytest.raises(ArgumentError, match=f"{name}: tensor is a Tensor, found a {type(value).__name__}"):
        getattr(nn.init, name)(value, *arguments)


@pytest.mark.parametrize("value", ["x", [1.0], None, {}, object(), 10**400], ids=lambda v: type(v).__name__)
def test_options_of_wrong_types_are_refused(value: Any) -> None:
    weight = vk.zeros(2, 3, device="interpreter")
    calls: list[tuple[Any, str]] = [
        (nn.init.uniform_, "b"), (nn.init.normal_, "std"), (nn.init.trunc_normal_, "mean"), (nn.init.constant_, "val"),
        (nn.init.xavier_uniform_, "gain"), (nn.init.kaiming_normal_, "a"), (nn.init.orthogonal_, "gain"),
        (nn.init.sparse_, "sparsity"),
    ]  # fmt: skip
    for function, name in calls:
        with pytest.raises(ArgumentError, match=f"{name} is a float, found a"):
            function(weight, **{name: value})
    if value is not None and value != "x":
        with pytest.raises(ArgumentError, match="nonlinearity is a str"):
            nn.init.calculate_gain(value)
