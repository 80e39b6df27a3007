"""The CPU target: kernels through LLVM, vectorised over invocations, run on a pool of threads.

Needs the optional package llvmlite; `available()` tells whether it is there. The modules, in the order in which a
kernel flows: `shapes` (what is equal for a whole vector of invocations), `phases` (what lies between barriers),
`generator` with `control`, `elementwise`, `memory`, `atomics`, `subgroups`, `report` (LLVM's text), `machine` (text
to object code), `device` (buffers, launches, threads).
"""

from __future__ import annotations

import importlib.util

__all__ = ["available"]


def available() -> bool:
    """Whether llvmlite is installed; doesn't import it."""
    return importlib.util.find_spec("llvmlite") is not None
