"""`python -m tests.masks`: a part of the suite on smaller devices, as phones have them: one run of pytest per mask.

Arguments: masks (default: all below), then what goes to pytest. Kernels that need more than a mask leaves are skipped with
the reason; everything else has to give the same results. The exit code is 1 where a run fails, or nothing is left of it.
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
}
"""Masks by name."""

DEVICES = {"phone": "vulkan", "narrow subgroups": "interpreter", "wide subgroups": "interpreter"}
"""Where a mask is for one kind of device alone."""

FILES = ("tests/device/test_stdlib_kernels.py", "tests/device/test_emit_subgroups.py", "tests/device/test_vectors.py")


def run(name: str, rest: list[str]) -> bool:
    """One mask; whether all went well."""
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
    """All masks that are named, or all."""
    named = [a for a in sys.argv[1:] if a in MASKS]
    rest = [a for a in sys.argv[1:] if a not in MASKS]
    return 0 if all([run(name, rest) for name in named or MASKS]) else 1


if __name__ == "__main__":
    sys.exit(main())
