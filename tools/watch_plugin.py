"""A pytest plugin that checks the memory accesses of all launches, and fails a test if an address was invalid.

Run it as `pytest -p tools.watch_plugin tests/device/tiles/test_tiles.py`. It affects tests with a fixture `device` or
`vkjit_device`, on devices that run SPIR-V. `vkjit.testing.fuzz.watch` instruments the kernels: each launch is
recompiled and waited for, so the plugin doesn't suit tests of timing or launch order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["watched_launches"]


@pytest.fixture(autouse=True)
def watched_launches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the launches on the device of a test, and fail the test if one accessed an invalid address."""
    names = [name for name in ("device", "vkjit_device") if name in request.fixturenames]
    device = request.getfixturevalue(names[0]) if names else None
    if device is None or device.caps.kind in ("interpreter", "llvm-cpu"):
        yield
        return
    from vkjit.testing.fuzz.watch import Watcher

    with Watcher(device) as watcher:
        yield
    if watcher.lines:
        pytest.fail("\n".join(watcher.lines), pytrace=False)
