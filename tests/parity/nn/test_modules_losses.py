"""Loss modules compared with PyTorch's, with all their options: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402
from tests.parity.reference import EPS, assert_close, to_numpy  # noqa: E402  # after importorskip
from vkjit import nn  # noqa: E402

SHAPES = [(5, 4), (1, 3), (3, 4, 2), (2, 5, 3, 2)]
CLASS_LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("CrossEntropyLoss", {}),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}),
    ("CrossEntropyLoss", {"weighted": True, "ignore_index": 1}),
    ("NLLLoss", {}),
    ("NLLLoss", {"weighted": True, "ignore_index": 0}),
]
PAIR_LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("MSELoss", {}),
    ("L1Loss", {}),
    ("SmoothL1Loss", {}),
    ("SmoothL1Loss", {"beta": 0.3}),
    ("BCELoss", {}),
    ("BCEWithLogitsLoss", {}),
    ("BCEWithLogitsLoss", {"pos_weight": True}),
]


def check(ours: nn.Module, theirs: Any, x: Any, target: Any) -> None:
    """Compare values and gradients; the reference computes in f64."""
    double = target.astype(np.float64) if target.dtype == np.float32 else target
    mine, other = vk.tensor(x, requires_grad=True), torch.tensor(x.astype(np.float64), requires_grad=True)
    found, expected = ours(mine, vk.tensor(target)), theirs(other, torch.tensor(double))
    # each term has at most 16 roundings, including logarithms and exponentials; sums have at most
    # x.size terms
    size = np.abs(to_numpy(expected)).max() + 1
    allowed = EPS["f32"] * 4 * (16 + x.size) * size
    assert_close(found, expected, allowed, "loss")
    weights = np.random.default_rng(9).standard_normal(tuple(expected.shape)).astype(np.float32)
    found.backward(vk.tensor(weights))
    expected.backward(torch.tensor(weights.astype(np.float64)))
    assert mine.grad is not None
    gradient_size = np.abs(to_numpy(other.grad)).max() + 1
    assert_close(mine.grad, other.grad, EPS["f32"] * 4 * (16 + x.size) * gradient_size, "gradient")


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "options"), CLASS_LOSSES, ids=str)
def test_losses_over_classes_are_pytorchs(device: Any, name: str, options: dict[str, Any], reduction: str) -> None:
    for number, shape in enumerate(SHAPES):
        rng = np.random.default_rng(number)
        x = rng.standard_normal(shape).astype(np.float32)
        target = rng.integers(0, shape[1], (shape[0], *shape[2:]))
        target.flat[0] = 2  # at least one target isn't ignored
        weight = (rng.random(shape[1]) + 0.5).astype(np.float32)
        extra = {key: value for key, value in options.items() if key != "weighted"}

        def made(library: Any, weight: Any, extra: dict[str, Any] = extra) -> Any:
            chosen = {"weight": weight} if "weighted" in options else {}
            return getattr(library, name)(**extra, **chosen, reduction=reduction)

        check(made(nn, vk.tensor(weight)), made(torch.nn, torch.tensor(weight.astype(np.float64))), x, target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(("name", "options"), PAIR_LOSSES, ids=str)
def test_losses_of_pairs_are_pytorchs(device: Any, name: str, options: dict[str, Any], reduction: str) -> None:
    for number, shape in enumerate([*SHAPES, (7,), (1,)]):
        rng = np.random.default_rng(number)
        x = rng.standard_normal(shape).astype(np.float32)
        target = rng.standard_normal(shape).astype(np.float32)
        if name.startswith("BCE"):
            target = rng.random(shape).astype(np.float32)
        if name == "BCELoss":
            x = (0.05 + 0.9 * rng.random(shape)).astype(np.float32)
        weight = (rng.random(shape[-1]) + 0.5).astype(np.float32)
        extra = {k: v for k, v in options.items() if k != "pos_weight"}
        ours = getattr(nn, name)(reduction=reduction, **extra)
        theirs = getattr(torch.nn, name)(reduction=reduction, **extra)
        if "pos_weight" in options:
            ours = nn.BCEWithLogitsLoss(reduction=reduction, pos_weight=vk.tensor(weight))
            theirs = torch.nn.BCEWithLogitsLoss(reduction=reduction, pos_weight=torch.tensor(weight.astype(np.float64)))
        check(ours, theirs, x, target)
