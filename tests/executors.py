"""The executors that tests run on: which are present, under which label, and how one is opened.

Enters: what vkjit finds on this machine. Leaves: parameters for the `device` fixture. A label is "interpreter", or the
name of a Vulkan device in lower case with dashes ("vulkan-llvmpipe-llvm-15.0.6-256-bits"). When no Vulkan device is
present, one parameter "vulkan" stays, marked as a skip with the reason, so that what did not run is counted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@functools.cache
def found() -> dict[str, Any]:
    """What vkjit tells about every device that it finds, by label."""
    import vkjit

    devices: dict[str, Any] = {}
    for info in vkjit.devices():
        label = info.name if info.kind in ("interpreter", "llvm-cpu") else "vulkan-" + _slug(info.name)
        while label in devices:
            label += "'"
        devices[label] = info
    return devices


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def is_wanted(label: str, wanted: str) -> bool:
    """Whether `--vkjit-device=wanted` keeps the executor `label`."""
    return wanted == "all" or wanted.lower() in label


def summary(wanted: str) -> str:
    """One line for the head of a report. A vkjit that can't be imported is for the tests to report, each for itself."""
    try:
        return ", ".join(labels(wanted)) or f"none matches {wanted!r}"
    except Exception as error:  # noqa: BLE001  whatever an import raises
        return f"unknown: {type(error).__name__}: {error}"


def labels(wanted: str) -> list[str]:
    """Labels of the executors that a run uses."""
    return [label for label in found() if is_wanted(label, wanted)]


def parameters(wanted: str) -> list[Any]:
    """Parameters for the `device` fixture, those for absent kinds of executor marked as skips."""
    rows: list[Any] = [pytest.param(label, id=label) for label in labels(wanted)]
    if not any(label.startswith("vulkan") for label in found()) and is_wanted("vulkan", wanted):
        reason = "no Vulkan device on this machine"
        rows.append(pytest.param("vulkan", id="vulkan", marks=pytest.mark.skip(reason=reason)))
    if not rows:
        rows.append(pytest.param("none", marks=pytest.mark.skip(reason=f"--vkjit-device={wanted} matches no executor")))
    return rows


@contextmanager
def opened(label: str) -> Iterator[Any]:
    """The device of that label, the default for kernels inside the block; it stays open for the next test."""
    import vkjit

    chosen = vkjit.device(found()[label].index)
    with vkjit.use_device(chosen):
        yield chosen
        chosen.synchronize()
