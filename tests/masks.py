"""Run a part of the suite on devices with reduced capabilities, like those of phones: `python -m tests.masks`.

Arguments: names of masks (default: all), then arguments for pytest, which runs once per mask. Kernels that need more
than a mask allows are skipped with the reason. The exit code is 1 if a run fails or no test of it passes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time

MASKS = {
    "small": "shared=16384 invocations=128",
    "mobile": "shared=16384 invocations=128 without=f64,i64,f16",
    "narrow subgroups": "subgroup=4",
    "wide subgroups": "subgroup=64",
    "phone": "kind=discrete shared=16384 invocations=128",
    "raspberry pi 5": "raspberry_pi_5",
    "raspberry pi 5, 16 lanes": "raspberry_pi_5 subgroup=16",
}
"""Capability masks by name."""

DEVICES = {
    "phone": "vulkan", "narrow subgroups": "interpreter", "wide subgroups": "interpreter",
    "raspberry pi 5, 16 lanes": "interpreter",
}  # fmt: skip
"""Masks that apply to one kind of device only."""

FILES = (
    "tests/device/stdlib/test_kernels.py",
    "tests/device/language/test_codegen_subgroups.py",
    "tests/device/language/test_vectors.py",
    "tests/device/language/test_int64_words.py",
)


def run(name: str, rest: list[str]) -> bool:
    """Run pytest under one mask; return True if it succeeds and at least one test passes."""
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--vkjit-caps={MASKS[name]}", *FILES, *rest]
    if name in DEVICES:
        command.append(f"--vkjit-device={DEVICES[name]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    fine = done.returncode == 0 and passed is not None
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr]
    print(f"{name} ({MASKS[name]}): {last[0]}, {time.monotonic() - start:.0f} s", flush=True)
    if not fine:
        print(done.stdout[-6000:] + done.stderr[-2000:])
    return fine


def main() -> int:
    """Run the named masks, or all, and return the exit status."""
    named = [a for a in sys.argv[1:] if a in MASKS]
    rest = [a for a in sys.argv[1:] if a not in MASKS]
    return 0 if all([run(name, rest) for name in named or MASKS]) else 1


if __name__ == "__main__":
    sys.exit(main())
