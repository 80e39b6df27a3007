"""Print the GFLOP/s of a multiply-add kernel on the first hardware device: the median of nine launches by device time.

VKJIT_CUDA_CLOCK=0 measures without the CUDA context that keeps the clock of NVIDIA GPUs up. Exits with code 3 without a
hardware device, or if another process keeps the GPU awake.
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
"""Threshold in MHz between idle and working clocks of these GPUs."""


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
    """Exit the program because the measurement isn't possible."""
    print(reason)
    sys.exit(3)


def clock_mhz() -> int:
    """Return the SM clock of the first NVIDIA GPU in MHz; 0 if nvidia-smi doesn't report it."""
    if shutil.which("nvidia-smi") is None:
        return 0
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    first = done.stdout.split()[:1]
    return int(first[0]) if first and first[0].isdigit() else 0


def asleep() -> bool:
    """Wait up to 15 seconds for the clock to fall to its idle level; False if it doesn't."""
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
    hold_clock = os.environ.get("VKJIT_CUDA_CLOCK", "1") != "0"
    if not hold_clock and not asleep():
        absent("another process keeps the GPU awake: measure this row by itself")
    device = vk.device(found[0].index)
    if hold_clock:
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
        assert abs(float(y.numpy()[0]) - 20.0) < 1e-3  # a = a / 2 + n converges to 2 n
    print(2.0 * 4 * COUNT * ROUNDS / (statistics.median(times[1:]) * 1e6))


if __name__ == "__main__":
    main()
