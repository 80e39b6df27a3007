"""Random programs with views and in-place updates, against PyTorch: values, gradients, rejected programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip

Step = Callable[[Any, Any, Any], Any]
"""A function of the library and two tensors that updates the first one or returns a new tensor."""


def _like(x: Any, y: Any) -> Any:
    """Return y, or its mean if the shapes differ."""
    return y if tuple(x.shape) == tuple(y.shape) else y.mean()


def _set_first(_library: Any, x: Any, y: Any) -> None:
    x[0] = y.sum() * 0.25


def _unrecorded(library: Any, x: Any, _y: Any) -> None:
    with library.no_grad():
        x.mul_(0.5)


VIEWS: list[Step] = [
    lambda _, x, y: x[1:] if x.shape[0] > 1 else x[...],
    lambda _, x, y: x.transpose(0, -1),
    lambda _, x, y: x[..., ::2],
    lambda _, x, y: x.reshape(-1),
    lambda _, x, y: x[0] if x.ndim > 1 else x.reshape(1, -1),
    lambda _, x, y: x.unsqueeze(0)[0],
    lambda _, x, y: x.detach(),
]
WRITES: list[Step] = [
    lambda _, x, y: x.mul_(2.0),
    lambda _, x, y: x.add_(1.0),
    lambda _, x, y: x.neg_(),
    lambda _, x, y: x.mul_(x),
    lambda _, x, y: x.mul_(_like(x, y)),
    lambda _, x, y: x.sub_(_like(x, y), alpha=2),
    lambda _, x, y: x.copy_(_like(x, y)),
    lambda _, x, y: x.fill_(0.5),
    lambda _, x, y: x.mul_(x.detach()),
    _set_first,
    _unrecorded,
]
NEW: list[Step] = [
    lambda _, x, y: x * x,
    lambda _, x, y: x.relu(),
    lambda _, x, y: x * _like(x, y),
    lambda _, x, y: x.detach() * 1.0,
]


def outcome(library: Any, make: Callable[[Any], Any], seed: int) -> Any:
    """Return the gradients of two leaves and all values of a program; None if the library rejects it."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    leaves = [make(numbers.integers(-3, 4, (4, 6)).astype(np.float32)) for _ in range(2)]
    for leaf in leaves:
        leaf.requires_grad_(True)
    values = [leaves[0] * 1.0, leaves[1] * 2.0]
    try:
        for _ in range(draw.randint(4, 12)):
            step = draw.choice(draw.choice([VIEWS, WRITES, WRITES, NEW]))
            made = step(library, draw.choice(values), draw.choice(values))
            if step not in WRITES:
                values.append(made)
        sum((v * v).sum() for v in values).backward()
    except (RuntimeError, vk.VkjitError):
        return None
    return [None if x.grad is None else x.grad.numpy() for x in leaves], [v.detach().numpy() for v in values]


def check(seed: int) -> bool:
    """Compare a program in both libraries; False if either rejects it."""
    expected = outcome(torch, lambda v: torch.from_numpy(v.copy()), seed)
    found = outcome(vk, lambda v: vk.from_numpy(v.copy()), seed)
    if expected is None or found is None:
        return False
    for ours, theirs in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
        assert (ours is None) == (theirs is None), seed
        if theirs is not None:
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(theirs).max()), err_msg=str(seed)
            )
    return True


@pytest.mark.parametrize("part", range(4))
def test_programs_agree(part: int) -> None:
    before = vk.set_default_device("interpreter")
    try:
        compared = sum(check(1000 * part + n) for n in range(80))
    finally:
        vk.set_default_device(before)
    assert compared >= 10  # otherwise the test checks too little


def _trained(x: Any, y: Any, detached: Any) -> Any:
    ((y - detached) ** 2 + y * 3).sum().backward()
    return x.grad


DETACHED: dict[str, Callable[[Any, Any], Any]] = {
    "used after": lambda x, y: (y.detach(), y.add_(1))[0] * 2,
    "view": lambda x, y: (y.detach()[1:], y.add_(1))[0] * 2,
    "detached view": lambda x, y: (y[1:].detach(), y.add_(1))[0] * 2,
    "reshaped after": lambda x, y: (y.detach(), y.add_(1))[0].reshape(2, 2) * 2,
    "view written": lambda x, y: (y.detach(), y[1:].add_(1))[0] * 2,
    "transposed": lambda x, y: (y.reshape(2, 2).t().detach(), y.mul_(3))[0] * 2,
    "data": lambda x, y: (y.data, y.mul_(3))[0] - 1,
    "element": lambda x, y: (y.detach(), y.add_(1))[0].sum(),
    "in a loss": lambda x, y: _trained(x, y, (y.detach(), y.add_(1))[0]),
    "both written": lambda x, y: (d := y.detach(), y.add_(1), d.mul_(2), y * 1)[-1],
    "both written, gradient": lambda x, y: (d := y.detach(), y.add_(1), d.mul_(2), _trained(x, y, 0.0))[-1],
    "recorded write": lambda x, y: (d := y.detach(), d.mul_(x), _trained(x, y, 0.0))[-1],
    "recorded write, view": lambda x, y: (v := y[1:], d := y.detach(), d.mul_(x), v.sum().backward(), x.grad)[-1],
    "leaf of its own": lambda x, y: (
        d := y.detach().requires_grad_(), y.add_(1), (d * d).sum().backward(), d.grad
    )[-1],
}  # fmt: skip


@pytest.mark.parametrize("name", DETACHED)
def test_writes_beside_detached_tensors(device: Any, name: str) -> None:
    results = []
    for library in (torch, vk):
        x = library.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        results.append(DETACHED[name](x, x * 2).detach().numpy())
    np.testing.assert_array_equal(*results)
