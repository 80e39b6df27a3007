"""Tables of what the layers above remember of calls that they repeat on a device, and when all of it is forgotten.

Enters: devices, and word of settings that changed. Leaves: a table per device, by keys of those layers. Holds: what was learnt
under other settings is never repeated. With a setting the tables are exchanged, not emptied: whoever learns meanwhile writes into
one that nobody reads any more.

Settings that are asked for at each call lie in the environment; looking there is what a repeated call pays for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ..settings import boolean_setting
from .handles import on_fork

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Table", "environment", "follow", "forget", "new_table", "renew", "repeating", "set_repeating", "table_of"]

Table = dict[Any, Any]

_lock = threading.Lock()
_devices: weakref.WeakSet[Device] = weakref.WeakSet()
"""Those that have a table."""


class Forgetful(Protocol):
    """What keeps something by the device that it was made for."""

    def _forget(self, device: Device | None = None) -> None: ...


_followers: weakref.WeakSet[Forgetful] = weakref.WeakSet()

# The dictionary behind os.environ, where there is one: looking there takes a tenth of the time.
_get = getattr(os.environ, "_data", os.environ).get
_encode = getattr(os.environ, "encodekey", str) if hasattr(os.environ, "_data") else str
_SANITIZE, _DEBUG, _OPT = (_encode(name) for name in ("VKJIT_SANITIZE", "VKJIT_DEBUG", "VKJIT_OPT"))


class _Seen:
    """What these said when the tables were made; whether calls are repeated at all, None until that is asked for."""

    sanitize: Any = _get(_SANITIZE)
    debug: Any = _get(_DEBUG)
    opt: Any = _get(_OPT)
    on: bool | None = None


def new_table(device: Device) -> Table:
    """An empty table for a device, which `renew` knows of."""
    with _lock:
        _devices.add(device)
    return {}


def table_of(device: Device) -> Table:
    """The table that holds under the settings of now."""
    seen = _Seen
    if _get(_SANITIZE) != seen.sanitize or _get(_DEBUG) != seen.debug or _get(_OPT) != seen.opt:
        environment()
    return device.dispatch_cache


def environment() -> None:
    """Notes what the environment says now, and forgets what was learnt before."""
    _Seen.sanitize, _Seen.debug, _Seen.opt = _get(_SANITIZE), _get(_DEBUG), _get(_OPT)
    renew()


def renew(*devices: Device) -> None:
    """Forgets what was learnt on these devices, or on all: call it after what kernels and functions go by has changed."""
    with _lock:
        _devices.update(devices)  # a table that is set here isn't made by `new_table`
        for device in devices or list(_devices):
            device.dispatch_cache = {}


def follow(follower: Forgetful) -> None:
    """Has it forget with `forget`, as long as it lives."""
    with _lock:
        _followers.add(follower)


def forget(device: Device) -> None:
    """Forgets all that hangs on the device's caps, launches of kernels among it: call it after they have changed."""
    with _lock:
        followers = list(_followers)
    for follower in followers:
        follower._forget(device)
    renew(device)


def repeating() -> bool:
    """VKJIT_REPEAT, read once: whether calls are repeated, 1 (the default) or 0. Raises ArgumentError for anything else."""
    if _Seen.on is None:
        _Seen.on = boolean_setting("VKJIT_REPEAT") is not False
    return _Seen.on


def set_repeating(on: bool | None) -> None:
    """Sets it for tests, whatever the environment says; None: what that says."""
    _Seen.on = on
    renew()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held the old one


on_fork(_in_child)
