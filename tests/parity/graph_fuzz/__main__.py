"""`python -m tests.parity.graph_fuzz`: fuzz graphs of tensor operations against PyTorch, forward and backward.

Tests --graphs N random graphs of up to --size operations, from --seed on, on --device. Each failure is shrunk and
printed with a line of JSON that --replay runs again. Failures with the same operations count once. The exit code is 1
if there are any.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from tests.parity.graph_fuzz.compare import Finding, examine
from tests.parity.graph_fuzz.program import Graph, drawn, from_text
from tests.parity.graph_fuzz.shrink import shrunk


def search(seed: int, size: int, device: Any) -> Finding | None:
    """Return the failure of one graph after shrinking, or None."""
    graph = drawn(seed, 1 + seed % size)
    finding = examine(graph, device) if graph.nodes else None
    if finding is None:
        return None

    def fails(smaller: Graph) -> bool:
        try:
            new_finding = examine(smaller, device) if smaller.nodes else None
        except (RuntimeError, IndexError, TypeError):  # not a valid program any more
            return False
        return new_finding is not None and new_finding.kind == finding.kind

    return examine(shrunk(graph, fails), device)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity.graph_fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--device", default="interpreter")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new graph after that time")
    parser.add_argument("--replay", default=None, metavar="JSON", help="one graph, as a finding prints it")
    options = parser.parse_args()
    if options.replay is not None:
        finding = examine(from_text(options.replay), options.device)
        print(finding or "agrees")
        return 1 if finding else 0
    start, findings, count = time.monotonic(), dict[Any, Finding](), 0
    for seed in range(options.seed, options.seed + options.graphs):
        if time.monotonic() - start > options.seconds:
            break
        count += 1
        finding = search(seed, options.size, options.device)
        key = finding and (finding.kind, tuple(sorted({n.name for n in finding.graph.nodes})))
        if finding is not None and key not in findings:
            findings[key] = finding
            print(f"seed {seed}: {finding}", flush=True)
    print(f"{count} graphs on {options.device} in {time.monotonic() - start:.0f} s: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
