"""Cumulative sums and products of long contiguous rows on GPUs, in three launches (reduce-then-scan).

`vkjit.tensor.ops.cumulative` launches them for arrays (L, R) of L rows, split into S tiles of TILE elements.
`tile_totals` reduces each tile, `tile_prefixes` scans the totals, and `scan_tiles` scans each tile, starting from its
prefix: the combination of all previous tiles. A workgroup processes a tile; each invocation has VECTORS_PER_INVOCATION
vec4s of it, 4 * LOCAL elements apart. The order of combination depends on the shape alone.

Kernels are generated for an `op`, "add" or "mul". They take the same operation as Const COMBINE, a device function of
two values, and its neutral element INIT. V, the type of the totals, is the type to compute in.
"""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import vkjit as vk

__all__ = ["LOCAL", "TILE", "scan_tiles", "tile_prefixes", "tile_totals"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)
V = TypeVar("V", bound=vk.Element)

LOCAL = 256
"""Invocations of a workgroup."""
VECTORS_PER_INVOCATION = 4
"""vec4 loads that an invocation has in flight."""
TILE = 4 * VECTORS_PER_INVOCATION * LOCAL
"""Elements of a tile."""


@vk.func
def load_vec4(x, line, r, INIT, AS):
    """Load the vec4 x[line, r : r + 4], converted to the type AS; INIT past the end of the row."""
    if r <= x.shape[1] - 4:
        values = (AS(x[line, r]), AS(x[line, r + 1]), AS(x[line, r + 2]), AS(x[line, r + 3]))
    else:
        values = (
            AS(x.get(line, r, pad=INIT)),
            AS(x.get(line, r + 1, pad=INIT)),
            AS(x.get(line, r + 2, pad=INIT)),
            AS(x.get(line, r + 3, pad=INIT)),
        )
    return values


@vk.func
def load_tile(x, line, first, INIT, AS):
    """Load this invocation's vec4s of a tile, from index `first` on, as the type AS; INIT past the end of the row."""
    vectors = ()
    for q in vk.unroll(VECTORS_PER_INVOCATION):
        vectors = vectors + (load_vec4(x, line, first + q * (4 * LOCAL), INIT, AS),)
    return vectors


@functools.cache
def tile_totals(op: str) -> Any:
    """Return the kernel totals[l, s] = the combination of all elements of tile s of row l."""

    @vk.kernel(groups=lambda totals: (totals.shape[1], totals.shape[0]), local=LOCAL, debug=False)
    def totals_of_tiles(x: vk.In[T, "L R"], totals: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, lane, line = vk.workgroup(), vk.local_id(0), vk.group_id(1)
        vectors, combined = load_tile(x, line, vk.group_id(0) * TILE + 4 * lane, INIT, V), V(INIT)
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            combined = COMBINE(
                combined, COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            )
        total = wg.sum(combined) if op == "add" else wg.prod(combined)
        if lane == 0:
            totals[line, vk.group_id(0)] = total

    return totals_of_tiles


@functools.cache
def tile_prefixes(op: str) -> Any:
    """Return the kernel y[l, s] = the combination of totals[l, :s]: an exclusive scan, by one workgroup per row.

    The workgroup loops over blocks of four totals per invocation; `carry` is the combination of the previous blocks.
    """

    @vk.kernel(groups=lambda totals: totals.shape[0], local=LOCAL, debug=False)
    def before_tiles(totals: vk.In[V, "L S"], y: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, lane, line, count = vk.workgroup(), vk.local_id(0), vk.group_id(0), totals.shape[1]
        carry = V(INIT)
        for base in range(0, count, 4 * LOCAL):
            s = base + 4 * lane
            values = load_vec4(totals, line, s, INIT, V)
            own = COMBINE(COMBINE(values[0], values[1]), COMBINE(values[2], values[3]))
            exclusive_scan = wg.scan(own, op, exclusive=True)
            prefix = COMBINE(carry, exclusive_scan)
            for k in vk.unroll(4):
                y.put(line, s + k, prefix)
                prefix = COMBINE(prefix, values[k])
            carry = wg.broadcast(prefix, LOCAL - 1)

    return before_tiles


@functools.cache
def scan_tiles(op: str, lanes: int) -> Any:
    """Return the kernel y[l, r] = before[l, s] combined with the elements of tile s = r // TILE up to element r.

    `before` is the result of `tile_prefixes`, `lanes` the subgroup size. Each subgroup scans its vec4s; the totals of
    the subgroups are then combined in shared memory.
    """
    subgroups = LOCAL // lanes  # subgroups per workgroup

    @vk.kernel(groups=lambda before: (before.shape[1], before.shape[0]), local=LOCAL, debug=False)
    def running_tiles(
        x: vk.In[T, "L R"],
        before: vk.In[V, "L S"],
        y: vk.Out[U, "L R"],
        COMBINE: vk.Const[Any],
        INIT: vk.Const[Any],
    ):
        shared = vk.shared(V, VECTORS_PER_INVOCATION * subgroups)
        subgroup, lane, line = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(1)
        subgroup_index, first = lane // lanes, vk.group_id(0) * TILE + 4 * vk.local_id(0)
        vectors, earlier_lanes = load_tile(x, line, first, INIT, V), ()
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            vector_total = COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            earlier = subgroup.scan(vector_total, op, exclusive=True)
            earlier_lanes = earlier_lanes + (earlier,)
            if lane % lanes == lanes - 1:
                shared[q * subgroups + subgroup_index] = COMBINE(earlier, vector_total)
        vk.barrier()
        # `prefix` grows over the totals in element order: the vec4s q of all subgroups, then the vec4s q + 1
        prefix = before[line, vk.group_id(0)]
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            own_prefix = prefix
            for w in vk.unroll(subgroups):
                prefix = COMBINE(prefix, shared[q * subgroups + w])
                own_prefix = vk.where(w + 1 == subgroup_index, prefix, own_prefix)
            value, results = COMBINE(own_prefix, earlier_lanes[q]), ()
            for k in vk.unroll(4):
                value = COMBINE(value, vectors[q][k])
                results = results + (U(value),)
            store_vec4(y, line, first + q * (4 * LOCAL), results)

    return running_tiles


@vk.func
def store_vec4(y, line, r, values):
    """Store a vec4 to y[line, r : r + 4]; skip elements past the end of the row."""
    if r <= y.shape[1] - 4:
        for k in vk.unroll(4):
            y[line, r + k] = values[k]
    else:
        for k in vk.unroll(4):
            y.put(line, r + k, values[k])
