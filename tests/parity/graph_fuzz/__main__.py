"""`python -m tests.parity.graph_fuzz`: random graphs of tensor operations against PyTorch, forward and backward.

--graphs N graphs from --seed on, of up to --size operations, on --device; a finding is made smaller and printed with a line
of JSON that --replay runs again. Findings with the same operations count once. The exit code is 1 where there are any.
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
    """The finding of one graph, made smaller."""
    graph = drawn(seed, 1 + seed % size)
    found = examine(graph, device) if graph.nodes else None
    if found is None:
        return None

    def fails(smaller: Graph) -> bool:
        try:
            again = examine(smaller, device) if smaller.nodes else None
        except (RuntimeError, IndexError, TypeError):  # no program any more
            return False
        return again is not None and again.kind == found.kind

    return examine(shrunk(graph, fails), device)


def main() -> int:
    """Runs what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.parity.graph_fuzz", description=__doc__)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=10)
    parser.add_argument("--device", default="interpreter")
    parser.add_argument("--seconds", type=float, default=1e9, help="no new graph after that time")
    parser.add_argument("--replay", default=None, metavar="JSON", help="one graph, as a finding prints it")
    given = parser.parse_args()
    if given.replay is not None:
        found = examine(from_text(given.replay), given.device)
        print(found or "agrees")
        return 1 if found else 0
    start, known, count = time.monotonic(), dict[Any, Finding](), 0
    for seed in range(given.seed, given.seed + given.graphs):
        if time.monotonic() - start > given.seconds:
            break
        count += 1
        found = search(seed, given.size, given.device)
        key = found and (found.kind, tuple(sorted({n.name for n in found.graph.nodes})))
        if found is not None and key not in known:
            known[key] = found
            print(f"seed {seed}: {found}", flush=True)
    print(f"{count} graphs on {given.device} in {time.monotonic() - start:.0f} s: {len(known)} findings")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
