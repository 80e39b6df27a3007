"""Softmax, log-softmax and attention against PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import check, functional, normal, run, torch
from tests.parity.reference import LAYOUTS, SHAPES, assert_close, to_numpy
from tests.parity.tolerance import UNIT, log_softmax_bound, softmax_bound
from vkjit.nn import functional as F

LONG: list[tuple[tuple[int, ...], int]] = [
    ((2, 5000), 1),
    ((5000, 3), 0),
    ((1, 40_000), 1),
    ((3, 600), 1),
    ((2, 700, 3), 1),
]


def compare(name: str, values: Any, dim: int, view: Any = lambda x: x) -> None:
    outcome = run(lambda x: getattr(F, name)(x, dim), lambda x: getattr(functional, name)(x, dim), [values], view=view)
    shape = view(torch.tensor(values)).shape
    length = shape[dim] if shape else 1
    largest = float(np.max(np.abs(values), initial=0.0))
    y = to_numpy(outcome.expected)
    bound = (
        softmax_bound(y, 2 * largest, length)
        if name == "softmax"
        else log_softmax_bound(y, largest, 2 * largest, length)
    )
    slope = float(np.max(np.abs(outcome.weights), initial=0.0))
    gradient = UNIT["f32"] * (4 * largest + 2 * length + 32) * slope * (1 if name == "softmax" else length)
    repeats = max(1, outcome.found.numel() // max(1, values.size))
    check(outcome, f"{name} of {shape} along {dim}", bound, gradient * repeats)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_all_shapes_and_axes(device: Any, name: str) -> None:
    for number, shape in enumerate(SHAPES):
        for dim in {0, -1, len(shape) // 2} if shape else {0, -1}:
            compare(name, normal(number, *shape) * 3, dim)
    for _tag, shape, view in LAYOUTS:
        for dim in (0, 1):
            compare(name, normal(7, *shape), dim, view)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("case", LONG, ids=str)
def test_long_rows_are_cut(device: Any, name: str, case: tuple[tuple[int, ...], int]) -> None:
    compare(name, normal(1, *case[0]), case[1])


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_special_values(device: Any, name: str) -> None:
    """-inf has weight 0; rows of only -inf, or with +inf or NaN, give NaN; large values don't overflow."""
    x = normal(1, 7, 600) * 10
    x[0], x[1, 3], x[2, 5], x[3, 7], x[4], x[5, 1:] = -np.inf, -np.inf, np.nan, np.inf, x[4] + 1e4, -np.inf
    x[6] = -1e30
    found, expected = (
        getattr(F, name)(vk.tensor(x), 1),
        getattr(functional, name)(torch.tensor(x.astype(np.float64)), 1),
    )
    y = to_numpy(expected)
    spread = 80.0
    finite = np.where(np.isfinite(y), y, 0.0)
    # floats near 1e4 are 2**-10 apart: the inputs are exact, but their differences are rounded at that scale
    bound = softmax_bound(finite, spread, 600) if name == "softmax" else log_softmax_bound(finite, 1e4, spread, 600)
    assert_close(found, expected, bound, name)


def test_types(device: Any) -> None:
    x = normal(1, 5, 33)
    assert F.softmax(vk.tensor(x), -1, dtype=vk.f16).dtype is vk.f16
    half = F.softmax(vk.tensor(x.astype(np.float16)), -1)
    expected = torch.softmax(torch.tensor(x.astype(np.float16).astype(np.float64)), -1).numpy()
    assert half.dtype is vk.f16
    assert_close(half, expected, UNIT["f16"] * np.abs(expected) + 2.0**-25 + softmax_bound(expected, 8.0, 33), "f16")


def test_second_gradients(device: Any) -> None:
    for name in ("softmax", "log_softmax"):

        def penalty(library: Any, module: Any, x: Any) -> Any:
            y = getattr(module, name)(x, 1)  # noqa: B023  # used at once
            grad = torch.autograd.grad if library is torch else vk.grad
            (gradient,) = grad((y * y).sum(), x, create_graph=True)
            return (gradient**2).sum()

        outcome = run(
            lambda x: penalty(vk, F, x),
            lambda x: penalty(torch, functional, x),
            [normal(1, 3, 5, 2)],  # noqa: B023
        )
        size = float(np.abs(to_numpy(outcome.theirs[0].grad)).max())
        check(outcome, name, UNIT["f32"] * 300 * (1 + float(outcome.expected.detach())), UNIT["f32"] * 300 * (1 + size))


ATTENTION: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ((4, 3), (5, 3), (5, 2)), ((1, 1), (1, 1), (1, 1)), ((2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)),
    ((3, 7, 8), (3, 7, 8), (3, 7, 8)),
    ((2, 1, 17, 5), (2, 1, 3, 5), (2, 1, 3, 5)), ((0, 3, 4), (0, 3, 4), (0, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", ATTENTION, ids=str)
def test_attention(device: Any, shapes: Any) -> None:
    q, k, v = (normal(i, *s) for i, s in enumerate(shapes))
    length, width = q.shape[-2], k.shape[-2]
    keep = np.random.default_rng(5).random((length, width)) < 0.7
    keep[:, 0] = True
    bias = normal(6, length, width)
    options: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"is_causal": True}, {"is_causal": True}),
        ({"scale": 0.3}, {"scale": 0.3}),
        ({"attn_mask": vk.tensor(keep)}, {"attn_mask": torch.tensor(keep)}),
        ({"attn_mask": vk.tensor(bias)}, {"attn_mask": torch.tensor(bias.astype(np.float64))}),
    ]
    for mine, other in options:
        outcome = run(
            lambda *a, o=mine: F.scaled_dot_product_attention(*a, **o),
            lambda *a, o=other: functional.scaled_dot_product_attention(*a, **o),
            [q, k, v],
        )
        # scores are sums of E products of size up to `largest`, which is the relative error of the weights
        largest = max((float(np.max(np.abs(a), initial=0.0)) for a in (q, k, v, bias)), default=0.0)
        depth = q.shape[-1]
        scores = largest * largest * math.sqrt(depth) + largest
        bound = UNIT["f32"] * (2 * depth + 2 * width + 32) * (scores + 1) * (largest + 1)
        check(outcome, f"attention {shapes} {list(mine)}", bound, bound * 4 * (largest + 1) * max(length, width))
