"""Memory throughput on a hardware device, compared with PyTorch on CUDA: transfers, memory-bound addition, copies that
overlap kernels; and the effect of holding the clock of NVIDIA GPUs.

Rates use the device's clock where only the device works, and the host's clock where the host takes part. The clock row
runs in its own processes and requires that nothing else keeps the GPU awake. It therefore comes first, and this group
should run before any other.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vkjit as vk
from benchmarks.framework import Absent, Row, Target

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "clocked_kernel.py"
CHECKOUT = str(PROGRAM.parents[2])
MOVED = 256 << 20
"""Size in bytes of a transferred array."""
ADDED = 1 << 28
REPEATS = 7


@functools.cache
def gpu() -> Any:
    """Return the first hardware device; raises Absent if there is none."""
    for info in vk.devices():
        if info.kind in ("discrete", "integrated", "virtual") and not info.missing:
            device = vk.device(info.index)
            device.clock_ready()  # type: ignore[attr-defined]  # hardware devices are Vulkan devices
            return device
    raise Absent("no hardware device with a Vulkan driver")


@functools.cache
def torch() -> Any:
    """Return PyTorch with CUDA."""
    try:
        import torch as module
    except ImportError as error:
        raise Absent("PyTorch isn't installed") from error
    if not module.cuda.is_available():
        raise Absent("PyTorch has no CUDA device")
    return module


def best_seconds(run: Callable[[], object]) -> float:
    """Return the median time of several runs after two warm-up runs; `run` must return only when all work is done."""
    run(), run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# -- clock


def multiply_adds(held: str) -> float:
    path = os.pathsep.join(part for part in (CHECKOUT, os.environ.get("PYTHONPATH", "")) if part)
    settings = os.environ | {"PYTHONPATH": path, "VKJIT_CUDA_CLOCK": held}
    done = subprocess.run([sys.executable, str(PROGRAM)], env=settings, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        raise Absent(done.stdout.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(done.stderr)
    return float(done.stdout)


# -- transfers to and from the device


@functools.cache
def moved(pinned: bool) -> tuple[Any, Any]:
    """Return a host array and a tensor of the same size."""
    device = gpu()
    host = device.host_array(MOVED).view(np.float32) if pinned else np.empty(MOVED // 4, np.float32)
    host[:] = np.random.default_rng(1).standard_normal(MOVED // 4, dtype=np.float32)
    with vk.use_device(device):
        return host, vk.zeros(MOVED // 4)


@functools.cache
def moved_by_torch(pinned: bool) -> tuple[Any, Any]:
    """Return a host tensor and a CUDA tensor."""
    return torch().randn(MOVED // 4).pin_memory() if pinned else torch().randn(MOVED // 4), torch().zeros(
        MOVED // 4, device="cuda"
    )


def upload(pinned: bool = True) -> float:
    """Measure GB/s of writing a NumPy array into an existing tensor."""
    host, tensor = moved(pinned)
    array = tensor.__vkjit_array__

    def run() -> None:
        array.device.write(array.buffer, array.offset, host.view(np.uint8))
        array.device.synchronize()

    seconds = best_seconds(run)
    if not np.array_equal(tensor.numpy(), host):
        raise RuntimeError("the upload changed the values")
    return MOVED / seconds / 1e9


def download() -> float:
    """Measure GB/s of `tensor.numpy()`, whose results are pinned."""
    host, tensor = moved(True)
    tensor.copy_(vk.tensor(host, device=tensor.device))
    seconds = best_seconds(lambda: tensor.numpy())
    if not np.array_equal(tensor.numpy(), host):
        raise RuntimeError("the download changed the values")
    return MOVED / seconds / 1e9


def torch_upload(pinned: bool = True) -> float:
    host, tensor = moved_by_torch(pinned)
    seconds = best_seconds(lambda: (tensor.copy_(host, non_blocking=True), torch().cuda.synchronize()))
    return float(MOVED / seconds / 1e9)


def torch_download() -> float:
    host, tensor = moved_by_torch(True)
    seconds = best_seconds(lambda: (host.copy_(tensor, non_blocking=True), torch().cuda.synchronize()))
    return float(MOVED / seconds / 1e9)


# -- memory-bound operations


def numbers(count: int) -> Any:
    """Return a tensor of incompressible values; memory compression could favor constants."""
    part = vk.tensor(np.random.default_rng(2).standard_normal(min(count, 1 << 20), dtype=np.float32))
    return vk.cat([part * (1 + i / 256) for i in range(max(1, count >> 20))])


def queued_add() -> float:
    """Measure GB/s of queued additions of 2^24 elements by the host's clock; each result is dropped immediately."""
    with vk.use_device(gpu()):
        x, y = numbers(1 << 24), numbers(1 << 24)

        def run() -> None:
            for _ in range(100):
                x + y
            vk.synchronize()

        return 12.0 * (1 << 24) * 100 / best_seconds(run) / 1e9


