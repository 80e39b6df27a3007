"""A pytest plugin: launches of tests that take a device are watched, and a test fails where an address was wrong.

`pytest -p vkjit.testing.watch.plugin tests/device/test_tiles.py`. Tests that take no fixture `device` or `vkjit_device`, and
devices that run no SPIR-V, are left alone. Each launch is compiled again and waited for: tests of time or of what is launched
in what order aren't for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

__all__ = ["watched_launches"]


@pytest.fixture(autouse=True)
def watched_launches(request: pytest.FixtureRequest) -> Iterator[None]:
    """Watches the test's device."""
    names = [name for name in ("device", "vkjit_device") if name in request.fixturenames]
    device = request.getfixturevalue(names[0]) if names else None
    if device is None or device.caps.kind in ("interpreter", "llvm-cpu"):
        yield
        return
    from . import Watcher

    with Watcher(device) as watcher:
        yield
    if watcher.lines:
        pytest.fail("\n".join(watcher.lines), pytrace=False)
