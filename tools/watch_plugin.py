"""A pytest plugin that checks the memory accesses of launches and fails a test if an address was invalid.

`pytest -p tools.watch_plugin tests/device/tiles/test_tiles.py`. Tests without a fixture `device` or `vkjit_device`
and devices that run no SPIR-V are unaffected. Each launch is recompiled and waited for, so tests of timing or launch
order can't use it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["watched_launches"]


@pytest.fixture(autouse=True)
def watched_launches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check the launches on the test's device."""
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
