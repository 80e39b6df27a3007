"""Per-device caches of repeated calls, and their invalidation.

Each upper layer chooses its own keys; the op cache stores its replays here. When a setting changes, the tables are
replaced instead of cleared, so that a thread that still works under the old setting writes to a table that is no longer
read. Environment variables may change at any time; `table_of` compares them on each call.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol

from ..settings import RAW_KEYS, boolean_setting, raw_value
from .handles import new_lock

if TYPE_CHECKING:
    from .device import Device

__all__ = ["Table", "environment", "follow", "forget", "new_table", "renew", "repeating", "set_repeating", "table_of"]

Table = dict[Any, Any]

_lock = new_lock()
_devices: weakref.WeakSet[Device] = weakref.WeakSet()
"""The devices that have a table."""


class Forgetful(Protocol):
    """An object that caches data per device."""

    def _forget(self, device: Device | None = None) -> None: ...


_followers: weakref.WeakSet[Forgetful] = weakref.WeakSet()

_SANITIZE, _DEBUG, _OPT = (RAW_KEYS[name] for name in ("VKJIT_SANITIZE", "VKJIT_DEBUG", "VKJIT_OPT"))


class _Seen:
    """The settings under which the tables were made.

    `on` is True if calls are cached at all, None before it is read.
    """

    sanitize: Any = raw_value(_SANITIZE)
    debug: Any = raw_value(_DEBUG)
    opt: Any = raw_value(_OPT)
    on: bool | None = None


def new_table(device: Device) -> Table:
    """Return an empty table for a device, and register the device for `renew`."""
    with _lock:
        _devices.add(device)
    return {}


def table_of(device: Device) -> Table:
    """Return the device's table under the current settings."""
    seen = _Seen
    if raw_value(_SANITIZE) != seen.sanitize or raw_value(_DEBUG) != seen.debug or raw_value(_OPT) != seen.opt:
        environment()
    return device.dispatch_cache


def environment() -> None:
    """Read the settings from the environment, and discard all tables."""
    _Seen.sanitize, _Seen.debug, _Seen.opt = raw_value(_SANITIZE), raw_value(_DEBUG), raw_value(_OPT)
    renew()


def renew(*devices: Device) -> None:
    """Discard the tables of these devices, or of all devices.

    Call it after a change that kernels or functions depend on.
    """
    with _lock:
        _devices.update(devices)  # tables set here don't pass through `new_table`
        for device in devices or list(_devices):
            device.renew_dispatch_cache()


def follow(follower: Forgetful) -> None:
    """Register an object whose caches `forget` discards. Holds only a weak reference."""
    with _lock:
        _followers.add(follower)


def forget(device: Device) -> None:
    """Discard everything that depends on the device's caps, including cached launches.

    Call it after the caps change.
    """
    with _lock:
        followers = list(_followers)
    for follower in followers:
        follower._forget(device)
    renew(device)


def repeating() -> bool:
    """Return True if calls are cached: unless VKJIT_REPEAT, which is read once, is 0.

    Raises ArgumentError for values other than 0 and 1.
    """
    if _Seen.on is None:
        _Seen.on = boolean_setting("VKJIT_REPEAT") is not False
    return _Seen.on


def set_repeating(on: bool | None) -> None:
    """Override VKJIT_REPEAT for tests; None removes the override."""
    _Seen.on = on
    renew()
