"""Reductions along the last of three axes: y[a, b] = FINISH(COMBINE over r of LOAD(x[a, b, r])).

The caller reshapes arrays, of any strides, to three axes and chooses how elements are loaded, combined and finished,
and the accumulator type ACC. LOAD takes elements converted to type IN, and accumulators start from INIT. The order of
combination depends on the shape alone, so results are deterministic. `reduce_per_invocation` reduces a row with one
invocation, `reduce_per_subgroup` with one subgroup, `reduce_per_workgroup` and `reduce_by_shuffles` with one
workgroup: the former finishes with a tree in shared memory, the latter with subgroup shuffles.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = [
    "GROUP",
    "arg_reduce_blocks",
    "arg_reduce_partials",
    "arg_reduce_per_invocation",
    "arg_reduce_per_subgroup",
    "reduce_by_shuffles",
    "reduce_per_invocation",
    "reduce_per_subgroup",
    "reduce_per_workgroup",
]  # fmt: skip

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup that reduces one row."""
ELEMENTS_PER_ITERATION = 4 * GROUP
"""Elements that a workgroup loads per iteration."""


@vk.func
def load_value(x):
    return x


@vk.func
def load_square(x):
    return x * x


@vk.func
def load_absolute(x):
    return vk.abs(x)


@vk.func
def load_nonzero(x):
    return vk.where(x != 0, vk.i32(1), vk.i32(0))


@vk.func
def add(x, y):
    return x + y


@vk.func
def product(x, y):
    return x * y


@vk.func
def bitwise_or(x, y):
    return x | y


@vk.func
def bitwise_and(x, y):
    return x & y


@vk.func
def finish_value(x, count):  # noqa: ARG001  # all finish functions have the same signature
    return x


@vk.func
def finish_mean(x, count):
    return x / count


@vk.func
def finish_root(x, count):  # noqa: ARG001  # all finish functions have the same signature
    return vk.sqrt(x)


