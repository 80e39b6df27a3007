"""Which variant of a product tuning has found best: read once per product, then remembered.

Enters: the arrays of a product. Leaves: the words of a variant (see `matmul_variants`), or None where the rule decides.
"""

from __future__ import annotations

import weakref
from typing import Any

from vkjit.autotune import records
from vkjit.autotune.problem import key_of_device
from vkjit.runtime.interface import Device, DeviceArray
from vkjit.runtime.ways import renew

__all__ = ["forget", "product_key", "tuned_words"]

_KNOWN: weakref.WeakKeyDictionary[Device, dict[Any, str | None]] = weakref.WeakKeyDictionary()
MOST_KNOWN = 4096


def product_key(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str:
    """What the best variant depends on: types, extents, and which axes are neighbours in memory."""
    forms = [f"{x.dtype.name}{x.shape}{'n' if x.strides[2] == 1 else 't'}" for x in (a, b, c)]
    return f"matmul 1 | {', '.join(forms)}"


def tuned_words(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str | None:
    """The words of the variant that was found best for a product on this device; None where nothing was found."""
    known = _KNOWN.get(c.device)
    if known is None:
        known = _KNOWN[c.device] = {}
    form = (a.dtype, b.dtype, c.dtype, a.shape, c.shape, a.strides[2] == 1, b.strides[2] == 1)
    if form not in known:
        if len(known) >= MOST_KNOWN:
            known.clear()
        known[form] = _read(a, b, c)
    return known[form]


def _read(a: DeviceArray, b: DeviceArray, c: DeviceArray) -> str | None:
    if not records.enabled():
        return None
    record = records.load(product_key(a, b, c), *key_of_device(c.device))
    best = record.best if record is not None else None
    return None if record is None or best is None or best == record.rows[0] else best.choice


def forget(device: Device) -> None:
    """What was remembered is read anew, and products that are repeated choose again: tuning has found something."""
    _KNOWN.pop(device, None)
    renew(device)
