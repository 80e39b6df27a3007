"""Pooling against PyTorch: windows, padding, dilation, ceil mode, max indices, adaptive pooling, gradients."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import check, check_linear, functional, normal, run, torch
from tests.parity.reference import to_numpy
from tests.parity.tolerance import UNIT
from vkjit.nn import functional as F

# shape, kernel, stride, padding, dilation (maxima only), ceil_mode
WINDOWS: list[tuple[tuple[int, ...], Any, Any, Any, Any, bool]] = [
    ((1, 1, 1, 1), 1, None, 0, 1, False),
    ((2, 3, 7, 8), 2, None, 0, 1, False),
    ((2, 3, 7, 8), 3, 2, 1, 1, False),
    ((2, 3, 7, 8), 3, 2, 1, 1, True),
    ((0, 3, 7, 8), 3, 2, 1, 1, True),
    ((1, 17, 5, 5), (2, 3), (1, 2), (1, 1), 1, False),
    ((1, 1, 11, 13), 5, 1, 2, 1, False),
    ((2, 1, 9, 9), 2, 3, 0, 1, False),  # the stride exceeds the kernel
    ((2, 1, 9, 9), 2, 3, 1, 1, True),
    ((1, 3, 4, 4), 4, 1, 0, 1, False),
    ((1, 3, 10, 10), 3, 2, 1, 2, False),
    ((1, 3, 10, 10), 3, 2, 1, (1, 3), True),
    ((1, 2, 6, 5), (3, 2), (2, 1), (0, 1), 1, True),
    ((3, 2, 1, 9), (1, 3), (1, 2), (0, 1), 1, False),
    ((3, 2, 9, 1), (3, 1), (2, 1), (1, 0), 1, True),
    ((3, 6, 6), 2, None, 1, 1, False),  # unbatched
    ((2, 3, 17), 3, 2, 1, 1, False),
    ((2, 3, 17), 3, 2, 1, 1, True),
    ((1, 1, 5), 5, None, 0, 1, False),
    ((2, 5), 2, None, 0, 1, True),
    ((1, 2, 3, 4, 5), 2, None, 0, 1, False),
    ((1, 2, 5, 4, 5), (3, 2, 3), 2, (1, 0, 1), 1, True),
    ((1, 2, 7, 31, 3), 3, (2, 3, 1), 1, 1, False),
]


def axes_of(shape: tuple[int, ...], kernel: Any) -> int:
    """Return the number of spatial axes: from a tuple kernel, else from the rank; (3, 6, 6) is an unbatched image."""
    if shape == (3, 6, 6):
        return 2
    return len(kernel) if isinstance(kernel, tuple) else max(1, len(shape) - 2)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_maxima_and_gradients(device: Any, case: tuple[Any, ...]) -> None:
    shape, kernel, stride, padding, dilation, ceil_mode = case
    name = f"max_pool{axes_of(shape, kernel)}d"
    options = {
        "kernel_size": kernel,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": ceil_mode,
    }
    x = normal(1, *shape)
    outcome = run(lambda a: getattr(F, name)(a, **options), lambda a: getattr(functional, name)(a, **options), [x])
    # a maximum is exact; its gradient sums over overlapping windows
    covering = math.prod(kernel) if isinstance(kernel, tuple) else kernel ** axes_of(shape, kernel)
    check(outcome, f"{name} {case}", 0.0, UNIT["f32"] * covering * covering * 4)
    y, places = getattr(F, name)(vk.tensor(x), return_indices=True, **options)
    _, expected = getattr(functional, name)(torch.tensor(x), return_indices=True, **options)
    assert places.dtype is vk.i64
    assert np.array_equal(places.numpy(), expected.numpy())
    assert y.shape == places.shape


@pytest.mark.parametrize("case", [c for c in WINDOWS if c[4] == 1], ids=str)
def test_means_and_gradients(device: Any, case: tuple[Any, ...]) -> None:
    shape, kernel, stride, padding, _, ceil_mode = case
    axes = axes_of(shape, kernel)
    name = f"avg_pool{axes}d"
    taps = math.prod(kernel) if isinstance(kernel, tuple) else kernel**axes
    divisors = [None] if axes == 1 else [None, 7]
    for count, divisor in itertools.product((True, False), divisors):
        options = {
            "kernel_size": kernel,
            "stride": stride,
            "padding": padding,
            "ceil_mode": ceil_mode,
            "count_include_pad": count,
        }
        if axes > 1:
            options["divisor_override"] = divisor
        check_linear(
            lambda a, o=options: getattr(F, name)(a, **o),
            lambda a, o=options: getattr(functional, name)(a, **o),
            [normal(1, *shape)],
            f"{name} {case} {options}",
            terms=taps + 1,
            gradient_terms=[2 * taps + 1],
        )


ADAPTIVE: list[tuple[tuple[int, ...], Any]] = [
    ((2, 3, 7, 8), 1), ((2, 3, 7, 8), (3, 5)), ((2, 3, 7, 8), (7, 8)), ((2, 3, 3, 2), (5, 7)), ((1, 1, 1, 1), (2, 3)),
    ((2, 3, 7, 8), (None, 4)), ((0, 3, 4, 4), 2), ((3, 9, 9), 4), ((1, 17, 13, 5), (6, 2)), ((2, 3, 10), 3), ((2, 3, 10), 1),
    ((1, 1, 5), 7), ((1, 2, 4, 5, 6), (2, 3, 4)), ((1, 2, 4, 5, 6), 1),
]  # fmt: skip


@pytest.mark.parametrize("case", ADAPTIVE, ids=str)
def test_adaptive_pooling(device: Any, case: tuple[Any, ...]) -> None:
    shape, out = case
    axes = 2 if shape == (3, 9, 9) else len(shape) - 2
    size = math.prod(shape[-axes:])
    name = f"adaptive_avg_pool{axes}d"
    check_linear(
        lambda a: getattr(F, name)(a, out), lambda a: getattr(functional, name)(a, out), [normal(1, *shape)], f"{name} {case}",
        terms=size + 1, gradient_terms=[size + 64],
    )  # fmt: skip
    name = f"adaptive_max_pool{axes}d"
    outcome = run(lambda a: getattr(F, name)(a, out), lambda a: getattr(functional, name)(a, out), [normal(1, *shape)])
    check(outcome, f"{name} {case}", 0.0, UNIT["f32"] * 64 * 16)


def test_special_values(device: Any) -> None:
    """NaN wins, infinities are ordinary values, ties give the first index."""
    x = np.zeros((1, 1, 4, 6), np.float32)
    x[0, 0, 0, 1], x[0, 0, 2, 2], x[0, 0, :2, 4:] = np.nan, np.inf, -np.inf
    cases: list[dict[str, Any]] = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1}]
    for options in cases:
        y, places = F.max_pool2d(vk.tensor(x), return_indices=True, **options)
        expected, where = functional.max_pool2d(torch.tensor(x), return_indices=True, **options)
        assert np.array_equal(y.numpy(), expected.numpy(), equal_nan=True)
        assert np.array_equal(places.numpy(), where.numpy())


def test_views_and_second_gradients(device: Any) -> None:
    def penalty(library: Any, pool: Any, x: Any) -> Any:
        y = pool(x.transpose(2, 3)[:, :, 1:])
        grad = torch.autograd.grad if library is torch else vk.grad
        (gradient,) = grad((y * y).sum(), x, create_graph=True)
        return (gradient**2).sum()

    for name, options in (
        ("max_pool2d", {"kernel_size": 3, "stride": 2}),
        ("avg_pool2d", {"kernel_size": 3, "stride": 2}),
    ):
        x = normal(1, 2, 2, 7, 8)
        outcome = run(
            lambda a: penalty(vk, lambda v: getattr(F, name)(v, **options), a),  # noqa: B023  # used at once
            lambda a: penalty(torch, lambda v: getattr(functional, name)(v, **options), a),  # noqa: B023
            [x],
        )
        size = float(np.abs(to_numpy(outcome.theirs[0].grad)).max())
        check(outcome, name, UNIT["f32"] * 400 * (1 + float(outcome.expected.detach())), UNIT["f32"] * 200 * (1 + size))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_functions_by_rank_have_pytorchs_names(device: Any, rank: int) -> None:
    rng = np.random.default_rng(rank)
    x = rng.uniform(0.5, 1, (2, 3, *(6,) * rank)).astype(np.float32)
    found = getattr(F, f"lp_pool{rank}d")(vk.tensor(x), 2.0, 2, 3)
    expected = getattr(torch.nn.functional, f"lp_pool{rank}d")(torch.tensor(x.astype(np.float64)), 2.0, 2, 3)
    # squares, their mean of up to 8 terms, a product and a root: a dozen roundings
    np.testing.assert_allclose(to_numpy(found), to_numpy(expected), rtol=0, atol=12 * 2.0**-24 * float(expected.max()))
    values, places = getattr(F, f"max_pool{rank}d")(vk.tensor(x), 2, return_indices=True)
    back = to_numpy(getattr(F, f"max_unpool{rank}d")(values, places, 2))
    assert (back[back != 0] == x[back != 0]).all() and (back != 0).sum() == places.numel()
