"""More properties of the standard library: sizes beyond kernel thresholds, invalid inputs, masked rows.

Comments state the code path of a kernel that only this property reaches.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from hypothesis import strategies as st

import vkjit as vk
from tests.stdlib_properties.catalogue import (
    _F32,
    _SQUARES,
    _SUM,
    _WORDS,
    BOTH,
    KernelProperty,
    _pairs,
    _softmax,
    _softmax_gradient,
)
from tests.stdlib_properties.operations import Operation
from tests.stdlib_properties.philox import philox
from vkjit.stdlib.matmul import registers
from vkjit.stdlib.optim import optimizers, rules
from vkjit.stdlib.random import dropout
from vkjit.stdlib.rows import reduce, softmax_cpu

__all__ = ["BOUNDARY_KERNELS", "BOUNDARY_OPERATIONS"]


def _dropped(x: Any, seed: Any, chance: Any, scale: Any) -> Any:
    drawn = philox(int(seed[0]), -(-len(x) // 4)).reshape(-1)[: len(x)] if len(x) else np.zeros(0, np.uint64)
    kept = (drawn >> np.uint64(8)).astype(np.float32) * np.float32(2.0**-24) >= np.float32(chance)
    return np.where(kept, x * scale, 0)


def _searched(x: Any, y: Any, size: Any) -> Any:
    """Return min/max and first index over every P-th element of blocks; the last element for empty ranges."""
    best, places = np.zeros(y.shape), np.zeros(y.shape, np.int64)
    for line, s, p in np.ndindex(*y.shape):
        at = np.arange(s * size + p, min((s + 1) * size, x.shape[1]), y.shape[2])
        at = at if len(at) else np.array([x.shape[1] - 1 if s * size + p > x.shape[1] - 1 else s * size + p])
        places[line, s, p] = at[np.argmax(x[line, at])]
        best[line, s, p] = x[line, places[line, s, p]]
    return {"best": best, "y": places}


_LINES = {"ACC": [vk.f32], "SIZE": [32], "LOG": [False, True]}

BOUNDARY_KERNELS = (
    # four accumulators, four iterations from 4096 elements on
    KernelProperty(reduce.reduce_per_workgroup, lambda x: x.sum(axis=2), {
        "elements": {k: v for k, v in _SUM.items() if k != "LIMIT"},
        "dims": {"R": [1, 7, 1023, 1024, 1030, 2100, 4095, 4096, 5200], "A": (1, 2), "B": (1, 2)}, **_F32}, "reduce_groups, long"),
    KernelProperty(reduce.reduce_per_workgroup, lambda x: np.sqrt((x**2).sum(axis=2)), {
        "elements": {k: v for k, v in _SQUARES.items() if k != "LIMIT"}, "dims": {"R": [1500], "A": [2], "B": [2]},
        **_F32}, "reduce_groups, roots"),
    KernelProperty(reduce.arg_reduce_blocks, _searched, {
        "elements": {"REPLACES": [reduce.replaces_maximum], "IN": [vk.f32], "LIMIT": [65536], "size": (5, 40), "x": (-9.0, 9.0)},
        "dims": {"L": (1, 2), "N": (1, 90), "S": (1, 3), "P": (1, 5)}, **_F32}),
    KernelProperty(registers.multiply_pairs, _pairs, {  # two column pairs per invocation
        "elements": {"SIZE": [32], "ROWS": [8], "PAIRS": [2], "a": _WORDS, "b": _WORDS}, "schedules": False,
        "dims": {"a": "G M H", "b": "G 2*H P", "c": "G M 2*P", "G": (1, 2), "M": (1, 11), "H": (1, 4), "P": [1, 63, 65, 130]},
        **_F32}, "multiply_pairs, two"),
    KernelProperty(softmax_cpu.softmax_per_subgroup, _softmax, {  # longer than the register rows
        "elements": {**_LINES, "ITEMS": [24], "x": (-9.0, 9.0)}, "dims": {"lines": (1, 3), "length": [1, 257, 300, 512, 700]},
        "schedules": False, **_F32}, "softmax_of_lines, long"),
    KernelProperty(softmax_cpu.gradient_per_subgroup, _softmax_gradient, {
        "elements": {**_LINES, "g": (-3.0, 3.0), "y": (-3.0, 0.0)}, "dims": {"lines": (1, 3), "length": [1, 257, 512, 700]},
        "schedules": False, **_F32}, "gradient_of_lines, long"),
    KernelProperty(dropout.apply_dropout, _dropped, {  # which elements are kept, word by word
        "elements": {"A": [vk.f32], "chance": (0.2, 0.8), "scale": (0.5, 2.0), "seed": st.integers(0, 2**63 - 1)}, **_F32},
        "dropped, some"),
)  # fmt: skip


def _steps(F: Any, xp: Any, *tensors: Any) -> Any:  # noqa: N803  # the convention in this package
    """Run two optimizer steps with several tensors."""
    parameters = [t.detach().clone().requires_grad_() for t in tensors]
    optimizer = importlib.import_module(f"{xp.__name__}.optim").Adam(parameters, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        sum(((p - n) ** 2).sum() for n, p in enumerate(parameters)).backward()
        optimizer.step()
    return tuple(p.detach() for p in parameters)


def _steps_at_once(_: Any, xp: Any, *tensors: Any) -> Any:
    """Run one step of three tensors in one launch; their states are stored in reverse order."""
    rate, epsilon, decay = 0.25, 0.125, 0.5
    parameters, gradients, squares = tensors[:3], tensors[3:6], tensors[6:]
    if xp is not vk:
        slopes = [g + decay * p for p, g in zip(parameters, gradients, strict=True)]
        states = [s * s + d * d for s, d in zip(squares, slopes, strict=True)]
        made = [p - rate * d / (s.sqrt() + epsilon) for p, d, s in zip(parameters, slopes, states, strict=True)]
        return (*made, xp.cat(states[::-1]))
    sizes = [t.shape[0] for t in parameters]
    table = np.zeros((2, optimizers.MAX_TENSORS), np.int32)
    table[0, :3] = np.cumsum([0, *sizes[:2]])
    table[1, :3] = np.cumsum([0, *sizes[:0:-1]])[::-1]
    values = [t.clone()._array for t in parameters]
    states = [xp.cat([s * s for s in squares[::-1]])._array]
    unused = optimizers.placeholder_arrays(values, vk.f32, states)
    several = optimizers.TensorBatch(tuple(values), tuple(states), vk.tensor(table)._array, sum(sizes), unused)
    optimizers.step_tensors(rules.adagrad, several, [g._array for g in gradients], (rate, epsilon, decay))
    return tuple(vk.Tensor(a) for a in (*values, *states))


CPU: Any = ("cpu", "llvm")
ALL: Any = (*BOTH, "llvm")

BOUNDARY_OPERATIONS = (
    Operation("conv3d", lambda F, xp, x, w, b: F.conv3d(x, w, b, padding=1),  # depth, with taps along it
              [[(1, 2, 4, 3, 35), (18, 2, 2, 3, 3), (18,)], [(2, 2, 3, 4, 4), (4, 2, 3, 1, 2), (4,)]], ALL),
    Operation("conv3d, strides", lambda F, xp, x, w: F.conv3d(x, w, stride=(2, 1, 2), dilation=(1, 2, 1)),
              [[(1, 2, 5, 6, 7), (3, 2, 2, 2, 3)]], ALL),
    Operation("conv3d, words", lambda F, xp, x, w: F.conv3d(x, w, padding=1), [[(1, 2, 3, 4, 8), (4, 2, 2, 3, 3)]],
              ("llvmpipe",)),
    Operation("conv2d, words, strides", lambda F, xp, x, w: F.conv2d(x, w, stride=(1, 2), padding=1),
              [[(1, 2, 4, 8), (4, 2, 2, 3)]], ("llvmpipe",)),
    Operation("conv2d, words, dilation", lambda F, xp, x, w: F.conv2d(x, w, dilation=(1, 2), padding=1),
              [[(1, 2, 4, 8), (4, 2, 2, 3)]], ("llvmpipe",)),
    Operation("conv2d, words, groups", lambda F, xp, x, w: F.conv2d(x, w, padding=1, groups=2),
              [[(2, 6, 4, 8), (10, 3, 3, 3)]], ("llvmpipe",)),
    Operation("conv2d, filters", lambda F, xp, x, w: F.conv2d(x, w, padding=1),  # several blocks of filters and channels
              [[(1, 3, 4, 33), (40, 3, 3, 3)], [(2, 9, 4, 5), (5, 9, 3, 3)], [(1, 17, 3, 4), (9, 17, 1, 1)]], ALL),
    Operation("conv2d, many groups", lambda F, xp, x, w: F.conv2d(x, w, padding=1, groups=3),
              [[(1, 6, 4, 33), (60, 2, 3, 3)], [(2, 15, 4, 5), (6, 5, 3, 3)]], ALL),
    Operation("conv2d, short loops", lambda F, xp, x, w, b: F.conv2d(x, w, b, padding=1),  # sums continued by later launches
              [[(1, 40, 3, 33), (3, 40, 3, 3), (3,)], [(2, 40, 5, 7), (5, 40, 2, 2), (5,)]], CPU,
              limits={"conv.direct_plan.MAX_CPU_ITERATIONS": 16, "conv.wgrad_plan.MAX_CPU_ITERATIONS": 64}),
    Operation("steps of several tensors", _steps, [[(5,), (2, 3), (4,)]], ALL, gradients=False),
    Operation("steps of several tensors at once", _steps_at_once, [[(5,), (70,), (4,)] * 3, [(1,), (1,), (2,)] * 3],
              gradients=False),
    Operation("max_pool, apart", lambda F, xp, x: F.max_pool2d(x, 2, 3), [[(2, 2, 7, 8)]], ("llvm",)),
    Operation("matmul, blocks", lambda F, xp, x, y: x @ y, [[(40, 30), (30, 70)], [(2, 300, 5), (2, 5, 300)]], ("llvm",),
              limits={"matmul.by_rule.MIN_GROUPS": 0}),
    Operation("matmul, few columns, batches", lambda F, xp, x, y: x @ y, [[(2, 9, 300), (2, 300, 2)]], ("llvm",)),
    Operation("group_norm, long", lambda F, xp, x, w, b: F.group_norm(x, 2, w, b), [[(1, 2, 5000), (2,), (2,)]], BOTH),
    Operation("layer_norm, many rows", lambda F, xp, x, w, b: F.layer_norm(x, x.shape[1:], w, b),
              [[(700, 3), (3,), (3,)], [(300, 140), (140,), (140,)]], BOTH),
)  # fmt: skip
