"""Properties of kernels for reductions along rows, linear layers, losses and transposed copies, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import vkjit as vk
from tests.stdlib_properties.catalogue import KernelProperty, _running
from vkjit.stdlib import partial_sums
from vkjit.stdlib.elementwise import transpose
from vkjit.stdlib.loss import mean
from vkjit.stdlib.matmul import linear
from vkjit.stdlib.rows import moments
from vkjit.stdlib.scan_sort import scan

__all__ = ["SUMS"]

_F32 = {"dtypes": [vk.f32]}
_CHOICES = [False, True]
_PEAKS = st.sampled_from([0.0] * 60 + [-5.0] * 60 + [200.0])
_LENGTHS = [1, 31, 33, 127, 128, 129, 300]
"""Row lengths around a workgroup of 32 invocations, and around four elements per invocation."""

# -- along rows


def _variance(x: Any, divisor: Any, ROOT: Any) -> Any:
    squares = ((x - x.mean(axis=2, keepdims=True)) ** 2).sum(axis=2) / divisor
    return np.sqrt(squares) if ROOT else squares


def _log_sum_exp(x: Any) -> Any:
    return np.logaddexp.reduce(x, axis=2)


def _along_lines() -> tuple[KernelProperty, ...]:
    lines: dict[str, Any] = {"schedules": False, "dims": {"A": (1, 2), "B": (1, 3), "R": _LENGTHS}}
    steps = {"COMBINE": [scan.add], "INIT": [0], "ACC": [vk.f32], "SEEDED": _CHOICES}
    return (
        KernelProperty(moments.variance(vk.f32), _variance, {
            "elements": {"divisor": (0.5, 9.0), "ACC": [vk.f32], "SUM": [vk.f32], "ROOT": _CHOICES, "SIZE": [32],
                         "x": (-9.0, 9.0)}, **lines, **_F32}),
        KernelProperty(moments.variance(vk.f64), _variance, {
            "elements": {"divisor": (0.5, 9.0), "ACC": [vk.f32], "SUM": [vk.f64], "ROOT": [True], "SIZE": [32],
                         "x": (-9.0, 9.0)}, **lines, **_F32}, "variance, summed in f64"),
        KernelProperty(moments.variance(vk.f32), _variance, {  # far from 0: shows elements missing from the mean
            "elements": {"divisor": (0.5, 9.0), "ACC": [vk.f32], "SUM": [vk.f32], "ROOT": [False], "SIZE": [32],
                         "x": (4096.0, 4104.0)}, **lines, **_F32}, "variance, far from 0"),
        KernelProperty(moments.variance_in_registers(vk.f32), _variance, {
            "elements": {"divisor": (0.5, 9.0), "ACC": [vk.f32], "SUM": [vk.f32], "ROOT": _CHOICES, "SIZE": [32], "VECTORS": [2],
                         "x": (-9.0, 9.0)}, **lines, "dims": {**lines["dims"], "R": [4, 128, 132, 256]}, **_F32}),
        KernelProperty(moments.log_sum_exp, _log_sum_exp, {
            "elements": {"ACC": [vk.f32], "SIZE": [32], "x": (-9.0, 9.0)}, **lines, **_F32}),
        KernelProperty(moments.log_sum_exp, _log_sum_exp, {  # widely spread, with infinities and NaN
            "elements": {"ACC": [vk.f32], "SIZE": [32]}, **lines, **_F32}, "log_sum_exp, special"),
        KernelProperty(moments.log_sum_exp, _log_sum_exp, {  # exp of the largest elements overflows
            "elements": {"ACC": [vk.f32], "SIZE": [32], "x": _PEAKS}, **lines,
            "dims": {"A": [3], "B": (1, 5), "R": [33, 128, 129, 300]}, **_F32}, "log_sum_exp, peaks"),
        KernelProperty(scan.cumulative_rows_vec4, _running, {
            "elements": {**steps, "x": (-2.0, 2.0), "ends": (-2.0, 2.0)},
            "dims": {"A": (1, 2), "B": (1, 10), "R": (1, 70)}, **_F32}),
    )  # fmt: skip


# -- linear layers


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    return x @ weight.T + bias


def _gradients(g: Any, x: Any) -> Any:
    return {"weight": g.T @ x, "bias": g.sum(axis=0)}


def _layers() -> tuple[KernelProperty, ...]:
    sizes = {"bias": "N", **dict.fromkeys("MNK", [1, 9, 31, 33, 70])}
    given = {"ACC": [vk.f32], "MUL_ADD": [vk.fma], **dict.fromkeys(("x", "weight", "bias", "g"), (-2.0, 2.0))}
    forward = {k: v for k, v in given.items() if k != "g"}
    backward = {k: v for k, v in given.items() if k not in ("weight", "bias")}
    # each variant takes seconds to compile; the sanitizer checks them through operations
    quick = {"dims": sizes, "schedules": False, "sanitize": False, **_F32}
    return (
        KernelProperty(linear.linear_tiles, _linear, {"elements": {**forward, "BIASED": [True]}, **quick}),
        KernelProperty(linear.gradient_tiles, _gradients, {"elements": {**backward, "BIASED": [True]}, **quick}),
    )


# -- losses


def _mean(loss: Any, scale: Any) -> Any:
    return {"y": np.array([loss.sum() / scale.sum()]), "inverse": np.array([1 / scale.sum()])}


def _cross_entropy(x: Any, target: Any, weight: Any, ignored: Any, WEIGHT: Any) -> Any:
    m = x.max(axis=1)
    s = np.exp(x - m[:, None]).sum(axis=1)
    rows = np.arange(len(x))
    factors = np.where(target == ignored, 0, weight[target] if WEIGHT else 1.0)
    losses = factors * (np.log(s) + m - x[rows, target])
    inverse = 1 / factors.sum()
    return {"statistics": np.concatenate([m, s, [inverse]]), "y": np.array([losses.sum() * inverse])}


def _slopes(g: Any, x: Any, target: Any, weight: Any, statistics: Any, ignored: Any, WEIGHT: Any) -> Any:
    """Invalid targets give gradients of 0, like the ignored one."""
    classes = x.shape[1]
    m, s, inverse = np.split(statistics, [len(x), 2 * len(x)])
    valid = (target >= 0) & (target < classes) & (target != ignored)
    factors = np.where(valid, g[0] * inverse[0], 0) * (weight[np.where(valid, target, 0)] if WEIGHT else 1.0)
    hit = np.arange(classes) == target[:, None]
    return factors[:, None] * (np.exp(x - m[:, None]) / s[:, None] - hit)


def _losses() -> tuple[KernelProperty, ...]:
    types = {"T": [vk.f32], "A": [vk.f32], "W": [vk.f32], "G": [vk.f32], "R": [vk.f32], "K": [vk.i64]}
    rows = {"loss": (-9.0, 9.0), "scale": (0.5, 2.0), "ACC": [vk.f32]}
    scores = {"x": (-9.0, 9.0), "weight": (0.5, 2.0), "WEIGHT": _CHOICES, "ignored": [-100, 1]}

    def of(*names: str) -> dict[str, Any]:
        return {"dtypes": {n: types[n] for n in names}}

    return (
        KernelProperty(mean.mean_by_group, _mean, {
            "elements": rows, "dims": {"N": [1, 9, 255, 257, 600]}, **of("T", "A")}),
        KernelProperty(mean.mean_by_invocation, _mean, {"elements": rows, "dims": {"N": (1, 90)}, **of("T", "A")}),
        KernelProperty(mean.cross_entropy_by_group, _cross_entropy, {
            "elements": {**scores, "target": (0, "C-1"), "ACC": [vk.f32]}, "where": _counts_some,
            "dims": {"N": [1, 9, 255, 257, 300], "C": (1, 12), "weight": "C", "statistics": "2*N+1"},
            **of("T", "K", "W", "A")}),
        KernelProperty(mean.mean_gradient, _slopes, {
            "elements": {**scores, "target": (-1, "C"), "statistics": (0.5, 3.0), "g": (-2.0, 2.0), "x": (-9.0, 3.0)},
            "dims": {"N": (1, 20), "C": (1, 12), "weight": "C", "statistics": "2*N+1"},
            **of("G", "A", "T", "K", "W", "R")}),
    )  # fmt: skip


def _counts_some(target: Any, ignored: Any) -> bool:
    """True if a row isn't ignored: the mean of no rows is NaN."""
    return bool((target != ignored).any())


