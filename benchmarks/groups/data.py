"""Epochs over a folder of images: the longer of decoding and computing, each measured alone, is what both together should take.

Each row is a process of its own, which takes the least of three times of each part; on the CPU device its launches get one
thread less than there are processors.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.framework import Row, Target

PROGRAM = Path(__file__).resolve().parent.parent / "programs" / "data_epoch.py"
LONGER = 1.1
"""How much longer than the longer part an epoch may take."""

_last: dict[float, float] = {}
"""What the latest process of a row found for the longer part: in milliseconds."""


def epoch(share: float) -> float:
    """Milliseconds of an epoch in which computing takes `share` of what decoding takes."""
    threads = str(max(1, (os.cpu_count() or 2) - 1))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(share)], check=False, text=True, capture_output=True,
        env={"VKJIT_NUM_THREADS": threads, **os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{PROGRAM.name} ended with {done.returncode}: {done.stderr[-600:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    _last[share] = max(found["decode"], found["compute"])
    return float(found["epoch"])


def longer(share: float) -> float:
    """The longer of decoding and computing, as the same process found them."""
    return _last[share]


ROWS = [
    Row(
        name, "ms", functools.partial(epoch, share), Target(ratio=1 / LONGER), "the longer part",
        functools.partial(longer, share), rounds=1,
    )
    for name, share in (
        ("image folder, mostly decoding: epoch", 0.4),
        ("image folder, decoding as long as computing: epoch", 1.0),
        ("image folder, mostly computing: epoch", 2.5),
    )
]  # fmt: skip
