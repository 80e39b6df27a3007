"""Hinge losses match PyTorch in values and gradients at the kink and for NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.nn import functional as F

torch = pytest.importorskip("torch")

ONE = np.array([1.0, -1.0, 1.0, -1.0], np.float32)
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "margin_ranking_loss": ((np.array([1, 2, np.nan, 0.5], np.float32), np.array([1, 2, 1, 1], np.float32), ONE), {}),
    "hinge_embedding_loss": ((np.array([1, 1, 2, np.nan], np.float32), ONE), {"margin": 1.0}),
    "cosine_embedding_loss": ((np.eye(4, dtype=np.float32), np.ones((4, 4), np.float32), ONE), {"margin": 0.5}),
    "triplet_margin_loss": (
        (np.zeros((2, 2), np.float32), np.array([[2, 2], [np.nan, 0]], np.float32), np.ones((2, 2), np.float32)),
        {"margin": 1.0},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_hinges(name: str, device: Any) -> None:
    arrays, options = CASES[name]
    outcomes = []
    for make, functions in ((vk.tensor, F), (torch.tensor, torch.nn.functional)):
        arguments: list[Any] = [make(array) for array in arrays]
        arguments[0].requires_grad_()
        loss = getattr(functions, name)(*arguments, reduction="none", **options)
        loss.sum().backward()
        outcomes.append((loss.detach().numpy(), arguments[0].grad.numpy()))
    for found, expected in zip(*outcomes, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [-0.25, 1.5, float("nan")])
def test_what_is_no_probability_is_reported(value: float, device: Any) -> None:
    inside, target = [0.0, 1.0, 0.5], [0.0, 1.0, 1.0]
    expected = torch.nn.functional.binary_cross_entropy(torch.tensor(inside), torch.tensor(target))
    assert F.binary_cross_entropy(vk.tensor(inside), vk.tensor(target)).item() == pytest.approx(expected.item())
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(torch.tensor([value]), torch.tensor([1.0]))
    with pytest.raises(vk.KernelAssertionError, match="is no probability, expected 0 to 1"):
        F.binary_cross_entropy(vk.tensor([0.5, value]), vk.tensor([1.0, 1.0])).item()
