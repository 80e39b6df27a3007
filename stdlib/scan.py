"""Running sums along the last of three axes, and the parts of matrices on one side of a diagonal.

Enters: arrays brought to three axes by the caller. Leaves: y. A line is summed in its order by one invocation.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk

__all__ = ["running_sums", "triangle"]

T = TypeVar("T", bound=vk.Element)
U = TypeVar("U", bound=vk.Element)


@vk.kernel(over="ends", debug=False)
def running_sums(
    x: vk.In[T, "A B R"],
    ends: vk.Out[U, "A B"],
    y: vk.Out[U, "A B R"],
    ACC: vk.Const[Any],
    LIMIT: vk.Const[int],
):
    """y[a, b, r] = x[a, b, 0] + ... + x[a, b, r]; ends[a, b] = the last of them."""
    b, a = vk.global_id(0), vk.global_id(1)
    total = ACC(0)
    for r in range(vk.min(x.shape[2], LIMIT)):
        total += ACC(x[a, b, r])
        y[a, b, r] = U(total)
    ends[a, b] = U(total)


@vk.kernel(over="y", debug=False)
def triangle(x: vk.In[T, "G M N"], y: vk.Out[T, "G M N"], diagonal: vk.i64, UPPER: vk.Const[bool]):
    """y = x on and above (UPPER) or below a diagonal, else 0."""
    g, i, j = vk.index()
    distance = vk.i64(j) - vk.i64(i)
    if UPPER:
        kept = distance >= diagonal
    else:
        kept = distance <= diagonal
    if kept:
        y[g, i, j] = x[g, i, j]
    else:
        y[g, i, j] = T(0)
