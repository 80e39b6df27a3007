"""Cumulative sums, triangles and padding against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.parity.reference import EPS, SHAPES, Case, assert_close, normal, run, torch

F = torch.nn.functional


def test_running_sums_along_every_axis(device: Any) -> None:
    for shape in [s for s in SHAPES if s]:
        for axis in range(len(shape)):
            longest = shape[axis]
            case = Case(
                "cumsum",
                lambda x, a=axis: vk.cumsum(x, a),
                lambda x, a=axis: torch.cumsum(x, a),
                normal,
                2 * longest + 4,
                lambda _x: 4.0,
                gradient_ulp=2 * longest + 4,
            )
            run(case, [shape])


@pytest.mark.parametrize(
    ("shape", "axis"), [((5000,), 0), ((3, 2500), 1), ((2500, 3), 0), ((2, 1100, 3), 1), ((1025,), 0)]
)
def test_long_running_sums(device: Any, shape: tuple[int, ...], axis: int) -> None:
    values = normal(np.random.default_rng(0), shape)
    exact = values.astype(np.float64)
    allowed = EPS["f32"] * shape[axis] * np.cumsum(np.abs(exact), axis)
    assert_close(vk.cumsum(vk.tensor(values), axis), np.cumsum(exact, axis), allowed, "long cumsum")
    whole = np.random.default_rng(1).integers(-5, 5, shape)
    assert np.array_equal(vk.cumsum(vk.tensor(whole), axis).numpy(), np.cumsum(whole, axis))


@pytest.mark.parametrize("diagonal", [-2, 0, 1])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles(device: Any, name: str, diagonal: int) -> None:
    case = Case(
        name,
        lambda x: getattr(vk, name)(x, diagonal),
        lambda x: getattr(torch, name)(x, diagonal),
        normal,
        0,
        gradient_ulp=1,
    )
    for shape in [*(s for s in SHAPES if len(s) >= 2), (4, 4), (2, 5, 3), (6, 2)]:
        run(case, [shape])
    run(case, [(4, 5)], lambda x: x.transpose(0, 1), "transposed")


PADS: list[tuple[tuple[int, ...], tuple[int, ...], str]] = [
    ((5,), (1, 2), "constant"),
    ((5,), (0, 0), "constant"),
    ((5,), (-1, 2), "constant"),
    ((3, 4), (1, 1, 2, 0), "constant"),
    ((0,), (1, 2), "constant"),
    ((3, 4), (2, 1), "constant"),
    ((2, 3, 4), (0, 1, -1, 2), "constant"),
    ((1, 2, 5), (2, 3), "reflect"),
    ((1, 2, 5), (4, 4), "reflect"),
    ((1, 2, 5), (2, 7), "replicate"),
    ((1, 1, 4, 5), (1, 2, 3, 1), "reflect"),
    ((1, 1, 4, 5), (1, 2, 3, 5), "replicate"),
    ((1, 2, 5), (2, 3), "circular"),
    ((1, 1, 4, 5), (1, 5, 4, 0), "circular"),
]


@pytest.mark.parametrize(("shape", "widths", "mode"), PADS, ids=str)
def test_padding(device: Any, shape: tuple[int, ...], widths: tuple[int, ...], mode: str) -> None:
    value = 1.5 if mode == "constant" else 0.0
    case = Case(
        "pad",
        lambda x: vk.pad(x, widths, mode, value),
        lambda x: F.pad(x, widths, mode, value),
        normal,
        0,
        gradient_ulp=8,
    )
    run(case, [shape])


def test_padding_that_does_not_fit_is_refused(device: Any) -> None:
    x = vk.zeros(3)
    with pytest.raises(vk.ShapeError, match="reflect"):
        vk.pad(x, (3, 0), "reflect")
    with pytest.raises(vk.ArgumentError, match="two widths"):
        vk.pad(x, (1, 1, 1, 1))
    with pytest.raises(vk.ShapeError, match="take away"):
        vk.pad(x, (-2, -2))


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_grids_of_points(device: Any, indexing: str) -> None:
    axes = [np.arange(n, dtype=np.float32) for n in (2, 3, 4)]
    found = vk.meshgrid(*map(vk.tensor, axes), indexing=indexing)
    for mine, other in zip(found, np.meshgrid(*axes, indexing=indexing), strict=True):  # type: ignore[call-overload]
        assert np.array_equal(mine.numpy(), other)
