"""Comparison with PyTorch: inputs, layouts, and error bounds.

A `Case` is an operation in vkjit and in PyTorch, with a generator for its inputs and an error bound. Failures name the
shape, the layout and the worst element. The reference is computed in f64 from the same f32 inputs, so that a bound
covers vkjit's error alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402  # after importorskip

EPS = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24, "f64": 2.0**-53}
"""Half the distance between adjacent numbers, relative."""

SHAPES: list[tuple[int, ...]] = [
    (),
    (1,),
    (0,),
    (2,),
    (7,),
    (31,),
    (257,),
    (1, 1),
    (3, 1),
    (1, 13),
    (0, 3),
    (4, 0),
    (2, 3),
    (13, 11),
    (64, 5),
    (5, 7, 3),
    (1, 5, 1),
    (2, 0, 3),
    (3, 1, 4),
    (2, 3, 4, 5),
    (2, 1, 3, 1, 2),
]
"""Empty shapes, single elements, primes, powers of two, up to five axes."""

LAYOUTS: list[tuple[str, tuple[int, ...], Callable[[Any], Any]]] = [
    ("transposed", (6, 5), lambda x: x.transpose(0, 1)),
    ("every other", (9, 8), lambda x: x[:, ::2]),
    ("offset", (7, 6), lambda x: x[2:, 1:]),
    ("permuted", (3, 4, 5), lambda x: x.permute(2, 0, 1)),
    ("expanded", (4, 1), lambda x: x.expand(4, 6)),
]
"""Views that aren't contiguous: name, shape of the base tensor, view function."""

PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((), ()),
    ((1,), ()),
    ((5,), (5,)),
    ((5,), (1,)),
    ((1,), (5,)),
    ((0,), (1,)),
    ((0,), (0,)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 1), (1, 4)),
    ((3, 1), (4,)),
    ((2, 3, 4), (3, 1)),
    ((2, 3, 4), (2, 1, 4)),
    ((2, 1, 4), (3, 1)),
    ((7, 11), (7, 11)),
    ((13,), (13, 1)),
    ((2, 0, 3), (3,)),
    ((5, 7, 3), ()),
    ((), (5, 7)),
    ((2, 3, 4, 5), (4, 1)),
    ((1, 1, 1), (2, 3)),
]
"""Pairs of shapes that broadcast."""


@dataclass(frozen=True)
class Case:
    """An operation in both libraries: `ours` and `theirs` take the inputs; `draw` makes one by shape and number.

    Results may be off by `ulp` units of EPS times the result's magnitude plus `scale(*inputs)`; None: they must be
    equal. Gradients may be off by `gradient_ulp` units relative to their largest value plus `gradient_scale`; None: no
    gradients.
    """

    name: str
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    draw: Callable[[np.random.Generator, tuple[int, ...], int], Any]
    ulp: float | None = 4.0
    scale: Callable[..., Any] | None = None
    gradient_ulp: float | None = 16.0
    gradient_scale: float = 1.0
    inputs: int = 1
    skip_layouts: bool = field(default=False)


def normal(rng: np.random.Generator, shape: tuple[int, ...], _number: int = 0) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def between(low: float, high: float) -> Callable[[np.random.Generator, tuple[int, ...], int], Any]:
    """Return a generator of uniform numbers in the open interval."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...], _number: int = 0) -> Any:
        return (low + (high - low) * (0.01 + 0.98 * rng.random(shape))).astype(np.float32)

    return draw


def to_numpy(value: Any) -> Any:
    """Return the values of a tensor of either library."""
    return value.detach().numpy() if isinstance(value, (torch.Tensor, vk.Tensor)) else np.asarray(value)


def assert_close(found: Any, expected: Any, allowed: Any, what: str) -> None:
    """Check that shapes are equal, NaN and infinities match, and all other values are within `allowed`."""
    found, expected = np.asarray(to_numpy(found), np.float64), np.asarray(to_numpy(expected), np.float64)
    assert found.shape == expected.shape, f"{what}: shape {found.shape}, expected {expected.shape}"
    if not found.size:
        return
    special = ~np.isfinite(expected)
    same = np.where(np.isnan(expected), np.isnan(found), found == expected)
    assert np.all(same[special]), f"{what}: {found[special][:5]}, expected {expected[special][:5]}"
    with np.errstate(invalid="ignore"):
        over = np.where(special, -1.0, np.abs(found - expected) - allowed)
    worst = np.unravel_index(int(np.argmax(np.where(np.isnan(over), np.inf, over))), over.shape)
    assert not np.any(np.isnan(over)), f"{what}: NaN at {worst}, expected {expected[worst]}"
    limit = np.broadcast_to(allowed, over.shape)[worst]
    assert over[worst] <= 0, f"{what}: at {worst} {found[worst]!r}, expected {expected[worst]!r} within {limit:.3g}"


TINY = 2.0**-126
"""The smallest normal f32: devices may flush smaller values to zero."""


def run(
    case: Case, shapes: Sequence[tuple[int, ...]], layout: Callable[[Any], Any] | None = None, tag: str = ""
) -> None:
    """Run one case on inputs of the given shapes: compare the result and the gradient of each input."""
    rng = np.random.default_rng(len(case.name) + sum(map(sum, shapes)))
    arrays = [case.draw(rng, shape, number) for number, shape in enumerate(shapes)]
    wanted = case.gradient_ulp is not None
    ours = [vk.tensor(a, requires_grad=wanted) for a in arrays]
    theirs = [torch.tensor(a.astype(np.float64) if a.dtype == np.float32 else a, requires_grad=wanted) for a in arrays]
    what = f"{case.name} {tag} {list(shapes)}"
    view = layout if layout is not None else lambda x: x
    found, expected = case.ours(*map(view, ours)), case.theirs(*map(view, theirs))
    reference = to_numpy(expected)
    if case.ulp is None:
        assert np.array_equal(to_numpy(found), reference), f"{what}: {to_numpy(found)}, expected {reference}"
        assert found.shape == tuple(expected.shape), what
    else:
        values = [to_numpy(view(t)) for t in theirs]
        magnitude = np.abs(reference) if case.scale is None else np.abs(reference) + case.scale(*values)
        assert_close(found, expected, EPS["f32"] * case.ulp * magnitude + TINY, what)
    if not wanted:
        return
    weights = rng.standard_normal(reference.shape).astype(np.float32)
    expected.backward(torch.tensor(weights.astype(np.float64)).reshape(expected.shape))
    found.backward(vk.tensor(weights))
    assert case.gradient_ulp is not None
    for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine.grad is not None, f"{what}: no gradient of input {number}"
        size = float(np.max(np.abs(to_numpy(other.grad)), initial=0.0))
        terms = max(1, found.numel() // max(1, mine.numel()))
        allowed = EPS["f32"] * case.gradient_ulp * math.sqrt(terms) * 4 * (size + case.gradient_scale)
        assert_close(mine.grad, other.grad, allowed, f"{what}, gradient {number}")


def run_all(case: Case) -> None:
    """Run a case with one input on all shapes and layouts."""
    for shape in SHAPES:
        run(case, [shape])
    if not case.skip_layouts:
        for tag, shape, layout in LAYOUTS:
            run(case, [shape], layout, tag)


def run_pairs(case: Case) -> None:
    """Run a case with two inputs on all pairs of shapes, and on views."""
    for pair in PAIRS:
        run(case, pair)
    for tag, shape, layout in LAYOUTS[:2]:
        run(case, [shape, shape], layout, tag)
