"""Histogram: each workgroup counts in shared memory, then adds its counts with one atomic per bin."""

from __future__ import annotations

import numpy as np

import vkjit as vk

BINS = 256


@vk.kernel(groups=lambda values: max(1, min(32, vk.cdiv(values.shape[0], BINS))), local=BINS)
def histogram(values: vk.In[vk.u8, "N"], counts: vk.InOut[vk.i32, "256"]):
    own = vk.shared(vk.i32, BINS)
    lane = vk.local_id(0)
    own[lane] = 0
    vk.barrier()
    for i in vk.grid_stride(values.shape[0]):
        vk.atomic.add(own, values[i], 1)
    vk.barrier()
    vk.atomic.add(counts, lane, own[lane])


def main(n: int = 200_001) -> None:
    values = np.random.default_rng(5).integers(0, 256, n).astype(np.uint8)
    counts = np.zeros(BINS, np.int32)
    histogram(values, counts)
    np.testing.assert_array_equal(counts, np.bincount(values, minlength=BINS))
    print(f"histogram of {n} values: right")


if __name__ == "__main__":
    main()
