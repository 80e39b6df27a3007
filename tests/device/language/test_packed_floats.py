# mypy: disable-error-code="arg-type, assignment, index, no-untyped-call, no-untyped-def, operator, valid-type"
"""8-bit floats compared with ml_dtypes, on every executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the types of NumPy for floats of 8 bits")
KINDS = [vk.f8e4m3, vk.f8e5m2]


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_every_element_is_read(device: Any, kind: Any) -> None:
    @vk.kernel(over="y")
    def read(x: vk.In[kind, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i]

    bits = np.arange(256, dtype=np.uint8)
    x = bits.view(getattr(ml_dtypes, kind.numpy))
    expected = x.astype(np.float32)
    for given in (x, bits):
        found = read(given)
        np.testing.assert_array_equal(found, expected)
        known = ~np.isnan(expected)
        assert np.array_equal(np.signbit(found[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_stores_round_to_nearest(device: Any, kind: Any) -> None:
    @vk.kernel(over="y")
    def write(x: vk.In[vk.f32, "N"], y: vk.Out[kind, "N"], z: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i]
        z[i] = kind(x[i])

    host = getattr(ml_dtypes, kind.numpy)
    numbers = np.unique(np.arange(256, dtype=np.uint8).view(host).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    halves = (numbers[1:] + numbers[:-1]) / 2
    near = np.concatenate(
        [numbers, halves, np.nextafter(halves, np.float32(1e9)), np.nextafter(halves, np.float32(-1e9))]
    )
    far = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 1e-30, -1e-30, 448, 464, 465, 57344, 61440, 61439], np.float32)
    spread = np.random.default_rng(1).standard_normal(500).astype(np.float32) * 10
    x = np.concatenate([near, far, spread])
    expected = x.astype(host)
    y, z = write(x)
    assert y.dtype == expected.dtype
    nan = np.isnan(expected.astype(np.float32))
    assert np.array_equal(y.view(np.uint8)[~nan], expected.view(np.uint8)[~nan])
    assert np.isnan(y[nan].astype(np.float32)).all()
    np.testing.assert_array_equal(z, expected.astype(np.float32))


@vk.struct
class Weight(vk.Struct):
    value: vk.f8e4m3
    scale: vk.f16


@vk.kernel(groups=1, local=8)
def blocks(w: vk.InOut[Weight, "N"], x: vk.InOut[vk.f8e5m2, "N"]):
    s = vk.shared(vk.f8e4m3, 8)
    i = vk.local_id(0)
    s[7 - i] = w[i].value * w[i].scale
    vk.barrier()
    w[i].value = s[i]
    w[i].value += 1
    x[i] += x.get(i + 1, pad=100)


def test_packed_floats_in_structs_and_shared_memory(device: Any) -> None:
    w = np.zeros(8, vk.struct_dtype(Weight))
    w["value"] = np.arange(8).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    w["scale"] = 0.5
    x = np.ones(8, ml_dtypes.float8_e5m2)
    blocks(w, x)
    found = w["value"].view(ml_dtypes.float8_e4m3fn).astype(np.float32)
    assert found.tolist() == [1 + k / 2 for k in range(7, -1, -1)]
    assert x.astype(np.float32)[7] == 96


def test_what_does_not_fit() -> None:
    @vk.kernel(over="x")
    def doubles(x: vk.InOut[vk.f8e4m3, "N"], d: vk.In[vk.f64, "N"]):
        x[vk.global_id(0)] = d[vk.global_id(0)]

    with pytest.raises(vk.CompileError, match="isn't rounded"):
        vk.check(doubles)
    with pytest.raises(vk.DTypeError, match=r"expected ml_dtypes\.float8_e4m3fn"):
        doubles(np.zeros(2, np.float32), np.zeros(2))
    with pytest.raises(vk.CompileError, match="a type of elements of arrays"):

        @vk.kernel(over="x")
        def by_value(x: vk.InOut[vk.f32, "N"], v: vk.f8e4m3):
            x[vk.global_id(0)] = v
