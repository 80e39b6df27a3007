"""Contents of sanitizer reports (lines, invocations, values), also for many checks in one kernel, on every executor."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import vkjit as vk

N = 64


@vk.kernel(local=(4, 2, 2))
def marks(place: vk.In[vk.i32, "3"], x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "2"]):
    if vk.global_id(0) == place[0]:
        if vk.global_id(1) == place[1]:
            if vk.global_id(2) == place[2]:
                y[1] = x[place[0] + 1000]


@vk.kernel(local=N)
def many(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    t = vk.i32(vk.local_id(0))
    for k in vk.unroll(3):
        y[t] = y[t] + x[t + k * (t // 48) * 100]
    y[t + t // 60 * 7] = 1.0
    y[t] = x[2 * t] / x[0]


@vk.kernel(local=1)
def divides(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    for k in vk.unroll(36):
        y[k] = x[k] / x[k]


@vk.kernel(local=1)
def differently(x: vk.In[vk.f32, "N"], d: vk.In[vk.f64, "N"], k: vk.In[vk.i64, "N"], y: vk.InOut[vk.i64, "N"]):
    y[0] = k[0] + k[1]
    y[1] = vk.i64(vk.i32(k[2]) * 2)
    small = x[0] / x[1]
    large = d[0] - d[0]
    if small < vk.f32(large):
        y[2] = 1
    y[3] = y[-k[2]]


@vk.kernel(local=N)
def neighbours(first: vk.i32, last: vk.i32, x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "M"]):
    t = vk.i32(vk.local_id(0))
    total = 0.0
    for i in range(first, last, 4):
        total += x[i + 1] + x[i + 3] + x[i] + x[i + 2]
    for i in range(0, last):
        total += x[last - i - 1] + x[last - i + 1]
    if t == 0:
        y[0] = total


def lines(kernel: Any) -> dict[str, int]:
    """Return the line numbers of a kernel by their text."""
    source, start = inspect.getsourcelines(kernel.__wrapped__)
    return {text.strip(): start + number for number, text in enumerate(source)}


@pytest.mark.parametrize("place", [(0, 0, 0), (3, 1, 1), (4, 0, 2), (7, 5, 3), (2, 3, 0)])
def test_invocations_have_their_ids(device: Any, place: tuple[int, int, int]) -> None:
    x, y = np.zeros(N, np.float32), np.zeros(2, np.float32)
    (report,) = vk.testing.sanitize(marks, np.array(place, np.int32), x, y, groups=(2, 3, 2), device=device)
    assert report.invocation is not None and report.values == (place[0] + 1000, N)
    assert report.invocation.global_id == place
    assert report.invocation.local_id == (place[0] % 4, place[1] % 2, place[2] % 2)
    assert report.invocation.group_id == (place[0] // 4, place[1] // 2, place[2] // 2)


def test_each_place_has_its_own_values(device: Any) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    found = vk.testing.sanitize(many, x, y, groups=1, device=device, checks="bounds")
    places = lines(many)
    unrolled = places["y[t] = y[t] + x[t + k * (t // 48) * 100]"]
    outside, past, twice = (r for r in found if r.kind == "out_of_bounds")
    assert (outside.line, past.line, twice.line) == (unrolled, unrolled + 1, unrolled + 2)
    assert all(r.values[1] == N and r.values[0] >= N and r.invocation is not None for r in found)
    assert outside.invocation is not None and past.invocation is not None and twice.invocation is not None
    assert outside.values[0] % 100 == outside.invocation.local_id[0] >= 48
    assert past.values[0] == past.invocation.local_id[0] + 7 and past.invocation.local_id[0] >= 60
    assert twice.values[0] == 2 * twice.invocation.local_id[0]


@pytest.mark.parametrize("wrong", [(), (0,), (31,), (32, 35), (3, 33)])
def test_more_places_than_a_word_has_bits(device: Any, wrong: tuple[int, ...]) -> None:
    x, y = np.ones(N, np.float32), np.zeros(N, np.float32)
    x[list(wrong)] = 0
    found = vk.testing.sanitize(divides, x, y, groups=1, device=device, checks="nan")
    assert [report.values for report in found] == [(0.0, 0.0)][: len(wrong)]


def test_values_of_all_types(device: Any) -> None:
    if "float64" not in device.caps.features:
        pytest.skip("the device has no f64")
    x, d = np.array([0, 0], np.float32), np.array([np.inf, 1])
    k = np.array([2**62, 2**62, 1 << 30], np.int64)
    y = np.zeros(3, np.int64)
    grown = [np.resize(a, N) for a in (x, d, k, y)]
    found = vk.testing.sanitize(differently, *grown, groups=1, device=device, checks="all")
    told = {(r.kind, r.line - lines(differently)["y[0] = k[0] + k[1]"]): r.values for r in found}
    assert told == {
        ("integer_overflow", 0): (2**62, 2**62),
        ("integer_overflow", 1): (1 << 30, 2),
        ("nan_birth", 2): (0.0, 0.0),
        ("nan_birth", 3): (np.inf, np.inf),
        ("out_of_bounds", 6): (-(1 << 30), N),
    }


@pytest.mark.parametrize(
    ("first", "last"), [(0, N - 2), (0, N - 1), (4, 5), (0, N), (0, N + 1), (60, 65), (62, 63), (8, 0)]
)
def test_neighbours_in_loops(device: Any, first: int, last: int) -> None:
    x, y = np.arange(N, dtype=np.float32), np.zeros(1, np.float32)
    found = vk.testing.sanitize(neighbours, first, last, x, y, groups=1, device=device)
    rising = [[i + offset for i in range(first, last, 4)] for offset in (1, 3, 0, 2)]
    falling = [[last - i + offset for i in range(last)] for offset in (-1, 1)]
    outside = [[place for place in places if place >= N] for places in (*rising, *falling)]
    assert [report.values for report in found] == [(places[0], N) for places in outside if places]
    read = (place for places in (*rising, *falling) for place in places)
    assert y[0] == sum(x[place] for place in read if place < N)
