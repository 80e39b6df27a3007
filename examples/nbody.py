"""Gravity between n bodies: positions are staged in shared memory, tile by tile."""

from __future__ import annotations

import numpy as np

import vkjit as vk

TILE = 64


@vk.kernel(groups=lambda position: vk.cdiv(position.shape[0], TILE), local=TILE)
def accelerate(position: vk.In[vk.f32, "N 3"], mass: vk.In[vk.f32, "N"], softening: vk.f32, out: vk.Out[vk.f32, "N 3"]):
    tile = vk.shared(vk.f32, (TILE, 4))
    lane, i = vk.local_id(0), vk.global_id(0)
    x, y, z = position.get(i, 0, pad=0), position.get(i, 1, pad=0), position.get(i, 2, pad=0)
    ax, ay, az = vk.f32(0), vk.f32(0), vk.f32(0)
    for start in range(0, position.shape[0], TILE):
        j = start + lane
        for d in vk.unroll(3):
            tile[lane, d] = position.get(j, d, pad=0)
        tile[lane, 3] = mass.get(j, pad=0)  # bodies past the end have no mass
        vk.barrier()
        for t in range(TILE):
            dx, dy, dz = tile[t, 0] - x, tile[t, 1] - y, tile[t, 2] - z
            inverse = vk.rsqrt(dx * dx + dy * dy + dz * dz + softening)
            force = tile[t, 3] * inverse * inverse * inverse
            ax += force * dx
            ay += force * dy
            az += force * dz
        vk.barrier()
    out.put(i, 0, ax)
    out.put(i, 1, ay)
    out.put(i, 2, az)


def main(n: int = 300, softening: float = 0.01) -> None:
    rng = np.random.default_rng(3)
    position = rng.standard_normal((n, 3)).astype(np.float32)
    mass = rng.random(n).astype(np.float32)
    found = accelerate(position, mass, softening)
    p = position.astype(np.float64)
    d = p[None] - p[:, None]
    distance = (d**2).sum(-1) + softening
    terms = mass[None, :, None] * d * distance[..., None] ** -1.5
    expected = terms.sum(1)
    # n terms with a dozen roundings each
    bound = np.abs(terms).sum(1) * (n + 24) * 2.0**-24
    assert np.all(np.abs(found - expected) <= bound)
    print(f"accelerations of {n} bodies: largest error {np.abs(found - expected).max():.2e}")


if __name__ == "__main__":
    main()
