"""The pytest plugin: a device fixture, an option for the sanitizer, and a fixture that detects leaks.

Options: `--vkjit-device=NAME` selects the executors whose name contains NAME (default: all), `--vkjit-sanitize` enables
the sanitizer, `--vkjit-caps=MASK` limits the device's caps, and `--vkjit-artifacts=FOLDER` saves the files of failed
checks. Fixtures: `vkjit_device` runs a test once per executor; `vkjit_leak_check` fails a test that leaks driver handles.
Failed checks are reported by their message, without pytest's traceback. vkjit is only imported when a test needs it.
"""

from __future__ import annotations

import functools
import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["devices_by_label", "is_wanted", "labels", "opened", "parameters", "summary"]


@functools.cache
def devices_by_label() -> dict[str, Any]:
    """Return the information on each device by label: "interpreter", "cpu", or "vulkan-" and the device's name."""
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
    """True if `--vkjit-device=wanted` selects the executor `label`."""
    return wanted == "all" or wanted.lower() in label


def labels(wanted: str) -> list[str]:
    """Return the labels of the selected executors."""
    return [label for label in devices_by_label() if is_wanted(label, wanted)]


def summary(wanted: str) -> str:
    """Return a line for the report header. An import error of vkjit is only named here; the tests will report it."""
    try:
        return ", ".join(labels(wanted)) or f"none matches {wanted!r}"
    except Exception as error:  # noqa: BLE001  an import may raise anything
        return f"unknown: {type(error).__name__}: {error}"


def parameters(wanted: str) -> list[Any]:
    """Return the parameters of the device fixture; missing kinds of executor are marked as skipped.

    Raises pytest.UsageError for a name that matches no executor, so that a typing error isn't reported as success.
    """
    rows: list[Any] = [pytest.param(label, id=label) for label in labels(wanted)]
    if not any(label.startswith("vulkan") for label in devices_by_label()) and is_wanted("vulkan", wanted):
        reason = "no Vulkan device on this machine"
        rows.append(pytest.param("vulkan", id="vulkan", marks=pytest.mark.skip(reason=reason)))
    if not rows:
        raise pytest.UsageError(
            f"--vkjit-device={wanted} is part of no executor's name; there are {', '.join(devices_by_label())}"
        )
    return rows


@contextmanager
def opened(label: str, mask: str | None = None) -> Iterator[Any]:
    """Open the device with this label and make it the default inside the block; it stays open for the next test.

    mask: limits its caps (see `masks`).
    """
    import vkjit

    chosen = vkjit.device(devices_by_label()[label].index)
    if mask is not None:
        from .masks import masked

        with masked(mask, chosen) as smaller:
            yield smaller
            smaller.synchronize()
        return
    with vkjit.use_device(chosen):
        yield chosen
        chosen.synchronize()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("vkjit")
    group.addoption(
        "--vkjit-device", default="all", metavar="NAME",
        help="run tests that take `vkjit_device` on the executors whose name contains NAME only (default: all)",
    )  # fmt: skip
    group.addoption(
        "--vkjit-caps", default=None, metavar="MASK",
        help="show smaller devices to tests that take `vkjit_device`: mobile, small, or limits in words (docs/testing.md); "
        "tests that need more are skipped",
    )  # fmt: skip
    group.addoption(
        "--vkjit-artifacts", default=None, metavar="FOLDER",
        help="write what a failed check found into a folder per test: a program that reproduces it, SPIR-V, a report",
    )  # fmt: skip
    group.addoption(
        "--vkjit-sanitize", action="store_true",
        help="search every launch for races, uninitialised reads and accesses out of bounds",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Enable the sanitizer by an environment variable, so that processes started by tests use it too."""
    if config.getoption("--vkjit-sanitize"):
        os.environ["VKJIT_SANITIZE"] = os.environ.get("VKJIT_SANITIZE") or "1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that use `vkjit_device` over all executors; missing kinds are skipped with a reason."""
    if "vkjit_device" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--vkjit-device")
        metafunc.parametrize("vkjit_device", parameters(wanted), indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report failed checks by their message instead of a traceback, and skip tests whose kernels exceed the mask."""
    outcome: Any = yield
    report = outcome.get_result()
    error = call.excinfo.value if call.excinfo is not None else None
    if report.failed and item.config.getoption("--vkjit-caps") is not None and _needs_more(error):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"needs more than the mask leaves: {error}")
    if report.failed and type(error).__module__.startswith("vkjit.testing") and isinstance(error, AssertionError):
        folder = item.config.getoption("--vkjit-artifacts")
        report.longrepr = str(error) + ("" if folder is None else _written(error, Path(folder) / _slug(item.nodeid)))


def _needs_more(error: Any) -> bool:
    """True if a test failed because the device, limited by a mask, lacks what its kernels need."""
    import vkjit

    too_large = isinstance(error, vkjit.ArgumentError) and "a workgroup of" in str(error)
    return too_large or isinstance(error, vkjit.FeatureError)


def _written(error: Any, folder: Path) -> str:
    """Write a failure's artifacts and return a line that names them."""
    if not hasattr(error, "write_artifacts"):
        return ""
    paths = error.write_artifacts(folder)
    return f"\nwritten to {folder}: {', '.join(path.name for path in paths)}"


@pytest.fixture
def vkjit_device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An open device, the default for kernels called inside the test."""
    with opened(request.param, request.config.getoption("--vkjit-caps")) as chosen:
        yield chosen


@pytest.fixture
def vkjit_leak_check() -> Iterator[None]:
    """Fail a test that leaves more driver handles alive than existed before it (see `live_counts`)."""
    from vkjit.runtime.handles import live_counts

    gc.collect()
    before = live_counts()
    yield
    gc.collect()
    left = {kind: n - before.get(kind, 0) for kind, n in live_counts().items() if n > before.get(kind, 0)}
    if left:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(left.items()))
        pytest.fail(
            f"left alive: {kinds}; close devices, buffers and tensors, or keep no references to them", pytrace=False
        )
