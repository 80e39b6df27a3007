"""The CPU back end: kernels compiled through LLVM, vectorized over invocations, and run on a pool of threads.

Requires the optional package llvmlite; `available()` is True if it is installed. `codegen` generates LLVM assembly from
IR: `stride_analysis` finds what is uniform or strided within a vector of invocations, `barrier_regions` splits a kernel
at its barriers, `lower` and the modules that it calls emit the code. `runtime` compiles it to object code and runs it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

__all__ = ["MIN_LLVMLITE", "available", "compile_functions", "obstacle"]

MIN_LLVMLITE = (0, 45)
"""The first version with LLVM 20."""


@functools.lru_cache(maxsize=1)
def obstacle() -> str:
    """Why kernels can't run here, with what to do; empty where they can. Doesn't import llvmlite."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None:
        return "the CPU device needs llvmlite: pip install 'vkjit[cpu]'"
    version = _version_beside(spec.origin)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) >= MIN_LLVMLITE:
        return ""
    least = ".".join(map(str, MIN_LLVMLITE))
    return f"the CPU device needs llvmlite {least} or newer, found {version}: pip install --upgrade llvmlite"


def _version_beside(origin: str | None) -> str:
    """The version that the record of an installed package names; empty for a copy without a record. Reads one folder:
    importing `importlib.metadata` takes longer than opening the device."""
    if origin is None:
        return ""
    for record in Path(origin).parent.parent.glob("llvmlite-*.dist-info"):
        return record.name.removeprefix("llvmlite-").removesuffix(".dist-info")
    return ""


def available() -> bool:
    """Whether an llvmlite is installed that is new enough; doesn't import it."""
    return not obstacle()


def compile_functions(text: str, *names: str) -> dict[str, int]:
    """Compile LLVM assembly; see `runtime.host_compiler.compile_functions`, whose implementation this is."""
    from .runtime import llvm

    return llvm.compile_functions(text, *names)
