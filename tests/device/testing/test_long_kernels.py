# mypy: disable-error-code="arg-type, assignment, attr-defined, index, no-untyped-def, operator, valid-type"
"""Property tests find bugs that show only beyond the size of a fixed grid or a large block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.generate.block_sizes import sizes_past
from vkjit.testing.generate.directed import _Builder
from vkjit.testing.generate.strategies import Drawing

EACH = 16


@vk.kernel(groups=64, local=64)
def one_grid(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        y[i] = x[i] * 2.0


@vk.kernel(groups=64, local=64)
def strides(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    for i in vk.grid_stride(x.shape[0]):
        y[i] = x[i] * 2.0


@vk.kernel(groups=1024, local=256)
def wide_grid(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        y[i] = x[i] * 2.0


@vk.kernel(groups=lambda dev: (8, 8), local=(16, 16))
def plane(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R C"]):
    i, j = vk.global_id(1), vk.global_id(0)
    if i < x.shape[0] and j < x.shape[1]:
        y[i, j] = x[i, j] * 2.0


@vk.kernel(groups=lambda x, B: max(x.shape[0] // B, 1), local=64)
def whole_blocks(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], B: vk.Const[int] = 4096):
    for k in range(vk.local_id(0), B, 64):
        i = vk.group_id(0) * B + k
        if i < x.shape[0]:
            y[i] = x[i] * 2.0


@vk.kernel(groups=lambda x: 1 if x.shape[0] < 4096 else x.shape[0] // (256 * EACH), local=256)
def several_each(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    for k in vk.unroll(EACH):
        i = (vk.group_id(0) * EACH + k) * 256 + vk.local_id(0)
        if i < x.shape[0]:
            y[i] = x[i] * 2.0


@vk.kernel(groups=32, local=128)
def steps_too_short(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "1"]):
    i, total = vk.global_id(0), vk.i32(0)
    while i < x.shape[0]:
        total += x[i]
        i += 32 * 64
    vk.atomic.add(y, 0, total)


@pytest.mark.parametrize(
    ("kernel", "dims"),
    [
        (one_grid, {"N": 64 * 64 + 1}), (wide_grid, {"N": 1024 * 256 + 1}), (plane, {"R": 129, "C": 1}),
        (whole_blocks, {"N": 4097}), (several_each, {"N": 256 * EACH + 1}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_what_a_long_array_shows_is_found(kernel: Any, dims: Any) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(kernel, lambda x: 2 * x, devices="interpreter")
    assert caught.value.kind == "unwritten" and caught.value.dims == dims


def test_what_is_counted_twice_is_found() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(
            steps_too_short, lambda x, y: y + x.sum(dtype=np.int32), devices="interpreter", special=False
        )
    assert caught.value.dims == {"N": 32 * 64 + 1}


def test_a_loop_over_the_grid_is_right_on_long_arrays(device: Any) -> None:
    vk.testing.check_kernel(strides, lambda x: 2 * x, devices=["interpreter", device], max_examples=30, seed=1)


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        (one_grid, [4097, 4095, 4096]), (whole_blocks, [4097, 8193, 4095, 4096]), (strides, [4097, 4095, 4096]),
        (several_each, [4097, 4096 * 2 + 1, 4095, 4096]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_sizes_are_those_past_grids_and_blocks(kernel: Any, sizes: list[int]) -> None:
    drawing = Drawing(kernel, [vk.device("interpreter")])
    builder = _Builder(drawing)
    found = sizes_past(drawing, lambda n: builder._long("N", n))
    assert set(sizes) <= set(found) and len(found) <= 9


def test_sizes_that_are_not_allowed_are_left_alone() -> None:
    result = vk.testing.check_kernel(
        one_grid, lambda x: 2 * x, devices="interpreter", dims={"N": (0, 4096)}, max_examples=40, seed=1
    )
    assert result.examples == 40
