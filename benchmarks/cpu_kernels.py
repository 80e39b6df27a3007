"""Kernels for the `cpu` benchmark group, written as a user would write them."""

from __future__ import annotations

from typing import Any

import vkjit as vk

TILE = 16
BODIES = 64


@vk.kernel(over="c")
def add(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    c[i] = a[i] + b[i]


@vk.kernel(groups=lambda x: x.shape[0], local=256)
def softmax(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"]):
    wg, r = vk.workgroup(), vk.group_id(0)
    row = vk.f32(x[r, :])
    m = wg.max(row)
    e = vk.exp(row - m)
    wg.store(y[r, :], e / wg.sum(e))


@vk.kernel(over="counts")
def mandelbrot(x0: vk.f32, y0: vk.f32, step: vk.f32, limit: vk.i32, counts: vk.InOut[vk.i32, "H W"]):
    row, column = vk.index()
    cx = x0 + step * vk.f32(column)
    cy = y0 + step * vk.f32(row)
    zx, zy = cx, cy
    n = 0
    while n < limit and zx * zx + zy * zy <= 4.0:
        zx, zy = zx * zx - zy * zy + cx, 2.0 * zx * zy + cy
        n += 1
    counts[row, column] = n


@vk.func
def normal_cdf(x: vk.f32) -> Any:
    return 0.5 * vk.erfc(-x * 0.7071067811865476)


@vk.kernel(over="spot")
def black_scholes(
    spot: vk.In[vk.f32, "N"],
    strike: vk.In[vk.f32, "N"],
    years: vk.In[vk.f32, "N"],
    rate: vk.f32,
    volatility: vk.f32,
    call: vk.Out[vk.f32, "N"],
    put: vk.Out[vk.f32, "N"],
):
    i = vk.global_id(0)
    deviation = volatility * vk.sqrt(years[i])
    d1 = (vk.log(spot[i] / strike[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / deviation
    d2 = d1 - deviation
    discounted = strike[i] * vk.exp(-rate * years[i])
    call[i] = spot[i] * normal_cdf(d1) - discounted * normal_cdf(d2)
    put[i] = discounted * normal_cdf(-d2) - spot[i] * normal_cdf(-d1)


@vk.kernel(over="mass")
def nbody(position: vk.In[vk.f32, "3 N"], mass: vk.In[vk.f32, "N"], softening: vk.f32, out: vk.Out[vk.f32, "3 N"]):
    i = vk.global_id(0)
    x, y, z = position[0, i], position[1, i], position[2, i]
    ax, ay, az = vk.f32(0), vk.f32(0), vk.f32(0)
    for j in range(mass.shape[0]):
        dx, dy, dz = position[0, j] - x, position[1, j] - y, position[2, j] - z
        inverse = vk.rsqrt(dx * dx + dy * dy + dz * dz + softening)
        force = mass[j] * inverse * inverse * inverse
        ax += force * dx
        ay += force * dy
        az += force * dz
    out[0, i], out[1, i], out[2, i] = ax, ay, az


@vk.kernel(over="y")
def stencil(x: vk.In[vk.f32, "H W"], y: vk.InOut[vk.f32, "H W"]):
    i, j = vk.index()
    if i > 0 and j > 0 and i < x.shape[0] - 1 and j < x.shape[1] - 1:
        y[i, j] = 0.2 * (x[i, j] + x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@vk.kernel(local=(TILE, TILE))
def tiled_matmul(a: vk.In[vk.f32, "M K"], b: vk.In[vk.f32, "K N"], c: vk.Out[vk.f32, "M N"]):
    left, right = vk.shared(vk.f32, (TILE, TILE)), vk.shared(vk.f32, (TILE, TILE))
    tx, ty = vk.local_id(0), vk.local_id(1)
    j, i = vk.global_id(0), vk.global_id(1)
    total = vk.f32(0)
    for k in range(0, a.shape[1], TILE):
        left[ty, tx] = a.get(i, k + tx, pad=0)
        right[ty, tx] = b.get(k + ty, j, pad=0)
        vk.barrier()
        for t in vk.unroll(TILE):
            total += left[ty, t] * right[t, tx]
        vk.barrier()
    c.put(i, j, total)


@vk.kernel(groups=lambda c, SIDE: (vk.cdiv(c.shape[1], SIDE), vk.cdiv(c.shape[0], SIDE)), local=256)
def tile_matmul(
    a: vk.In[vk.f32, "M K"],
    b: vk.In[vk.f32, "K N"],
    c: vk.Out[vk.f32, "M N"],
    SIDE: vk.Const[int] = 64,
    DEPTH: vk.Const[int] = 32,
):
    wg = vk.workgroup()
    i, j = vk.group_id(1) * SIDE, vk.group_id(0) * SIDE
    total = wg.zeros((SIDE, SIDE), vk.f32)
    for k in range(0, a.shape[1], DEPTH):
        total = wg.mma(a[i : i + SIDE, k : k + DEPTH], b[k : k + DEPTH, j : j + SIDE], total)
    wg.store(c[i : i + SIDE, j : j + SIDE], total)
