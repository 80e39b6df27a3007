"""Sanitizer overhead: standard library kernels with and without it, on the CPU device and Mesa's software driver.

A ratio of 0.25 means that a sanitized launch takes four times as long. Times cover whole operations, including shadow
memory and the wait for the result; both sides are the minimum of many runs in one process. "Through shared memory" rows
use the GPU variants of kernels, which use shared memory and so have potential races to check.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.framework import Absent, Row, Target

BIG = 1 << 22
SIDE = 384
MIN_RUNS, SECONDS, MAX_RUNS = 5, 0.3, 200
"""Minimum number of runs; short operations run for `SECONDS`, at most `MAX_RUNS` times."""
MEMORY, RACES = "bounds,uninitialised", "bounds,races"
TARGETS = {MEMORY: Target(ratio=1 / 4), RACES: Target(ratio=1 / 40)}


@functools.cache
def vk(name: str) -> Any:
    """Return vkjit; raises Absent if the device is missing."""
    import vkjit

    try:
        vkjit.device(name)
    except vkjit.VkjitError as error:
        raise Absent(f"no device {name}: {error}") from error
    return vkjit


@functools.cache
def tensor(name: str, *shape: int) -> Any:
    return vk(name).from_numpy(np.random.default_rng(len(shape)).random(shape, dtype=np.float32), device=name)


def min_ms(operation: Callable[[], Any]) -> float:
    """Return the minimum time of a call in milliseconds, until its result is available."""
    operation().device.synchronize()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < MIN_RUNS or (time.perf_counter() - begin < SECONDS and len(times) < MAX_RUNS):
        start = time.perf_counter()
        operation().device.synchronize()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def add(name: str) -> Callable[[], Any]:
    a, b = tensor(name, BIG), tensor(name, BIG) * 2
    return lambda: a + b


def add_in_place(name: str) -> Callable[[], Any]:
    a, b = tensor(name, BIG) * 1, tensor(name, BIG) * 2
    return lambda: a.add_(b)


def exponential(name: str) -> Callable[[], Any]:
    a = tensor(name, BIG)
    return lambda: vk(name).exp(a)


def largest(name: str) -> Callable[[], Any]:
    a = tensor(name, BIG >> 10, 1 << 10)
    return lambda: a.amax(dim=1)


def total(name: str) -> Callable[[], Any]:
    a = tensor(name, BIG)
    return lambda: a.sum()


def product(name: str) -> Callable[[], Any]:
    a, b = tensor(name, SIDE, SIDE), tensor(name, SIDE, SIDE) * 2
    return lambda: a @ b


def shared(make: Callable[[str], Callable[[], Any]]) -> Callable[[str], Callable[[], Any]]:
    """Return the operation with the GPU variants of its kernels."""

    def made(name: str) -> Callable[[], Any]:
        from vkjit.stdlib.registry import forcing_class

        operation = make(name)

        def call() -> Any:
            with forcing_class("gpu"):
                return operation()

        return call

    return made


def measure(name: str, make: Callable[[str], Callable[[], Any]], checks: str | None) -> float:
    """Return the milliseconds of an operation on a device under the given checks; None turns the sanitizer off."""
    package = vk(name)
    operation = make(name)
    if checks is None:
        return min_ms(operation)
    with package.testing.sanitized(checks):
        return min_ms(operation)


OPERATIONS: dict[str, Callable[[str], Callable[[], Any]]] = {
    f"a + b, {BIG >> 20}M f32": add,
    f"a.add_(b), {BIG >> 20}M f32": add_in_place,
    f"exp of {BIG >> 20}M f32": exponential,
    f"sum of {BIG >> 20}M f32": total,
    f"maxima of {BIG >> 10} rows": largest,
    f"matrix product, {SIDE}^3": product,
    "sum, through shared memory": shared(total),
    "matrix product, through shared memory": shared(product),
}

ROWS = [
    Row(
        f"{device}: {title}: {checks}",
        "ms",
        functools.partial(measure, device, make, checks),
        TARGETS[checks],
        "without",
        functools.partial(measure, device, make, None),
    )
    for device in ("cpu", "llvmpipe")
    for checks in (MEMORY, RACES)
    for title, make in OPERATIONS.items()
]
