"""Accesses along rows whose stride is known only at run time: stride 1, which CPUs vectorize, and others."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def copied(x: vk.In[T, "M N"], y: vk.InOut[T, "M N"]):
    j, i = vk.global_id(0), vk.global_id(1)
    y[i, j] = x[i, j]


@vk.kernel(over="y")
def copied_aside(x: vk.In[T, "M N"], y: vk.InOut[T, "M N"], shift: vk.i32):
    j, i = vk.i32(vk.global_id(0)), vk.i32(vk.global_id(1))
    y[i, j] = x.get(i, j - shift, pad=0)


VIEWS = {
    "cut": lambda x: x[1:38, 2:35],
    "every other": lambda x: x[:37, :66:2],
    "backward": lambda x: x[:37, 40:7:-1],
    "across": lambda x: x.T[:37, :33],
    "one row": lambda x: vk.expand(x[3:4, :33], (37, 33)) if isinstance(x, vk.Tensor) else x[3:4, :33].repeat(37, 0),
    "one column": lambda x: vk.expand(x[:37, 3:4], (37, 33)) if isinstance(x, vk.Tensor) else x[:37, 3:4].repeat(33, 1),
}


@pytest.mark.parametrize("layout", VIEWS)
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.float16])
def test_rows_of_any_stride(device: Any, layout: str, dtype: Any) -> None:
    memory = np.random.default_rng(0).integers(0, 2 if dtype is np.bool_ else 99, (70, 70)).astype(dtype)
    source = VIEWS[layout](memory)
    with vk.use_device(device):
        x = vk.tensor(memory)
        view = VIEWS[layout](x)
        for name in ("cut", "across"):
            room = vk.zeros(70, 70, dtype=view.dtype)
            target = room[1:38, 2:35] if name == "cut" else room.t()[1:38, 2:35]
            copied(view, target)
            np.testing.assert_array_equal(target.numpy(), source)
            assert np.count_nonzero(room.numpy()) == np.count_nonzero(source)
        copied_aside(view, target, 5)
        np.testing.assert_array_equal(target.numpy()[:, 5:], source[:, :-5])
        assert not target.numpy()[:, :5].any()
