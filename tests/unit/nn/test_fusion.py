"""Tests of folding batch norms into the layer before, against both layers, and of parameters as one vector and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit import nn
from vkjit.errors import ArgumentError, ShapeError
from vkjit.nn import utils


@pytest.fixture(autouse=True)
def on_interpreter() -> Iterator[None]:
    with vk.use_device("interpreter"):
        vk.manual_seed(3)
        yield


CASES: list[tuple[str, Callable[[], Any], Callable[[], Any], Callable[[Any, Any], Any], tuple[int, ...]]] = [
    ("conv", lambda: nn.Conv2d(4, 6, 3, groups=2), lambda: nn.BatchNorm2d(6), utils.fuse_conv_bn_eval, (2, 4, 5, 5)),
    (
        "no bias",
        lambda: nn.Conv1d(3, 5, 2, bias=False),
        lambda: nn.BatchNorm1d(5, 0.1),
        utils.fuse_conv_bn_eval,
        (2, 3, 6),
    ),
    (
        "transposed",
        lambda: nn.ConvTranspose2d(3, 4, 2),
        lambda: nn.BatchNorm2d(4, affine=False),
        lambda conv, bn: utils.fuse_conv_bn_eval(conv, bn, transpose=True),
        (2, 3, 4, 4),
    ),
    ("linear", lambda: nn.Linear(5, 4), lambda: nn.BatchNorm1d(4), utils.fuse_linear_bn_eval, (7, 5)),
]


@pytest.mark.parametrize(("name", "layer", "norm", "fuse", "shape"), CASES, ids=[case[0] for case in CASES])
def test_one_layer_does_what_two_do(name: str, layer: Any, norm: Any, fuse: Any, shape: tuple[int, ...]) -> None:
    both = nn.Sequential(layer(), norm())
    for _ in range(3):  # change the running statistics from their initial values
        both(vk.randn(*shape) * 2 + 1)
    if both[1].weight is not None:
        nn.init.uniform_(both[1].weight, 0.5, 2)
        nn.init.uniform_(both[1].bias)
    both.eval()
    before = both[0].weight.detach().numpy()
    fused = fuse(both[0], both[1])
    x = vk.randn(*shape)
    expected = both(x).detach().numpy()
    # rounding errors of sums of up to 18 terms and of their scaling
    np.testing.assert_allclose(
        fused(x).detach().numpy(), expected, rtol=0, atol=64 * 2.0**-24 * (1 + np.abs(expected).max())
    )
    assert (both[0].weight.detach().numpy() == before).all()
    assert isinstance(fused.weight, nn.Parameter) and fused.bias is not None


def test_what_can_not_be_fused_is_refused() -> None:
    with pytest.raises(ArgumentError, match="only layers in inference mode"):
        utils.fuse_linear_bn_eval(nn.Linear(2, 2), nn.BatchNorm1d(2).eval())
    with pytest.raises(ArgumentError, match="keeps no statistics"):
        utils.fuse_linear_bn_eval(nn.Linear(2, 2).eval(), nn.BatchNorm1d(2, track_running_stats=False).eval())
    with pytest.raises(ShapeError, match="the layer gives 3 channels, BatchNorm1d takes 2"):
        utils.fuse_linear_bn_eval(nn.Linear(2, 3).eval(), nn.BatchNorm1d(2).eval())
    with pytest.raises(ArgumentError, match="with groups can't be fused"):
        utils.fuse_conv_bn_eval(nn.ConvTranspose1d(4, 4, 2, groups=2).eval(), nn.BatchNorm1d(2).eval(), transpose=True)


def test_parameters_go_into_a_vector_and_back() -> None:
    model = nn.Linear(3, 2)
    vector = utils.parameters_to_vector(model.parameters())
    assert vector.shape == (8,) and vector[:6].tolist() == model.weight.reshape(-1).tolist()
    utils.vector_to_parameters(vk.arange(8, dtype=vk.f32), model.parameters())
    assert model.weight.tolist() == [[0, 1, 2], [3, 4, 5]] and model.state_dict()["bias"].tolist() == [6, 7]
    with pytest.raises(ShapeError, match=r"the parameters have 8 elements, the vector has shape \(7,\)"):
        utils.vector_to_parameters(vk.zeros(7), model.parameters())
    with pytest.raises(ArgumentError, match="needs at least one tensor"):
        utils.parameters_to_vector([])
