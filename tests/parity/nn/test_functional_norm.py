"""Normalization against PyTorch: shapes, weights, running statistics, gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import Outcome, check, functional, normal, run, torch
from tests.parity.reference import assert_close, to_numpy
from tests.parity.tolerance import UNIT, norm_bound, norm_gradient_bound
from vkjit.nn import functional as F

EPS = 1e-5


def inspect(outcome: Outcome, what: str, x: Any, axes: tuple[int, ...], length: int, *, center: bool = True) -> None:
    """Check results with bounds from the statistics of x over `axes`."""
    values = x.astype(np.float64)
    middle = values.mean(axes, keepdims=True) if center and values.size else 0.0
    variance = ((values - middle) ** 2).mean(axes) if values.size else np.zeros(1)
    scale = 1 / np.sqrt(variance + EPS)
    weights = [float(np.max(np.abs(to_numpy(t)), initial=0.0)) for t in outcome.theirs[1:] if t is not None]
    weight, bias = (weights + [1.0, 0.0])[:2] if weights else (1.0, 0.0)
    y = to_numpy(outcome.expected)
    slope = norm_gradient_bound(values, outcome.weights, scale, length, weight)
    sums = max(1, outcome.expected.numel() // length if length else 1)
    rows = outcome.expected.numel()
    parameters = (
        UNIT["f32"]
        * (rows + length + 16)
        * float(np.max(np.abs(outcome.weights), initial=0.0))
        * (rows * (1 + float(np.max(np.abs(values), initial=0.0)) * float(np.max(scale, initial=0.0))))
    )
    assert sums
    check(
        outcome,
        what,
        norm_bound(y, values, scale, length, weight, bias),
        [slope] + [parameters] * (len(outcome.ours) - 1),
    )


LAYER: list[tuple[tuple[int, ...], int]] = [
    ((1,), 1), ((7,), 1), ((3, 5), 1), ((1, 1), 1), ((0, 4), 1), ((2, 13), 2), ((64, 3), 1), ((2, 3, 4), 1), ((2, 3, 4), 2),
    ((2, 3, 4), 3), ((5, 17), 1), ((3, 1), 1), ((2, 1, 31), 1), ((4, 257), 1), ((1, 3000), 1), ((2, 2, 1500), 2), ((300, 7), 1),
    ((2, 9001), 1), ((2, 3, 4, 5), 2), ((1, 2, 1, 3, 2), 3), ((40, 40), 1),
]  # fmt: skip


@pytest.mark.parametrize("affine", ["none", "weight", "both"])
def test_layer_norm(device: Any, affine: str) -> None:
    for number, (shape, count) in enumerate(LAYER):
        last = shape[len(shape) - count :]
        x = normal(number, *shape) * 2 + 1
        w = normal(1, *last) if affine != "none" else None
        b = normal(2, *last) if affine == "both" else None
        outcome = run(
            lambda x, w, b, last=last: F.layer_norm(x, last, w, b),
            lambda x, w, b, last=last: functional.layer_norm(x, last, w, b),
            [x, w, b],
        )
        axes = tuple(range(len(shape) - count, len(shape)))
        inspect(outcome, f"layer_norm {shape} {count} {affine}", x, axes, math.prod(last))


@pytest.mark.parametrize("affine", [False, True])
def test_rms_norm(device: Any, affine: bool) -> None:
    for number, (shape, count) in enumerate(LAYER):
        last = shape[len(shape) - count :]
        x = normal(number, *shape) * 2 + 1
        outcome = run(
            lambda x, w, last=last: F.rms_norm(x, last, w, eps=EPS),
            lambda x, w, last=last: functional.rms_norm(x, last, w, eps=EPS),
            [x, normal(1, *last) if affine else None],
        )
        axes = tuple(range(len(shape) - count, len(shape)))
        inspect(outcome, f"rms_norm {shape} {count}", x, axes, math.prod(last), center=False)


CHANNELS: list[tuple[tuple[int, ...], int]] = [
    ((2, 3), 1), ((4, 6), 2), ((2, 6, 5), 3), ((2, 6, 5, 4), 6), ((2, 6, 5, 4), 1), ((1, 1, 7), 1), ((1, 17, 3, 3), 17),
    ((3, 4, 1, 1), 2), ((2, 2, 3, 4, 5), 2), ((1, 4, 40, 41), 2), ((33, 8, 2), 4), ((5, 1, 1, 31), 1), ((0, 4, 3), 2),
]  # fmt: skip


def test_group_norm(device: Any) -> None:
    for number, (shape, groups) in enumerate(CHANNELS):
        if math.prod(shape[1:]) // groups < 2:
            continue
        x = normal(number, *shape) * 2 - 1
        for w, b in ((None, None), (normal(1, shape[1]), normal(2, shape[1])), (normal(1, shape[1]), None)):
            outcome = run(
                lambda x, w, b, g=groups: F.group_norm(x, g, w, b),
                lambda x, w, b, g=groups: functional.group_norm(x, g, w, b),
                [x, w, b],
            )
            rows = x.reshape(shape[0], groups, math.prod(shape[1:]) // groups)
            inspect(outcome, f"group_norm {shape} {groups}", rows, (2,), rows.shape[2])


BATCH: list[tuple[int, ...]] = [
    (2, 1), (7, 3), (64, 17), (2, 3, 5), (2, 3, 5, 4), (1, 3, 7), (1, 1, 1, 2), (3, 4, 1, 1), (2, 2, 3, 4, 5), (300, 2, 3),
    (5, 3, 31, 33), (2, 40, 2), (13, 1, 1, 13), (4000, 2), (2, 3, 3000),
]  # fmt: skip


@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_in_training(device: Any, affine: bool) -> None:
    for number, shape in enumerate(BATCH):
        x, c = normal(number, *shape) * 2 + 3, shape[1]
        arrays = [x, normal(1, c) if affine else None, normal(2, c) if affine else None]
        mean, variance = np.zeros(c, np.float32), np.ones(c, np.float32)
        mine = (vk.tensor(mean), vk.tensor(variance))
        other = (torch.zeros(c, dtype=torch.float64), torch.ones(c, dtype=torch.float64))
        outcome = run(
            lambda x, w, b, s=mine: F.batch_norm(x, s[0], s[1], w, b, True, 0.3),
            lambda x, w, b, s=other: functional.batch_norm(x, s[0], s[1], w, b, True, 0.3),
            arrays,
        )
        length = x.size // c
        axes = (0, *range(2, len(shape)))
        inspect(outcome, f"batch_norm {shape}", x, axes, length)
        size = float(np.max(np.abs(x)))
        assert_close(mine[0], other[0], UNIT["f32"] * (length + 8) * size, f"running mean {shape}")
        assert_close(mine[1], other[1], UNIT["f32"] * 2 * (length + 16) * size * size, f"running variance {shape}")


def test_batch_norm_in_evaluation(device: Any) -> None:
    for number, shape in enumerate([*BATCH, (0, 3, 4)]):
        c = shape[1]
        arrays = [normal(number, *shape), normal(1, c), normal(2, c), normal(3, c), np.abs(normal(4, c)) + 0.1]
        outcome = run(
            lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b), lambda x, w, b, m, v: functional.batch_norm(x, m, v, w, b), arrays,
            needs=[0, 1, 2],
        )  # fmt: skip
        scale = float(1 / np.sqrt(arrays[4].min() + EPS))
        size = float(np.max(np.abs(arrays[0]), initial=0.0)) + float(np.max(np.abs(arrays[3])))
        bound = UNIT["f32"] * 16 * (1 + size * scale * (1 + float(np.abs(arrays[1]).max())))
        sums = max(1, outcome.expected.numel() // c)
        limit = UNIT["f32"] * (sums + 16) * sums * 5 * (1 + size * scale) * (1 + scale)
        check(outcome, f"evaluation {shape}", bound, [bound * 8 * (1 + scale), limit, limit])


def test_instance_norm(device: Any) -> None:
    for number, shape in enumerate([(2, 3, 5), (1, 1, 2), (2, 17, 3, 3), (2, 2, 3, 4, 5), (3, 1, 31, 2)]):
        x, c = normal(number, *shape), shape[1]
        mine = (vk.zeros(c), vk.ones(c))
        other = (torch.zeros(c, dtype=torch.float64), torch.ones(c, dtype=torch.float64))
        outcome = run(
            lambda x, w, b, s=mine: F.instance_norm(x, s[0], s[1], w, b),
            lambda x, w, b, s=other: functional.instance_norm(x, s[0], s[1], w, b),
            [x, normal(1, c), normal(2, c)],
        )
        length = math.prod(shape[2:])
        inspect(outcome, f"instance_norm {shape}", x, tuple(range(2, len(shape))), length)
        size = float(np.max(np.abs(x))) + 1
        assert_close(mine[0], other[0], UNIT["f32"] * (length + 16) * size, "running mean")
        assert_close(mine[1], other[1], UNIT["f32"] * 4 * (length + 16) * size * size, "running variance")


def test_views(device: Any) -> None:
    x = normal(3, 6, 5, 4)
    views: list[tuple[str, Any]] = [("transposed", lambda t: t.transpose(0, 2)), ("strided", lambda t: t[::2, :, 1:])]
    for tag, view in views:
        shape = view(torch.tensor(x)).shape
        outcome = run(
            lambda x, n=shape[-1:]: F.layer_norm(x, n),
            lambda x, n=shape[-1:]: functional.layer_norm(x, n),
            [x],
            view=view,  # noqa: B023
        )
        inspect(outcome, tag, to_numpy(view(torch.tensor(x))), (2,), shape[-1])


def test_large_mean(device: Any) -> None:
    """Values far from 0: the variance must be computed from deviations, not from squares."""
    x = (normal(1, 3, 400) + 3000).astype(np.float32)
    found, expected = F.layer_norm(vk.tensor(x), 400), functional.layer_norm(torch.tensor(x.astype(np.float64)), (400,))
    # the mean is exact to a few units of 3000; deviations of about 1 inherit that error
    assert_close(found, expected, UNIT["f32"] * 3000 * 64, "large mean")


@pytest.mark.parametrize("name", ["layer", "rms", "group", "batch"])
def test_second_gradients(device: Any, name: str) -> None:
    calls = {
        "layer": lambda m, x, w: m.layer_norm(x, (4,), w),
        "rms": lambda m, x, w: m.rms_norm(x, (4,), w, eps=EPS),
        "group": lambda m, x, w: m.group_norm(x, 2, w),
        "batch": lambda m, x, w: m.batch_norm(x, None, None, w, None, True),
    }

    def penalty(library: Any, module: Any, x: Any, w: Any) -> Any:
        y = calls[name](module, x, w)
        grad = torch.autograd.grad if library is torch else vk.grad
        gradients = grad((y * y * y).sum(), (x, w), create_graph=True)
        return (gradients[0] ** 2).sum() + (gradients[1] ** 2).sum()

    outcome = run(
        lambda *a: penalty(vk, F, *a), lambda *a: penalty(torch, functional, *a), [normal(1, 3, 4, 4), normal(2, 4)]
    )
    sizes = [float(np.abs(to_numpy(t.grad)).max()) for t in outcome.theirs]
    # sums of up to 48 terms, scales of up to about 10 to the fourth power
    bounds = [UNIT["f32"] * 48 * 64 * (1 + s) for s in sizes]
    check(outcome, name, UNIT["f32"] * 48 * 64 * (1 + abs(float(outcome.expected.detach()))), bounds)
