"""Dropout: elements set to 0 at random, the others scaled.

Random numbers are Philox-4x32-10 with the seed as key and the element's number as counter, equal on every device, so that a mask need not
be kept: the gradient makes it again. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.interface import DeviceArray

from .partial import accumulator, flat

__all__ = ["dropout", "philox"]

T = TypeVar("T", bound=vk.Element)

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
LOCAL = 64
TO_UNIT = 2.0**-24


@vk.func
def philox(key, counter):
    """Four random u32 of a u64 key and a u64 counter."""
    a, b = vk.u32(counter & 0xFFFFFFFF), vk.u32(counter >> 32)
    c, d = vk.u32(0), vk.u32(0)
    k0, k1 = vk.u32(key & 0xFFFFFFFF), vk.u32(key >> 32)
    for _ in vk.unroll(10):
        first, second = vk.u64(a) * vk.u64(MULTIPLIERS[0]), vk.u64(c) * vk.u64(MULTIPLIERS[1])
        a, b, c, d = vk.u32(second >> 32) ^ b ^ k0, vk.u32(second), vk.u32(first >> 32) ^ d ^ k1, vk.u32(first)
        k0, k1 = k0 + vk.u32(INCREMENTS[0]), k1 + vk.u32(INCREMENTS[1])
    return a, b, c, d


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def dropped(x: vk.In[T, "N"], y: vk.Out[T, "N"], seed: vk.u64, chance: vk.f32, scale: vk.f32, A: vk.Const[object]):
    """y = 0 with that chance, else x * scale; four elements per invocation."""
    e = vk.global_id(0)
    first = 4 * e
    drawn = philox(seed, vk.u64(e))
    for i in vk.unroll(4):
        if first + i < x.shape[0]:
            kept = vk.f32(drawn[i] >> 8) * TO_UNIT >= chance
            y[first + i] = T(vk.where(kept, A(x[first + i]) * A(scale), 0))


def dropout(x: DeviceArray, y: DeviceArray, seed: int, chance: float) -> None:
    """y = 0 with `chance` (0 to 1), else x / (1 - chance); both dense."""
    if 0 not in y.shape:
        scale = 1 / (1 - chance) if chance < 1 else 0.0
        dropped(flat(x), flat(y), seed, float(chance), float(scale), accumulator(x.dtype))
