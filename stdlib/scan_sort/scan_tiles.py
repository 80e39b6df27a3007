"""Cumulative sums and products of long contiguous rows on GPUs, in three launches (reduce-then-scan).

`vkjit.tensor.ops.cumulative` launches the kernels for arrays (L, R) of L rows. Each row is split into S tiles of TILE
elements; the last tile may be shorter. The first launch, `tile_totals`, reduces each tile to its total: the sum or
product of its elements. The second, `tile_prefixes`, scans the totals: the prefix of a tile is the sum or product of
all previous tiles of the row. The third, `scan_tiles`, scans the elements of each tile, starting from its prefix.

In the first and third launch, a workgroup processes one tile. Each of its LOCAL invocations processes
VECTORS_PER_INVOCATION groups of four adjacent elements ("vec4s"), of which one begins every 4 * LOCAL elements. The
order in which elements are combined depends on the shape alone, so results are reproducible.

The functions below generate the kernels for an operation `op`, "add" or "mul". A kernel takes the operation once more
as Const COMBINE, a device function of two values, and its neutral element as Const INIT (0 or 1). T is the type of the
input x, U that of the result y. V is the type of totals and prefixes, in which the kernels compute. The kernels are
declared with `debug=False`, without bounds checks even in debug mode, since their indices are in range.
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
def load_vec4(x, row, r, INIT, TYPE):
    """Load the vec4 x[row, r : r + 4], converted to TYPE. Elements past the end of the row are INIT."""
    if r <= x.shape[1] - 4:
        values = (TYPE(x[row, r]), TYPE(x[row, r + 1]), TYPE(x[row, r + 2]), TYPE(x[row, r + 3]))
    else:
        values = (
            TYPE(x.get(row, r, pad=INIT)),
            TYPE(x.get(row, r + 1, pad=INIT)),
            TYPE(x.get(row, r + 2, pad=INIT)),
            TYPE(x.get(row, r + 3, pad=INIT)),
        )
    return values


@vk.func
def load_tile(x, row, first, INIT, TYPE):
    """Load the vec4s of a tile that the calling invocation processes, converted to TYPE, as a tuple.

    The first vec4 begins at x[row, first]. Elements past the end of the row are INIT.
    """
    vectors = ()
    for q in vk.unroll(VECTORS_PER_INVOCATION):
        vectors = vectors + (load_vec4(x, row, first + q * (4 * LOCAL), INIT, TYPE),)
    return vectors


@functools.cache
def tile_totals(op: str) -> Any:
    """Return the kernel that computes totals[l, s] = the sum or product of all elements of tile s of row l."""

    @vk.kernel(groups=lambda totals: (totals.shape[1], totals.shape[0]), local=LOCAL, debug=False)
    def tile_totals_kernel(x: vk.In[T, "L R"], totals: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, thread, row = vk.workgroup(), vk.local_id(0), vk.group_id(1)
        vectors, combined = load_tile(x, row, vk.group_id(0) * TILE + 4 * thread, INIT, V), V(INIT)
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            combined = COMBINE(
                combined, COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            )
        total = wg.sum(combined) if op == "add" else wg.prod(combined)
        if thread == 0:
            totals[row, vk.group_id(0)] = total

    return tile_totals_kernel


@functools.cache
def tile_prefixes(op: str) -> Any:
    """Return the kernel that computes y[l, s] = the sum or product of totals[l, :s]: an exclusive scan of each row.

    One workgroup per row loops over blocks of 4 * LOCAL totals, four per invocation. `carry` is the sum or product of
    all previous blocks.
    """

    @vk.kernel(groups=lambda totals: totals.shape[0], local=LOCAL, debug=False)
    def tile_prefixes_kernel(totals: vk.In[V, "L S"], y: vk.Out[V, "L S"], COMBINE: vk.Const[Any], INIT: vk.Const[Any]):
        wg, thread, row, count = vk.workgroup(), vk.local_id(0), vk.group_id(0), totals.shape[1]
        carry = V(INIT)
        for base in range(0, count, 4 * LOCAL):
            s = base + 4 * thread
            values = load_vec4(totals, row, s, INIT, V)
            own_total = COMBINE(COMBINE(values[0], values[1]), COMBINE(values[2], values[3]))
            own_prefix = wg.scan(own_total, op, exclusive=True)
            prefix = COMBINE(carry, own_prefix)
            for k in vk.unroll(4):
                y.put(row, s + k, prefix)
                prefix = COMBINE(prefix, values[k])
            carry = wg.broadcast(prefix, LOCAL - 1)

    return tile_prefixes_kernel


@functools.cache
def scan_tiles(op: str, lanes: int) -> Any:
    """Return the kernel that computes the inclusive scan y of each row of x, from the prefixes of the tiles.

    `prefixes` is the result of `tile_prefixes`. `lanes` is the subgroup size. Each subgroup scans the totals of its
    vec4s and stores the total of the subgroup in shared memory. The prefix of a subgroup is the prefix of the tile
    combined with the totals of the subgroups before it.
    """
    subgroups = LOCAL // lanes  # subgroups per workgroup

    @vk.kernel(groups=lambda prefixes: (prefixes.shape[1], prefixes.shape[0]), local=LOCAL, debug=False)
    def scan_tiles_kernel(
        x: vk.In[T, "L R"],
        prefixes: vk.In[V, "L S"],
        y: vk.Out[U, "L R"],
        COMBINE: vk.Const[Any],
        INIT: vk.Const[Any],
    ):
        # shared[q * subgroups + g] = the total of the q-th vec4s of all invocations of subgroup g
        shared = vk.shared(V, VECTORS_PER_INVOCATION * subgroups)
        subgroup, thread, row = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(1)
        subgroup_index, first = thread // lanes, vk.group_id(0) * TILE + 4 * vk.local_id(0)
        vectors, lane_prefixes = load_tile(x, row, first, INIT, V), ()
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            vector_total = COMBINE(COMBINE(vectors[q][0], vectors[q][1]), COMBINE(vectors[q][2], vectors[q][3]))
            lane_prefix = subgroup.scan(vector_total, op, exclusive=True)
            lane_prefixes = lane_prefixes + (lane_prefix,)
            if thread % lanes == lanes - 1:  # the last lane, whose inclusive scan is the subgroup's total
                shared[q * subgroups + subgroup_index] = COMBINE(lane_prefix, vector_total)
        vk.barrier()
        # `prefix` accumulates the subgroups' totals in element order: q = 0 of all subgroups, then q = 1, and so on;
        # `subgroup_prefix` is its value just before the total of this invocation's own subgroup
        prefix = prefixes[row, vk.group_id(0)]
        for q in vk.unroll(VECTORS_PER_INVOCATION):
            subgroup_prefix = prefix
            for g in vk.unroll(subgroups):
                prefix = COMBINE(prefix, shared[q * subgroups + g])
                subgroup_prefix = vk.where(g + 1 == subgroup_index, prefix, subgroup_prefix)
            value, results = COMBINE(subgroup_prefix, lane_prefixes[q]), ()
            for k in vk.unroll(4):
                value = COMBINE(value, vectors[q][k])
                results = results + (U(value),)
            store_vec4(y, row, first + q * (4 * LOCAL), results)

    return scan_tiles_kernel


@vk.func
def store_vec4(y, row, r, values):
    """Store a vec4 to y[row, r : r + 4]; skip elements past the end of the row."""
    if r <= y.shape[1] - 4:
        for k in vk.unroll(4):
            y[row, r + k] = values[k]
    else:
        for k in vk.unroll(4):
            y.put(row, r + k, values[k])
