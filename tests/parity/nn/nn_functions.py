"""Compare operations on several arrays with PyTorch: results, and the gradient of each float input.

The reference is computed in f64 from the same f32 inputs. Bounds come from `tolerance`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: nothing to compare with")

import vkjit as vk  # noqa: E402
from tests.parity.reference import assert_close, to_numpy  # noqa: E402  # after importorskip
from tests.parity.tolerance import linear  # noqa: E402

functional = torch.nn.functional


@dataclass(frozen=True)
class Outcome:
    """Results of both libraries, the inputs with their gradients, and the incoming gradient."""

    found: Any
    expected: Any
    ours: list[Any]
    theirs: list[Any]
    weights: Any


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run(ours: Callable[..., Any], theirs: Callable[..., Any], arrays: Sequence[Any], needs: Sequence[int] | None = None,
        view: Callable[[Any], Any] = lambda x: x) -> Outcome:  # fmt: skip
    """Run both, forward and backward. `needs`: inputs with gradients (None: floats); `view` maps the first input."""
    wanted = [a is not None and a.dtype.kind == "f" and (needs is None or i in needs) for i, a in enumerate(arrays)]
    mine = [None if a is None else vk.tensor(a, requires_grad=w) for a, w in zip(arrays, wanted, strict=True)]
    other = [
        None if a is None else torch.tensor(a.astype(np.float64) if a.dtype.kind == "f" else a, requires_grad=w)
        for a, w in zip(arrays, wanted, strict=True)
    ]
    found, expected = ours(view(mine[0]), *mine[1:]), theirs(view(other[0]), *other[1:])
    weights = normal(17, *expected.shape)
    if any(wanted):
        expected.backward(torch.tensor(weights.astype(np.float64)).reshape(expected.shape))
        found.backward(vk.tensor(weights.reshape(found.shape)))
    return Outcome(found, expected, mine, other, weights)


def check(outcome: Outcome, what: str, allowed: Any, gradients: Any = None) -> None:
    """Check results against `allowed` and the gradient of input i against gradients[i] (or one bound for all)."""
    assert_close(outcome.found, outcome.expected, allowed, what)
    for i, (mine, other) in enumerate(zip(outcome.ours, outcome.theirs, strict=True)):
        if mine is None or not mine.requires_grad:
            continue
        assert mine.grad is not None, f"{what}: no gradient of input {i}"
        limit = gradients[i] if isinstance(gradients, (list, tuple)) else gradients
        assert_close(mine.grad, other.grad, limit, f"{what}, gradient of input {i}")


def check_linear(ours: Callable[..., Any], theirs: Callable[..., Any], arrays: Sequence[Any], what: str, terms: int,
                 gradient_terms: Sequence[int], view: Callable[[Any], Any] = lambda x: x) -> None:  # fmt: skip
    """Check an operation that is linear in each input and sums `terms` products.

    `gradient_terms` are the numbers of terms of each gradient. Bounds come from the reference on absolute values.
    """
    outcome = run(ours, theirs, arrays, view=view)
    sizes = [None if a is None else torch.tensor(np.abs(a).astype(np.float64), requires_grad=True) for a in arrays]
    size = theirs(view(sizes[0]), *sizes[1:])
    size.backward(torch.tensor(np.abs(outcome.weights).astype(np.float64)))
    bounds = [None if s is None else linear(to_numpy(s.grad), n) for s, n in zip(sizes, gradient_terms, strict=True)]
    check(outcome, what, linear(to_numpy(size), terms), bounds)
