"""Prints the GFLOP/s of a kernel of multiply-adds on the first hardware device, the median of nine launches by the device's
own clock. VKJIT_CUDA_CLOCK=0 measures it without the context that keeps NVIDIA's GPUs awake. Ends with code 3 where there is
no hardware device, or where another process keeps it awake.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time

import vkjit as vk

COUNT, ROUNDS = 1 << 20, 4096
AWAKE_MHZ = 1000
"""Idle clocks of these GPUs lie below, working clocks above."""


@vk.kernel(over="y")
def multiply_add(y: vk.InOut[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    a, b, c, d = y[i], y[i] + 1, y[i] + 2, y[i] + 3
    for _ in range(rounds):
        a = vk.fma(a, 0.5, 1.0)
        b = vk.fma(b, 0.5, 2.0)
        c = vk.fma(c, 0.5, 3.0)
        d = vk.fma(d, 0.5, 4.0)
    y[i] = a + b + c + d


def absent(reason: str) -> None:
    """Ends the program: there is nothing to measure here."""
    print(reason)
    sys.exit(3)


def clock_mhz() -> int:
    """The processors' clock of the first NVIDIA GPU; 0 where nvidia-smi doesn't tell."""
    if shutil.which("nvidia-smi") is None:
        return 0
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    first = done.stdout.split()[:1]
    return int(first[0]) if first and first[0].isdigit() else 0


def asleep() -> bool:
    """Whether the clock falls to where nobody holds it, some seconds after the last one did."""
    end = time.monotonic() + 15
    while clock_mhz() > AWAKE_MHZ:
        if time.monotonic() > end:
            return False
        time.sleep(0.25)
    return True


def main() -> None:
    found = [info for info in vk.devices() if info.kind in ("discrete", "integrated", "virtual") and not info.missing]
    if not found:
        absent("no hardware device with a Vulkan driver")
    held = os.environ.get("VKJIT_CUDA_CLOCK", "1") != "0"
    if not held and not asleep():
        absent("another process keeps the GPU awake: measure this row by itself")
    device = vk.device(found[0].index)
    if held:
        device.clock_ready()  # type: ignore[attr-defined]  # hardware devices are Vulkan devices
    with vk.use_device(device):
        y = vk.ones(COUNT)
        times = []
        for _ in range(10):
            start, end = vk.Event(timing=True), vk.Event(timing=True)
            start.record()
            multiply_add(y, ROUNDS)
            end.record()
            times.append(start.elapsed_time(end))
        assert abs(float(y.numpy()[0]) - 20.0) < 1e-3  # a = a / 2 + n ends at 2 n
    print(2.0 * 4 * COUNT * ROUNDS / (statistics.median(times[1:]) * 1e6))


if __name__ == "__main__":
    main()
