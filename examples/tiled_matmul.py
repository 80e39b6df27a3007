"""Matrix product with shared-memory tiles; loads are padded for sizes that aren't multiples of the tile size."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(local=(16, 16))
def matmul(a: vk.In[T, "M K"], b: vk.In[T, "K N"], c: vk.Out[T, "M N"], TS: vk.Const[int] = 16):
    As, Bs = vk.shared(a.dtype, (TS, TS)), vk.shared(b.dtype, (TS, TS))
    tx, ty = vk.local_id(0), vk.local_id(1)
    j, i = vk.global_id(0), vk.global_id(1)
    acc = vk.f32(0)
    for k in range(0, a.shape[1], TS):
        As[ty, tx] = a.get(i, k + tx, pad=0)
        Bs[ty, tx] = b.get(k + ty, j, pad=0)
        vk.barrier()
        for t in vk.unroll(TS):
            acc += vk.f32(As[ty, t]) * vk.f32(Bs[t, tx])
        vk.barrier()
    c.put(i, j, acc)


def main(m: int = 123, n: int = 97, k: int = 201) -> None:
    rng = np.random.default_rng(2)
    for dtype, unit in ((np.float32, 2.0**-24), (np.float16, 2.0**-11)):
        a = rng.standard_normal((m, k)).astype(dtype)
        b = rng.standard_normal((k, n)).astype(dtype)
        c = matmul[vk.cdiv(n, 16), vk.cdiv(m, 16)](a, b)
        expected = a.astype(np.float64) @ b.astype(np.float64)
        # k products are accumulated in f32 and rounded once to the element type
        bound = (np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)) * k * 2.0**-24 + np.abs(expected) * unit
        assert np.all(np.abs(c - expected) <= bound), float(np.max(np.abs(c - expected) - bound))
        print(f"matmul {m}x{k} @ {k}x{n} in {np.dtype(dtype).name}: right")


if __name__ == "__main__":
    main()
