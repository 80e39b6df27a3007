"""Dropout with a counter-based random generator (Philox).

The random numbers depend only on the seed and the element's index, and are equal on every device. The mask of dropped
elements therefore isn't stored: the backward pass regenerates it by applying `dropout` to the gradient with the same
seed.
"""

from __future__ import annotations

from typing import TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..partial_sums import accumulator_type, flattened

__all__ = ["dropout"]

T = TypeVar("T", bound=vk.Element)

LOCAL = 64
"""Invocations of a workgroup."""
TO_UNIT = 2.0**-24
"""Scales 24 random bits, as many as an f32 represents exactly, to [0, 1)."""


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 4 * LOCAL), local=LOCAL, debug=False)
def apply_dropout(
    x: vk.In[T, "N"], seed: vk.In[vk.u64, "1"], y: vk.Out[T, "N"], chance: vk.f32, scale: vk.f32, A: vk.Const[object]
):
    """y = 0 with probability `chance`, else x * scale, computed in the type A; four elements per invocation."""
    e = vk.global_id(0)
    first = 4 * e
    words = vk.philox(seed[0], e)
    for i in vk.unroll(4):
        if first + i < x.shape[0]:
            is_kept = vk.f32(words[i] >> 8) * TO_UNIT >= chance
            y[first + i] = T(vk.where(is_kept, A(x[first + i]) * A(scale), 0))


def dropout(x: DeviceArray, y: DeviceArray, seed: DeviceArray, p: float) -> None:
    """y = 0 with probability `p` (0 to 1), else x / (1 - p), for each element; x and y are dense, `seed` has one."""
    if 0 not in y.shape:
        scale = 1 / (1 - p) if p < 1 else 0.0
        apply_dropout(flattened(x), seed, flattened(y), float(p), float(scale), accumulator_type(x.dtype))
