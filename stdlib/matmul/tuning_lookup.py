"""Look up the tuned variant of a matrix product, with an in-memory cache of the records.

Variants are identified by their name in `variants`; None means that the default rule decides.
"""

from __future__ import annotations

import weakref
from typing import Any

from vkjit.autotune import storage
from vkjit.autotune.problem import key_of_device
from vkjit.runtime.device import Device, DeviceArray
from vkjit.runtime.dispatch_cache import renew

__all__ = ["invalidate", "product_key", "tuned_variant"]

_CACHE: weakref.WeakKeyDictionary[Device, dict[Any, str | None]] = weakref.WeakKeyDictionary()
MAX_CACHED = 4096


def product_key(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str:
    """Return the key of a product's tuning record: types, shapes, and which axes are contiguous."""
    forms = [f"{x.dtype.name}{x.shape}{'n' if x.strides[2] == 1 else 't'}" for x in (a, b, c)]
    return f"matmul 1 | {', '.join(forms)}"


def tuned_variant(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str | None:
    """Return the name of the tuned variant for a product on the device of c; None if there is none."""
    cache = _CACHE.get(c.device)
    if cache is None:
        cache = _CACHE[c.device] = {}
    key = (a.dtype, b.dtype, c.dtype, a.shape, c.shape, a.strides[2] == 1, b.strides[2] == 1)
    if key not in cache:
        if len(cache) >= MAX_CACHED:
            cache.clear()
        cache[key] = _read(a, b, c)
    return cache[key]


def _read(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str | None:
    if not storage.enabled():
        return None
    record = storage.load(product_key(a, b, c), *key_of_device(c.device))
    best = record.best if record is not None else None
    return None if record is None or best is None or best == record.rows[0] else best.choice


def invalidate(device: Device) -> None:
    """Invalidate the cached choices and the device's cached dispatches after tuning; the records are read again."""
    _CACHE.pop(device, None)
    renew(device)
