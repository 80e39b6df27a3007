"""Loops with very many iterations give correct results or raise LoopLimitError, never wrong results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

N = 64


@vk.kernel(over="y")
def counted(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    for _ in range(n[i]):
        total += 1
    y[i] = total


@vk.kernel(over="y")
def endless(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    while total < n[i]:
        total += 1
    y[i] = total


@vk.kernel(over="y")
def left_early(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    for k in range(1000000):
        if k >= n[i]:
            break
        total += 1
    y[i] = total


@vk.kernel(over="y")
def two_sides(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    if i % 2 == 0:
        while total < n[i]:
            total += 1
    else:
        while total < n[i]:
            total += 1
    for _ in range(n[i]):
        total += 1
    y[i] = total // 2


@vk.kernel(over="y")
def turns(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    """The loops of different lanes run in different iterations of the outer loop."""
    i = vk.global_id(0)
    total = vk.i32(0)
    for lane in range(8):
        if i % 8 == lane:
            while total < n[i]:
                total += 1
    y[i] = total


@vk.kernel(over="y")
def skipped(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    """Early continue combined with loops."""
    i = vk.global_id(0)
    total = vk.i32(0)
    for lane in range(9):
        if i % 8 != lane:
            continue
        while total < n[i]:
            total += 1
    y[i] = total


@vk.kernel(over="y")
def left_from_branch(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    """Loops are exited from branches that contain loops."""
    i = vk.global_id(0)
    total = vk.i32(0)
    lane = vk.i32(0)
    while lane < 9:
        if i % 8 == lane:
            while total < n[i]:
                total += 1
            break
        lane += 1
    y[i] = total


@vk.kernel(over="y")
def nested(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    rest = n[i]
    while rest > 0:
        for _ in range(min(rest, 100)):
            total += 1
        rest -= 100
    y[i] = total


@vk.kernel(over="y")
def returning(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    total = vk.i32(0)
    for k in range(2000000):
        if k == n[i]:
            y[i] = total
            return
        for _ in range(2):
            total += 1
        total -= 1


@vk.kernel(over="y")
def rarely(n: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    """Loops without iterations still count one iteration each time they are reached."""
    i = vk.global_id(0)
    total = vk.i32(0)
    for k in range(n[i]):
        total += 1
        if k < 0:
            while total < n[i]:
                total += 1
            for _ in range(n[i]):
                total += 1
    y[i] = total


@vk.kernel(over="y")
def shared_maximum(n: vk.In[vk.i32, "N"], y: vk.InOut[vk.f32, "N"]):
    """Compare-and-swap loops count, too."""
    i = vk.global_id(0)
    for k in range(n[i]):
        vk.atomic.max(y, i % 4, vk.f32(k + 1))


PATTERNS = [counted, endless, left_early, two_sides, turns, skipped, left_from_branch, nested, returning, rarely]
SIZES = [0, 1, 7, 500, 7000, 8300, 21000, 33000, 50000, 65400, 65500, 65534, 65536, 100000]


def divergent(most: int) -> Any:
    """Return iteration counts that differ widely between adjacent invocations."""
    factors = np.array([1.0, 0.0, 0.5, 0.25, 0.99, 1.0, 0.1, 0.01])
    return (np.tile(factors, N // 8) * most).astype(np.int32)


@pytest.mark.parametrize("kernel", PATTERNS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("lengths", [lambda m: np.full(N, m, np.int32), divergent], ids=["uniform", "divergent"])
def test_right_or_reported(device: Any, kernel: Any, lengths: Any) -> None:
    for most in SIZES if device.caps.loop_cap else SIZES[:6]:
        n = lengths(most)
        try:
            got = kernel(n)
        except vk.LoopLimitError:
            assert device.caps.loop_cap is not None
            assert most > 7000, f"{most} iterations are far below the cap"
            continue
        np.testing.assert_array_equal(got, n)


@pytest.mark.parametrize("kernel", [counted, endless, left_early, nested], ids=lambda k: k.__name__)
def test_no_false_alarm_below_the_cap(device: Any, kernel: Any) -> None:
    n = divergent(60000 if device.caps.loop_cap else 3000)
    np.testing.assert_array_equal(kernel(n), n)


def test_a_sum_of_many_ones_is_never_wrong(device: Any) -> None:
    if device.caps.loop_cap is None:
        pytest.skip("the driver has no cap on iterations")
    with pytest.raises(vk.LoopLimitError, match="stops loops silently after 65,535 iterations"):
        counted(np.full(N, 100000, np.int32))


def test_error_names_the_loop(device: Any) -> None:
    if device.caps.loop_cap is None:
        pytest.skip("the driver has no cap on iterations")
    with pytest.raises(vk.LoopLimitError) as caught:
        endless(np.full(N, 100000, np.int32))
    assert caught.value.loc.file == __file__
    with open(__file__) as file:
        assert file.readlines()[caught.value.loc.line - 1].strip() == "while total < n[i]:"


def test_loops_of_atomics(device: Any) -> None:
    n = np.full(N, 300, np.int32)
    y = np.zeros(N, np.float32)
    try:
        shared_maximum(n, y)
        device.synchronize()
    except vk.LoopLimitError:
        pytest.fail("300 rounds are far below the cap")
    np.testing.assert_array_equal(y[:5], [300, 300, 300, 300, 0])


@vk.kernel(over="count")
def steps_to_cast(last: vk.In[vk.i8, "N"], count: vk.Out[vk.u32, "N"]):
    i = vk.global_id(0)
    steps = vk.u32(0)
    for _ in range(vk.u32(0), vk.u32(last[i]), vk.u32(1 << 20)):
        steps += vk.u32(1)
        if steps > vk.u32(5000):
            break
    count[i] = steps


@vk.kernel(over="count")
def steps_to_difference(last: vk.In[vk.u8, "N"], less: vk.In[vk.u8, "N"], count: vk.Out[vk.u32, "N"]):
    i = vk.global_id(0)
    steps = vk.u32(0)
    for _ in range(vk.u32(0), vk.u32(last[i]) - vk.u32(less[i]), vk.u32(1 << 20)):
        steps += vk.u32(1)
        if steps > vk.u32(5000):
            break
    count[i] = steps


def test_bounds_that_wrap_to_large_unsigned_values_end_the_loop(device: Any) -> None:
    """The induction variable would wrap past such a bound, and the loop would never end."""
    count = vk.zeros(4, dtype=vk.u32)
    steps_to_cast(vk.tensor(np.array([1, 2, 3, -1], np.int8)), count)
    np.testing.assert_array_equal(count.numpy(), [1, 1, 1, 4096])
    last, less = np.array([1, 2, 3, 0], np.uint8), np.array([0, 1, 1, 1], np.uint8)
    steps_to_difference(vk.tensor(last), vk.tensor(less), count)
    np.testing.assert_array_equal(count.numpy(), [1, 1, 1, 4096])
