# mypy: disable-error-code="valid-type, no-untyped-call"
"""Larger kernels: halos, private counters, ring buffers, mixed precision, structs, device functions, early exits."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

import vkjit as vk
from tests.buggy.pair import pair

T = TypeVar("T", bound=vk.Element)
L = 32
B = 8


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], B), vk.cdiv(x.shape[0], B)), local=(B, B))
def blur(x: vk.In[vk.f32, "H W"], y: vk.Out[vk.f32, "H W"]):
    tile = vk.shared(vk.f32, (B + 2, B + 2))
    tx, ty = vk.local_id(0), vk.local_id(1)
    j, i = vk.global_id(0), vk.global_id(1)
    tile[ty + 1, tx + 1] = x.get(i, j, pad=0)
    if tx == 0:
        tile[ty + 1, 0] = x.get(i, j - 1, pad=0)
    if tx == B - 1:
        tile[ty + 1, B + 1] = x.get(i, j + 1, pad=0)
    if ty == 0:
        tile[0, tx + 1] = x.get(i - 1, j, pad=0)
    if ty == B - 1:
        tile[B + 1, tx + 1] = x.get(i + 1, j, pad=0)
    vk.barrier()
    total = vk.f32(0)
    for a in vk.unroll(3):
        for b in vk.unroll(3):
            total += tile[ty + a, tx + b]  # bug: the corners of the halo aren't loaded
    y.put(i, j, total)


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], B), vk.cdiv(x.shape[0], B)), local=(B, B))
def blur_good(x: vk.In[vk.f32, "H W"], y: vk.Out[vk.f32, "H W"]):
    tile = vk.shared(vk.f32, (B + 2, B + 2))
    tx, ty = vk.local_id(0), vk.local_id(1)
    j, i = vk.global_id(0), vk.global_id(1)
    first_i, first_j = i - ty - 1, j - tx - 1
    for k in range(ty * B + tx, (B + 2) * (B + 2), B * B):
        a, b = k // (B + 2), k % (B + 2)
        tile[a, b] = x.get(first_i + a, first_j + b, pad=0)
    vk.barrier()
    total = vk.f32(0)
    for a in vk.unroll(3):
        for b in vk.unroll(3):
            total += tile[ty + a, tx + b]
    y.put(i, j, total)


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 2 * L), local=L)
def histogram(x: vk.In[vk.u8, "N"], y: vk.InOut[vk.i32, "256"]):
    bins = vk.shared(vk.i32, 256)
    lane = vk.local_id(0)
    for b in range(lane, 256, L):
        bins[b] = 0
    vk.barrier()
    for k in vk.unroll(2):
        i = vk.group_id(0) * 2 * L + k * L + lane
        if i < x.shape[0]:
            vk.atomic.add(bins, vk.i32(x[i]), 1)
    vk.barrier()
    for b in range(lane, 256, L):
        if bins[b] > 0:
            y[b] += bins[b]  # bug: other workgroups update the same bins


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 2 * L), local=L)
def histogram_good(x: vk.In[vk.u8, "N"], y: vk.InOut[vk.i32, "256"]):
    bins = vk.shared(vk.i32, 256)
    lane = vk.local_id(0)
    for b in range(lane, 256, L):
        bins[b] = 0
    vk.barrier()
    for k in vk.unroll(2):
        i = vk.group_id(0) * 2 * L + k * L + lane
        if i < x.shape[0]:
            vk.atomic.add(bins, vk.i32(x[i]), 1)
    vk.barrier()
    for b in range(lane, 256, L):
        if bins[b] > 0:
            vk.atomic.add(y, b, bins[b])


@vk.kernel(over="y")
def ring(buffer: vk.In[T, "K"], written: vk.i32, y: vk.Out[T, "K"]):
    i, k = vk.global_id(0), vk.i32(buffer.shape[0])
    y[i] = buffer[(written + vk.i32(i) + 1) % k]  # bug: off by one


@vk.kernel(over="y")
def ring_good(buffer: vk.In[T, "K"], written: vk.i32, y: vk.Out[T, "K"]):
    i, k = vk.global_id(0), vk.i32(buffer.shape[0])
    y[i] = buffer[(written % k + vk.i32(i)) % k]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def dot(x: vk.In[vk.f16, "R C"], w: vk.In[vk.f16, "C"], y: vk.Out[vk.f32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.f32(0)
    for k in range(lane, x.shape[1], L):
        total += vk.f32(x[row, k] * w[k])  # bug: the product overflows before it is widened
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def dot_good(x: vk.In[vk.f16, "R C"], w: vk.In[vk.f16, "C"], y: vk.Out[vk.f32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    total = vk.f32(0)
    for k in range(lane, x.shape[1], L):
        total += vk.f32(x[row, k]) * vk.f32(w[k])
    total = wg.sum(total)
    if lane == 0:
        y[row] = total


@vk.struct
class Particle(vk.Struct):
    position: vk.vec(vk.f32, 2)
    speed: vk.vec(vk.f32, 2)
    mass: vk.f32


@vk.kernel(over="p")
def kicked(p: vk.InOut[Particle, "N"], force: vk.In[vk.vec(vk.f32, 2), "N"], dt: vk.f32):
    i = vk.global_id(0)
    p[i].position = p[i].position + dt * p[i].speed  # bug: uses the speed before the kick
    p[i].speed = p[i].speed + dt * force[i] / p[i].mass


@vk.kernel(over="p")
def kicked_good(p: vk.InOut[Particle, "N"], force: vk.In[vk.vec(vk.f32, 2), "N"], dt: vk.f32):
    i = vk.global_id(0)
    speed = p[i].speed + dt * force[i] / p[i].mass
    p[i].speed = speed
    p[i].position = p[i].position + dt * speed


@vk.func
def interpolated(table, t):
    last = table.shape[0] - 1
    k = vk.i32(vk.floor(t))
    k = vk.max(vk.min(k, vk.i32(last)), 0)
    share = t - vk.f32(k)
    return table[k] * (1.0 - share) + table[k + 1] * share  # bug: the last element has no successor


@vk.func
def interpolated_good(table, t):
    last = table.shape[0] - 1
    k = vk.i32(vk.floor(t))
    k = vk.max(vk.min(k, vk.i32(last)), 0)
    share = t - vk.f32(k)
    return table[k] * (1.0 - share) + table[vk.min(k + 1, vk.i32(last))] * share


@vk.kernel(over="y")
def looked_up(table: vk.In[vk.f32, "K"], t: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = interpolated(table, t[i])


@vk.kernel(over="y")
def looked_up_good(table: vk.In[vk.f32, "K"], t: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = interpolated_good(table, t[i])


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def first_zero(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    found = vk.shared(vk.i32, 1)
    if lane == 0:
        found[0] = vk.i32(x.shape[1])
    vk.barrier()
    for k in range(0, x.shape[1], L):
        if x.get(row, k + lane, pad=1) == 0:
            vk.atomic.min(found, 0, vk.i32(k + lane))
        if vk.assume_uniform(found[0] < vk.i32(x.shape[1])):  # bug: nothing orders the read after the atomics
            break
        vk.barrier()
    if lane == 0:
        y[row] = found[0]


@vk.kernel(groups=lambda x: x.shape[0], local=L)
def first_zero_good(x: vk.In[vk.i32, "R C"], y: vk.Out[vk.i32, "R"]):
    wg, lane, row = vk.workgroup(), vk.local_id(0), vk.group_id(0)
    found = vk.shared(vk.i32, 1)
    if lane == 0:
        found[0] = vk.i32(x.shape[1])
    vk.barrier()
    for k in range(0, x.shape[1], L):
        if x.get(row, k + lane, pad=1) == 0:
            vk.atomic.min(found, 0, vk.i32(k + lane))
        vk.barrier()
        seen = found[0]
        vk.barrier()
        if vk.assume_uniform(seen < vk.i32(x.shape[1])):
            break
    if lane == 0:
        y[row] = found[0]


def _blurred(x):
    p = np.pad(x, 1)
    return sum(p[a : a + x.shape[0], b : b + x.shape[1]] for a in range(3) for b in range(3))


def _counted(x, y):
    return y + np.bincount(x, minlength=256).astype(np.int32)


def _unrolled(buffer, written):
    k = len(buffer)
    return np.roll(buffer, -(int(written) % k)) if k else buffer


def _symplectic(p, force, dt):
    made = p.copy()
    made["speed"] = p["speed"] + dt * force / p["mass"][:, None]
    made["position"] = p["position"] + dt * made["speed"]
    return made


def _looked(table, t):
    k = np.clip(np.floor(t).astype(np.int64), 0, len(table) - 1)
    return table[k] * (1 - (t - k)) + table[np.minimum(k + 1, len(table) - 1)] * (t - k)


def _zeros_first(x):
    return np.array([next((k for k, v in enumerate(r) if v == 0), len(r)) for r in x], np.int32)


PAIRS = (
    pair(blur, blur_good, _blurred, minimal={"H": 1, "W": 1}),
    pair(histogram, histogram_good, _counted, minimal={"N": 65}),
    pair(ring, ring_good, _unrolled, minimal={"K": 2}, elements={"written": (0, 1000)}),
    pair(dot, dot_good, lambda x, w: x @ w, minimal={"R": 1, "C": 1}),
    pair(kicked, kicked_good, _symplectic, minimal={"N": 1}, elements={"p.mass": (1, 4)}),
    pair(
        looked_up, looked_up_good, _looked, minimal={"K": 1, "N": 1},
        dims={"K": (1, 1000)}, elements={"t": (0, "K-1")},
    ),
    pair(first_zero, first_zero_good, _zeros_first, minimal={"R": 1, "C": 1}),
)  # fmt: skip
