"""Tests of the sanitizer's definite-write analysis: arrays always written before reads need no shadow marks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.interp.runtime.device import InterpreterDevice
from vkjit.passes.sanitizer.shadow import Accesses
from vkjit.testing import sanitized

SIDE = 8
"""Number of columns that invocations write; the arrays have one more."""


def _findings(kernel: Any, **given: int) -> int:
    x = np.arange(64, dtype=np.float32)
    with vk.use_device(InterpreterDevice()), sanitized("uninitialised"):
        try:
            kernel[1](x, **given)
            vk.synchronize()
        except vk.KernelError:
            return 1
    return 0


@vk.kernel(local=64)
def transposed(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    tile = vk.shared(vk.f32, (SIDE, SIDE + 1))
    lane = vk.local_id(0)
    for _ in range(at):
        tile[lane % SIDE, lane // SIDE] = x[lane]
        vk.barrier()
        total = vk.f32(0)
        for k in range(SIDE):
            total += tile[lane // SIDE, k]
        vk.barrier()
        y[lane] = total


@vk.kernel(local=64)
def beside(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    tile = vk.shared(vk.f32, (SIDE, SIDE + 1))
    lane = vk.local_id(0)
    tile[lane % SIDE, lane // SIDE] = x[lane]
    vk.barrier()
    total = vk.f32(0)
    for k in range(SIDE + 1):
        total += tile[lane // SIDE, k]
    y[lane] = total + vk.f32(at)


@vk.kernel(local=64)
def some_write(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    tile = vk.shared(vk.f32, 64)
    lane = vk.local_id(0)
    if lane != at:
        tile[lane] = x[lane]
    vk.barrier()
    y[lane] = tile[63 - lane]


@vk.kernel(local=64)
def read_first(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    tile = vk.shared(vk.f32, 64)
    lane = vk.local_id(0)
    for k in range(2):
        if k >= at:
            y[lane] = tile[lane]
        vk.barrier()
        tile[lane] = x[lane]
        vk.barrier()


@vk.kernel(local=64)
def own_array(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    held = vk.local(vk.f32, 4)
    lane = vk.local_id(0)
    for k in vk.unroll(3):
        held[k] = x[lane] * k
    total = held[at]
    for k in range(3):
        total += held[k]
    y[lane] = total


@vk.kernel(local=4)
def rows(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    """Both sides of a branch write the rows, which are read one by one and in blocks; `at` bounds their number."""
    held, blocks = vk.local(vk.f32, (24, 2)), vk.min(vk.index(at), 6)
    count, lane = blocks * 3, vk.local_id(0)
    if lane > 1:
        for k in range(count):
            held[k, 0] = x[k]
            held[k, 1] = -x[k]
    else:
        for k in range(count):
            held[k, 1] = x[k]
            held[k, 0] = -x[k]
    total = vk.f32(0)
    for k in range(0, count, 2):
        total += held[k, 0]
    for block in range(blocks):
        for i in range(3):
            total += held[block * 3 + i, 1]
    y[lane] = total


@vk.kernel(local=4)
def row_too_many(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    held, count = vk.local(vk.f32, (24, 2)), vk.min(vk.index(at), 12)
    for k in range(count):
        held[k, 0] = x[k]
    total = vk.f32(0)
    for k in range(count + 1):
        total += held[k, 0]
    y[vk.local_id(0)] = total


@vk.kernel(local=4)
def column_forgotten(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    held, count = vk.local(vk.f32, (24, 2)), vk.min(vk.index(at), 12)
    for k in range(count):
        held[k, 0] = x[k]
    total = vk.f32(0)
    for k in range(count):
        total += held[k, 1]
    y[vk.local_id(0)] = total


@vk.kernel(local=4)
def row_left_out(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    held, count = vk.local(vk.f32, (24, 2)), vk.min(vk.index(at), 12)
    for k in range(count):
        if k == 3:
            continue
        held[k, 0] = x[k]
    total = vk.f32(0)
    for k in range(count):
        total += held[k, 0]
    y[vk.local_id(0)] = total


@vk.kernel(local=4)
def row_on_one_side(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    held, count = vk.local(vk.f32, (24, 2)), vk.min(vk.index(at), 12)
    if x[0] < 1.0:
        for k in range(1, count):
            held[k, 0] = x[k]
    else:
        for k in range(count):
            held[k, 0] = x[k]
    total = vk.f32(0)
    for k in range(count):
        total += held[k, 0]
    y[vk.local_id(0)] = total


@vk.kernel(local=64)
def halves(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    """Tree reduction over elements written by all invocations."""
    held, lane = vk.shared(vk.f32, 64), vk.local_id(0)
    held[lane] = x[lane]
    vk.barrier()
    width = 32
    while width > 0:
        if lane < width:
            held[lane] = held[lane] + held[lane + width]
        vk.barrier()
        width //= 2
    y[lane] = held[at]


@vk.kernel(local=64)
def either_half(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
    """The two sides of a branch together may leave elements unwritten."""
    held, lane = vk.shared(vk.f32, 64), vk.local_id(0)
    if lane < at:
        held[lane] = x[lane]
    else:
        held[63 - lane] = x[lane]
    vk.barrier()
    y[lane] = held[lane]


CASES = {
    transposed: (2, None), beside: (None, 0), some_write: (64, 5), read_first: (1, 0), own_array: (2, 3),
    rows: (3, None), row_too_many: (None, 3), column_forgotten: (None, 3), row_left_out: (3, 4),
    row_on_one_side: (None, 4), halves: (1, None), either_half: (64, 32),
}  # fmt: skip


@pytest.mark.parametrize(("kernel", "right", "wrong"), [(k, *v) for k, v in CASES.items()], ids=[k.name for k in CASES])
def test_reads_of_what_nobody_wrote_are_found(kernel: Any, right: int | None, wrong: int | None) -> None:
    if right is not None:
        assert _findings(kernel, at=right) == 0
    if wrong is not None:
        assert _findings(kernel, at=wrong) == 1


def _marked(kernel: Any, monkeypatch: pytest.MonkeyPatch, **given: int) -> dict[str, bool]:
    """Map each array's name to True if it needs no marks; assert that the kernel has no reports."""
    from vkjit.passes.sanitizer import definite_writes, uninitialized

    seen: dict[str, bool] = {}

    def noting(accesses: Accesses, *rest: Any) -> bool:
        seen[accesses.root.name] = definite_writes.is_covered(accesses, *rest)
        return seen[accesses.root.name]

    monkeypatch.setattr(uninitialized, "is_covered", noting)
    assert _findings(kernel, **given) == 0
    return seen


