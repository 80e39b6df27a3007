# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, no-untyped-call, no-untyped-def, valid-type, operator"
"""Atomic operations on every element type, in global and shared memory, with every order and scope, on every executor."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit import dtypes

T = TypeVar("T", bound=vk.Element)
TYPES = [t for t in dtypes.ALL if t is not dtypes.boolean]


@vk.kernel(groups=3, local=16)
def in_buffers(x: vk.InOut[T, "8"], v: vk.In[T, "48"]):
    i = vk.global_id(0)
    vk.atomic.add(x, 0, v[i])
    vk.atomic.sub(x, 1, v[i], scope="device")
    vk.atomic.min(x, 2, v[i], order="acquire")
    vk.atomic.max(x, 3, v[i], order="release")
    if i == 5:
        vk.atomic.exchange(x, 4, v[i], order="acq_rel")
        vk.atomic.store(x, 5, vk.atomic.load(x, 4, order="acquire") + v[i], order="release")
    if i == 7:
        vk.atomic.cas(x, 6, x.dtype(2), v[i])
        vk.atomic.cas(x, 6, x.dtype(1), v[i])
    vk.fence()


@vk.kernel(groups=1, local=16)
def in_shared_memory(x: vk.InOut[T, "8"], v: vk.In[T, "48"]):
    s = vk.shared(x.dtype, 8)
    i = vk.local_id(0)
    if i < 8:
        s[i] = x[i]
    vk.barrier()
    for k in range(3):
        j = i + 16 * k
        vk.atomic.add(s, 0, v[j], scope="workgroup")
        vk.atomic.sub(s, 1, v[j])
        vk.atomic.min(s, 2, v[j])
        vk.atomic.max(s, 3, v[j])
        if j == 5:
            vk.atomic.exchange(s, 4, v[j])
            vk.atomic.store(s, 5, vk.atomic.load(s, 4) + v[j])
        if j == 7:
            vk.atomic.cas(s, 6, x.dtype(2), v[j])
            vk.atomic.cas(s, 6, x.dtype(1), v[j])
    vk.fence(scope="workgroup")
    vk.barrier()
    if i < 8:
        x[i] = s[i]


@pytest.mark.parametrize("kernel", [in_buffers, in_shared_memory], ids=lambda k: k.name)
@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: t.name)
def test_every_type(device: Any, dtype: Any, kernel: Any) -> None:
    if dtype is dtypes.bf16:
        host = pytest.importorskip("ml_dtypes", reason="bf16 is passed as an array of ml_dtypes").bfloat16
    else:
        host = dtype.numpy
    if dtype.name not in device.caps.dtypes and dtype is not dtypes.bf16:
        pytest.skip(f"{device.name} has no {dtype.name}")
    v = np.random.default_rng(1).integers(0, 3, 48)
    v[:8] = [0, 1, 2, 2, 1, 2, 0, 2]
    x = np.array([1, 100, 1, 1, 9, 9, 1, 9]).astype(host)
    kernel(x, v.astype(host))
    expected = [1 + v.sum(), 100 - v.sum(), 0, 2, 2, 4, 2, 9]
    assert x.astype(np.float64).tolist() == expected


def test_sums_of_bf16_are_rounded_to_nearest(device: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="bf16 is passed as an array of ml_dtypes")

    @vk.kernel(over="x")
    def add(x: vk.InOut[vk.bf16, "N"], v: vk.In[vk.bf16, "N"]):
        i = vk.global_id(0)
        vk.atomic.add(x, i, v[i])

    rng = np.random.default_rng(2)
    x, v = ((rng.standard_normal(200) * 10).astype(ml_dtypes.bfloat16) for _ in range(2))
    expected = (x.astype(np.float32) + v.astype(np.float32)).astype(ml_dtypes.bfloat16)
    add(x, v)
    assert (x == expected).all()


@vk.kernel(over="v")
def extremes(x: vk.InOut[T, "2"], v: vk.In[T, "N"]):
    i = vk.global_id(0)
    vk.atomic.min(x, 0, v[i])
    vk.atomic.max(x, 1, v[i])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_extremes_of_special_floats(device: Any, dtype: Any) -> None:
    x = np.zeros(2, dtype)
    extremes(x, np.array([-0.0, 0.0, -0.0], dtype))
    assert np.signbit(x).tolist() == [True, False]
    extremes(x, np.array([np.inf, -np.inf, 3], dtype))
    assert x.tolist() == [-np.inf, np.inf]
    extremes(x, np.array([1, np.nan, -1], dtype))
    assert np.isnan(x).all()


def test_what_atomics_do_not_take() -> None:
    from tests.unit.frontend.harness import lower

    def with_vectors(x: vk.InOut[vk.f32, "N"]):
        s = vk.shared(vk.vec(vk.f32, 2), 4)
        vk.atomic.add(s, 0, x[0])

    def with_floats(x: vk.InOut[vk.f32, "N"]):
        vk.atomic.or_(x, 0, 1)

    def with_order(x: vk.InOut[vk.i32, "N"]):
        vk.atomic.add(x, 0, 1, order="later")

    for kernel, message in (
        (with_vectors, "vectors have no"),
        (with_floats, "isn't defined"),
        (with_order, "order is"),
    ):
        with pytest.raises(vk.CompileError, match=message):
            lower(kernel, np.zeros(1, np.int32 if kernel is with_order else np.float32))