# -- transposed copies

_CROSSED = {"dims": {"G": (1, 2), "I": (1, 70), "J": (1, 70)}, "dtypes": {"T": [vk.f32], "R": [vk.f32, vk.f16]}}

SUMS: tuple[KernelProperty, ...] = (
    *_along_lines(), *_layers(), *_losses(),
    KernelProperty(transpose._through_shared, lambda x: x, _CROSSED),
    KernelProperty(partial_sums._sum_parts_tree, lambda parts: parts.sum(axis=0), {
        "elements": {"SLICES": [8], "DOUBLINGS": [3]}, "dims": {"P": (1, 40), "N": (1, 70)},
        "dtypes": {"T": [vk.f32], "R": [vk.f32]}}),
    KernelProperty(partial_sums._sum_parts_of_two, lambda parts: (parts.sum(axis=0)[:15], parts.sum(axis=0)[15:]), {
        "elements": {"SLICES": [8], "DOUBLINGS": [3]}, "dims": {"P": (1, 40), "N": [20], "Y": [15], "Z": [5]},
        "dtypes": {"T": [vk.f32], "R": [vk.f32]}}),
    KernelProperty(transpose._row_by_row, lambda x: x, {"elements": {"SIZE": [16]}, **_CROSSED}),
)  # fmt: skip
