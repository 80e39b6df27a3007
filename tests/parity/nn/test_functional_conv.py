"""Convolutions against PyTorch: strides, padding, dilation, groups, odd sizes, views, transposed convolutions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.nn.nn_functions import check, check_linear, functional, normal, run, torch
from tests.parity.reference import assert_close, to_numpy
from tests.parity.tolerance import UNIT, linear
from vkjit.nn import functional as F

# batch, channels, size, filters, kernel, stride, padding, dilation, groups, bias
CASES: list[tuple[int, int, tuple[int, ...], int, tuple[int, ...], Any, Any, Any, int, bool]] = [
    (1, 1, (1, 1), 1, (1, 1), 1, 0, 1, 1, False),
    (2, 3, (7, 9), 5, (3, 3), 1, 1, 1, 1, True),
    (0, 3, (7, 9), 5, (3, 3), 1, 1, 1, 1, True),
    (1, 17, (5, 5), 17, (1, 1), 1, 0, 1, 1, True),
    (3, 1, (11, 13), 3, (5, 5), 1, 2, 1, 1, False),
    (2, 3, (8, 8), 4, (2, 2), 2, 0, 1, 1, True),
    (1, 2, (9, 9), 3, (2, 2), 3, 0, 1, 1, False),  # the stride exceeds the kernel
    (2, 4, (7, 6), 6, (3, 2), (2, 1), (1, 0), (1, 2), 2, True),
    (1, 6, (5, 8), 6, (3, 3), 1, 1, 1, 6, True),  # one channel per group
    (1, 6, (5, 8), 12, (3, 3), 1, 1, 1, 6, False),
    (1, 3, (4, 4), 2, (4, 4), 1, 0, 1, 1, True),  # one output
    (1, 3, (2, 3), 2, (4, 4), 1, (1, 2), 1, 1, True),  # the kernel exceeds the input
    (2, 5, (1, 19), 7, (1, 7), 1, (0, 3), 1, 1, True),
    (2, 5, (19, 1), 7, (7, 1), 1, (3, 0), 1, 1, True),
    (1, 3, (10, 10), 4, (3, 3), 1, 2, 2, 1, True),
    (1, 3, (12, 12), 4, (3, 3), 2, 3, 3, 1, False),
    (2, 8, (6, 6), 8, (3, 3), 1, "same", 1, 4, True),
    (2, 4, (6, 7), 3, (4, 2), 1, "same", 1, 1, True),
    (2, 4, (9, 7), 3, (3, 3), 1, "valid", 2, 1, True),
    (1, 2, (5, 31), 1, (3, 9), (1, 4), (0, 4), 1, 1, True),
    (4, 13, (3, 3), 9, (3, 3), 1, 1, 1, 1, True),
    (1, 40, (6, 6), 33, (3, 3), 1, 1, 1, 1, True),
    (2, 3, (17,), 5, (3,), 1, 1, 1, 1, True),
    (1, 4, (23,), 6, (5,), 2, 0, 2, 2, False),
    (2, 3, (2,), 3, (2,), 3, 1, 1, 1, True),
    (1, 2, (3, 4, 5), 3, (2, 2, 3), 1, (1, 0, 1), 1, 1, True),
    (2, 4, (4, 5, 4), 4, (3, 3, 3), (1, 2, 1), 1, 1, 2, False),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_gradients(device: Any, case: tuple[Any, ...]) -> None:
    batch, channels, size, filters, kernel, stride, padding, dilation, groups, bias = case
    name = f"conv{len(size)}d"
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    x, w = normal(1, batch, channels, *size), normal(2, filters, channels // groups, *kernel)
    b = normal(3, filters) if bias else None
    reference = getattr(functional, name)(torch.tensor(x), torch.tensor(w), **options)
    taps = math.prod(kernel)
    results = batch * math.prod(reference.shape[2:])
    check_linear(
        lambda *a: getattr(F, name)(*a, **options),
        lambda *a: getattr(functional, name)(*a, **options),
        [x, w, b],
        f"{name} {case}",
        terms=channels // groups * taps + 1,
        gradient_terms=[filters // groups * taps, results, results],
    )


VIEWS: list[tuple[str, Any]] = [
    ("transposed", lambda x: x.transpose(2, 3)),
    ("every other", lambda x: x[:, :, ::2, 1:]),
    ("channels last", lambda x: x.permute(0, 3, 1, 2)[:, :4]),
    ("expanded", lambda x: x[:, :1].expand(-1, 4, -1, -1)),
]


@pytest.mark.parametrize("view", [v for _, v in VIEWS], ids=[n for n, _ in VIEWS])
def test_convolution_of_views(device: Any, view: Any) -> None:
    check_linear(
        lambda x, w: F.conv2d(view(x), w, padding=1), lambda x, w: functional.conv2d(view(x), w, padding=1),
        [normal(4, 2, 4, 7, 9), normal(5, 3, 4, 3, 3)], "a view", terms=37, gradient_terms=[4 * 27 * 9, 200],
    )  # fmt: skip


def test_unbatched_input(device: Any) -> None:
    check_linear(
        lambda x, w, b: F.conv2d(x, w, b), lambda x, w, b: functional.conv2d(x, w, b),
        [normal(4, 3, 6, 5), normal(5, 4, 3, 2, 2), normal(6, 4)], "unbatched", terms=13, gradient_terms=[16, 20, 20],
    )  # fmt: skip


# batch, channels, size, filters, kernel, stride, padding, output padding, dilation, groups, bias
TRANSPOSED: list[tuple[int, int, tuple[int, ...], int, tuple[int, ...], Any, Any, Any, Any, int, bool]] = [
    (2, 4, (5, 6), 3, (3, 3), 1, 0, 0, 1, 1, True),
    (2, 4, (5, 6), 3, (3, 3), 2, 1, 1, 1, 1, True),
    (1, 6, (4, 3), 4, (2, 3), (3, 2), (0, 1), (2, 0), 1, 2, False),
    (1, 1, (1, 1), 1, (1, 1), 1, 0, 0, 1, 1, True),
    (0, 2, (3, 3), 2, (3, 3), 1, 1, 0, 1, 1, False),
    (1, 3, (4, 4), 5, (3, 3), 1, 2, 0, 2, 1, True),
    (1, 3, (7,), 5, (4,), 2, 1, 0, 1, 1, True),
    (1, 2, (3, 2, 3), 3, (2, 2, 2), 2, 0, 0, 1, 1, True),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolution_and_gradients(device: Any, case: tuple[Any, ...]) -> None:
    batch, channels, size, filters, kernel, stride, padding, extra, dilation, groups, bias = case
    name = f"conv_transpose{len(size)}d"
    options = {"stride": stride, "padding": padding, "output_padding": extra, "dilation": dilation, "groups": groups}
    x, w = normal(1, batch, channels, *size), normal(2, channels, filters // groups, *kernel)
    taps, places = math.prod(kernel), batch * math.prod(size)
    reference = getattr(functional, name)(torch.tensor(x), torch.tensor(w), **options)
    check_linear(
        lambda *a: getattr(F, name)(*a, **options),
        lambda *a: getattr(functional, name)(*a, **options),
        [x, w, normal(3, filters) if bias else None],
        f"{name} {case}",
        terms=channels * taps + 1,
        gradient_terms=[filters * taps, places, batch * math.prod(reference.shape[2:])],
    )


def test_second_gradients(device: Any) -> None:
    """Differentiate the sum of squared gradients, which differentiates each of the three products."""
    arrays = [normal(1, 2, 4, 5, 6), normal(2, 6, 2, 3, 2)]

    def penalty(library: Any, x: Any, w: Any) -> Any:
        y = (functional if library is torch else F).conv2d(x, w, stride=(2, 1), padding=1, groups=2)
        grad = torch.autograd.grad if library is torch else vk.grad
        gradients = grad((y * y * y).sum(), (x, w), create_graph=True)
        return (gradients[0] ** 2).sum() + (gradients[1] ** 2).sum()

    outcome = run(lambda *a: penalty(vk, *a), lambda *a: penalty(torch, *a), arrays)
    # products of eight operands, each a sum of up to 60 terms: relative to the largest gradient
    bounds = [UNIT["f32"] * 60 * 8 * (1 + float(np.abs(to_numpy(t.grad)).max())) for t in outcome.theirs]
    expected = float(outcome.expected.detach())
    check(outcome, "second gradients", UNIT["f32"] * 60 * 8 * (1 + abs(expected)), bounds)


@pytest.mark.parametrize("dtype", ["f16", "f64"])
def test_other_types(device: Any, dtype: str) -> None:
    if dtype not in device.caps.dtypes:
        pytest.skip(f"{device.name} has no {dtype}")
    kind = {"f16": np.float16, "f64": np.float64}[dtype]
    x, w = normal(1, 2, 3, 6, 7).astype(kind), normal(2, 4, 3, 3, 3).astype(kind)
    found = F.conv2d(vk.tensor(x), vk.tensor(w), padding=1)
    expected = functional.conv2d(torch.tensor(x.astype(np.float64)), torch.tensor(w.astype(np.float64)), padding=1)
    size = functional.conv2d(
        torch.tensor(np.abs(x).astype(np.float64)), torch.tensor(np.abs(w).astype(np.float64)), padding=1
    )
    assert found.dtype.name == dtype
    sums = "f64" if dtype == "f64" else "f32"
    assert_close(
        found, expected, linear(to_numpy(size), 27, sums) + UNIT[dtype] * np.abs(to_numpy(expected)) + 2.0**-25, dtype
    )


@pytest.mark.parametrize("stride", [1, 2])
def test_long_sums_are_split(device: Any, stride: int) -> None:
    """More channels than one invocation may add, and more rows than one may sum."""
    x, w = normal(1, 1, 7_000, 3, 4), normal(2, 2, 7_000, 1, 1)
    outcome = run(
        lambda x, w: F.conv2d(x, w, stride=stride), lambda x, w: functional.conv2d(x, w, stride=stride), [x, w]
    )
    sizes = [torch.tensor(np.abs(a), dtype=torch.float64) for a in (x, w)]
    size = functional.conv2d(*sizes, stride=stride)
    check(outcome, "many channels", linear(to_numpy(size), 7_000), UNIT["f32"] * 32 * 12)
