"""`python -m vkjit doctor`: check this machine.

Runs a few small kernels on each device and compares their results with NumPy. Also prints known limitations of the
devices, the state of the kernel cache, and the optional packages that are missing, with the commands that install them.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import lang
from ..backends.selection import device, devices, driver_error, use_device
from ..compiler import cache
from ..dtypes import f32, i32
from ..errors import VkjitError
from ..launch.kernel import kernel
from ..runtime.device import Device
from ..runtime.device_info import DeviceInfo, version_of
from ..spirv import tools

__all__ = ["add_arguments", "run", "self_test"]

GROUP = 64
"""The number of invocations in a workgroup of `_group_sums`."""


@kernel(over="y")
def _saxpy(a: f32, x: lang.In[f32, "N"], y: lang.InOut[f32, "N"]):
    """y = a * x + y."""
    i = lang.global_id(0)
    y[i] = a * x[i] + y[i]


@kernel(groups=lambda x: workgroup_count(x.shape[0]), local=GROUP)
def _group_sums(x: lang.In[f32, "N"], out: lang.InOut[f32, "G"]):
    """out[g] = the sum of the GROUP elements of x from g * GROUP on, by tree reduction in shared memory."""
    sums = lang.shared(f32, GROUP)
    local_index = lang.local_id(0)
    sums[local_index] = x.get(lang.global_id(0), pad=0)
    lang.barrier()
    width = GROUP // 2
    while width > 0:
        if local_index < width:
            sums[local_index] += sums[local_index + width]
        lang.barrier()
        width //= 2
    if local_index == 0:
        out[lang.group_id(0)] = sums[0]


@kernel(over="x")
def _count(x: lang.In[i32, "N"], bins: lang.InOut[i32, "B"]):
    """Add the histogram of x to `bins`."""
    lang.atomic.add(bins, x[lang.global_id(0)], 1)


def workgroup_count(n: int) -> int:
    """Return the number of workgroups of `_group_sums` for n elements."""
    return -(-n // GROUP)


# -- checks: each returns a description of the problem, or "" if the device passes
def _test_saxpy() -> str:
    x = np.arange(1000, dtype=np.float32)
    y = np.ones(1000, np.float32)
    _saxpy(2.0, x, y)
    return "" if np.array_equal(y, 2 * x + 1) else "a * x + y gave wrong values"


def _test_shared() -> str:
    x = np.arange(200, dtype=np.float32)
    out = np.zeros(workgroup_count(200), np.float32)
    _group_sums(x, out)
    expected = [x[i : i + GROUP].sum() for i in range(0, 200, GROUP)]
    return "" if np.array_equal(out, expected) else "a sum through shared memory and barriers gave wrong values"


def _test_atomics() -> str:
    x = (np.arange(1000) % 7).astype(np.int32)
    bins = np.zeros(7, np.int32)
    _count(x, bins)
    return "" if np.array_equal(bins, np.bincount(x, minlength=7)) else "atomic additions were lost"


CHECKS: tuple[tuple[str, Callable[[], str]], ...] = (
    ("arithmetic", _test_saxpy),
    ("shared memory and barriers", _test_shared),
    ("atomics", _test_atomics),
)
"""The checks that run on each device, by name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one check: `problem` is "" if the device passed it; `milliseconds` includes compilation."""

    name: str
    problem: str
    milliseconds: float


def self_test(target: Device) -> list[Outcome]:
    """Run the checks on a device. An error of vkjit counts as a failed check."""
    outcomes = []
    with use_device(target):
        for name, check in CHECKS:
            start = time.perf_counter()
            try:
                problem = check()
            except VkjitError as error:
                problem = f"{type(error).__name__}: {error}"
            outcomes.append(Outcome(name, problem, (time.perf_counter() - start) * 1e3))
    return outcomes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--device", default=None, help="check this device only (number or part of the name)")


_NVIDIA = 0x10DE
"""The PCI vendor id of NVIDIA."""


def _expectations(info: DeviceInfo) -> list[str]:
    """Return notes on known limitations of a device and its driver."""
    if info.kind == "interpreter":
        return ["runs kernels in NumPy: correct, but slow; for tests and for machines without a driver"]
    notes = []
    if info.kind == "cpu":
        notes.append("a CPU driver: meant for correctness; expect it to be 20 to 100 times slower than NumPy")
        version = version_of(info.driver_version)
        if version and version < (25,):
            notes.append(
                f"Mesa {'.'.join(map(str, version))}: Mesa 25 and newer run the same kernels 2 to 5 times faster "
                "(Debian 13, Ubuntu 25.04 and newer have it)"
            )
    if info.caps is not None and info.caps.loop_cap is not None:
        notes.append(
            f"the driver stops loops after {info.caps.loop_cap} iterations; vkjit raises LoopLimitError before that happens"
        )
    if info.vendor == _NVIDIA and os.environ.get("VKJIT_CUDA_CLOCK") == "0":
        notes.append("VKJIT_CUDA_CLOCK=0: the GPU may stay at its idle clock, several times slower")
    return notes


def _missing_packages() -> list[str]:
    """Return a line for each missing optional package: its purpose, and the command that installs it."""
    optional = {
        "rich": ("cli", "progress bars and tables"),
        "PIL": ("data", "reading and writing images"),
        "sklearn": ("data", "the demo's photograph and digits"),
        "matplotlib": ("plot", "plots"),
        "safetensors": ("io", "saving and loading models"),
        "hypothesis": ("test", "property tests of kernels"),
    }
    lines = []
    for module, (extra, purpose) in optional.items():
        if importlib.util.find_spec(module) is None:
            lines.append(f"  {purpose}: pip install 'vkjit[{extra}]'")
    if not tools.available():
        lines.append("  checking emitted SPIR-V (spirv-val): pip install 'vkjit[spirv]'")
    return lines


def run(arguments: argparse.Namespace) -> int:
    """Check the devices and print the report. Exit code 1 if a check fails; raises VkjitError if no device matches."""
    failed = False
    # Without any device, `device` below raises this error.
    error = driver_error() if devices() else None
    if error is not None:
        print(f"Vulkan: none.\n  {error}")
    # All devices, or the one with this index or exact name, or else those whose name contains the text.
    chosen = [i for i in devices() if arguments.device is None or arguments.device in (str(i.index), i.name)]
    if arguments.device is not None and not chosen:
        chosen = [i for i in devices() if arguments.device.lower() in i.name.lower()]
    if not chosen:
        device(arguments.device)  # raises with a list of the available devices
    for info in chosen:
        print(f"device {info.index}: {info.name} ({info.kind})")
        if info.missing:
            print(f"  can't be used: it lacks {', '.join(info.missing)}; a newer driver may have it")
            continue
        for outcome in self_test(device(info.index)):
            verdict = "ok" if not outcome.problem else f"FAILED: {outcome.problem}"
            print(f"  {outcome.name}: {verdict} ({outcome.milliseconds:.0f} ms with compilation)")
            failed = failed or bool(outcome.problem)
        for note in _expectations(info):
            print(f"  note: {note}")
    problem = cache.problem()
    print(f"kernel cache: off: {problem}" if problem else f"kernel cache: on, {cache.directory()}")
    extras = _missing_packages()
    if extras:
        print("optional parts that are not installed:")
        print("\n".join(extras))
    return 1 if failed else 0
