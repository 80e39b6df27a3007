"""Properties of the whole standard library: of kernels alone, and of the operations that launch them.

`OPERATIONS` and `KERNELS` (kernels with a reference for `vk.testing.check_kernel`) together launch every kernel of
`stdlib/`; a test checks this against the list of kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

import vkjit as vk
from tests.stdlib_properties.operations import Operation
from vkjit.stdlib.elementwise import functions, maps, vec4 as fours
from vkjit.stdlib.index import embedding, gather_scatter, gather_vec4
from vkjit.stdlib.matmul import registers, shared_tiles
from vkjit.stdlib.optim import optimizers, rules
from vkjit.stdlib.pool import pool
from vkjit.stdlib.random import dropout
from vkjit.stdlib.rows import cat, copy_vec4, norm_chunks, reduce, softmax_cpu
from vkjit.stdlib.scan_sort import scan

__all__ = ["KERNELS", "OPERATIONS", "KernelProperty"]


@dataclass(frozen=True)
class KernelProperty:
    """A kernel, its reference, and the inputs that its callers provide."""

    kernel: Any
    reference: Callable[..., Any] | None
    inputs: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    @property
    def label(self) -> str:
        return self.name or str(self.kernel.name)


def _softmax(x: Any, LOG: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True, initial=-np.inf)) if x.size else x
    total = e.sum(axis=1, keepdims=True)
    return x - x.max(axis=1, keepdims=True) - np.log(total) if LOG else e / total


def _softmax_gradient(g: Any, y: Any, LOG: Any) -> Any:
    if LOG:
        return g - np.exp(y) * g.sum(axis=1, keepdims=True)
    return (g - (g * y).sum(axis=1, keepdims=True)) * y


def _triangle(x: Any, diagonal: Any, UPPER: Any) -> Any:
    return np.triu(x, diagonal) if UPPER else np.tril(x, diagonal)


def _scatter(add: bool) -> Any:
    def reference(where: Any, values: Any, y: Any, start: Any, stop: Any) -> Any:
        made = y.copy()
        for a, n, b in np.ndindex(*where.shape):
            if start <= n < stop:
                if add:
                    made[a, where[a, n, b], b] += values[a, n, b]
                else:
                    made[a, where[a, n, b], b] = values[a, n, b]
        return made

    return reference


def _gather(x: Any, where: Any) -> Any:
    return np.take_along_axis(x, where.astype(np.int64), axis=1)


def _side_by_side(p: Any, q: Any) -> Any:
    return np.concatenate([p, q], axis=1)


def _running(x: Any, ends: Any, SEEDED: Any) -> Any:
    sums = np.cumsum(x, axis=2) + (ends[:, :, None] if SEEDED else 0)
    return {"y": sums, "ends": sums[:, :, -1]}


_F32 = {"dtypes": [vk.f32]}
_INDICES = {"where": ("0-E", "E-1"), "FROM_END": [True]}
_AXIS = {"A": (1, 3), "E": (1, 20), "B": (1, 4), "N": (1, 12)}
_SUM = {
    "LOAD": [reduce.load_value], "COMBINE": [reduce.add], "INIT": [0], "FINISH": [reduce.finish_value], "IN": [vk.f32],
    "ACC": [vk.f32], "total": "R", "LIMIT": [65536], "x": (-2.0, 2.0),
}  # fmt: skip
_SQUARES = {**_SUM, "LOAD": [reduce.load_square], "FINISH": [reduce.finish_root]}
_MATRIX = {"G": (1, 2), "M": (1, 70), "N": (1, 70), "K": (0, 40)}

_SHARED = (
    KernelProperty(maps.map1, np.square, {"elements": {"F": [functions.square], "C": [vk.f32]}, **_F32}),
    KernelProperty(maps.map2, np.subtract, {"elements": {"F": [functions.sub], "C": [vk.f32]}, **_F32}),
    KernelProperty(gather_scatter.take, lambda x, where: x[:, where], {
        "elements": _INDICES, "dims": _AXIS, "dtypes": {"T": [vk.f32], "I": [vk.i32, vk.i64]}}),
    KernelProperty(gather_scatter.take_last, lambda x, where: x[:, where], {
        "elements": _INDICES, "dims": {k: v for k, v in _AXIS.items() if k != "B"},
        "dtypes": {"T": [vk.f32], "I": [vk.i64]}}),
    KernelProperty(gather_vec4.take_vec4, lambda x, where: x[:, where], {
        "elements": {**_INDICES, "LOCAL": [64]}, "dims": {**_AXIS, "B": [4, 8]},
        "dtypes": {"T": [vk.f32], "I": [vk.i32, vk.i64]}}),
    KernelProperty(gather_vec4.take_last_vec4, lambda x, where: x[:, where], {
        "elements": _INDICES, "dims": {"A": (1, 3), "E": (1, 20), "N": [4, 12]},
        "dtypes": {"T": [vk.f32], "I": [vk.i64]}}),
    KernelProperty(gather_vec4.gather_last_vec4, _gather, {
        "elements": _INDICES, "dims": {"A": (1, 3), "E": (1, 20), "N": [4, 12]},
        "dtypes": {"T": [vk.f32], "I": [vk.i64]}}),
    KernelProperty(cat.cat_elements, lambda p, q: _side_by_side(p, q).reshape(-1), {
        "elements": {"INDEX": [vk.i32, vk.i64]}, "dims": {"A": [1, 3, 90], "M": (1, 9), "N": (1, 9), "y": "A*(M+N)"}, **_F32}),
    KernelProperty(cat.cat_vec4, _side_by_side, {"dims": {"A": (1, 3), "M": [4, 8], "N": [4, 12], "y": "A M+N"}, **_F32}),
    KernelProperty(copy_vec4.reverse_vec4, lambda x: x[:, ::-1], {"dims": {"R": (1, 3), "C": [4, 12]}, **_F32}),
    KernelProperty(copy_vec4.triangle_vec4, _triangle, {
        "elements": {"diagonal": (-3, 3), "UPPER": [False, True]}, "dims": {"M": (1, 9), "N": [4, 8]}, **_F32}),
    KernelProperty(gather_scatter.gather, _gather, {
        "elements": _INDICES, "dims": _AXIS, "dtypes": {"T": [vk.f32], "I": [vk.i64]}}),
    KernelProperty(gather_scatter.scatter_combine, _scatter(True), {
        "elements": {**_INDICES, "start": (0, "N-1"), "stop": (1, "N"), "COMBINE": [gather_scatter.add],
                     "C": [vk.i32]},
        "dims": _AXIS, "dtypes": {"T": [vk.i32], "U": [vk.i32], "I": [vk.i64]}}),
    KernelProperty(gather_scatter.scatter_assign, _scatter(False), {
        "elements": {**_INDICES, "start": (0, "N-1"), "stop": (1, "N")}, "dims": _AXIS,
        "dtypes": {"T": [vk.i32], "I": [vk.i64]}}),
    KernelProperty(scan.cumulative, _running, {
        "elements": {"COMBINE": [scan.add], "INIT": [0], "ACC": [vk.f32], "LIMIT": [65536], "x": (-2.0, 2.0),
                     "ends": (-2.0, 2.0), "SEEDED": [False, True]},
        "dims": {"R": (1, 70)}, **_F32}),
    KernelProperty(scan.triangle, _triangle, {
        "elements": {"diagonal": (-3, 3), "UPPER": [False, True]}, "dims": {"M": (0, 9), "N": (0, 9)}, **_F32}),
    KernelProperty(reduce.reduce_per_invocation, lambda x: x.sum(axis=2), {"elements": _SUM, "dims": {"R": (1, 70)}, **_F32}),
    KernelProperty(reduce.reduce_per_workgroup, lambda x: np.sqrt((x**2).sum(axis=2)), {
        "elements": {k: v for k, v in _SQUARES.items() if k != "LIMIT"}, "dims": {"R": (1, 600), "A": (1, 2), "B": (1, 2)},
        **_F32}),
    KernelProperty(reduce.reduce_by_shuffles, lambda x: x.sum(axis=2), {
        "elements": {**{k: v for k, v in _SUM.items() if k != "LIMIT"}, "LOCAL": [32, 64], "DOUBLINGS": [5], "DEPTH": [2]},
        "dims": {"R": (1, 600), "A": (1, 2), "B": (1, 2)}, "schedules": False, **_F32}),
    KernelProperty(reduce.arg_reduce_per_subgroup, lambda x: x.argmax(axis=2), {
        "elements": {"REPLACES": [reduce.replaces_maximum], "IN": [vk.f32], "SIZE": [32], "DOUBLINGS": [5]},
        "dims": {"R": (1, 600), "A": (1, 2), "B": (1, 2)}, "schedules": False, **_F32}),
    KernelProperty(reduce.arg_reduce_per_subgroup, lambda x: x.argmax(axis=2), {  # four vec4 at once, and a tail
        "elements": {"REPLACES": [reduce.replaces_maximum], "IN": [vk.f32], "SIZE": [32], "DOUBLINGS": [5], "x": (-9.0, 9.0)},
        "dims": {"R": [511, 512, 1024, 1030], "A": [3], "B": (1, 5)}, "schedules": False, **_F32}, "search_rows, long"),
    KernelProperty(shared_tiles.multiply_tiles, np.matmul, {
        "elements": {"ACC": [vk.f32], "A_ROWS": [False, True], "B_ROWS": [False, True]}, "dims": _MATRIX, **_F32}),
    KernelProperty(registers.multiply_registers, np.matmul, {
        "elements": {"ACC": [vk.f32], "ROWS": [1, 4], "COLUMNS": [1, 2], "LANES": [8]}, "dims": _MATRIX, **_F32}),
    KernelProperty(softmax_cpu.softmax_per_subgroup, _softmax, {
        "elements": {"ACC": [vk.f32], "SIZE": [32], "ITEMS": [8], "LOG": [False, True], "x": (-9.0, 9.0)},
        "dims": {"lines": (1, 3), "length": (1, 250)}, "schedules": False, **_F32}),
    KernelProperty(softmax_cpu.gradient_per_subgroup, _softmax_gradient, {
        "elements": {"ACC": [vk.f32], "SIZE": [32], "LOG": [False, True], "g": (-3.0, 3.0), "y": (-3.0, 0.0)},
        "dims": {"lines": (1, 3), "length": (1, 250)}, "schedules": False, **_F32}),
)  # fmt: skip


def _sgd(p: Any, g: Any, states: Any, n: Any, flags: Any) -> Any:
    (velocity,) = states
    step = g + n[3] * p
    if flags[0]:
        velocity = step if flags[1] else n[1] * velocity + n[2] * step
        step = step + n[1] * velocity if flags[2] else velocity
    return p - n[0] * step, velocity


def _adam(p: Any, g: Any, states: Any, n: Any, flags: Any) -> Any:
    mean, square, largest = states
    slope = g if flags[0] else g + n[5] * p
    value = p * n[6] if flags[0] else p
    mean = mean + n[1] * (slope - mean)
    square = n[2] * square + n[3] * slope**2
    largest = np.maximum(largest, square) if flags[1] else largest
    root = np.sqrt(largest if flags[1] else square)
    return value - n[0] * mean / (root / n[7] + n[4]), mean, square, largest


def _rmsprop(p: Any, g: Any, states: Any, n: Any, flags: Any) -> Any:
    square, velocity, mean = states
    slope = g + n[4] * p
    square = n[1] * square + n[2] * slope**2
    v = square
    if flags[1]:
        mean = mean + n[2] * (slope - mean)
        v = square - mean**2
    step = slope / (np.sqrt(v) + n[3])
    if flags[0]:
        step = velocity = n[5] * velocity + step
    return p - n[0] * step, square, velocity, mean


def _adagrad(p: Any, g: Any, states: Any, n: Any, _: Any) -> Any:
    slope = g + n[2] * p
    total = states[0] + slope**2
    return p - n[0] * slope / (np.sqrt(total) + n[1]), total


def _lion(p: Any, g: Any, states: Any, n: Any, _: Any) -> Any:
    (mean,) = states
    return p * n[5] - n[0] * np.sign(n[1] * mean + n[2] * g), n[3] * mean + n[4] * g


_RANGES = {
    "rate": (0.1, 0.5), "decay": (0.1, 0.5), "momentum": (0.5, 0.9), "epsilon": (0.01, 0.1), "undamped": (0.5, 0.9),
    "alpha": (0.5, 0.9), "beta": (0.5, 0.9), "fresh": (0.1, 0.5), "kept": (0.5, 0.9), "root_correction": (0.5, 1.0),
    "square": (1.0, 3.0), "largest": (1.0, 4.0), "mean": (-0.5, 0.5), "total": (0.5, 2.0), "velocity": (-1.0, 1.0),
}  # fmt: skip


def _step(rule: Any, reference: Any, states: str, numbers: tuple[str, ...], flags: int) -> KernelProperty:
    """Test an optimizer rule in the single-tensor kernel; unused states must stay unchanged."""
    names = states.split()
    elements: dict[str, Any] = {
        "RULE": [rule], "STATES": [len(names)], "NEGATE": [False, True],
        "FLAGS": list(itertools.product((False, True), repeat=flags)),
    }  # fmt: skip
    elements |= {key: _RANGES[name] for key, name in zip("abc", names, strict=False)}
    elements |= {f"n{i}": _RANGES[name] for i, name in enumerate(numbers)}

    def expected(
        p: Any, g: Any, a: Any, b: Any, c: Any, n0: Any, n1: Any, n2: Any, n3: Any, n4: Any, n5: Any, n6: Any, n7: Any,
        FLAGS: Any, NEGATE: Any,
    ) -> Any:  # fmt: skip
        given = (a, b, c)
        found = reference(p, -g if NEGATE else g, given[: len(names)], (n0, n1, n2, n3, n4, n5, n6, n7), FLAGS)
        return (*found, *given[len(names) :])

    return KernelProperty(
        optimizers.step_one, expected, {**_SMALL, "elements": elements}, f"step_one, {reference.__name__[1:]}"
    )


def _step_many() -> KernelProperty:
    """Test the multi-tensor kernel with one tensor."""
    elements: dict[str, Any] = {
        "RULE": [rules.lion], "STATES": [1], "NEGATE": [False], "FLAGS": [()], "TENSORS": [1], "table": (0, 0), "count": "N0",
        "a": _RANGES["mean"],
    }  # fmt: skip
    numbers = ("rate", "beta", "fresh", "beta", "fresh", "kept")
    elements |= {f"n{i}": _RANGES[name] for i, name in enumerate(numbers)}

    def expected(
        p0: Any, p1: Any, p2: Any, p3: Any, p4: Any, p5: Any, p6: Any, p7: Any, g0: Any, a: Any, b: Any, c: Any, n0: Any,
        n1: Any, n2: Any, n3: Any, n4: Any, n5: Any,
    ) -> Any:  # fmt: skip
        count = len(p0)
        value, mean = _lion(p0, g0, (a[:count],), (n0, n1, n2, n3, n4, n5), ())
        return (value, p1, p2, p3, p4, p5, p6, p7, np.concatenate([mean, a[count:]]), b, c)

    dims = {"N0": (1, 9), "MA": [9], "MB": [1], "MC": [1], **{f"N{i}": [1] for i in range(1, 8)}}
    return KernelProperty(optimizers.step_many, expected, {"elements": elements, "dims": dims, **_ALL_F32})


def _wide(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """Wrap a reference for 64-bit words that hold two f32."""

    def reference(**given: Any) -> Any:
        floats = [np.ascontiguousarray(given[n]).view(np.float32) for n in names]
        made = function(*floats, *([np.float32(given["s"])] if "s" in given else []))
        return np.asarray(made, np.float32).view(np.uint64)

    return reference


def _pairs(a: Any, b: Any) -> Any:
    return np.matmul(np.ascontiguousarray(a).view(np.float32), np.ascontiguousarray(b).view(np.float32))


def _dropped(x: Any, chance: Any, scale: Any) -> Any:
    return x * scale if chance <= 0 else np.zeros_like(x)


def _at_places(x: Any, at: Any) -> Any:
    return x[np.arange(len(at)) // 3 * 4 + at]


_WORDS = st.sampled_from(
    [int(np.array(p, np.float32).view(np.uint64)[0]) for p in ([1.0, 2.0], [-3.0, 0.5], [0.0, 7.0])]
)
_WIDE = {"F": [functions.mul], "C": [vk.f32]}
_ALL_F32 = {"dtypes": [vk.f32]}


def _vectors(function: Any, names: str) -> dict[str, Any]:
    """Return inputs of two vec4 (`count` specializes the kernel), with the array dimensions `names`."""
    elements: dict[str, list[Any]] = (
        {"count": [2]} if function is None else {"count": [2], "F": [function], "C": [vk.f32]}
    )
    if function in (functions.clamp, functions.mul_add):
        elements["D"] = [vk.f32]
    return {"elements": elements, "dims": {name: [8] for name in names}}


def _converted(a: Any) -> Any:
    """Convert 32-bit words of two f16 to words of four bytes."""
    return a.view(np.float16).astype(np.uint8).view(np.uint32)


_SMALL = {"elements": {}, "dims": {"N": [(5,), (2, 3)]}, **_ALL_F32}


def _direct() -> tuple[KernelProperty, ...]:
    """Return properties of kernels that operations launch only on some devices."""
    lanes = {"ACC": [vk.f32], "SIZE": [32]}
    choices = [False, True]
    return (
        _step(rules.sgd, _sgd, "velocity", ("rate", "momentum", "undamped", "decay"), 3),
        _step(rules.adam, _adam, "mean square largest", (
            "rate", "fresh", "beta", "fresh", "epsilon", "decay", "kept", "root_correction"), 2),
        _step(rules.rmsprop, _rmsprop, "square velocity mean", (
            "rate", "alpha", "fresh", "epsilon", "decay", "momentum"), 2),
        _step(rules.adagrad, _adagrad, "total", ("rate", "epsilon", "decay"), 0),
        _step(rules.lion, _lion, "mean", ("rate", "beta", "fresh", "beta", "fresh", "kept"), 0),
        _step_many(),
        KernelProperty(norm_chunks.update_running, lambda running, found, keep, take: keep * running + take * found, _F32),
        KernelProperty(maps.map1_packed(vk.f32, vk.f32), _wide(np.square, "a"), {
            "elements": {**_WIDE, "F": [functions.square], "a": _WORDS}, "dims": {"N": (1, 40)}}),
        KernelProperty(maps.map2_packed(vk.f32, vk.f32, vk.f32), _wide(np.multiply, "a", "b"), {
            "elements": {**_WIDE, "a": _WORDS, "b": _WORDS}, "dims": {"N": (1, 40)}}),
        KernelProperty(maps.map2_right_packed(vk.f32, vk.f32, vk.f32), _wide(np.multiply, "a"), {
            "elements": {**_WIDE, "a": _WORDS, "s": [2.0, -3.0]}, "dims": {"N": (1, 40)}}),
        KernelProperty(maps.iota, lambda y: np.arange(y.size, dtype=y.dtype), {
            "dims": {"N": (0, 70)}, "dtypes": {"R": [vk.i32]}}),
        KernelProperty(fours.fill_vec(vk.f32, vk.f32), lambda s, y: np.full(y.shape, s), _vectors(None, "N")),
        KernelProperty(fours.map1_vec(vk.f32, vk.f32), lambda a: a * a, _vectors(functions.square, "MN")),
        KernelProperty(fours.map2_vec(vk.f32, vk.f32, vk.f32), lambda a, b: a * b, _vectors(functions.mul, "MPN")),
        KernelProperty(fours.map2_right_vec(vk.f32, vk.f32, vk.f32), lambda a, s: a * s, _vectors(functions.mul, "MN")),
        KernelProperty(fours.map3_vec(*[vk.f32] * 4), lambda a, b, c: a + b * c, _vectors(functions.mul_add, "MPQN")),
        KernelProperty(fours.map3_right_vec(*[vk.f32] * 4), lambda a, b, s: a + b * s, _vectors(functions.mul_add, "MPN")),
        KernelProperty(fours.map3_middle_vec(*[vk.f32] * 4), lambda a, s, c: a + s * c, _vectors(functions.mul_add, "MPN")),
        KernelProperty(fours.map3_outer_vec(*[vk.f32] * 3), lambda a, s, t: np.clip(a, s, t), _vectors(functions.clamp, "MN")),
        KernelProperty(fours.map2_rows_vec4(*[vk.f32] * 3), lambda a, b: a * b, {
            "elements": {"count": [2], "F": [functions.mul], "C": [vk.f32]}, "dims": {"M": (1, 3), "N": [8]}}),
        KernelProperty(fours.map1_vec(vk.f16, vk.u8, 16), _converted, {
            "elements": {"count": [2], "F": [functions.identity], "C": [vk.f32], "a": [0x48003C00, 0x3C004000]},
            "dims": {"M": [16], "N": [8]}}),
        KernelProperty(maps.fill(vk.f32), lambda s, y: np.full(y.shape, s), {"dims": {"N": [(), (5,), (2, 3)]}, **_F32}),
        KernelProperty(registers.multiply_broadcast, np.matmul, {
            "elements": {**lanes, "ROWS": [8], "COLUMNS": [1, 4]}, "schedules": False,
            "dims": {"G": (1, 2), "M": (1, 11), "N": (1, 140), "K": (1, 9)},
            **_F32}),
        KernelProperty(registers.multiply_pairs, _pairs, {
            "elements": {"SIZE": [32], "ROWS": [8], "PAIRS": [1, 2], "a": _WORDS, "b": _WORDS}, "schedules": False,
            "dims": {"a": "G M H", "b": "G 2*H P", "c": "G M 2*P", "G": (1, 2), "M": (1, 11), "H": (1, 4), "P": (1, 70)},
            **_F32}),
        KernelProperty(shared_tiles.multiply_large_tiles, np.matmul, {
            "elements": {"ACC": [vk.f32], "A_ROWS": choices, "B_ROWS": choices},
            "dims": {"G": [1], "M": (1, 140), "N": (1, 140), "K": (1, 20)}, **_F32}),
        KernelProperty(embedding.convert, lambda x: x, {"dtypes": {"A": [vk.f32], "T": [vk.f16, vk.f32]}}),
        KernelProperty(pool._gather_at_indices, _at_places, {
            "elements": {"I": [vk.i32], "count": "3*C", "size": [4], "out": [3], "at": (0, 3)},
            "dims": {"x": "4*C", "at": "3*C", "y": "3*C", "C": (1, 30)}, **_F32}),
        KernelProperty(dropout.apply_dropout, _dropped, {
            "elements": {"A": [vk.f32], "chance": [0.0, 2.0], "scale": (0.5, 2.0), "seed": [3]}, **_F32}),
    )  # fmt: skip


KERNELS: tuple[KernelProperty, ...] = (*_SHARED, *_direct())


def _classes(count: int) -> Any:
    return lambda rng, shape: rng.integers(0, count, shape)


BOTH = ("cpu", "gpu")
ROWS: Any = [[(3, 5)], [(1, 1)], [(2, 300)], [(5, 64)], [(2, 7, 3)]]
WIDE: Any = [[(3, 5)], [(2, 300)], [(1, 1100)], [(130, 3)]]

OPERATIONS = (
    Operation("unary", lambda F, xp, x: F.relu(x) + x.exp() + F.gelu(x), [[(7,)], [(3, 5)]]),
    Operation("binary", lambda F, xp, x, y: x * y + x / (y * y + 1), [[(7,), (7,)], [(3, 5), (5,)]]),
    Operation("scalars", lambda F, xp, x: 2.0 - x * 3.0 + 1.0 / (x * x + 1), [[(7,)], [(3, 5)]]),
    Operation("three", lambda F, xp, x, y, z: xp.where(x > 0, y, z) + xp.lerp(x, y, z), [[(7,)] * 3, [(3, 5)] * 3]),
    Operation("clamp", lambda F, xp, x: x.clamp(-0.5, 0.5) + F.softplus(x, 2.0, 3.0), [[(7,)], [(3, 5)]]),
    Operation("fill", lambda F, xp, x: x + xp.full((3, 5), 2.5), [[(3, 5)]]),
    Operation("softmax", lambda F, xp, x: F.softmax(x, dim=1), ROWS, BOTH),
    Operation("ctc_loss", lambda F, xp, x: F.ctc_loss(
        F.log_softmax(x, dim=2), xp.tensor([[1, 2], [2, 2]]), (5, 4), (2, 1)), [[(5, 2, 3)]]),
    Operation("log_softmax", lambda F, xp, x: F.log_softmax(x, dim=1), ROWS, BOTH),
    Operation("softmax of columns", lambda F, xp, x: F.softmax(x, dim=0), ROWS, BOTH),
    Operation("softmax, long", lambda F, xp, x: F.softmax(x, dim=1) + F.log_softmax(x, dim=1), [[(1, 20_000)]], ("gpu",)),
    Operation("softmax of words", lambda F, xp, x: F.softmax(x, dim=1) + F.log_softmax(x, dim=1), [[(3, 8)], [(2, 130)]],
              ("llvmpipe",)),
    Operation("conv2d, words", lambda F, xp, x, w: F.conv2d(x, w, padding=1), [[(1, 2, 6, 8), (4, 2, 3, 3)]], ("llvmpipe",)),
    Operation("matmul, few columns", lambda F, xp, x, y: x @ y, [[(70, 33), (33, 2)], [(9, 300), (300, 1)]], ("llvm", "cpu")),
    Operation("layer_norm", lambda F, xp, x, w, b: F.layer_norm(x, x.shape[1:], w, b),
              [[(3, 5), (5,), (5,)], [(2, 300), (300,), (300,)], [(70, 3), (3,), (3,)]], BOTH),
    Operation("layer_norm without weight", lambda F, xp, x: F.layer_norm(x, x.shape[1:]), WIDE, BOTH),
    Operation("rms_norm", lambda F, xp, x, w: F.rms_norm(x, x.shape[1:], w, 1e-5),
              [[(3, 5), (5,)], [(2, 300), (300,)], [(1, 1100), (1100,)]], BOTH),
    Operation("group_norm", lambda F, xp, x, w, b: F.group_norm(x, 2, w, b),
              [[(2, 4, 3), (4,), (4,)], [(1, 6, 70), (6,), (6,)]], BOTH),
    Operation("batch_norm", lambda F, xp, x, w, b: F.batch_norm(x, None, None, w, b, True),
              [[(4, 3), (3,), (3,)], [(2, 3, 40), (3,), (3,)], [(33, 2, 5), (2,), (2,)]], BOTH),
    Operation("cross_entropy", lambda F, xp, x, t: F.cross_entropy(x, t), [[(4, 5), (4,)], [(3, 300), (3,)]], BOTH,
              fixed={1: _classes(5)}),
    Operation("cross_entropy, weights", lambda F, xp, x, t, w: F.cross_entropy(x, t, w, ignore_index=2, label_smoothing=0.2),
              [[(6, 5), (6,), (5,)], [(3, 5, 4), (3, 4), (5,)]], BOTH,
              fixed={1: _classes(5), 2: lambda rng, shape: rng.uniform(0.5, 2, shape).astype(np.float32)}),
    Operation("nll_loss", lambda F, xp, x, t: F.nll_loss(x, t, ignore_index=1), [[(4, 5), (4,)], [(3, 5, 2), (3, 2)]],
              fixed={1: _classes(5)}),
    Operation("embedding", lambda F, xp, x, w: F.embedding(x, w), [[(7,), (5, 3)], [(2, 40), (6, 35)]], BOTH,
              fixed={0: _classes(5)}),
    Operation("one_hot", lambda F, xp, x: F.one_hot(x, 6), [[(7,)]], fixed={0: _classes(6)}, gradients=False),
    Operation("matmul", lambda F, xp, x, y: x @ y,
              [[(3, 5), (5, 4)], [(1, 7), (7, 1)], [(2, 9, 17), (2, 17, 33)], [(70, 20), (20, 130)]], (*BOTH, "llvm")),
    Operation("matmul, large", lambda F, xp, x, y: x @ y, [[(130, 17), (17, 140)]], ("gpu",)),
    Operation("linear", lambda F, xp, x, w, b: F.linear(x, w, b), [[(4, 5), (3, 5), (3,)], [(9, 40), (33, 40), (33,)]],
              (*BOTH, "llvm")),
    Operation("conv2d", lambda F, xp, x, w, b: F.conv2d(x, w, b, padding=1),
              [[(1, 2, 5, 6), (3, 2, 3, 3), (3,)], [(2, 3, 9, 19), (5, 3, 3, 3), (5,)]], (*BOTH, "llvm")),
    Operation("conv2d, strides", lambda F, xp, x, w: F.conv2d(x, w, stride=2, dilation=2),
              [[(1, 2, 9, 8), (4, 2, 3, 2)]], (*BOTH, "llvm")),
    Operation("conv2d, groups", lambda F, xp, x, w: F.conv2d(x, w, groups=2, padding=(0, 1)),
              [[(2, 4, 5, 7), (6, 2, 2, 3)]], (*BOTH, "llvm")),
    Operation("max_pool", lambda F, xp, x: F.max_pool2d(x, 3, 2, 1), [[(1, 2, 5, 6)], [(2, 1, 9, 8)]]),
    Operation("max_pool3d", lambda F, xp, x: F.max_pool3d(x, 2, dilation=2, stride=1), [[(1, 2, 4, 5, 4)]]),
    Operation("adaptive_max", lambda F, xp, x: F.adaptive_max_pool2d(x, (2, 3)), [[(1, 2, 5, 7)]]),
    Operation("avg_pool", lambda F, xp, x: F.avg_pool2d(x, 3, 2, 1) + F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
              [[(1, 2, 5, 6)], [(2, 1, 9, 8)]]),
    Operation("avg_pool3d", lambda F, xp, x: F.avg_pool3d(x, 2, 1, divisor_override=3), [[(1, 2, 3, 4, 5)]]),
    Operation("adaptive_avg", lambda F, xp, x: F.adaptive_avg_pool2d(x, (2, 3)), [[(1, 2, 5, 7)]]),
    Operation("sums", lambda F, xp, x: (x.sum(dim=1), x.mean(dim=0), x.sum()), [[(3, 5)], [(2, 600)], [(9, 33)]], BOTH),
    Operation("large sums", lambda F, xp, x: x.sum(), [[(3, 9001)]], BOTH),
    Operation("places", lambda F, xp, x: (x.argmax(dim=1), x.argmin(dim=0), x.max(dim=1)[0]), [[(3, 5)], [(2, 600)]], BOTH,
              gradients=False),
    Operation("large places", lambda F, xp, x: x.argmax(), [[(3, 9001)]], BOTH, gradients=False),
    Operation("triangles", lambda F, xp, x: xp.triu(x, 1) + xp.tril(x, -1), [[(4, 5)]]),
    Operation("running sums", lambda F, xp, x: x.cumsum(dim=1), [[(3, 5)], [(2, 70)]]),
    Operation("indexing", lambda F, xp, x, i: xp.gather(x, 1, i), [[(3, 5), (3, 4)]], fixed={1: _classes(5)}),
    Operation("repeated", lambda F, xp, x, i: x[i], [[(5, 3), (9,)]], fixed={1: _classes(5)}),
)  # fmt: skip
