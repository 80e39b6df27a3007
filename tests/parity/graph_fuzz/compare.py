"""Run a graph in vkjit and PyTorch and decide whether differences exceed rounding.

The reference is PyTorch in f64. The effect of rounding is measured by running the reference again with each value
perturbed by as many f32 ULPs as it has terms, and in f32. Results may differ by a few times the largest change this
causes. Discrete results (rounding up, comparisons, indices) aren't compared where perturbation changes them.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

import vkjit as vk
from tests.parity.graph_fuzz.program import UNIT, Graph, run

__all__ = ["Finding", "examine"]

RUNS = 4
_KINDS = {"f": "f", "b": "b", "i": "i", "u": "i"}
TOLERANCE_FACTOR = 8.0
"""Tolerance as a multiple of the largest change under perturbation."""


@dataclass(frozen=True)
class Finding:
    """A failure of kind "raises", "shape", "dtype", "values" or "gradients"; `where` is the number of the value."""

    kind: str
    where: int
    text: str
    graph: Graph

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}\n{self.graph}\n{self.graph.to_text()}"


def examine(graph: Graph, device: Any) -> Finding | None:
    """Run the graph in both libraries, forward and backward, and return the first failure."""

    single, single_gradients, _ = _reference(graph, 0.0, 0, np.float32)  # for types, and as another rounded run
    expected, gradients, terms = _reference(graph, 0.0, 0)
    try:
        with vk.use_device(device), warnings.catch_warnings():
            warnings.simplefilter("error")
            found, found_gradients = _ours(graph)
    except Exception as error:  # noqa: BLE001  any error for a graph that PyTorch computes
        return Finding("raises", len(expected) - 1, f"{type(error).__name__}: {error}", graph)
    for n, (one, two) in enumerate(zip(found, single, strict=True)):
        if tuple(one.shape) != tuple(two.shape):
            return Finding("shape", n, f"v{n} has the shape {tuple(one.shape)}, expected {tuple(two.shape)}", graph)
        if _kind(one) != _KINDS[two.dtype.kind] or (_kind(one) == "f" and one.dtype.itemsize != two.dtype.itemsize):
            return Finding("dtype", n, f"v{n} is {one.dtype!r}, expected {two.dtype}", graph)
    moved = [_reference(graph, UNIT * terms, seed)[:2] for seed in range(1, RUNS + 1)]
    moved.append((single, single_gradients))
    for n, one in enumerate(found):
        text = _differs(_numpy(one), expected[n], [m[0][n] for m in moved], terms)
        if text:
            return Finding("values", n, f"v{n}{text}", graph)
    for n, slope in enumerate(gradients):
        if slope is None:
            continue
        if found_gradients[n] is None:
            return Finding("gradients", n, f"v{n} has no gradient, expected one", graph)
        text = _differs(_numpy(found_gradients[n]), slope, [m[1][n] for m in moved], terms)
        if text:
            return Finding("gradients", n, f"the gradient of v{n}{text}", graph)
    return None


def _kind(value: Any) -> str:
    return "f" if value.dtype.is_float else "b" if value.dtype.name == "bool" else "i"


def _numpy(value: Any) -> Any:
    return value.detach().numpy()


def _weights(shape: Any, number: int) -> Any:
    return np.random.default_rng(number).uniform(0.5, 1.5, tuple(shape)).astype(np.float32)


def _reference(graph: Graph, size: float, seed: int, dtype: Any = np.float64) -> tuple[list[Any], list[Any], int]:
    """Return PyTorch's values, the leaves' gradients and a bound on the number of terms; `size` perturbs values."""
    import torch

    rng, most = np.random.default_rng(seed), 16

    def made(array: Any) -> Any:
        wide = array.astype(dtype) if array.dtype.kind == "f" else array
        return moved(torch.tensor(wide)).detach().requires_grad_(array.dtype.kind == "f")

    def moved(value: Any) -> Any:
        if not size or not value.is_floating_point():
            return value
        return value * torch.tensor(1 + size * rng.uniform(-1, 1, tuple(value.shape)))

    values, bases = run(graph, torch, made, moved)
    results = [(n, values[n]) for n in graph.results() if values[n].requires_grad and values[n].is_floating_point()]
    if results:
        sum((v * torch.tensor(_weights(v.shape, n).astype(dtype))).sum() for n, v in results).backward()
    most += max((max(v.shape, default=1) for v in values), default=1)
    return [v.detach().numpy() for v in values], [None if b.grad is None else b.grad.numpy() for b in bases], most


def _ours(graph: Graph) -> tuple[list[Any], list[Any]]:
    values, bases = run(graph, vk, lambda a: vk.tensor(a, requires_grad=a.dtype.kind == "f"))
    results = [(n, values[n]) for n in graph.results() if values[n].requires_grad and values[n].dtype.is_float]
    if results:
        total = None
        for n, value in results:
            term = (value * vk.tensor(_weights(value.shape, n))).sum()
            total = term if total is None else total + term
        total.backward()  # type: ignore[union-attr]
    return values, [b.grad for b in bases]


def _differs(found: Any, expected: Any, moved: list[Any], terms: int) -> str:
    """Describe how a value differs; empty if it doesn't."""
    if expected.dtype.kind != "f":
        settled = np.all([m == expected for m in moved], axis=0)
        wrong = settled & (found != expected)
    else:
        with np.errstate(all="ignore"):
            spread = np.max([np.abs(m - expected) for m in moved], axis=0, initial=0.0)
            allowed = TOLERANCE_FACTOR * spread + terms * UNIT * np.abs(expected) + 2.0**-100
            wrong = ~(
                (np.abs(found - expected) <= allowed) | (np.isnan(found) & np.isnan(expected)) | (found == expected)
            )
            wrong &= spread < 0.1 * (np.abs(expected) + 1)  # near a discontinuity, any result is accepted
    if not wrong.any():
        return ""
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return f"{list(map(int, at))} is {found[at]}, expected {expected[at]} ({int(wrong.sum())} of {wrong.size} wrong)"
