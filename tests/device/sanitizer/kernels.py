"""Kernels with one fault each, and correct kernels to compare with.

The line that must be reported ends in `# here`, the other side of a race in `# there`.
"""

from __future__ import annotations

import inspect
from typing import Any

import vkjit as vk

SIZE = 64


def line_of(kernel: Any, mark: str) -> int:
    """Return the number of the kernel line that ends in a marker; 0 if there is none."""
    lines, first = inspect.getsourcelines(kernel.spec.fn)
    return next((first + number for number, text in enumerate(lines) if text.rstrip().endswith(f"# {mark}")), 0)


# -- out of bounds


@vk.kernel(local=SIZE)
def reads_past_end(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    a = x[i + 1]  # here
    y[i] = a


@vk.kernel(local=SIZE)
def writes_past_end(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i + 1] = x[i]  # here


@vk.kernel(local=SIZE)
def leaves_shared(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE)
    row[t + x.shape[0] - 127] = x[i]  # here
    y[i] = x[i]


@vk.kernel(local=SIZE)
def leaves_local(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    held = vk.local(vk.f32, 4)
    for k in range(4):
        held[k] = x[i] * k
    y[i] = held[(i % 5)]  # here


@vk.kernel(local=SIZE)
def counts_past_end(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.i32, "M"]):
    vk.atomic.add(y, vk.global_id(0), 1)  # here


@vk.kernel(local=SIZE)
def leaves_vectors(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    pairs = vk.local(vk.vec(vk.f32, 2), 3)
    for k in range(3):
        pairs[k] = vk.vec(vk.f32, 2)(x[i], vk.f32(k))
    y[i] = pairs[i % 4].x  # here


# -- races in shared memory


@vk.kernel(local=SIZE)
def reverses_unordered(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE)
    row[t] = x[i]  # there
    y[i] = row[SIZE - 1 - t]  # here


@vk.kernel(local=SIZE)
def sums_unordered(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE)
    total = vk.f32(0)
    for _ in range(4):
        row[t] = x[i] + total  # here
        vk.barrier()
        total += row[(t + 1) % SIZE]  # there
    y[i] = total


@vk.kernel(local=SIZE)
def all_write_one(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    last = vk.shared(vk.f32, 1)
    last[0] = x[i]  # here
    vk.barrier()
    y[i] = last[0]


@vk.kernel(local=SIZE)
def clears_unordered(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    count = vk.shared(vk.i32, 1)
    if t == 40:
        count[0] = 0  # here
    vk.atomic.add(count, 0, 1)  # there
    vk.barrier()
    y[i] = vk.f32(count[0]) + x[i]


# -- races in global memory


@vk.kernel(local=SIZE)
def shifts_in_place(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    if i + 1 < x.shape[0]:
        a = x[i + 1]  # there
        x[i] = a  # here


@vk.kernel(local=SIZE)
def forgets_atomics(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "M"]):
    i = vk.global_id(0)
    y[0] = y[0] + x[i]  # here


@vk.kernel(local=SIZE)
def groups_write_one(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "M"]):
    if vk.local_id(0) == 0:
        y[0] = x[vk.global_id(0)]  # here


@vk.kernel(local=SIZE)
def barrier_between_groups(x: vk.InOut[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] + 1  # there
    vk.barrier()
    y[i] = x[(i + SIZE) % x.shape[0]]  # here


@vk.kernel(over="y")
def reads_neighbour(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i] * 2  # here


# -- uninitialized memory


@vk.kernel(local=SIZE)
def reads_fresh_shared(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE + 1)
    row[t] = x[i]
    vk.barrier()
    y[i] = row[t + 1]  # here


@vk.kernel(local=SIZE)
def reads_fresh_local(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    held = vk.local(vk.f32, 40)
    for k in range(39):
        held[k] = x[i]
    y[i] = held[i % 40]  # here


@vk.kernel(local=SIZE)
def adds_to_out(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] += x[i]  # here


@vk.kernel(local=SIZE)
def counts_in_out(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "M"]):
    vk.atomic.add(y, 0, 1)  # here


# -- assumptions, arithmetic, loops


@vk.kernel(local=SIZE)
def breaks_promise(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    row = vk.shared(vk.f32, SIZE)
    row[vk.local_id(0)] = x[i]
    if vk.assume_uniform(x[i] > 20):  # here
        vk.barrier()
    y[i] = row[vk.local_id(0)]


@vk.kernel(local=SIZE)
def wraps(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    a = vk.i32(x[i]) * 40_000_000  # here
    y[i] = a


@vk.kernel(local=SIZE)
def divides_by_zero(x: vk.In[vk.f32, "N"], y: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    y[i] = 7 // vk.i32(x[i])  # here


@vk.kernel(local=SIZE)
def bears_nan(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    a = vk.sqrt(x[i] - 3)  # here
    b = a * 2
    y[i] = b + 1


@vk.kernel(local=SIZE)
def never_ends(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    a = vk.i32(x[i])
    while a != 11:  # here
        a = (a + 2) % 64
    y[i] = vk.f32(a)


# -- correct kernels


@vk.kernel(local=SIZE)
def reverses(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE)
    row[t] = x[i]
    vk.barrier()
    y[i] = row[SIZE - 1 - t]


@vk.kernel(local=SIZE)
def sums(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    row = vk.shared(vk.f32, SIZE)
    total = vk.f32(0)
    for _ in range(4):
        row[t] = x[i] + total
        vk.barrier()
        total += row[(t + 1) % SIZE]
        vk.barrier()
    y[i] = total


@vk.kernel(local=SIZE)
def all_write_alike(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    flag = vk.shared(vk.f32, 1)
    flag[0] = x[0]
    vk.barrier()
    y[vk.global_id(0)] = flag[0]
    y[0] = x[0]


@vk.kernel(local=SIZE)
def counts(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i, t = vk.global_id(0), vk.local_id(0)
    count = vk.shared(vk.i32, 1)
    if t == 0:
        count[0] = 0
    vk.barrier()
    vk.atomic.add(count, 0, 1)
    vk.barrier()
    y[i] = vk.f32(count[0]) + x[i]
    vk.barrier()
    if t == 5:
        count[0] = 3
    vk.atomic.add(y, i, 1)


@vk.kernel(local=SIZE)
def sums_row(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    wg, i = vk.workgroup(), vk.global_id(0)
    y[i] = wg.sum(x[i]) + wg.max(x[i]) + wg.scan(x[i])


@vk.kernel(local=(8, 8))
def transposes(x: vk.In[vk.f32, "A B"], y: vk.Out[vk.f32, "B A"]):
    tile = vk.shared(vk.f32, (8, 9))
    tx, ty = vk.local_id(0), vk.local_id(1)
    tile[ty, tx] = x.get(vk.global_id(1), vk.global_id(0), pad=0)
    vk.barrier()
    y.put(vk.group_id(0) * 8 + ty, vk.group_id(1) * 8 + tx, tile[tx, ty])


@vk.kernel(local=SIZE)
def keeps_promise(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    row = vk.shared(vk.f32, SIZE)
    row[vk.local_id(0)] = x[i]
    for k in range(3):
        if vk.assume_uniform(x[i] - x[i] + k > 1):
            vk.barrier()
    y[i] = row[SIZE - 1 - vk.local_id(0)]


@vk.kernel(local=SIZE)
def last_group_sums(
    x: vk.In[vk.f32, "N"], parts: vk.InOut[vk.f32, "G"], done: vk.InOut[vk.i32, "1"], y: vk.Out[vk.f32, "1"]
):
    """The last workgroup to finish sums the partial results of all, ordered by fences and an atomic."""
    wg, g = vk.workgroup(), vk.group_id(0)
    total = wg.sum(x[vk.global_id(0)])
    last = vk.shared(vk.i32, 1)
    if vk.local_id(0) == 0:
        parts[g] = total
        vk.fence("device")
        last[0] = vk.atomic.add(done, 0, 1, order="acq_rel")
    vk.barrier()
    if last[0] == vk.num_groups(0) - 1 and vk.local_id(0) == 0:
        vk.fence("device")
        whole = vk.f32(0)
        for k in range(parts.shape[0]):
            whole += parts[k]
        y[0] = whole
