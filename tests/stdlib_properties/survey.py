"""Find which properties launch which kernel.

The result is a `Known` per kernel name. Running all properties once takes a minute or two, so the result is cached as
JSON in a file that is valid as long as neither the library nor the properties change.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.stdlib_properties.breaking import Place
from tests.stdlib_properties.catalogue import KernelProperty
from tests.stdlib_properties.coverage import STDLIB, launched, name_of
from tests.stdlib_properties.operations import check_case, is_present
from tests.stdlib_properties.suite import ALL_KERNELS, ALL_OPERATIONS
from vkjit.launch.kernel import Kernel
from vkjit.testing.checks import first_finding

__all__ = ["Known", "survey"]

_JUDGES = ("__main__", "breaking", "results")
"""Modules that judge mutants but don't affect which kernels are launched."""


@dataclass
class Known:
    """A kernel, and the properties and operations that launch it."""

    kernel: Kernel
    direct: list[KernelProperty] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)


def survey(kept: Path | None = None) -> dict[str, Known]:
    """Return all kernels with the properties that launch them. Raises SystemExit if a property fails.

    kept: a cache file, written if it is missing or out of date.
    """
    digest = _digest()
    if kept is not None and kept.exists():
        known = json.loads(kept.read_text(encoding="utf-8"))
        if known["digest"] == digest:
            return _restored(known["places"])
    found = _run_all()
    if kept is not None:
        places = {
            name: [[ALL_OPERATIONS.index(p.operation), p.number, p.kind, p.seconds] for p in known.places]
            for name, known in found.items()
        }
        kept.write_text(json.dumps({"digest": digest, "places": places}), encoding="utf-8")
    return found


def _digest() -> str:
    files = [f for f in (*STDLIB.rglob("*.py"), *Path(__file__).parent.glob("*.py")) if f.stem not in _JUDGES]
    return hashlib.sha256(b"".join(f.read_bytes() for f in sorted(files))).hexdigest()


def _run_all() -> dict[str, Known]:
    """Run all properties once, on the interpreter and on the devices that they name."""
    found = _direct()
    for item in ALL_KERNELS:
        wrong = first_finding(
            item.kernel, item.reference, devices="interpreter", max_examples=12, seed=1, **item.inputs
        )
        if wrong is not None:
            raise SystemExit(f"{item.label} fails: {wrong}")
    for operation in ALL_OPERATIONS:
        for number in range(len(operation.shapes)):
            for kind in filter(is_present, operation.kinds):
                with launched() as seen:
                    check_case(operation, number, kind)
                    start = time.thread_time()
                    check_case(operation, number, kind)  # compiled by now
                place = Place(operation, number, kind, time.thread_time() - start)
                for name, kernel in seen.items():
                    found.setdefault(name, Known(kernel)).places.append(place)
    return found


def _direct() -> dict[str, Known]:
    found: dict[str, Known] = {}
    for item in ALL_KERNELS:
        found.setdefault(name_of(item.kernel), Known(item.kernel)).direct.append(item)
    return found


def _restored(places: dict[str, list[list[object]]]) -> dict[str, Known]:
    found = _direct()
    for name, rows in places.items():
        made = [Place(ALL_OPERATIONS[row[0]], *row[1:]) for row in rows]  # type: ignore[call-overload,arg-type]
        if name not in found:
            found[name] = Known(_kernel(name, made))
        found[name].places.extend(made)
    return found


def _kernel(name: str, places: list[Place]) -> Kernel:
    """Return the kernel with a name; one made by a factory is taken from a launch."""
    module, _, function = name.rpartition(".")
    held = getattr(importlib.import_module(f"vkjit.stdlib.{module}"), function, None)
    if isinstance(held, Kernel):
        return held
    quickest = min(places, key=lambda p: p.seconds)
    with launched() as seen:
        check_case(quickest.operation, quickest.number, quickest.kind)
    return seen[name]
