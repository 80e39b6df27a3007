"""Cumulative sums and products of long contiguous rows on GPUs, in three launches (reduce-then-scan).

The first reduces each tile, the second scans the totals of the tiles, the third scans each tile from its prefix. A
workgroup processes a tile, each invocation one vec4 at a time. The order of combination depends on the shape alone.
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
    """Load the vec4 from index r on; INIT past the end."""
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
    """Load this invocation's vec4s of a tile."""
    vectors = ()
    for q in vk.unroll(VECTORS_PER_INVOCATION):
        vectors = vectors + (load_vec4(x, line, first + q * (4 * LOCAL), INIT, AS),)
    return vectors


@functools.cache
def tile_totals(op: str) -> Any:
    """Return the kernel that reduces each tile; op: "add" or "mul"."""

    @vk.kernel(groups=lambda totals: (totals.shape[1], totals.shape[0]), local=LOCAL, debug=False)
    def totals_of_tiles(x: vk.In[T, "L R"], totals: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, lane, line = vk.workgroup(), vk.local_id(0), vk.group_id(1)
        vectors, found = load_tile(x, line, vk.group_id(0) * TILE + 4 * lane, INIT, V), V(INIT)
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            found = COMBINE(
                found, COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            )
        everywhere = wg.sum(found) if op == "add" else wg.prod(found)
        if lane == 0:
            totals[line, vk.group_id(0)] = everywhere

    return totals_of_tiles


@functools.cache
def tile_prefixes(op: str) -> Any:
    """Return the kernel that computes the exclusive scan of the tiles' totals; op: "add" or "mul"."""

    @vk.kernel(groups=lambda totals: totals.shape[0], local=LOCAL, debug=False)
    def before_tiles(totals: vk.In[V, "L S"], y: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, lane, line, count = vk.workgroup(), vk.local_id(0), vk.group_id(0), totals.shape[1]
        before = V(INIT)
        for base in range(0, count, 4 * LOCAL):
            s = base + 4 * lane
            values = load_vec4(totals, line, s, INIT, V)
            found = COMBINE(COMBINE(values[0], values[1]), COMBINE(values[2], values[3]))
            upto = wg.scan(found, op, exclusive=True)
            here = COMBINE(before, upto)
            for k in vk.unroll(4):
                y.put(line, s + k, here)
                here = COMBINE(here, values[k])
            before = wg.broadcast(here, LOCAL - 1)

    return before_tiles


@functools.cache
def scan_tiles(op: str, lanes: int) -> Any:
    """Return the kernel that computes y[l, r] = before[l, r // TILE] combined with r's tile up to r.

    `lanes` is the subgroup size; subgroup totals are combined in shared memory.
    """
    parts = LOCAL // lanes

    @vk.kernel(groups=lambda before: (before.shape[1], before.shape[0]), local=LOCAL, debug=False)
    def running_tiles(
        x: vk.In[T, "L R"],
        before: vk.In[V, "L S"],
        y: vk.Out[U, "L R"],
        COMBINE: vk.Const[Any],
        INIT: vk.Const[Any],
    ):
        shared = vk.shared(V, VECTORS_PER_INVOCATION * parts)
        subgroup, lane, line = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(1)
        part, first = lane // lanes, vk.group_id(0) * TILE + 4 * vk.local_id(0)
        vectors, own = load_tile(x, line, first, INIT, V), ()
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            found = COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            earlier = subgroup.scan(found, op, exclusive=True)
            own = own + (earlier,)
            if lane % lanes == lanes - 1:
                shared[q * parts + part] = COMBINE(earlier, found)
        vk.barrier()
        here = before[line, vk.group_id(0)]
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            mine = here
            for w in vk.unroll(parts):
                here = COMBINE(here, shared[q * parts + w])
                mine = vk.where(w + 1 == part, here, mine)
            value, made = COMBINE(mine, own[q]), ()
            for k in vk.unroll(4):
                value = COMBINE(value, vectors[q][k])
                made = made + (U(value),)
            store_vec4(y, line, first + q * (4 * LOCAL), made)

    return running_tiles


@vk.func
def store_vec4(y, line, r, values):
    """Store a vec4 from index r on; skip elements past the end."""
    if r <= y.shape[1] - 4:
        for k in vk.unroll(4):
            y[line, r + k] = values[k]
    else:
        for k in vk.unroll(4):
            y.put(line, r + k, values[k])
