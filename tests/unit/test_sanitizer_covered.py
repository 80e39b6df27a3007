"""Which arrays the sanitizer needs no marks for: those that are surely written before they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.interp.device import InterpreterDevice
from vkjit.passes.sanitize.tracking import Accesses
from vkjit.testing import sanitized

SIDE = 8
"""The arrays have a column more than invocations write."""


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


@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [(transposed, 2, None), (beside, None, 0), (some_write, 64, 5), (read_first, 1, 0), (own_array, 2, 3)],
    ids=["transposed", "beside", "some_write", "read_first", "own_array"],
)
def test_reads_of_what_nobody_wrote_are_found(kernel: Any, right: int | None, wrong: int | None) -> None:
    if right is not None:
        assert _findings(kernel, at=right) == 0
    if wrong is not None:
        assert _findings(kernel, at=wrong) == 1


def test_a_tile_written_by_all_has_no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    from vkjit.passes.sanitize import covered, initialised

    @vk.kernel(local=64)
    def both(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], at: vk.i32):
        whole, part, own = vk.shared(vk.f32, (SIDE, SIDE + 1)), vk.shared(vk.f32, 64), vk.local(vk.f32, 2)
        lane = vk.local_id(0)
        whole[lane % SIDE, lane // SIDE] = x[lane]
        own[0] = own[1] = x[lane]
        if lane != at:
            part[lane] = x[lane]
        vk.barrier()
        y[lane] = whole[lane // SIDE, lane % SIDE] + part[lane] + own[at % 2]

    seen: dict[str, bool] = {}

    def noting(accesses: Accesses, *rest: Any) -> bool:
        seen[accesses.root.name] = covered.is_covered(accesses, *rest)
        return seen[accesses.root.name]

    monkeypatch.setattr(initialised, "is_covered", noting)
    assert _findings(both, at=70) == 0
    assert seen == {"whole": True, "part": False, "own": False}
