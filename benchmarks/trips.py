#!/usr/bin/env python3
"""Count what a call of vkjit executes: `python benchmarks/trips.py [--device DEVICE] [--list TRIP]`.

A trip is one call: a kernel launch, an eager operation, a backward pass. For each trip this prints the Python functions
entered ("frames"), and the distinct files and lines executed, with generated files (`_gen_*.py`) counted apart.
`--list` also prints the functions entered by one trip, in order. Unlike times, these figures are the same on every machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import numpy as np

import vkjit as vk

WARM_CALLS = 2000
"""Calls before a warm trip is counted."""
PAUSE = 0.5
"""Seconds between two such rows of calls: machine code is built in the background meanwhile, if it is built at all."""


@dataclass(slots=True)
class Trip:
    """The functions entered by a call, and the lines executed, without those of this file."""

    functions: list[str] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)

    def count(self, generated: bool) -> tuple[int, int, int]:
        """Return the numbers of frames, files and lines, in generated files or in all others."""
        frames = sum(_is_generated(name) is generated for name in self.functions)
        lines = [line for line in self.lines if _is_generated(line[0]) is generated]
        return frames, len({file for file, _ in lines}), len(lines)


def _is_generated(name: str) -> bool:
    return "_gen_" in name


def traced(call: Callable[[], Any]) -> Trip:
    """Run `call` and return its trip."""
    trip = Trip()

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            trip.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, _event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if file == __file__:
            return None
        trip.functions.append(f"{_short(file)}:{frame.f_code.co_name}")
        return on_line

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(before)
    return trip


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def make_kernel() -> Any:
    @vk.kernel(over="out")  # type: ignore[untyped-decorator]
    def scaled_sum(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]) -> None:
        i = vk.global_id(0)
        out[i] = a[i] * 2.0 + b[i]

    return scaled_sum


def _vector() -> Any:
    return vk.tensor(np.ones(64, np.float32))


def warm(call: Callable[[], Any], calls: int = WARM_CALLS) -> Callable[[], Any]:
    """Call `call` that many times and return it. After many calls the device's queue is left open, as in a loop."""
    for rest in (calls, calls if calls == WARM_CALLS else 0):
        for number in range(rest):
            call()
            if number % 64 == 0:
                vk.synchronize()
        time.sleep(PAUSE if calls == WARM_CALLS else 0)
    return call


def kernel_call() -> Callable[[], Any]:
    kernel, a, b, out = make_kernel(), _vector(), _vector(), _vector()
    return warm(lambda: kernel(a, b, out))


def kernel_second_call() -> Callable[[], Any]:
    kernel, a, b, out = make_kernel(), _vector(), _vector(), _vector()
    return warm(lambda: kernel(a, b, out), 1)


def kernel_keyword_call() -> Callable[[], Any]:
    kernel, a, b, out = make_kernel(), _vector(), _vector(), _vector()
    return warm(lambda: kernel(a, b, out=out))


def numpy_call() -> Callable[[], Any]:
    kernel = make_kernel()
    a, b, out = (np.ones(64, np.float32) for _ in range(3))
    return warm(lambda: kernel(a, b, out), 1)


def first_of_form() -> Callable[[], Any]:
    """Return a call with new extents of a kernel that is compiled, and was launched with other extents."""
    kernel, a, b = make_kernel(), _vector(), _vector()
    kernel(a, b)
    out = _vector()
    return lambda: kernel(a, b, out)


def product(recorded: bool) -> Callable[[], Any]:
    a, b = (vk.tensor(np.ones((16, 16), np.float32)) for _ in range(2))
    a.requires_grad_(recorded)
    return warm(lambda: a @ b)


def backward() -> Callable[[], Any]:
    a, b = (vk.tensor(np.ones((16, 16), np.float32), requires_grad=True) for _ in range(2))

    def step() -> Callable[[], Any]:
        a.grad = b.grad = None
        total = (a @ b).sum()
        return lambda: total.backward()

    for _ in range(20):
        step()()
    return step()


TRIPS: dict[str, Callable[[], Callable[[], Any]]] = {
    "kernel on tensors, 2nd call": kernel_second_call,
    "kernel on tensors, warm": kernel_call,
    "kernel on tensors, warm, one keyword argument": kernel_keyword_call,
    "kernel on NumPy arrays, 2nd call": numpy_call,
    "first call of a form, plan known": first_of_form,
    "a @ b, warm": lambda: product(False),
    "a @ b, warm, recorded": lambda: product(True),
    "backward of (a @ b).sum()": backward,
}


def main() -> int:
    """Print the table of trips."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--device", help="a device as vk.device() takes it; default: the default device")
    parser.add_argument("--list", metavar="TRIP", help="also print the functions of trips whose name contains TRIP")
    arguments = parser.parse_args()
    with vk.use_device(vk.device(arguments.device)):
        print(f"{'trip':48}{'frames':>8}{'files':>7}{'lines':>7}   generated: frames, files, lines")
        for name, prepare in TRIPS.items():
            trip = traced(prepare())
            vk.synchronize()
            frames, files, lines = trip.count(generated=False)
            print(f"{name:48}{frames:8}{files:7}{lines:7}   {', '.join(map(str, trip.count(generated=True)))}")
            if arguments.list is not None and arguments.list in name:
                print("\n".join(f"    {function}" for function in trip.functions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
