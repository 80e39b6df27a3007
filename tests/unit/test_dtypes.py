"""Element types on the host: equality with NumPy's, as in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import vkjit as vk


@pytest.mark.parametrize("dtype", [t for t in vk.dtypes.ALL if t is not vk.bf16], ids=repr)
def test_types_equal_those_of_numpy(dtype: vk.DType) -> None:
    scalar = dtype.numpy.type
    assert dtype == scalar and scalar == dtype and dtype == dtype.numpy and not dtype != scalar
    assert dtype in (np.complex64, scalar) and dtype == dtype
    assert all((other == scalar) == (other is dtype) for other in vk.dtypes.ALL)


def test_other_objects_are_unequal() -> None:
    assert vk.bf16 != np.uint16 and vk.bf16 != np.float32 and vk.f32 != np.floating and vk.f32 != np.generic
    assert vk.f32 != "float32" and not (vk.f64 == float) and vk.f32 != None and vk.index != np.int64  # noqa: E711, E721
    assert {vk.f32: 1, vk.f64: 2}[vk.f32] == 1 and len({vk.f32, vk.f32, vk.f16}) == 2
