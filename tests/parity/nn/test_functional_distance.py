"""Distances, distance-based losses and resampling against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import check, check_linear, functional, normal, run, torch
from tests.parity.reference import to_numpy
from tests.parity.tolerance import UNIT
from vkjit.nn import functional as F

SHAPES: list[tuple[int, int]] = [(1, 1), (3, 5), (4, 1), (1, 7), (0, 3), (17, 13), (2, 257), (31, 2)]


def signs(seed: int, *shape: int) -> Any:
    return np.where(np.random.default_rng(seed).random(shape) < 0.5, -1, 1).astype(np.float32)


def positives(seed: int, *shape: int) -> Any:
    return (np.random.default_rng(seed).random(shape) * 3 + 0.2).astype(np.float32)


# name, options, function that makes inputs from (N, D), inputs with gradients
LOSSES: list[tuple[str, dict[str, Any], Callable[[int, int], list[Any]], list[int]]] = [
    ("cosine_embedding_loss", {}, lambda n, d: [normal(1, n, d), normal(2, n, d), signs(3, n)], [0, 1]),
    ("cosine_embedding_loss", {"margin": 0.2}, lambda n, d: [normal(1, n, d), normal(2, n, d), signs(3, n)], [0, 1]),
    ("triplet_margin_loss", {}, lambda n, d: [normal(i, n, d) for i in range(3)], [0, 1, 2]),
    ("triplet_margin_loss", {"swap": True, "margin": 0.3}, lambda n, d: [normal(i, n, d) for i in range(3)], [0, 1, 2]),
    ("hinge_embedding_loss", {"margin": 0.7}, lambda n, d: [normal(1, n, d), signs(2, n, d)], [0]),
    ("margin_ranking_loss", {"margin": 0.1}, lambda n, d: [normal(1, n, d), normal(2, n, d), signs(3, n, d)], [0, 1]),
    ("soft_margin_loss", {}, lambda n, d: [normal(1, n, d) * 5, signs(2, n, d)], [0]),
    ("multilabel_soft_margin_loss", {}, lambda n, d: [normal(1, n, d), (signs(2, n, d) + 1) / 2], [0]),
    (
        "gaussian_nll_loss",
        {"full": True},
        lambda n, d: [normal(1, n, d), normal(2, n, d), positives(3, n, d)],
        [0, 1, 2],
    ),
    (  # variances below eps: the gradient ignores that they are replaced
        "gaussian_nll_loss",
        {"eps": 1.0},
        lambda n, d: [normal(1, n, d), normal(2, n, d), positives(3, n, d)],
        [0, 1, 2],
    ),
    ("poisson_nll_loss", {}, lambda n, d: [normal(1, n, d), positives(2, n, d)], [0]),
    (
        "poisson_nll_loss",
        {"log_input": False, "full": True},
        lambda n, d: [positives(1, n, d), positives(2, n, d)],
        [0],
    ),
    ("multi_margin_loss", {}, lambda n, d: [normal(1, n, d), np.arange(n) % d], [0]),
    ("multi_margin_loss", {"p": 2, "margin": 0.5}, lambda n, d: [normal(1, n, d), np.arange(n) % d], [0]),
]


@pytest.mark.parametrize(("name", "options", "make", "needs"), LOSSES, ids=[f"{n} {o}" for n, o, _, _ in LOSSES])
def test_losses(
    device: Any, name: str, options: dict[str, Any], make: Callable[[int, int], list[Any]], needs: list[int]
) -> None:
    for number, (n, d) in enumerate(SHAPES):
        reduction = ("none", "sum", "mean")[number % 3]
        if n == 0:
            reduction = "sum"
        arrays = make(n, d)
        if n == 0 and name == "multi_margin_loss":  # PyTorch's sum of no rows is uninitialized memory
            assert getattr(F, name)(*[vk.tensor(a) for a in arrays], reduction="sum", **options).item() == 0.0
            continue
        outcome = run(
            lambda *a, r=reduction: getattr(F, name)(*a, reduction=r, **options),
            lambda *a, r=reduction: getattr(functional, name)(*a, reduction=r, **options),
            arrays,
            needs,
        )
        # a row's loss sums d terms of up to `size`; the reduction sums n of them
        size = 4 + float(max((np.max(np.abs(a), initial=0.0) for a in arrays if a.dtype.kind == "f"), default=0.0))
        total = float(np.max(np.abs(to_numpy(outcome.expected)), initial=0.0))
        bound = UNIT["f32"] * (n + 2 * d + 32) * (total + size * size)
        slopes = [float(np.max(np.abs(to_numpy(t.grad)), initial=0.0)) for t in outcome.theirs if t.grad is not None]
        check(
            outcome,
            f"{name} {n} {d} {reduction}",
            bound,
            bound * 4 + UNIT["f32"] * 64 * max(slopes, default=0.0) * size,
        )


@pytest.mark.parametrize("name", ["cosine_similarity", "pairwise_distance"])
def test_pairs(device: Any, name: str) -> None:
    for n, d in SHAPES:
        outcome = run(getattr(F, name), getattr(functional, name), [normal(1, n, d), normal(2, n, d)])
        slope = max((float(np.max(np.abs(to_numpy(t.grad)), initial=0.0)) for t in outcome.theirs), default=0.0)
        size = float(np.max(np.abs(to_numpy(outcome.expected)), initial=0.0)) + 1
        check(
            outcome, f"{name} {n} {d}", UNIT["f32"] * (2 * d + 16) * size, UNIT["f32"] * (2 * d + 32) * 4 * (slope + 4)
        )


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_normalize(device: Any, p: float) -> None:
    for shape in [(1, 1), (3, 5), (2, 7, 4), (4, 257), (0, 3)]:
        outcome = run(lambda x: F.normalize(x, p), lambda x: functional.normalize(x, p), [normal(1, *shape)])
        slope = float(np.max(np.abs(to_numpy(outcome.theirs[0].grad)), initial=0.0))
        check(
            outcome,
            f"normalize {shape}",
            UNIT["f32"] * (2 * shape[1] + 32),
            UNIT["f32"] * (4 * shape[1] + 64) * (slope + 4),
        )


SIZES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1, 1), {"size": (3, 2)}), ((2, 3, 5, 7), {"size": (9, 4)}), ((2, 3, 5, 7), {"scale_factor": 2}),
    ((2, 3, 5, 7), {"scale_factor": (1.7, 0.6)}), ((1, 2, 8, 8), {"size": (4, 4)}), ((0, 3, 4, 4), {"size": 6}),
    ((1, 17, 3, 2), {"size": (1, 1)}), ((1, 1, 13, 11), {"scale_factor": 1.5}),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bilinear corners"])
def test_interpolate(device: Any, mode: str) -> None:
    options: dict[str, Any] = {"mode": mode.split()[0]}
    if mode.startswith("bilinear"):
        options["align_corners"] = mode.endswith("corners")
    for shape, size in SIZES:
        check_linear(
            lambda x, s=size: F.interpolate(x, **s, **options),
            lambda x, s=size: functional.interpolate(x, **s, **options),
            [normal(1, *shape)],
            f"interpolate {shape} {size} {mode}",
            # weights come from coordinates of up to 20, rounded to f32
            terms=32,
            gradient_terms=[64],
        )


def test_interpolate_over_one_and_three_axes(device: Any) -> None:
    for shape, mode in [
        ((2, 3, 7), "nearest"),
        ((2, 3, 7), "linear"),
        ((1, 2, 3, 4, 5), "nearest"),
        ((1, 2, 3, 4, 5), "trilinear"),
    ]:
        check_linear(
            lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m),
            lambda x, m=mode: functional.interpolate(x, scale_factor=2, mode=m),
            [normal(1, *shape)], f"{shape} {mode}", terms=32, gradient_terms=[64],
        )  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_interpolate_halfway_between_elements(device: Any, mode: str) -> None:
    """The element depends on the rounding of the ratio of sizes, which is f32."""
    for size, out in [(26, 11), (7, 22), (3, 41), (14, 19), (26, 33), (25, 47), (29, 58), (44, 12), (58, 54), (52, 22)]:
        for axes in (1, 2) if size < 30 else (1,):
            values = np.arange(size**axes, dtype=np.float32).reshape(1, 1, *(size,) * axes)
            ours = F.interpolate(vk.tensor(values), size=(out,) * axes, mode=mode).numpy()
            theirs = functional.interpolate(torch.from_numpy(values), size=(out,) * axes, mode=mode).numpy()
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{size} to {out}, {axes} axes")


def test_shuffles(device: Any) -> None:
    for shape, r in [((1, 4, 1, 1), 2), ((2, 18, 3, 5), 3), ((8, 2, 3), 2), ((2, 3, 5), 1)]:
        outcome = run(
            lambda x, r=r: F.pixel_shuffle(x, r), lambda x, r=r: functional.pixel_shuffle(x, r), [normal(1, *shape)]
        )
        check(outcome, f"pixel_shuffle {shape}", 0.0, 0.0)
        wide = outcome.expected.shape
        outcome = run(
            lambda x, r=r: F.pixel_unshuffle(x, r), lambda x, r=r: functional.pixel_unshuffle(x, r), [normal(1, *wide)]
        )
        check(outcome, f"pixel_unshuffle {wide}", 0.0, 0.0)
    outcome = run(
        lambda x: F.channel_shuffle(x, 3), lambda x: functional.channel_shuffle(x, 3), [normal(1, 2, 6, 4, 5)]
    )
    check(outcome, "channel_shuffle", 0.0, 0.0)


WINDOWS: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 1, 1), {"kernel_size": 1}), ((2, 3, 7, 8), {"kernel_size": 3, "padding": 1}),
    ((2, 2, 7, 8), {"kernel_size": (2, 3), "stride": (2, 1), "dilation": (1, 2)}), ((3, 6, 5), {"kernel_size": 2, "stride": 3}),
    ((0, 2, 4, 4), {"kernel_size": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "options"), WINDOWS, ids=[str(w) for w in WINDOWS])
def test_unfold_and_fold(device: Any, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    check_linear(
        lambda x: F.unfold(x, **options),
        lambda x: functional.unfold(x, **options),
        [normal(1, *shape)],
        "unfold",
        9,
        [9],
    )
    if 0 in shape:
        return
    outcome = run(lambda x: F.unfold(x, **options), lambda x: functional.unfold(x, **options), [normal(1, *shape)])
    check_linear(
        lambda x: F.fold(x, shape[-2:], **options),
        lambda x: functional.fold(x, shape[-2:], **options),
        [normal(2, *outcome.expected.shape)],
        "fold",
        9,
        [9],
    )
