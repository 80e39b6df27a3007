"""Single operations on 2^20 and 2^24 elements, on the default device, compared with PyTorch on the same kind of device.

Each operation is checked against PyTorch on a few thousand elements of its result before timing. The time per call is
that of a batch of queued calls, from the first call to the end of the last, divided by their number; PyTorch and vkjit
are measured in the same way. The last row of each size is the median of the ratios.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target
from benchmarks.groups.nn import reference_device, torch, wait_ours, wait_theirs

SIZES = {"1M": 2**20, "16M": 2**24}
SECONDS = 0.12
"""Approximate duration of a measurement."""
CALLS_BEFORE = 4
"""Calls before the one whose result is checked, so that the check covers a cached dispatch."""
WIDTH = 1024
"""Columns of the matrices used for operations along rows and axes."""

Inputs = dict[str, Any]
Call = Callable[[Any, Inputs], Any]


@functools.cache
def data(size: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the inputs of one size as NumPy arrays.

    x, y, z: normal; p: uniform in (0.1, 2); m: x as a matrix; i, k: integers; at: a permutation of the vector's
    indices; line: column indices for each row; rows: row indices; bins: integers below `WIDTH`; b: bool; h: f16.
    """
    count = SIZES[size]
    rng = np.random.default_rng(count)
    lines = count // WIDTH
    x, y, z = (rng.standard_normal(count, dtype=np.float32) for _ in range(3))
    return {
        "x": x, "y": y, "z": z, "p": rng.uniform(0.1, 2, count).astype(np.float32), "m": x.reshape(lines, WIDTH),
        "i": rng.integers(-1000, 1000, count), "k": rng.integers(0, 30, count).astype(np.int32),
        "at": rng.permutation(count), "line": rng.integers(0, WIDTH, (lines, WIDTH)),
        "rows": rng.integers(0, lines, lines), "bins": rng.integers(0, WIDTH, count), "b": y > 0,
        "h": x.astype(np.float16),
    }  # fmt: skip


@functools.cache
def ours(size: str) -> Inputs:
    import vkjit as vk

    return {name: vk.tensor(value) for name, value in data(size).items()}


@functools.cache
def theirs(size: str) -> Inputs:
    return {name: torch().tensor(value, device=reference_device()) for name, value in data(size).items()}


CALLS: dict[str, Call] = {
    "add": lambda _, v: v["x"] + v["y"],
    "sub": lambda _, v: v["x"] - v["y"],
    "mul": lambda _, v: v["x"] * v["y"],
    "div": lambda _, v: v["x"] / v["p"],
    "add a number": lambda _, v: v["x"] + 1.5,
    "add f16": lambda _, v: v["h"] + v["h"],
    "add i64": lambda _, v: v["i"] + v["i"],
    "add in place": lambda _, v: v["z"].add_(v["y"], alpha=1e-9),
    "add a row": lambda _, v: v["m"] + v["m"][0],
    "neg": lambda _, v: -v["x"],
    "abs": lambda t, v: t.abs(v["x"]),
    "exp": lambda t, v: t.exp(v["x"]),
    "log": lambda t, v: t.log(v["p"]),
    "sqrt": lambda t, v: t.sqrt(v["p"]),
    "rsqrt": lambda t, v: t.rsqrt(v["p"]),
    "sin": lambda t, v: t.sin(v["x"]),
    "tanh": lambda t, v: t.tanh(v["x"]),
    "sigmoid": lambda t, v: t.sigmoid(v["x"]),
    "relu": lambda t, v: t.relu(v["x"]),
    "gelu": lambda t, v: t.nn.functional.gelu(v["x"]),
    "silu": lambda t, v: t.nn.functional.silu(v["x"]),
    "erf": lambda t, v: t.erf(v["x"]),
    "square": lambda _, v: v["x"] ** 2,
    "pow": lambda _, v: v["p"] ** 1.7,
    "atan2": lambda t, v: t.atan2(v["x"], v["y"]),
    "remainder": lambda _, v: v["x"] % v["p"],
    "maximum": lambda t, v: t.maximum(v["x"], v["y"]),
    "clamp": lambda t, v: t.clamp(v["x"], -0.5, 0.5),
    "where": lambda t, v: t.where(v["b"], v["x"], v["y"]),
    "lerp": lambda t, v: t.lerp(v["x"], v["y"], 0.3),
    "addcmul": lambda t, v: t.addcmul(v["x"], v["y"], v["p"]),
    "eq": lambda _, v: v["i"] == 7,
    "lt": lambda _, v: v["x"] < v["y"],
    "logical_and": lambda t, v: t.logical_and(v["b"], v["b"]),
    "bitwise_and": lambda _, v: v["k"] & v["k"],
    "isnan": lambda t, v: t.isnan(v["x"]),
    "round": lambda t, v: t.round(v["x"]),
    "sign": lambda t, v: t.sign(v["x"]),
    "to f16": lambda _, v: v["x"].half(),
    "to i32": lambda _, v: v["x"].int(),
    "clone": lambda _, v: v["x"].clone(),
    "fill in place": lambda _, v: v["z"].fill_(0.5),
    "sum": lambda t, v: t.sum(v["x"]),
    "sum of rows": lambda t, v: t.sum(v["m"], 1),
    "sum of columns": lambda t, v: t.sum(v["m"], 0),
    "mean": lambda t, v: t.mean(v["x"]),
    "amax": lambda t, v: t.amax(v["x"]),
    "argmax of rows": lambda t, v: t.argmax(v["m"], 1),
    "var of rows": lambda t, v: t.var(v["m"], 1),
    "norm": lambda t, v: t.linalg.vector_norm(v["x"]),
    "any": lambda t, v: t.any(v["b"]),
    "softmax": lambda t, v: t.softmax(v["m"], 1),
    "log_softmax": lambda t, v: t.log_softmax(v["m"], 1),
    "logsumexp": lambda t, v: t.logsumexp(v["m"], 1),
    "cumsum": lambda t, v: t.cumsum(v["i"], 0),
    "cumsum of rows": lambda t, v: t.cumsum(v["m"], 1),
    "sort of rows": lambda t, v: t.sort(v["m"], 1)[0],
    "topk of rows": lambda t, v: t.topk(v["m"], 8, 1)[0],
    "sort": lambda t, v: t.sort(v["x"])[0],
    "gather": lambda t, v: t.gather(v["m"], 1, v["line"]),
    "index_select": lambda t, v: t.index_select(v["m"], 0, v["rows"]),
    "index by a vector": lambda _, v: v["x"][v["at"]],
    "scatter_add": lambda t, v: t.zeros_like(v["x"]).scatter_add(0, v["at"], v["y"]),
    "bincount": lambda t, v: t.bincount(v["bins"], minlength=WIDTH),
    "masked_fill": lambda t, v: t.masked_fill(v["x"], v["b"], 0.0),
    "nonzero": lambda t, v: t.nonzero(v["b"]),
    "cat": lambda t, v: t.cat([v["x"], v["y"]]),
    "stack": lambda t, v: t.stack([v["x"], v["y"]], 1),
    "transpose": lambda _, v: v["m"].t().contiguous(),
    "flip": lambda t, v: t.flip(v["m"], [1]),
    "roll": lambda t, v: t.roll(v["m"], 3, 1),
    "tril": lambda t, v: t.tril(v["m"]),
}
"""Operations by name, as functions of the library and its inputs; both libraries run the same function."""


