"""The check of a program in Python: it runs on all devices, in one thread and in several, and is compared.

The judge is the program's function `expected`, which is called with the device as the current one, or the result of the
interpreter if the program has none.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from vkjit.backends.selection import device as open_device, use_device
from vkjit.runtime.device import Device

from ..check import Finding

__all__ = ["check_source"]

THREADS = 3


def check_source(text: str, devices: Sequence[Device], counts: Counter[str]) -> Finding | None:
    """Return the first finding of a program, or None. `devices` doesn't include the interpreter."""
    interpreter = open_device("interpreter")
    judged: list[Any] | None = None
    with tempfile.TemporaryDirectory() as folder:
        for device in (interpreter, *devices):
            stage = f"source on {device.name}"
            try:
                module = _load(text, Path(folder), len(sys.modules))
                captures = "vk.capture" in text  # the random numbers of several threads are mixed
                with use_device(device):
                    expected = module.expected() if hasattr(module, "expected") else judged
                    first = None if captures else _in_threads(module, device)
                    results = [module.run(), *(first or ())]
            except Exception as error:  # noqa: BLE001  any exception is a finding
                where = traceback.extract_tb(error.__traceback__)[-1]
                return Finding(stage, f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})")
            expected = judged = results[0] if expected is None else expected
            for number, found in enumerate(results):
                counts["runs"] += 1
                difference = _difference(found, expected)
                if difference:
                    return Finding(stage + (", in threads" if number else ""), difference)
    return None


def _load(text: str, folder: Path, number: int) -> ModuleType:
    """Import the text as a new module, so that its kernels haven't been launched."""
    path = folder / f"program_{number}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"vkjit_fuzz_program_{number}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _in_threads(module: ModuleType, device: Device) -> list[list[Any]]:
    """Call the program in several threads, which launch its kernels for the first time together."""

    def call(_: int) -> list[Any]:
        with use_device(device):
            result: list[Any] = module.run()
            return result

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(call, range(THREADS)))


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    """Describe the first difference between two lists of arrays; "" if there is none."""
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        x, y = np.asarray(a), np.asarray(b)
        if x.shape != y.shape or x.dtype == np.object_:
            return f"%{number} is {x.dtype} of the shape {x.shape}, expected {y.shape}"
        differs = ~((x == y) | ((x != x) & (y != y)))  # NaNs are equal
        if differs.any():
            place = tuple(int(n) for n in np.argwhere(differs)[0])
            count = int(differs.sum())
            return f"%{number}, place {place}: found {x[place]!r}, expected {y[place]!r} ({count} places differ)"
    return ""
