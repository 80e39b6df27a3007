#!/usr/bin/env python3
"""Stress test of the disk cache: many processes compile the same kernels while cache files, workers and sources change.

    python tests/faults/cache_stress.py --seconds 60

Each worker repeatedly imports a module of kernels, launches all of them in random order, and compares every element
with what the source says at that moment. Meanwhile this process deletes, truncates, swaps and overwrites cache files,
flips bytes in them, kills workers at random (SIGKILL) and starts new ones, and edits a device function that the kernels
use through another module, without changing the length of its text. It is a failure if an element is wrong or stems
from before an edit, or if a worker ends other than by our signal.

Prints one line of figures; the exit code is 0 if there was no failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
EDIT_SECONDS = 1.5
FIRST_GENERATION = 100_001
DEEPER = """
import vkjit as vk

@vk.func
def deepest(x):
    return x + {generation}  # {generation}
"""
HELPER = """
import vkjit as vk
import stress_deeper

@vk.func
def helper(x, factor):
    return stress_deeper.deepest(x) * factor
"""
KERNEL = """
@vk.kernel(over="y")
def kernel{number}(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    total = helper.helper(x[i], {factor})
    for k in range(rounds):
        if (total + k) % 3 == 0:
            total += {number}
        else:
            total -= k
    y[i] = total
"""


# -- workers


def expected(x: Any, number: int, generation: int, rounds: int) -> Any:
    """Return the expected result of a kernel, computed by NumPy."""
    total = (x + generation) * (number % 7 + 2)
    for k in range(rounds):
        total = total + ((total + k) % 3 == 0) * (number + k) - k
    return total


def generation_in(folder: Path) -> int:
    """Return the number that the device function adds, read from its file."""
    return int((folder / "stress_deeper.py").read_text().split("# ")[1])


def work(folder: Path, device: str, seed: int, rounds: int) -> int:
    """Import, launch and compare for `rounds` iterations (0: until killed); print a line of figures after each."""
    sys.path[:0] = [str(ROOT), str(folder)]
    sys.dont_write_bytecode = True
    import importlib

    import numpy as np

    import vkjit as vk
    from vkjit.compiler import driver

    vk.set_default_device(device)
    x = np.arange(-50, 50, dtype=np.int32)
    order = random.Random(seed)
    done = launches = 0
    while rounds == 0 or done < rounds:
        for name in ("stress_kernels", "stress_helper", "stress_deeper"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        kernels = importlib.import_module("stress_kernels").KERNELS
        numbers = list(range(len(kernels)))
        order.shuffle(numbers)
        allowed: set[int] = set()
        for turn, number in enumerate(numbers):
            before = generation_in(folder)
            found = kernels[number](x, rounds=number % 4)
            if turn == 0:  # an edit may fall into the first launch, which reads the source
                allowed = {before, generation_in(folder)}
            if not any(np.array_equal(found, expected(x, number, g, number % 4)) for g in allowed):
                wrong = {"wrong": number, "generations": sorted(allowed), "found": found[:5].tolist()}
                print(json.dumps(wrong), flush=True)
                return 3
            launches += 1
            figures = {"launches": launches, "cached": driver.TIMES.cached, "compiled": driver.TIMES.count}
            print(json.dumps(figures), flush=True)
        done += 1
    return 0


# -- changes to files


def write(path: Path, text: str) -> None:
    """Replace a file atomically, as editors do."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    os.replace(temporary, path)


def write_sources(folder: Path, kernels: int) -> None:
    """Write the three modules."""
    write(folder / "stress_deeper.py", DEEPER.format(generation=FIRST_GENERATION))
    write(folder / "stress_helper.py", HELPER)
    parts = [KERNEL.format(number=n, factor=n % 7 + 2) for n in range(kernels)]
    names = ", ".join(f"kernel{n}" for n in range(kernels))
    head = "import vkjit as vk\nimport stress_helper as helper\n"
    write(folder / "stress_kernels.py", head + "".join(parts) + f"\nKERNELS = [{names}]\n")


def damage(folder: Path, chance: random.Random) -> str:
    """Damage one or two cache files; return the kind of damage, or an empty string if there was nothing to damage."""
    files = sorted(folder.glob("*/*.vkjit")) + sorted(folder.glob("*/*.bin"))
    if not files:
        return ""
    path, other = chance.choice(files), chance.choice(files)
    what = chance.choice(["delete", "truncate", "flip", "flip", "exchange", "overwrite", "link", "litter"])
    try:
        _damage(what, path, other, chance)
    except OSError:  # another process was faster
        return ""
    return what


def _damage(what: str, path: Path, other: Path, chance: random.Random) -> None:
    if what == "delete":
        path.unlink()
    elif what == "truncate":
        os.truncate(path, chance.randrange(path.stat().st_size + 1))
    elif what == "flip":
        with open(path, "r+b") as file:
            data = bytearray(file.read())
            if data:
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            file.seek(0)
            file.write(data)
    elif what == "exchange":
        os.replace(path, other)
    elif what == "overwrite":
        path.write_bytes(chance.randbytes(chance.choice([0, 1, 50, 5000])))
    elif what == "link":
        path.unlink()
        path.symlink_to(other)
    else:
        (path.parent / f"{chance.randrange(1 << 30)}.tmp").write_bytes(b"half an entry")


# -- main loop


@dataclass
class Report:
    """Totals of a run, and its failures."""

    launches: int = 0
    cached: int = 0
    compiled: int = 0
    kills: int = 0
    edits: int = 0
    damages: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def text(self) -> str:
        """Return one line of totals, followed by the failures."""
        damages = sum(self.damages.values())
        line = (
            f"{self.launches} launches right ({self.compiled} compiled, {self.cached} from the cache), {self.kills} workers "
            f"killed, {damages} files damaged, {self.edits} edits, {len(self.failures)} failures"
        )
        return "\n".join([line, *self.failures])


class Worker:
    """A worker process that compiles and launches kernels."""

    def __init__(self, folder: Path, device: str, seed: int, rounds: int = 0) -> None:
        command = [sys.executable, __file__, "--worker", str(folder), "--device", device, "--seed", str(seed)]
        self.log = folder / f"worker{seed}.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*command, "--rounds", str(rounds)], stdout=log, stderr=subprocess.STDOUT, env=_settings(folder)
            )
        self.killed = False

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.killed = True
        self.process.send_signal(signal.SIGKILL)

    def finish(self, report: Report) -> None:
        """Wait for the process and add its figures to the report."""
        code = self.process.wait(120)
        lines = self.log.read_text(errors="replace").splitlines()
        figures = [line for line in lines if line.startswith('{"launches"')]
        if figures:
            last = json.loads(figures[-1])
            report.launches += last["launches"]
            report.cached += last["cached"]
            report.compiled += last["compiled"]
        if code != 0 and not (self.killed and code == -signal.SIGKILL):
            report.failures.append(f"a worker ended with {code}:\n" + "\n".join(lines[-20:]))


