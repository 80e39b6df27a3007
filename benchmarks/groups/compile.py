"""Startup and compilation latency: import time, first result in a new process, source to SPIR-V, disk cache lookup.

VKJIT_RIVALS_PYTHON names a Python interpreter that has the other compilers installed, if this one doesn't.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.framework import Absent, Row, Target

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
CHECKOUT = str(PROGRAMS.parent.parent)


def python_output(*arguments: str, python: str = "", **environment: str) -> str:
    """Return the standard output of a new Python process (this interpreter by default).

    Raises Absent with the last line of output if the process exits with code 3 (prerequisite missing).
    """
    path = os.pathsep.join(part for part in (CHECKOUT, os.environ.get("PYTHONPATH", "")) if part)
    settings = os.environ | {"PYTHONPATH": path} | environment
    done = subprocess.run(
        [python or sys.executable, *arguments], env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        raise Absent(done.stdout.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"python {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def _import_seconds(module: str, before: str = "sys") -> float:
    """Return the median time of `import module` in new processes that have already imported `before`."""
    code = f"import time, {before}; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return statistics.median(float(python_output("-c", code)) for _ in range(5))


def import_over_numpy() -> float:
    return _import_seconds("vkjit", before="numpy")


def import_numpy() -> float:
    return _import_seconds("numpy")


def _first_result(program: str, **environment: str) -> float:
    """Return the wall time of a process that computes one result, including interpreter startup."""
    start = time.perf_counter()
    python_output(str(PROGRAMS / program), **environment)
    return time.perf_counter() - start


def first_result_cold() -> float:
    """Measure the first result with empty vkjit and driver caches."""
    with tempfile.TemporaryDirectory() as folder:
        return _first_result("first_result.py", VKJIT_CACHE_DIR=folder, MESA_SHADER_CACHE_DISABLE="true")


def first_result_warm() -> float:
    """Measure the first result with both caches filled by an earlier run."""
    with tempfile.TemporaryDirectory() as folder:
        places = {"VKJIT_CACHE_DIR": f"{folder}/vkjit", "MESA_SHADER_CACHE_DIR": f"{folder}/mesa"}
        _first_result("first_result.py", **places)
        return _first_result("first_result.py", **places)


def first_result_taichi() -> float:
    with tempfile.TemporaryDirectory() as folder:
        return _first_result("first_result_taichi.py", TI_OFFLINE_CACHE_FILE_PATH=folder, TI_LOG_LEVEL="error")


def first_result_numpy() -> float:
    return _first_result("first_result_numpy.py")


def _compile_milliseconds(which: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return float(python_output(str(PROGRAMS / "compile_kernel.py"), which, VKJIT_CACHE_DIR=folder))


def compile_small() -> float:
    return _compile_milliseconds("small")


def compile_fifty_lines() -> float:
    return _compile_milliseconds("fifty")


RIVALS = os.environ.get("VKJIT_RIVALS_PYTHON", "")


def compile_small_taichi() -> float:
    with tempfile.TemporaryDirectory() as folder:
        program = str(PROGRAMS / "compile_kernel_taichi.py")
        places = {"TI_OFFLINE_CACHE_FILE_PATH": folder, "TI_LOG_LEVEL": "error"}
        return _last_number(python_output(program, python=RIVALS, **places))


def _last_number(text: str) -> float:
    """Return the number on the last line; some libraries print a banner first."""
    return float(text.strip().splitlines()[-1])


def compile_fifty_lines_by(rival: str) -> Callable[[], float]:
    """Return a function that measures compiling the same kernel with another compiler."""
    program = str(PROGRAMS / "compile_fifty_rival.py")
    return lambda: _last_number(python_output(program, rival, python=RIVALS))


def find_in_cache() -> float:
    """Measure a disk cache lookup in a different process from the one that stored the kernel."""
    program = str(PROGRAMS / "find_cached.py")
    with tempfile.TemporaryDirectory() as folder:
        python_output(program, "store", VKJIT_CACHE_DIR=folder)
        return statistics.median(float(python_output(program, VKJIT_CACHE_DIR=folder)) for _ in range(5))


def _long(*words: str) -> list[float]:
    return [float(word) for word in python_output(str(PROGRAMS / "compile_long_kernel.py"), *words).split()]


def compile_two_thousand_lines() -> float:
    return _long("2000")[0] / 1e3


def compile_two_thousand_branching_lines() -> float:
    return _long("2000", "branches")[0] / 1e3


def growth() -> float:
    """Return the ratio of compile times of 2,000 and 1,000 lines of straight-line code."""
    thousand, two_thousand = _long("1000", "2000")
    return two_thousand / thousand


ROWS = [
    Row("import vkjit, over numpy", "s", import_over_numpy, Target(value=0.15), "import numpy", import_numpy),
    Row("first result, cold caches", "s", first_result_cold, Target(value=1.0), "taichi", first_result_taichi),
    Row("first result, warm caches", "s", first_result_warm, Target(value=1.0), "numpy", first_result_numpy),
    Row("source to SPIR-V, small kernel", "ms", compile_small, Target(value=25), "taichi", compile_small_taichi),
    *(
        Row(
            "source to SPIR-V, 50 lines",
            "ms",
            compile_fifty_lines,
            Target(value=30),
            rival,
            compile_fifty_lines_by(rival),
        )
        for rival in ("taichi", "quadrants", "numba", "warp")
    ),
    Row("50 lines found on disk by a second process", "ms", find_in_cache, Target(value=3)),
    Row("source to SPIR-V, 2,000 lines", "s", compile_two_thousand_lines, Target(value=2)),
    Row(
        "source to SPIR-V, 2,000 lines, branches and loops", "s", compile_two_thousand_branching_lines, Target(value=2)
    ),
    Row("2,000 straight lines over 1,000", "times", growth, Target(value=2.5)),
]
