"""Sum of an array: grid-stride loop, tree reduction in shared memory, one atomic per workgroup."""

from __future__ import annotations

import numpy as np

import vkjit as vk

LOCAL = 128


@vk.kernel(groups=lambda x: max(1, min(64, vk.cdiv(x.shape[0], LOCAL))), local=LOCAL)
def sum_all(x: vk.In[vk.f32, "N"], total: vk.InOut[vk.f32, "1"]):
    partial = vk.shared(vk.f32, LOCAL)
    lane = vk.local_id(0)
    acc = vk.f32(0)
    for i in vk.grid_stride(x.shape[0]):
        acc += x[i]
    partial[lane] = acc
    vk.barrier()
    width = LOCAL // 2
    while width > 0:
        if lane < width:
            partial[lane] += partial[lane + width]
        vk.barrier()
        width //= 2
    if lane == 0:
        vk.atomic.add(total, 0, partial[0])


def main(n: int = 1_000_000) -> None:
    x = np.random.default_rng(1).random(n, dtype=np.float32)
    total = np.zeros(1, np.float32)
    sum_all(x, total)
    expected = float(np.sum(x, dtype=np.float64))
    # similar to pairwise summation: the error is far below that of n/64 sequential f32 roundings
    bound = expected * 2.0**-24 * (n / (64 * LOCAL) + 64 + 8)
    assert abs(float(total[0]) - expected) <= bound, (float(total[0]), expected, bound)
    print(f"sum of {n} elements: {float(total[0]):.2f}, exact {expected:.2f}")


if __name__ == "__main__":
    main()