@dataclass
class Measured:
    """PyTorch's time over vkjit's for each measured operation, by size."""

    ratios: dict[str, list[float]]


_measured = Measured({size: [] for size in SIZES})


def _library(mine: bool) -> Any:
    import vkjit as vk

    return vk if mine else torch()


def _values(result: Any) -> Any:
    """Return the first and the last 4096 elements of a result, on the host."""
    flat = result.detach().reshape(-1)
    ends = (flat[:4096], flat[max(flat.shape[0] - 4096, 0) :])
    if type(flat).__module__.startswith("torch"):
        ends = (ends[0].cpu(), ends[1].cpu())
    return np.concatenate([np.asarray(part.numpy()) for part in ends]).astype(np.float64)


@functools.cache
def _checked(name: str, size: str) -> None:
    """Compare the first and last elements of both results; raises RuntimeError if they differ by more than rounding.

    If PyTorch's f32 result is inaccurate, as its norm of many elements is on CPUs, its f64 result decides.
    """
    call = CALLS[name]
    for _ in range(CALLS_BEFORE):
        call(_library(True), ours(size))
        call(_library(False), theirs(size))
    found, expected = _values(call(_library(True), ours(size))), _values(call(_library(False), theirs(size)))
    if found.shape != expected.shape:
        raise RuntimeError(f"{name}: shape {found.shape}, PyTorch gives {expected.shape}")
    allowed = 2e-3 if "f16" in name else 1e-4
    if not (off := _distance(found, expected)) <= allowed:
        wide = {k: v.double() if v.dtype is torch().float32 else v for k, v in theirs(size).items()}
        off = _distance(found, _values(call(_library(False), wide)))
    if not off <= allowed:
        raise RuntimeError(f"{name}: differs from PyTorch by {off:.2e}")


def _distance(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.abs(found - expected).max() / max(float(np.abs(expected).max()), 1e-3))


def _seconds(call: Callable[[], Any], wait: Callable[[], None]) -> float:
    call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    once = max(time.perf_counter() - start, 1e-6)
    count = max(1, min(200, int(SECONDS / 4 / once)))
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < 2 or (time.perf_counter() < end and len(times) < 8):
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        times.append((time.perf_counter() - start) / count)
    return min(times)


def _measure(name: str, size: str, mine: bool) -> float:
    torch()
    _checked(name, size)
    inputs, library = (ours if mine else theirs)(size), _library(mine)
    call = CALLS[name]
    return 1e6 * _seconds(lambda: call(library, inputs), wait_ours if mine else wait_theirs)


def _row(name: str, size: str) -> Row:
    kept: dict[bool, float] = {}

    def side(mine: bool) -> Callable[[], float]:
        def measure() -> float:
            kept[mine] = _measure(name, size, mine)
            if not mine:
                _measured.ratios[size].append(kept[False] / kept[True])
            return kept[mine]

        return measure

    return Row(f"{name}, {size}", "us", side(True), Target(ratio=0.1), "torch", side(False), rounds=1)


def _median(size: str) -> Row:
    def measure() -> float:
        found = _measured.ratios[size]
        if len(found) < 2:
            raise Absent("run the other rows in the same call")
        return 100 / statistics.median(found)

    # depends on the device (0.9 on a GPU, 0.7 on a CPU), but ROWS is built without opening one
    target = Target(value=100 / 0.7)
    return Row(f"median time of all in percent of torch's, {size}", "times", measure, target, rounds=1)


ROWS = [row for size in SIZES for row in (*(_row(name, size) for name in CALLS), _median(size))]
