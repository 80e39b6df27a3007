"""Training epochs over an image folder, compared with the slower of decoding and computing, each measured alone.

Decoding and computing overlap, so an epoch should take about as long as the slower of the two. Each row runs in its own
process, which takes the minimum of three runs of each part. On the CPU device, launches get one thread less than the
machine has CPUs.
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
MAX_RATIO = 1.1
"""Maximum allowed ratio of an epoch's time to the slower part's time."""

_last: dict[float, float] = {}
"""The time of the slower part in milliseconds, by `share`, from the latest run of each row."""


def epoch(share: float) -> float:
    """Return the milliseconds of an epoch whose computation takes `share` times as long as its decoding."""
    threads = str(max(1, (os.cpu_count() or 2) - 1))
    process = subprocess.run(
        [sys.executable, str(PROGRAM), str(share)], check=False, text=True, capture_output=True,
        env={"VKJIT_NUM_THREADS": threads, **os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)},
    )  # fmt: skip
    if process.returncode:
        raise RuntimeError(f"{PROGRAM.name} ended with {process.returncode}: {process.stderr[-600:]}")
    times = json.loads(process.stdout.splitlines()[-1])
    _last[share] = max(times["decode"], times["compute"])
    return float(times["epoch"])


def longer(share: float) -> float:
    """Return the time of the slower of decoding and computing, measured in the same process as the epoch."""
    return _last[share]


ROWS = [
    Row(
        name, "ms", functools.partial(epoch, share), Target(ratio=1 / MAX_RATIO), "the longer part",
        functools.partial(longer, share), rounds=1,
    )
    for name, share in (
        ("image folder, mostly decoding: epoch", 0.4),
        ("image folder, decoding as long as computing: epoch", 1.0),
        ("image folder, mostly computing: epoch", 2.5),
    )
]  # fmt: skip