def test_a_tile_written_by_all_has_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    @vk.kernel(local=64)
    def both(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
        whole, part, own = vk.shared(vk.f32, (SIDE, SIDE + 1)), vk.shared(vk.f32, 64), vk.local(vk.f32, 2)
        some, lane = vk.local(vk.f32, 3), vk.local_id(0)
        whole[lane % SIDE, lane // SIDE] = x[lane]
        own[0] = own[1] = some[0] = some[1] = x[lane]
        if lane != at:
            part[lane] = x[lane]
        vk.barrier()
        y[lane] = whole[lane // SIDE, lane % SIDE] + part[lane] + own[at % 2] + some[at % 2]

    assert _marked(both, monkeypatch, at=70) == {"whole": True, "part": False, "own": True, "some": False}


@pytest.mark.parametrize("kernel", [rows, halves], ids=["rows", "halves"])
def test_rows_and_wholes_have_no_marks(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _marked(kernel, monkeypatch, at=3) == {"held": True}


def test_loops_that_are_long_are_not_gone_through() -> None:
    from vkjit.ir.builder import Builder
    from vkjit.ir.core import Region
    from vkjit.passes.sanitizer.concrete_values import ConcreteValues

    builder = Builder(Region())
    bounds = [builder.index(n) for n in (-(1 << 63), (1 << 63) - 1, 1)]
    loop = builder.op("for", *bounds, types=[], regions=[Region([bounds[0].type], ["i"])])
    assert not ConcreteValues((64, 1, 1)).inside_loop(loop).has_iterations_of(loop)
