"""Reductions, argmin and argmax along the last of three axes: y[a, b] = FINISH(COMBINE over r of LOAD(x[a, b, r])).

`vkjit.tensor.ops.reduction_launch` reshapes arrays, of any strides, to three axes (A, B, R), and chooses the kernel and
its compile-time parameters. A row is a slice along the last axis. T and U are the element types of x and y. The
parameters of the reductions:

- LOAD(x) maps an element, converted to type IN, to the value to reduce.
- COMBINE(x, y) combines two values of the accumulator type ACC; INIT is its identity, from which accumulators start.
- FINISH(x, count) maps the reduced value to the result. `count` is the kernel argument `total`, the number of elements
  that the result combines: more than the length of a row of x if x holds the partial results of a longer row.

The order of combination depends on the shape alone, so results are deterministic. `reduce_per_invocation` reduces a row
with one invocation, `reduce_per_subgroup` with one subgroup, `reduce_per_workgroup` and `reduce_by_shuffles` with one
workgroup. `reduce_per_workgroup` finishes with a tree in shared memory, `reduce_by_shuffles` with subgroup shuffles.

The argmin and argmax kernels (`arg_reduce_*`) take the function REPLACES, `replaces_minimum` or `replaces_maximum`, and
compare elements converted to type IN. They return the lowest index of the minimum or maximum. A row that contains NaN
yields the index of its first NaN.
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
"""Elements that a workgroup loads as one vec4 per invocation."""


# -- functions for the parameters LOAD, COMBINE and FINISH


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
    """Reduce each row by one invocation, with four accumulators.

    The caller guarantees that rows have at most LIMIT elements. This constant bounds the loop for drivers that stop
    kernels with long loops. The other parameters are described in the module docstring.
    """
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
    """Load the elements r to r + 3 of the row x[a, b]."""
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
    """Return the four accumulators `sums`, each combined with one of values[first], ..., values[first + 3].

    LOAD, COMBINE, IN and ACC are described in the module docstring.
    """
    updated = ()
    for k in vk.unroll(4):
        updated = updated + (COMBINE(sums[k], ACC(LOAD(IN(values[first + k])))),)
    return updated


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
    """Reduce each row by one workgroup of GROUP invocations.

    Each invocation loads vec4s and combines their elements with four accumulators. A tree reduction in shared memory
    then combines the results of the invocations. The parameters are described in the module docstring.
    """
    shared = vk.shared(ACC, GROUP)
    invocation, b, a = vk.local_id(0), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    sums = (ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT))
    # Elements before `long` are loaded as four vec4s per iteration, those before `whole` as one, the remaining ones
    # singly.
    long, whole = (
        n // (4 * ELEMENTS_PER_ITERATION) * (4 * ELEMENTS_PER_ITERATION),
        n // ELEMENTS_PER_ITERATION * ELEMENTS_PER_ITERATION,
    )
    for start in range(0, long, 4 * ELEMENTS_PER_ITERATION):
        vectors = ()
        for q in vk.unroll(4):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * ELEMENTS_PER_ITERATION + 4 * invocation)
        for q in vk.unroll(4):
            sums = combine_vec4(sums, vectors, 4 * q, LOAD, COMBINE, IN, ACC)
    for start in range(long, whole, ELEMENTS_PER_ITERATION):
        sums = combine_vec4(sums, load_vec4(x, a, b, start + 4 * invocation), 0, LOAD, COMBINE, IN, ACC)
    partial = COMBINE(COMBINE(sums[0], sums[1]), COMBINE(sums[2], sums[3]))
    for r in range(whole + invocation, n, GROUP):
        partial = COMBINE(partial, ACC(LOAD(IN(x[a, b, r]))))
    shared[invocation] = partial
    vk.barrier()
    width = GROUP // 2
    while width > 0:
        if invocation < width:
            shared[invocation] = COMBINE(shared[invocation], shared[invocation + width])
        vk.barrier()
        width //= 2
    if invocation == 0:
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
    """Reduce each row by one subgroup of SIZE = 2**DOUBLINGS invocations, for CPUs.

    Each iteration reads from all four quarters of a row, because four streams use the memory bandwidth better than one.
    A butterfly of shuffles then combines the results of the lanes. The other parameters are described in the module
    docstring.
    """
    sg, lane, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
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
        s0 = COMBINE(s0, sg.shuffle_xor(s0, 1 << k))
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
    """Variant of `reduce_per_workgroup` that combines the results of a subgroup by shuffles instead of a tree.

    LOCAL is the number of invocations per row, 2**DOUBLINGS the number of lanes of a subgroup, and DEPTH the number of
    vec4 loads that an invocation issues before it uses the first. The results of several subgroups are combined through
    shared memory. The other parameters are described in the module docstring.
    """
    sg, invocation, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    sums = (ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT))
    # Elements before `long` are loaded as DEPTH vec4s per iteration, those before `whole` as one, the remaining ones
    # singly.
    long, whole = n // (4 * DEPTH * LOCAL) * (4 * DEPTH * LOCAL), n // (4 * LOCAL) * (4 * LOCAL)
    for start in range(0, long, 4 * DEPTH * LOCAL):
        vectors = ()
        for q in vk.unroll(DEPTH):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * (4 * LOCAL) + 4 * invocation)
        for q in vk.unroll(DEPTH):
            sums = combine_vec4(sums, vectors, 4 * q, LOAD, COMBINE, IN, ACC)
    for start in range(long, whole, 4 * LOCAL):
        sums = combine_vec4(sums, load_vec4(x, a, b, start + 4 * invocation), 0, LOAD, COMBINE, IN, ACC)
    partial = COMBINE(COMBINE(sums[0], sums[1]), COMBINE(sums[2], sums[3]))
    for r in range(whole + invocation, n, LOCAL):
        partial = COMBINE(partial, ACC(LOAD(IN(x[a, b, r]))))
    for k in vk.unroll(DOUBLINGS):
        partial = COMBINE(partial, sg.shuffle_xor(partial, 1 << k))
    LANES = 1 << DOUBLINGS
    if LOCAL > LANES:
        shared = vk.shared(ACC, LOCAL // LANES)
        if invocation % LANES == 0:
            shared[invocation // LANES] = partial
        vk.barrier()
        partial = shared[0]
        for k in vk.unroll(LOCAL // LANES - 1):
            partial = COMBINE(partial, shared[k + 1])
    if invocation == 0:
        y[a, b] = U(FINISH(partial, ACC(total)))


# -- argmin and argmax


@vk.func
def replaces_maximum(x, y):
    """True if x replaces y as the maximum so far. A NaN replaces everything except another NaN."""
    return (x > y) | ((x != x) & (y == y))


@vk.func
def replaces_minimum(x, y):
    """True if x replaces y as the minimum so far. A NaN replaces everything except another NaN."""
    return (x < y) | ((x != x) & (y == y))


@vk.kernel(over="y", debug=False)
def arg_reduce_per_invocation(
    x: vk.In[T, "A B R"],
    y: vk.Out[vk.i64, "A B"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """y[a, b] = the lowest index of the minimum or maximum of x[a, b, :], searched by one invocation per row.

    Rows have at most LIMIT elements, as in `reduce_per_invocation`. The other parameters are described in the module
    docstring.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    best_value = IN(x[a, b, 0])
    best_index = vk.i64(0)
    for r in range(1, vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        if REPLACES(value, best_value):
            best_value = value
            best_index = vk.i64(r)
    y[a, b] = best_index


@vk.func
def better_pair(value, index, best_value, best_index, REPLACES: vk.Const[Any]):
    """Return (value, index) or (best_value, best_index), the pair with the minimum or maximum, as REPLACES decides.

    Of equal values, the one with the lower index is returned.
    """
    replaces = REPLACES(value, best_value) | (~REPLACES(best_value, value) & (index < best_index))
    return vk.where(replaces, value, best_value), vk.where(replaces, index, best_index)


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=lambda SIZE: SIZE, debug=False)
def arg_reduce_per_subgroup(
    x: vk.In[T, "A B R"],
    y: vk.Out[vk.i64, "A B"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    SIZE: vk.Const[int],
    DOUBLINGS: vk.Const[int],
):
    """Variant of `arg_reduce_per_invocation` with one subgroup of SIZE = 2**DOUBLINGS invocations per row.

    Rows are contiguous, so that elements can be loaded as vec4s. The other parameters are described in the module
    docstring.
    """
    sg, lane, b, a = vk.subgroup(), vk.i32(vk.local_id(0)), vk.group_id(0), vk.group_id(1)
    n = vk.i32(x.shape[2])
    best_value, best_index = IN(x[a, b, 0]), vk.i32(0)  # in all lanes
    whole = n // (16 * SIZE) * (16 * SIZE)
    for start in range(0, whole, 16 * SIZE):
        vectors = ()
        for q in vk.unroll(4):  # issue all loads before the first use
            vectors = vectors + load_vec4(x, a, b, start + q * (4 * SIZE) + 4 * lane)
        for q in vk.unroll(16):
            value, index = IN(vectors[q]), start + q // 4 * (4 * SIZE) + 4 * lane + q % 4
            replaces = REPLACES(value, best_value)
            best_value = vk.where(replaces, value, best_value)
            best_index = vk.where(replaces, index, best_index)
    for index in range(whole + lane, n, SIZE):
        value = IN(x[a, b, index])
        replaces = REPLACES(value, best_value)
        best_value = vk.where(replaces, value, best_value)
        best_index = vk.where(replaces, index, best_index)
    for k in vk.unroll(DOUBLINGS):
        value, index = sg.shuffle_xor(best_value, 1 << k), sg.shuffle_xor(best_index, 1 << k)
        best_value, best_index = better_pair(value, index, best_value, best_index, REPLACES)
    if lane == 0:
        y[a, b] = vk.i64(best_index)


@vk.kernel(over="y", debug=False)
def arg_reduce_blocks(
    x: vk.In[T, "L N"],
    best: vk.Out[T, "L S P"],
    y: vk.Out[vk.i64, "L S P"],
    size: vk.i64,
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Find the minimum or maximum of parts of each row: the first stage for rows that are too long for one invocation.

    Row l of x is divided into S blocks of `size` elements. P invocations search block s; invocation p searches its
    elements p, p + P, and so on. It stores the minimum or maximum to best[l, s, p] and its lowest index in the row to
    y[l, s, p]. An invocation without elements in its block stores a later element of the row, or the last one, together
    with its index. Such an extra candidate doesn't change the result of the row. LIMIT bounds the iterations of an
    invocation. The other parameters are described in the module docstring.
    """
    p, s, row = vk.global_id(0), vk.global_id(1), vk.global_id(2)
    parts, last = y.shape[2], x.shape[1] - 1
    begin = s * size
    n = vk.max(vk.min(x.shape[1] - begin, vk.index(size)), 0)
    best_index = vk.min(begin + p, last)
    best_value = IN(x[row, best_index])
    iterations = vk.min(n // parts, LIMIT)
    for q in range(1, iterations):
        value = IN(x[row, begin + q * parts + p])
        replaces = REPLACES(value, best_value)
        best_value = vk.where(replaces, value, best_value)
        best_index = vk.where(replaces, begin + q * parts + p, best_index)
    if iterations * parts + p < n:
        value = IN(x[row, begin + iterations * parts + p])
        if REPLACES(value, best_value):
            best_value = value
            best_index = begin + iterations * parts + p
    best[row, s, p] = T(best_value)
    y[row, s, p] = vk.i64(best_index)


@vk.kernel(over="y", debug=False)
def arg_reduce_partials(
    x: vk.In[T, "L N"],
    indices: vk.In[vk.i64, "L N"],
    best: vk.Out[T, "L P"],
    y: vk.Out[vk.i64, "L P"],
    REPLACES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """Reduce the results of `arg_reduce_blocks`: N values x[l] and their indices indices[l] for each row l.

    P invocations share a row; invocation p reduces the pairs p, p + P, and so on to one value, best[l, p], and its
    index, y[l, p]. Of equal values, the one with the lowest index is kept. LIMIT bounds the iterations of an
    invocation. The other parameters are described in the module docstring.
    """
    p, row = vk.global_id(0), vk.global_id(1)
    parts, n = y.shape[1], x.shape[1]
    best_value = IN(x[row, p])
    best_index = indices[row, p]
    for q in range(1, vk.min((n + parts - 1) // parts, LIMIT)):
        pair = vk.min(q * parts + p, n - 1)  # reading the last pair again doesn't change the result
        value = IN(x[row, pair])
        index = indices[row, pair]
        if REPLACES(value, best_value) or (index < best_index and not REPLACES(best_value, value)):
            best_value = value
            best_index = index
    best[row, p] = T(best_value)
    y[row, p] = best_index
