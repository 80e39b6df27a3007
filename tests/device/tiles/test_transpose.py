"""Tiles that are loaded, transposed and stored in square blocks of vectors; same values on every executor."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.passes.tiles.layout import blocked
from vkjit.runtime.device import Device

T = TypeVar("T", bound=vk.Element)


@vk.kernel(groups=lambda x: (vk.cdiv(x.shape[1], 16), vk.cdiv(x.shape[0], 16)), local=16)
def turn(x: vk.In[T, "M N"], y: vk.Out[T, "N M"]) -> None:
    wg, i, j = vk.workgroup(), vk.group_id(1) * 16, vk.group_id(0) * 16
    wg.store(y[j : j + 16, i : i + 16], wg.load(x[i : i + 16, j : j + 16]).T)


@pytest.mark.parametrize("shape", [(16, 16), (20, 36), (33, 7)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8])
def test_transposed(device: Device, shape: tuple[int, int], dtype: Any) -> None:
    x = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
    with vk.use_device(device):
        y = vk.empty(shape[::-1], dtype=vk.tensor(x).dtype)
        turn(vk.tensor(x), y)
        np.testing.assert_array_equal(y.numpy(), x.T)


@pytest.mark.parametrize(
    ("shape", "bits"), [((16, 16), 4), ((64, 64), 8), ((32, 128), 7), ((16, 256), 8), ((256, 16), 8)]
)
def test_blocks_hold_each_element_once(shape: tuple[int, int], bits: int) -> None:
    layout = blocked(shape, bits, "workgroup", 4)
    assert layout is not None and layout.exact and layout.used_mask == (1 << bits) - 1
    assert [axis.group for axis in layout.axes] == [4, 4]
    assert layout.slots_per_invocation << bits == shape[0] * shape[1]


def test_small_matrices_have_no_blocks() -> None:
    assert blocked((32, 32), 8, "workgroup", 4) is None
