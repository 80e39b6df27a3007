"""Launch 40 kernels 10,000 times in turn; print the longest launch in milliseconds, and its number.

The argument is "GPU" (the first hardware device), the name of a device, or "none": calls of a Python function that
launches nothing, which show how long the system itself interrupts a program. The first two launches of each kernel, which
compile and prepare it, don't count. The device drains every 100 launches, outside of the measurement, so that its queue
is never full. The time of Python's garbage collections, which may happen in a launch as anywhere, doesn't count either:
the longest is printed after the number. Exits with code 3 if there is no such device.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any

import vkjit as vk

KERNELS, LAUNCHES, DRAIN_EVERY = 40, 10_000, 100
IGNORED = 2 * KERNELS


def find(name: str) -> Any:
    """Return the device; exits the program if there is none."""
    hardware = [info.index for info in vk.devices() if info.kind in ("discrete", "integrated", "virtual")]
    if name == "GPU" and not hardware:
        print("no hardware device with a Vulkan driver")
        sys.exit(3)
    try:
        return vk.device(hardware[0] if name == "GPU" else name)
    except vk.VkjitError as error:
        print(str(error).replace("\n", " "))
        sys.exit(3)


def kernel(factor: int) -> Any:
    """Return a kernel that differs from the others in a captured constant."""

    @vk.kernel(over="out")  # type: ignore[untyped-decorator]
    def along(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]) -> None:
        i = vk.global_id(0)
        out[i] = a[i] * factor + b[i]

    return along


def launches(device: Any) -> list[Callable[[], Any]]:
    """Return one launch per kernel, with arrays of its own."""

    def launch(number: int) -> Callable[[], Any]:
        made, (a, b, out) = kernel(number + 2), (vk.zeros(1024, device=device) for _ in range(3))
        return lambda: made(a, b, out)

    return [launch(number) for number in range(KERNELS)]


def idle() -> None:
    """Run Python for about as long as a launch takes."""
    for _ in range(150):
        pass


class Collections:
    """Python's garbage collections: their total and longest time in nanoseconds."""

    def __init__(self) -> None:
        self.total = self.longest = self._start = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._start = time.perf_counter_ns()
            return
        taken = time.perf_counter_ns() - self._start
        self.total += taken
        self.longest = max(self.longest, taken)


def main(name: str) -> None:
    """Measure, and print the result."""
    if name == "none":
        calls: list[Callable[[], Any]] = [idle] * KERNELS
        wait: Callable[[], Any] = idle
    else:
        device = find(name)
        calls, wait = launches(device), device.synchronize
    clock, longest, place, collections = time.perf_counter_ns, 0, 0, Collections()
    for number in range(LAUNCHES):
        call = calls[number % KERNELS]
        start, collected = clock(), collections.total
        call()
        taken = clock() - start - (collections.total - collected)
        if taken > longest and number >= IGNORED:
            longest, place = taken, number
        if number % DRAIN_EVERY == DRAIN_EVERY - 1:
            wait()
    print(longest / 1e6, place, collections.longest / 1e6)


if __name__ == "__main__":
    main(sys.argv[1])
