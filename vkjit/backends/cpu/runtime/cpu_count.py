"""Number of CPUs that this process may keep busy (at least 1).

Takes the affinity mask and the CPU quota of control groups into account. A process that may run on 64 CPUs, but for
only 2 seconds of CPU time per second, as is usual in containers, gets 2: more threads would be stopped together in the
middle of a launch.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ["cpu_count", "processors"]

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def processors() -> int:
    """Return the number of CPUs that this process may run on, limited by the quota of its control group."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    paid = cpu_count(_GROUPS, _MOUNT)
    return allowed if paid is None else max(1, min(allowed, math.ceil(paid)))


def cpu_count(groups: Path, mount: Path) -> float | None:
    """Return the CPU quota of a process's control groups, as a number of CPUs; None without a limit.

    The quota is the minimum along the group hierarchy. Reads `cpu.max` of version 2, else `cpu.cfs_quota_us` and
    `cpu.cfs_period_us` of version 1.
    """
    found: list[float] = []
    try:
        lines = groups.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mount if not controllers else mount / "cpu"
        place = root / path.strip("/")
        for folder in (place, *place.parents):
            if folder == root.parent:
                break
            limit = _limit(folder)
            if limit is not None:
                found.append(limit)
    return min(found, default=None)


def _limit(folder: Path) -> float | None:
    try:
        text = (folder / "cpu.max").read_text(encoding="ascii").split()
    except OSError:
        text = []
        for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            try:
                text.append((folder / name).read_text(encoding="ascii").strip())
            except OSError:
                return None
    try:
        used, period = float(text[0]), float(text[1])
    except (IndexError, ValueError):  # "max"
        return None
    return used / period if used > 0 and period > 0 else None
