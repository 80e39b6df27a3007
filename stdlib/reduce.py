"""Reductions along the last of three axes: y[a, b] = FINISH(COMBINE over r of LOAD(x[a, b, r])).

Enters: arrays brought to three axes by the caller, of any strides; how elements are loaded, combined and finished; the
type ACC that is accumulated in. Leaves: y. The order of combination depends on the shape alone, so that results are the
same every time. `lines` gives a line to one invocation, `groups` to one workgroup (a tree in shared memory at its end).
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["GROUP", "reduce_groups", "reduce_lines", "search_lines", "search_pairs"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)

GROUP = 256
"""Invocations of a workgroup that reduces one line."""


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
def either(x, y):
    return x | y


@vk.func
def both(x, y):
    return x & y


@vk.func
def finish_value(x, count):  # noqa: ARG001  # all finishing functions take the same
    return x


@vk.func
def finish_mean(x, count):
    return x / count


@vk.func
def finish_root(x, count):  # noqa: ARG001  # all finishing functions take the same
    return vk.sqrt(x)


@vk.kernel(over="y", debug=False)
def reduce_lines(
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
    """One invocation per line, four accumulators; lines have at most LIMIT elements."""
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


@vk.kernel(groups=lambda y: (y.shape[1], y.shape[0]), local=GROUP, debug=False)
def reduce_groups(
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
    """One workgroup per line: neighbours read neighbours, four accumulators each, then a tree."""
    shared = vk.shared(ACC, GROUP)
    lane, b, a = vk.local_id(0), vk.group_id(0), vk.group_id(1)
    n = x.shape[2]
    s0, s1, s2, s3 = ACC(INIT), ACC(INIT), ACC(INIT), ACC(INIT)
    whole = n // (4 * GROUP) * (4 * GROUP)
    for start in range(0, whole, 4 * GROUP):
        r = start + lane
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, r]))))
        s1 = COMBINE(s1, ACC(LOAD(IN(x[a, b, r + GROUP]))))
        s2 = COMBINE(s2, ACC(LOAD(IN(x[a, b, r + 2 * GROUP]))))
        s3 = COMBINE(s3, ACC(LOAD(IN(x[a, b, r + 3 * GROUP]))))
    for r in range(whole + lane, n, GROUP):
        s0 = COMBINE(s0, ACC(LOAD(IN(x[a, b, r]))))
    shared[lane] = COMBINE(COMBINE(s0, s1), COMBINE(s2, s3))
    vk.barrier()
    width = GROUP // 2
    while width > 0:
        if lane < width:
            shared[lane] = COMBINE(shared[lane], shared[lane + width])
        vk.barrier()
        width //= 2
    if lane == 0:
        y[a, b] = U(FINISH(shared[0], ACC(total)))


# -- where the extreme lies


@vk.func
def greater(x, y):
    """Whether x takes y's place as the maximum; NaN does, unless y is one."""
    return (x > y) | ((x != x) & (y == y))


@vk.func
def smaller(x, y):
    """Whether x takes y's place as the minimum; NaN does, unless y is one."""
    return (x < y) | ((x != x) & (y == y))


@vk.kernel(over="y", debug=False)
def search_lines(
    x: vk.In[T, "A B R"],
    best: vk.Out[T, "A B"],
    y: vk.Out[vk.i64, "A B"],
    first: vk.i64,
    step_a: vk.i64,
    step_b: vk.i64,
    step_r: vk.i64,
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """best[a, b] = the extreme of x[a, b, :], y[a, b] = its first position, counted as first + a * step_a + b * step_b
    + r * step_r.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    found = IN(x[a, b, 0])
    place = vk.i64(0)
    for r in range(1, vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        if TAKES(value, found):
            found = value
            place = vk.i64(r)
    best[a, b] = T(found)
    y[a, b] = first + vk.i64(a) * step_a + vk.i64(b) * step_b + place * step_r


@vk.kernel(over="y", debug=False)
def search_pairs(
    x: vk.In[T, "A B R"],
    places: vk.In[vk.i64, "A B R"],
    best: vk.Out[T, "A B"],
    y: vk.Out[vk.i64, "A B"],
    TAKES: vk.Const[Any],
    IN: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """As `search_lines` over results of it: the extreme of x[a, b, :] and its entry of `places`, of equal ones the
    least.
    """
    b, a = vk.global_id(0), vk.global_id(1)
    found = IN(x[a, b, 0])
    place = places[a, b, 0]
    for r in range(1, vk.min(x.shape[2], LIMIT)):
        value = IN(x[a, b, r])
        here = places[a, b, r]
        if TAKES(value, found) or (here < place and not TAKES(found, value)):
            found = value
            place = here
    best[a, b] = T(found)
    y[a, b] = place
