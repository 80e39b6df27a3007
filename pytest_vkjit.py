"""vkjit's pytest plugin: options and fixtures for tests of kernels.

The fixture `vkjit_device` runs a test once per executor (the interpreter, the CPU, and each Vulkan device), with this
executor as the default device. The fixture `vkjit_leak_check` fails a test that leaks driver handles.

The options are:

- `--vkjit-device=NAME` selects the executors whose label contains NAME (default: all).
- `--vkjit-sanitize` enables the sanitizer for all launches.
- `--vkjit-caps=MASK` limits the capabilities of the device that `vkjit_device` opens (see `masks`).
- `--vkjit-artifacts=FOLDER` saves the files that describe failed checks (see `CheckFailure.write_artifacts`).

Failed checks are reported by their message, without pytest's traceback. This module is outside of the package, because
pytest imports the plugins of all installed packages at each start, also in projects that don't use vkjit: vkjit is
imported only when a test needs it.
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
    """Return information on each device by its label: the name of its back end, and its own if that is another one.

    Labels of further devices with the same name end in apostrophes.
    """
    import vkjit
    from vkjit.backends.table import backend_of

    devices: dict[str, Any] = {}
    for info in vkjit.devices():
        backend = backend_of(info.kind).name
        label = backend if info.name == backend else f"{backend}-{_slug(info.name)}"
        while label in devices:
            label += "'"
        devices[label] = info
    return devices


def _slug(name: str) -> str:
    """Return a name in lowercase with hyphens in place of other characters than letters, digits and dots."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def is_wanted(label: str, wanted: str) -> bool:
    """True if the option `--vkjit-device`, with the value `wanted`, selects the executor with this label."""
    return wanted == "all" or wanted.lower() in label


def labels(wanted: str) -> list[str]:
    """Return the labels of the executors that `--vkjit-device=wanted` selects."""
    return [label for label in devices_by_label() if is_wanted(label, wanted)]


def summary(wanted: str) -> str:
    """Return the selected executors as a line of text, for the header of pytest's report.

    If vkjit can't be imported, the line names the error; the tests that need vkjit report it in full.
    """
    try:
        return ", ".join(labels(wanted)) or f"none matches {wanted!r}"
    except Exception as error:  # noqa: BLE001  an import may raise anything
        return f"unknown: {type(error).__name__}: {error}"


def parameters(wanted: str) -> list[Any]:
    """Return the parameters of the device fixture: the labels that `--vkjit-device=wanted` selects.

    If Vulkan devices are selected and there are none, the parameter "vulkan" is marked as skipped in their place.
    Raises pytest.UsageError for a name that matches no executor, so that a mistyped name isn't reported as success.
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
    """Context manager that opens the device with this label and makes it the default device inside the block.

    The device stays open afterwards, for the next test. `mask` limits the device's capabilities (see `masks`).
    """
    import vkjit

    chosen = vkjit.device(devices_by_label()[label].index)
    if mask is not None:
        from vkjit.testing.masks import masked

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
    """Handle `--vkjit-sanitize`: set an environment variable that enables the sanitizer, also in processes that tests
    start.
    """
    if config.getoption("--vkjit-sanitize"):
        os.environ["VKJIT_SANITIZE"] = os.environ.get("VKJIT_SANITIZE") or "1"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize tests that use the fixture `vkjit_device` over the selected executors."""
    if "vkjit_device" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--vkjit-device")
        metafunc.parametrize("vkjit_device", parameters(wanted), indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Report failed checks by their message instead of a traceback.

    Also report a test as skipped if its kernels need more than `--vkjit-caps` allows.
    """
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
    """True if an exception says that the device lacks what a kernel needs: a feature, or large enough workgroups."""
    import vkjit

    too_large = isinstance(error, vkjit.ArgumentError) and "a workgroup of" in str(error)
    return too_large or isinstance(error, vkjit.FeatureError)


def _written(error: Any, folder: Path) -> str:
    """Write the files that describe a failure, if it has any, and return a line that names them."""
    if not hasattr(error, "write_artifacts"):
        return ""
    paths = error.write_artifacts(folder)
    return f"\nwritten to {folder}: {', '.join(path.name for path in paths)}"


@pytest.fixture
def vkjit_device(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The device on which the test runs, which is the default device inside the test."""
    with opened(request.param, request.config.getoption("--vkjit-caps")) as chosen:
        yield chosen


@pytest.fixture
def vkjit_leak_check() -> Iterator[None]:
    """Fail a test if more driver handles of a kind exist after the test than before (see `live_counts`)."""
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