def torch_queued_add() -> float:
    x, y = (torch().randn(1 << 24, device="cuda") for _ in range(2))

    def run() -> None:
        for _ in range(100):
            x + y
        torch().cuda.synchronize()

    return 12.0 * (1 << 24) * 100 / best_seconds(run) / 1e9


def clone() -> float:
    """Measure GB/s of `x.clone()`."""
    with vk.use_device(gpu()):
        x = numbers(1 << 26)

        def run() -> None:
            for _ in range(20):
                x.clone()
            vk.synchronize()

        return 8.0 * (1 << 26) * 20 / best_seconds(run) / 1e9


def torch_clone() -> float:
    x = torch().randn(1 << 26, device="cuda")

    def run() -> None:
        for _ in range(20):
            x.clone()
        torch().cuda.synchronize()

    return 8.0 * (1 << 26) * 20 / best_seconds(run) / 1e9


def add() -> float:
    """Measure GB/s of `x + y` by the device's clock; results are allocated, as in PyTorch."""
    with vk.use_device(gpu()):
        x, y = numbers(ADDED), numbers(ADDED)
        milliseconds = []
        for _ in range(REPEATS + 2):
            start, end = vk.Event(timing=True), vk.Event(timing=True)
            start.record()
            total = x + y
            end.record()
            milliseconds.append(start.elapsed_time(end))
        if not np.array_equal(total[-1000:].numpy(), x[-1000:].numpy() + y[-1000:].numpy()):
            raise RuntimeError("the sum is wrong")
    return 12.0 * ADDED / (statistics.median(milliseconds[2:]) * 1e6)


def torch_add() -> float:
    x, y = (torch().randn(ADDED, device="cuda") for _ in range(2))
    milliseconds = []
    for _ in range(REPEATS + 2):
        start, end = (torch().cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        total = x + y
        end.record()
        torch().cuda.synchronize()
        milliseconds.append(start.elapsed_time(end))
        del total
    return float(12.0 * ADDED / (statistics.median(milliseconds[2:]) * 1e6))


# -- copies that overlap kernels


@vk.kernel(over="y")
def busy(y: vk.InOut[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    value = y[i]
    for _ in range(rounds):
        value = value * 0.5 + 1.0
    y[i] = value


@functools.cache
def work() -> tuple[Any, int]:
    """Return an array for `busy` and the iteration count that takes about as long as an upload."""
    with vk.use_device(gpu()):
        y = vk.ones(1 << 20)
        start, end = vk.Event(timing=True), vk.Event(timing=True)
        busy(y, 1000)
        start.record()
        busy(y, 10_000)
        end.record()
        seconds = MOVED / (upload() * 1e9)
        return y, max(1, int(10_000 * seconds * 1e3 / start.elapsed_time(end)))


def concurrent_upload(apart: bool) -> float:
    """Measure milliseconds of an independent upload and kernel; `apart` serializes them."""
    y, rounds = work()
    host, tensor = moved(True)
    array = tensor.__vkjit_array__

    def run() -> None:
        busy(y, rounds)
        gpu().flush()
        if apart:
            gpu().synchronize()
        array.device.write(array.buffer, array.offset, host.view(np.uint8))
        gpu().synchronize()

    with vk.use_device(gpu()):
        return best_seconds(run) * 1e3


ROWS = [
    Row(
        "multiply-adds, clock held", "GFLOP/s", lambda: multiply_adds("1"), Target(ratio=5.0), "clock not held",
        lambda: multiply_adds("0"), rounds=1,
    ),
    Row("pinned array to the device, 256 MiB", "GB/s", upload, Target(ratio=0.8), "torch, pinned", torch_upload),
    Row(
        "any NumPy array to the device", "GB/s", lambda: upload(False), Target(ratio=1.0), "torch, not pinned",
        lambda: torch_upload(False),
    ),
    Row("tensor.numpy(), 256 MiB", "GB/s", download, Target(ratio=0.8), "torch, pinned", torch_download),
    Row("x + y, 2^28 f32", "GB/s", add, Target(ratio=0.97), "torch", torch_add),
    Row("100 x + y of 2^24, queued", "GB/s", queued_add, Target(ratio=0.97), "torch", torch_queued_add),
    Row("x.clone(), 2^26 f32", "GB/s", clone, Target(ratio=0.97), "torch", torch_clone),
    Row(
        "upload beside a kernel of its length", "ms", lambda: concurrent_upload(apart=False), Target(ratio=1.6),
        "one after the other", lambda: concurrent_upload(apart=True),
    ),
]  # fmt: skip