@vk.kernel(over="y", debug=False)
def reduce_per_invocation(
    x: vk.In[T, "A B R"],
    y: vk.Out[U, "A B"],
    total: vk.i64,
    LOAD: vk.Const[Any],
    COMBINE: vk.Const[Any],
    FINISH: vk.Const[Any],
    INIT: vk.Const[Any],
    IN: vk.Const[Any],
    ACC: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Reduce each row by one invocation, with four accumulators; rows have at most LIMIT elements."""
    b, a = vk.global_id(0), vk.global_id(1)
    n = vk.min(x.shape[2], LIMIT)
    whole = n // 4
    s0, s1, s2, s3 = ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT)
    for q in range(whole):
        r = q * 4
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, r]))))
        s1 = COMBINE(s1, ACC(LOAD(IN(x[a, b, r + 1]))))
        s2 = COMBINE(s2, ACC(LOAD(IN(x[a, b, r + 2]))))
        s3 = COMBINE(s3, ACC(LOAD(IN(x[a, b, r + 3]))))
    for q in range(n - whole * 4):
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, whole * 4 + q]))))
    y[a, b] = U(FINISH(COMBINE(COMBINE(s0, s1), COMBINE(s2, s3)), ACC(total)))


@vk.func
def load_vec4(x, a, b, r):
    """Return elements r to r + 3 of a row."""
    return x[a, b, r], x[a, b, r + 1], x[a, b, r + 2], x[a, b, r + 3]


@vk.func
def combine_vec4(
    sums,
    values,
    first: vk.Const[int],
    LOAD: vk.Const[Any],
    COMBINE: vk.Const[Any],
    IN: vk.Const[Any],
    ACC: vk.Const[Any],
):
    """Return the four accumulators combined with values[first], ..., values[first + 3]."""
    made = ()
    for k in vk.unroll(4):
        made = made + (COMBINE(sums[k], ACC(LOAD(IN(values[first + k])))),)
    return made


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=GROUP, debug=False)
def reduce_per_workgroup(
    x: vk.In[T, "A B R"],
    y: vk.Out[U, "A B"],
    total: vk.i64,
    LOAD: vk.Const[Any],
    COMBINE: vk.Const[Any],
    FINISH: vk.Const[Any],
    INIT: vk.Const[Any],
    IN: vk.Const[Any],
    ACC: vk.Const[Any],
):
    """One workgroup per row: each invocation loads vec4s into four accumulators; a tree in shared memory combines the
    rest.
    """
    shared = vk.shared(ACC, GROUP)
    lane, b, a = vk.local_id(0), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    sums = (ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT))
    long, whole = (
        n // (4 * ELEMENTS_PER_ITERATION) * (4 * ELEMENTS_PER_ITERATION),
        n // ELEMENTS_PER_ITERATION * ELEMENTS_PER_ITERATION,
    )
    for start in range(0, long, 4 * ELEMENTS_PER_ITERATION):
        vectors = ()
        for q in vk.unroll(4):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * ELEMENTS_PER_ITERATION + 4 * lane)
        for q in vk.unroll(4):
            sums = combine_vec4(sums, vectors, 4 * q, LOAD, COMBINE, IN, ACC)
    for start in range(long, whole, ELEMENTS_PER_ITERATION):
        sums = combine_vec4(sums, load_vec4(x, a, b, start + 4 * lane), 0, LOAD, COMBINE, IN, ACC)
    total_here = COMBINE(COMBINE(sums[0], sums[1]), COMBINE(sums[2], sums[3]))
    for r in range(whole + lane, n, GROUP):
        total_here = COMBINE(total_here, ACC(LOAD(IN(x[a, b, r]))))
    shared[lane] = total_here
    vk.barrier()
    width = GROUP // 2
    while width > 0:
        if lane < width:
            shared[lane] = COMBINE(shared[lane], shared[lane + width])
        vk.barrier()
        width //= 2
    if lane == 0:
        y[a, b] = U(FINISH(shared[0], ACC(total)))


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def reduce_per_subgroup(
    x: vk.In[T, "A B R"],
    y: vk.Out[U, "A B"],
    total: vk.i64,
    LOAD: vk.Const[Any],
    COMBINE: vk.Const[Any],
    FINISH: vk.Const[Any],
    INIT: vk.Const[Any],
    IN: vk.Const[Any],
    ACC: vk.Const[Any],
    SIZE: vk.Const[int],
    DOUBLINGS: vk.Const[int],
):
    """One subgroup of SIZE = 2**DOUBLINGS invocations per row, for CPUs.

    Reads the four quarters of a row concurrently, which memory serves faster than one after the other; a butterfly of
    shuffles combines the lanes.
    """
    lanes, lane, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    s0, s1, s2, s3 = ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT)
    whole = n // (4 * SIZE)
    part = whole * SIZE
    for k in range(whole):
        r = k * SIZE + lane
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, r]))))
        s1 = COMBINE(s1, ACC(LOAD(IN(x[a, b, r + part]))))
        s2 = COMBINE(s2, ACC(LOAD(IN(x[a, b, r + 2 * part]))))
        s3 = COMBINE(s3, ACC(LOAD(IN(x[a, b, r + 3 * part]))))
    for r in range(whole * (4 * SIZE) + lane, n, SIZE):
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, r]))))
    s0 = COMBINE(COMBINE(s0, s1), COMBINE(s2, s3))
    for k in vk.unroll(DOUBLINGS):
        s0 = COMBINE(s0, lanes.shuffle_xor(s0, 1 << k))
    if lane == 0:
        y[a, b] = U(FINISH(s0, ACC(total)))


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda LOCAL: LOCAL, debug=False)
def reduce_by_shuffles(
    x: vk.In[T, "A B R"],
    y: vk.Out[U, "A B"],
    total: vk.i64,
    LOAD: vk.Const[Any],
    COMBINE: vk.Const[Any],
    FINISH: vk.Const[Any],
    INIT: vk.Const[Any],
    IN: vk.Const[Any],
    ACC: vk.Const[Any],
    LOCAL: vk.Const[int],
    DOUBLINGS: vk.Const[int],
    DEPTH: vk.Const[int],
):
    """Variant of `reduce_per_workgroup` with LOCAL invocations per row, combined by shuffles in subgroups of 2**DOUBLINGS
    lanes.

    Shared memory combines the results of the subgroups. Each invocation has DEPTH vec4 loads in flight.
    """
    lanes, lane, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    sums = (ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT))
    long, whole = n // (4 * DEPTH * LOCAL) * (4 * DEPTH * LOCAL), n // (4 * LOCAL) * (4 * LOCAL)
    for start in range(0, long, 4 * DEPTH * LOCAL):
        vectors = ()
        for q in vk.unroll(DEPTH):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * (4 * LOCAL) + 4 * lane)
        for q in vk.unroll(DEPTH):
            sums = combine_vec4(sums, vectors, 4 * q, LOAD, COMBINE, IN, ACC)
    for start in range(long, whole, 4 * LOCAL):
        sums = combine_vec4(sums, load_vec4(x, a, b, start + 4 * lane), 0, LOAD, COMBINE, IN, ACC)
    found = COMBINE(COMBINE(sums[0], sums[1]), COMBINE(sums[2], sums[3]))
    for r in range(whole + lane, n, LOCAL):
        found = COMBINE(found, ACC(LOAD(IN(x[a, b, r]))))
    for k in vk.unroll(DOUBLINGS):
        found = COMBINE(found, lanes.shuffle_xor(found, 1 << k))
    LANES = 1 << DOUBLINGS
    if LOCAL > LANES:
        shared = vk.shared(ACC, LOCAL // LANES)
        if lane % LANES == 0:
            shared[lane // LANES] = found
        vk.barrier()
        found = shared[0]
        for k in vk.unroll(LOCAL // LANES - 1):
            found = COMBINE(found, shared[k + 1])
    if lane == 0:
        y[a, b] = U(FINISH(found, ACC(total)))


# -- argmin and argmax


@vk.func
def replaces_maximum(x, y):
    """True if x replaces y as the maximum; NaN does unless y is NaN."""
    return (x > y) | ((x != x) & (y == y))


@vk.func
def replaces_minimum(x, y):
    """True if x replaces y as the minimum; NaN does unless y is NaN."""
    return (x < y) | ((x != x) & (y == y))


@vk.kernel(over="y", debug=False)
def arg_reduce_per_invocation(
    x: vk.In[T, "A B R"],
    y: vk.Out[vk.i64, "A B"],
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """y[a, b] = the first index of the extreme (TAKES: `replaces_maximum` or `replaces_minimum`) of x[a, b, :], one
    invocation per row.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    found = IN(x[a, b, 0])
    place = vk.i64(0)
    for r in range(1, vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        if TAKES(value, found):
            found = value
            place = vk.i64(r)
    y[a, b] = place


@vk.func
def better_pair(value, place, found, at, TAKES: vk.Const[Any]):
    """Return the better of two (value, index) pairs; of equal values the one with the lower index."""
    takes = TAKES(value, found) | (~TAKES(found, value) & (place < at))
    return vk.where(takes, value, found), vk.where(takes, place, at)


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def arg_reduce_per_subgroup(
    x: vk.In[T, "A B R"],
    y: vk.Out[vk.i64, "A B"],
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    SIZE: vk.Const[int],
    DOUBLINGS: vk.Const[int],
):
    """Variant of `arg_reduce_per_invocation` with one subgroup of SIZE = 2**DOUBLINGS invocations per contiguous row
    and vec4 loads.
    """
    lanes, lane, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    n = vk.i32(x.shape[2])
    found, at = IN(x[a, b, 0]), vk.i32(0)
    whole = n // (16 * SIZE) * (16 * SIZE)
    for start in range(0, whole, 16 * SIZE):
        vectors = ()
        for q in vk.unroll(4):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * (4 * SIZE) + 4 * lane)
        for q in vk.unroll(16):
            value, place = IN(vectors[q]), start + q // 4 * (4 * SIZE) + 4 * lane + q % 4
            takes = TAKES(value, found)
            found = vk.where(takes, value, found)
            at = vk.where(takes, place, at)
    for place in range(whole + lane, n, SIZE):
        value = IN(x[a, b, place])
        takes = TAKES(value, found)
        found = vk.where(takes, value, found)
        at = vk.where(takes, place, at)
    for k in vk.unroll(DOUBLINGS):
        value, place = lanes.shuffle_xor(found, 1 << k), lanes.shuffle_xor(at, 1 << k)
        found, at = better_pair(value, place, found, at, TAKES)
    if lane == 0:
        y[a, b] = vk.i64(at)


@vk.kernel(over="y", debug=False)
def arg_reduce_blocks(
    x: vk.In[T, "L N"],
    best: vk.Out[T, "L S P"],
    y: vk.Out[vk.i64, "L S P"],
    size: vk.i64,
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """best[l, s, p] = the extreme of elements p, p + P, ... of block s of row l; y[l, s, p] = its first index in the
    row.

    Blocks have `size` elements. Invocations without elements take the last one of the row, which doesn't change the
    result.
    """
    p, s, line = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    parts, last = y.shape[2], x.shape[1] - 1
    begin = s * size
    n = vk.max(vk.min(x.shape[1] - begin, vk.index(size)), 0)
    place = vk.min(begin + p, last)
    found = IN(x[line, place])
    rounds = vk.min(n // parts, LIMIT)
    for q in range(1, rounds):
        value = IN(x[line, begin + q * parts + p])
        takes = TAKES(value, found)
        found = vk.where(takes, value, found)
        place = vk.where(takes, begin + q * parts + p, place)
    if rounds * parts + p < n:
        value = IN(x[line, begin + rounds * parts + p])
        if TAKES(value, found):
            found = value
            place = begin + rounds * parts + p
    best[line, s, p] = T(found)
    y[line, s, p] = vk.i64(place)


@vk.kernel(over="y", debug=False)
def arg_reduce_partials(
    x: vk.In[T, "L N"],
    places: vk.In[vk.i64, "L N"],
    best: vk.Out[T, "L P"],
    y: vk.Out[vk.i64, "L P"],
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Variant of `arg_reduce_blocks` for one block of its results: indices are taken from `places`, the lowest among equal
    extremes.
    """
    p, line = vk.global_id(0), vk.global_id(1)
    parts, n = y.shape[1], x.shape[1]
    found = IN(x[line, p])
    place = places[line, p]
    for q in range(1, vk.min((n + parts - 1) // parts, LIMIT)):
        at = vk.min(q * parts + p, n - 1)
        value = IN(x[line, at])
        here = places[line, at]
        if TAKES(value, found) or (here < place and not TAKES(found, value)):
            found = value
            place = here
    best[line, p] = T(found)
    y[line, p] = place
