"""Per-device tables of what upper layers remember of calls that they repeat, and when they are discarded.

Each layer chooses its own keys; the op cache keeps its replays here. If a setting changes, the tables are replaced, not emptied:
a thread that is still working under the old setting writes into a table that nobody reads any more. Settings that may change
at any time are environment variables, which `table_of` compares at each call.
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
"""The devices that have a table."""


class Forgetful(Protocol):
    """An object that caches data per device."""

    def _forget(self, device: Device | None = None) -> None: ...


_followers: weakref.WeakSet[Forgetful] = weakref.WeakSet()

# The dictionary behind os.environ, where there is one: looking there takes a tenth of the time.
_get = getattr(os.environ, "_data", os.environ).get
_encode = getattr(os.environ, "encodekey", str) if hasattr(os.environ, "_data") else str
_SANITIZE, _DEBUG, _OPT = (_encode(name) for name in ("VKJIT_SANITIZE", "VKJIT_DEBUG", "VKJIT_OPT"))


class _Seen:
    """The settings when the tables were made, and whether calls are repeated at all (None: not read yet)."""

    sanitize: Any = _get(_SANITIZE)
    debug: Any = _get(_DEBUG)
    opt: Any = _get(_OPT)
    on: bool | None = None


def new_table(device: Device) -> Table:
    """Return an empty table for a device, and register the device for `renew`."""
    with _lock:
        _devices.add(device)
    return {}


def table_of(device: Device) -> Table:
    """Return the device's table under the current settings."""
    seen = _Seen
    if _get(_SANITIZE) != seen.sanitize or _get(_DEBUG) != seen.debug or _get(_OPT) != seen.opt:
        environment()
    return device.dispatch_cache


def environment() -> None:
    """Read the settings from the environment, and discard all tables."""
    _Seen.sanitize, _Seen.debug, _Seen.opt = _get(_SANITIZE), _get(_DEBUG), _get(_OPT)
    renew()


def renew(*devices: Device) -> None:
    """Discard the tables of these devices, or of all. Call it after a change of what kernels or functions depend on."""
    with _lock:
        _devices.update(devices)  # a table that is set here isn't made by `new_table`
        for device in devices or list(_devices):
            device.dispatch_cache = {}


def follow(follower: Forgetful) -> None:
    """Register an object whose caches `forget` discards, as long as it lives."""
    with _lock:
        _followers.add(follower)


def forget(device: Device) -> None:
    """Discard all that depends on the device's caps, including cached launches. Call it after they have changed."""
    with _lock:
        followers = list(_followers)
    for follower in followers:
        follower._forget(device)
    renew(device)


def repeating() -> bool:
    """Return True unless VKJIT_REPEAT, which is read once, is 0. Raises ArgumentError for values other than 0 and 1."""
    if _Seen.on is None:
        _Seen.on = boolean_setting("VKJIT_REPEAT") is not False
    return _Seen.on


def set_repeating(on: bool | None) -> None:
    """Override VKJIT_REPEAT for tests; None removes the override."""
    _Seen.on = on
    renew()


def _in_child() -> None:
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held the old one


on_fork(_in_child)
