#!/usr/bin/env python3
"""Count the lines of the launch path: `python benchmarks/launch_lines.py`.

Prints the physical lines of each file that a launch, or the replay of an operation's launches, consists of, and their
total beside the limit. The exit code is 1 if the total exceeds the limit, 2 if a pattern matches no file.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 4_400

PATTERNS = (
    "vkjit/launch/**/*.py",
    "vkjit/runtime/dispatch_cache.py",
    "vkjit/runtime/launch_recorder.py",
    "vkjit/runtime/prepared_launch.py",
    "vkjit/runtime/host_compiler.py",
    "vkjit/backends/vulkan/runtime/record.py",
    "vkjit/runtime/machine_code/**/*.py",
    "vkjit/backends/vulkan/runtime/fast_path/**/*.py",
    "vkjit/backends/cpu/runtime/launch_code.py",
    "vkjit/backends/cpu/runtime/replay.py",
    "vkjit/backends/cpu/runtime/short_launch.py",
    "vkjit/tensor/op_cache/**/*.py",
)
"""Files of the launch path, relative to the checkout. A file that several patterns match counts once."""


def main() -> int:
    """Print the table."""
    files: set[Path] = set()
    for pattern in PATTERNS:
        found = [path for path in ROOT.glob(pattern) if path.is_file()]
        if not found:
            print(f"no file matches {pattern}: update PATTERNS in {Path(__file__).name}", file=sys.stderr)
            return 2
        files.update(found)
    total = 0
    for path in sorted(files):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        total += lines
        print(f"{lines:6,}  {path.relative_to(ROOT).as_posix()}")
    print(f"{total:6,}  total of {len(files)} files; limit {LIMIT:,}")
    return 1 if total > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
