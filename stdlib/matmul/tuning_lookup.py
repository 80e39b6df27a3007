"""Look up the tuned variant of a matrix product, with an in-memory cache of the results.

`dispatch.multiply` calls `tuned_variant` for each product. Variants are identified by their name in `variants`; None
means that the kernel is chosen by rule (`by_rule`).
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
"""Per device: the name of the tuned variant, or None, for each combination of types, shapes and layouts."""
MAX_CACHED = 4096
"""Number of entries per device at which they are discarded."""


def product_key(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str:
    """Return the key of a product's tuning record: types, shapes, and which axes are contiguous.

    "n" stands for a contiguous last axis, "t" for any other layout, such as a transposed one; the 1 is the version of
    the key's format.
    """
    operands = [f"{x.dtype.name}{x.shape}{'n' if x.strides[2] == 1 else 't'}" for x in (a, b, c)]
    return f"matmul 1 | {', '.join(operands)}"


def tuned_variant(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str | None:
    """Return the name of the tuned variant for c = a @ b on the device of c; None if the kernel is chosen by rule."""
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
    """Read the name of the best variant from the stored record; None without a record, or if the default is best."""
    if not storage.enabled():
        return None
    record = storage.load(product_key(a, b, c), *key_of_device(c.device))
    best = record.best if record is not None else None
    # the first row of a record is the default variant, "by rule"
    return None if record is None or best is None or best == record.rows[0] else best.choice


def invalidate(device: Device) -> None:
    """Discard a device's cached lookups and dispatches after tuning, so that the records are read again."""
    _CACHE.pop(device, None)
    renew(device)