def _settings(folder: Path) -> dict[str, str]:
    behind = os.environ.get("PYTHONPATH", "")
    found = os.pathsep.join(filter(None, (str(ROOT), behind)))
    return {
        **os.environ, "VKJIT_CACHE": "1", "VKJIT_CACHE_DIR": str(folder / "cache"), "VKJIT_SPIRV_VAL": "0", "VKJIT_VERIFY": "0",
        "LP_NUM_THREADS": "1", "VKJIT_NUM_THREADS": "1", "PYTHONPATH": found,
    }  # fmt: skip


def stress(seconds: float, workers: int, kernels: int, devices: list[str], seed: int = 1) -> Report:
    """Run the stress test with workers spread over the devices. At the end, one worker per device runs undisturbed."""
    report, chance = Report(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="vkjit-stress-") as name:
        folder = Path(name)
        write_sources(folder, kernels)
        numbers = iter(range(10**6))
        running = [Worker(folder, devices[n % len(devices)], next(numbers)) for n in range(workers)]
        start = edited = time.monotonic()
        generation = FIRST_GENERATION
        while time.monotonic() - start < seconds and not report.failures:
            time.sleep(chance.uniform(0.0, 0.02))
            what = damage(folder / "cache", chance)
            if what:
                report.damages[what] = report.damages.get(what, 0) + 1
            if time.monotonic() - edited > EDIT_SECONDS:
                generation, edited = generation + 1, time.monotonic()
                write(folder / "stress_deeper.py", DEEPER.format(generation=generation))
                report.edits += 1
            _disturb(folder, running, devices, numbers, chance, report)
        for worker in running:
            worker.kill()
            worker.finish(report)
        for device in devices:
            Worker(folder, device, next(numbers), rounds=2).finish(report)
    return report


def _disturb(
    folder: Path, running: list[Worker], devices: list[str], numbers: Any, chance: random.Random, report: Report
) -> None:
    """Occasionally kill a worker; replace workers that have ended."""
    if chance.random() < 0.004 and not any(worker.killed for worker in running):
        chance.choice(running).kill()
        report.kills += 1
    for position, worker in enumerate(running):
        if worker.process.poll() is not None:
            worker.finish(report)
            running[position] = Worker(folder, devices[position % len(devices)], next(numbers))


def present_devices() -> list[str]:
    """Return the available devices with cached code: the first Vulkan device and the CPU."""
    import vkjit as vk

    names = [info.name for info in vk.devices() if info.kind not in ("llvm-cpu", "interpreter") and not info.missing][
        :1
    ]
    return names + [info.name for info in vk.devices() if info.kind == "llvm-cpu"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", action="append", help="name of a device; may be repeated (default: Vulkan and cpu)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return work(Path(given.worker), given.device[0], given.seed, given.rounds)
    sys.path.insert(0, str(ROOT))
    devices = given.device or present_devices()
    if not devices:
        print("no device here caches code: neither a Vulkan driver nor llvmlite is installed")
        return 3
    report = stress(given.seconds, given.workers, given.kernels, devices, given.seed)
    print(
        f"{given.workers} workers on {', '.join(devices)}, {given.kernels} kernels, {given.seconds:g} s: {report.text()}"
    )
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
