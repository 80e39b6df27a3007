"""Where devices store their pipeline caches: set by the package, so that the back end needn't know the disk cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Keeper", "keep_with", "keeper"]


@dataclass(frozen=True, slots=True)
class Keeper:
    """Storage for cache data.

    `load(name)` returns what `save(name, data)` stored, or any other bytes found there, or nothing.
    """

    load: Callable[[str], bytes]
    save: Callable[[str, bytes], None]


_NOBODY = Keeper(lambda _name: b"", lambda _name, _data: None)
_keeper = _NOBODY


def keep_with(chosen: Keeper) -> None:
    """Set the storage for the pipeline caches of devices that are opened from now on."""
    global _keeper
    _keeper = chosen


def keeper() -> Keeper:
    """Return the current storage; without `keep_with`, one that stores nothing."""
    return _keeper
