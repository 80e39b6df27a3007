"""Losses against PyTorch: reductions, weights, ignored rows, label smoothing, probabilities, gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import Outcome, check, functional, normal, run, torch
from tests.parity.reference import PAIRS, SHAPES, to_numpy
from tests.parity.tolerance import UNIT
from vkjit.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:.*target size.*", "ignore:reduction. 'mean' divides")


def inspect(outcome: Outcome, what: str, size: float, slope: float) -> None:
    """Check a loss (error of `size` units per element) and its gradient (`slope` units); sums add their rounding."""
    terms = max((t.numel() for t in outcome.theirs if t is not None), default=1)
    scale = float(np.max(np.abs(to_numpy(outcome.expected)), initial=0.0)) + size
    check(outcome, what, UNIT["f32"] * (terms + 32) * scale, UNIT["f32"] * (terms + 32) * slope * 4)


def probabilities(seed: int, *shape: int) -> Any:
    return (np.random.default_rng(seed).random(shape) * 0.9 + 0.05).astype(np.float32)


PAIRWISE: list[tuple[str, dict[str, Any], str]] = [
    ("mse_loss", {}, "normal"),
    ("l1_loss", {}, "normal"),
    ("smooth_l1_loss", {}, "normal"),
    ("smooth_l1_loss", {"beta": 0.3}, "normal"),
    ("smooth_l1_loss", {"beta": 0.0}, "normal"),
    ("huber_loss", {"delta": 0.7}, "normal"),
    ("binary_cross_entropy", {}, "probabilities"),
    ("binary_cross_entropy_with_logits", {}, "logits"),
    ("kl_div", {}, "probabilities"),
    ("kl_div", {"log_target": True}, "normal"),
]


@pytest.mark.parametrize(("name", "options", "kind"), PAIRWISE, ids=[f"{n} {o}" for n, o, _ in PAIRWISE])
def test_losses_of_pairs(device: Any, name: str, options: dict[str, Any], kind: str) -> None:
    for number, shape in enumerate(SHAPES):
        x = (
            probabilities(number, *shape)
            if kind == "probabilities"
            else normal(number, *shape) * (20 if kind == "logits" else 2)
        )
        t = normal(number + 50, *shape) if kind == "normal" else probabilities(number + 50, *shape)
        for reduction in ("none", "sum", "mean"):
            if reduction == "mean" and not x.size:
                continue
            outcome = run(
                lambda *a, r=reduction: getattr(F, name)(*a, reduction=r, **options),
                lambda *a, r=reduction: getattr(functional, name)(*a, reduction=r, **options),
                [x, t],
            )
            largest = float(np.max(np.abs(x), initial=0.0)) + float(np.max(np.abs(t), initial=0.0)) + 1
            inspect(outcome, f"{name} {shape} {reduction} {options}", largest * largest, 40 * largest * math.e**2)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div"])
def test_losses_broadcast(device: Any, name: str) -> None:
    for pair in PAIRS[::3]:
        x, t = normal(1, *pair[0]), probabilities(2, *pair[1])
        outcome = run(
            lambda *a: getattr(F, name)(*a, reduction="sum"),
            lambda *a: getattr(functional, name)(*a, reduction="sum"),
            [x, t],
        )
        inspect(outcome, f"{name} {pair}", 16.0 * max(1, x.size, t.size), 64.0 * max(1, x.size, t.size))


def test_weights_of_binary_cross_entropy(device: Any) -> None:
    x, t, w, p = normal(1, 4, 5) * 3, probabilities(2, 4, 5), probabilities(3, 4, 5), probabilities(4, 5) * 3
    for reduction in ("none", "sum", "mean"):
        outcome = run(
            lambda x, t, w, p, r=reduction: F.binary_cross_entropy_with_logits(x, t, w, r, p),
            lambda x, t, w, p, r=reduction: functional.binary_cross_entropy_with_logits(
                x, t, w, reduction=r, pos_weight=p
            ),
            [x, t, w, p],
            needs=[0],
        )
        inspect(outcome, reduction, 30.0, 4.0)


# scores, classes along axis 1
SCORES: list[tuple[int, ...]] = [
    (1, 1), (1, 2), (4, 5), (7, 17), (2, 3, 4), (2, 3, 4, 5), (3, 1, 2), (5, 257), (64, 3), (2, 1000), (0, 4), (2, 5, 0), (13, 13),
    (1, 4500), (31, 2, 1), (5,), (1,), (2, 3, 2, 2, 2), (300, 4), (2, 300, 2),
]  # fmt: skip


def targets_for(shape: tuple[int, ...], ignored: bool) -> Any:
    classes = shape[1 if len(shape) > 1 else 0]
    outer = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    made = np.random.default_rng(3).integers(0, classes, outer)
    if ignored and made.size > 1:
        made = np.where(np.random.default_rng(4).random(outer) < 0.4, -100, made)
        made.reshape(-1)[0] = 0
    return np.asarray(made)


def some(number: int, options: Iterable[Any], count: int) -> list[Any]:
    """Return `count` of the options, varying with `number`, so that the cases together cover all options."""
    every = list(options)
    return [every[(number * count + i) * 5 % len(every)] for i in range(count)] if len(every) % 5 else every


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("weighted", [False, True])
def test_class_indices(device: Any, name: str, weighted: bool) -> None:
    for number, shape in enumerate(SCORES):
        x = normal(number, *shape) * 3
        w = probabilities(1, shape[1 if len(shape) > 1 else 0]) if weighted else None
        for ignored, reduction in some(number, itertools.product((False, True), ("none", "sum", "mean")), 2):
            t = targets_for(shape, ignored)
            if reduction == "mean" and not t.size:
                continue
            outcome = run(
                lambda *a, r=reduction: getattr(F, name)(*a, reduction=r),
                lambda *a, r=reduction: getattr(functional, name)(*a, reduction=r),
                [x, t, w],
                needs=[0],
            )
            largest = float(np.max(np.abs(x), initial=0.0))
            inspect(outcome, f"{name} {shape} {reduction} {ignored}", 4 * largest + 8, 4 * largest + 8)


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_label_smoothing(device: Any, smoothing: float) -> None:
    for number, shape in enumerate(s for s in SCORES if 0 not in s and len(s) > 1):
        x, t = normal(number, *shape), targets_for(shape, True)
        pairs = itertools.product((None, probabilities(1, shape[1])), ("none", "sum", "mean"))
        for w, reduction in some(number, pairs, 2):
            outcome = run(
                lambda *a, r=reduction: F.cross_entropy(*a, reduction=r, label_smoothing=smoothing),  # type: ignore[misc]
                lambda *a, r=reduction: functional.cross_entropy(*a, reduction=r, label_smoothing=smoothing),
                [x, t, w],
                needs=[0],
            )
            inspect(outcome, f"smoothing {shape} {reduction}", 32.0, 16.0)


def test_probabilities_as_targets(device: Any) -> None:
    for number, shape in enumerate(s for s in SCORES if 0 not in s):
        x, t = normal(number, *shape), probabilities(2, *shape)
        w = probabilities(1, shape[1 if len(shape) > 1 else 0])
        for reduction, smoothing in some(number, itertools.product(("none", "sum", "mean"), (0.0, 0.2)), 2):
            outcome = run(
                lambda *a, r=reduction, s=smoothing: F.cross_entropy(*a, reduction=r, label_smoothing=s),  # type: ignore[misc]
                lambda *a, r=reduction, s=smoothing: functional.cross_entropy(*a, reduction=r, label_smoothing=s),
                [x, t, w],
                needs=[0, 1],
            )
            classes = shape[1 if len(shape) > 1 else 0]
            inspect(outcome, f"soft {shape} {reduction}", 32.0 * classes, 32.0 * classes)


def test_other_index_types_and_mixed_sizes(device: Any) -> None:
    x, t = normal(1, 6, 4), np.array([0, 3, 1, 2, 2, 0], np.int32)
    found = F.cross_entropy(vk.tensor(x), vk.tensor(t))
    expected = functional.cross_entropy(torch.tensor(x.astype(np.float64)), torch.tensor(t.astype(np.int64)))
    assert abs(float(found) - float(expected)) <= UNIT["f32"] * 64 * 4


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}], ids=str)
def test_second_gradients(device: Any, options: dict[str, Any]) -> None:
    t = np.array([0, -100, 3, 1])
    w = probabilities(1, 5)

    def penalty(library: Any, module: Any, x: Any) -> Any:
        loss = module.cross_entropy(
            x, library.tensor(t), library.tensor(w if library is vk else w.astype(np.float64)), **options
        )
        grad = torch.autograd.grad if library is torch else vk.grad
        (gradient,) = grad(loss, x, create_graph=True)
        return (gradient**2).sum()

    outcome = run(lambda x: penalty(vk, F, x), lambda x: penalty(torch, functional, x), [normal(1, 4, 5)])
    inspect(outcome, "second gradients", 1.0, 1.0)
