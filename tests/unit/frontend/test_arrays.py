# mypy: disable-error-code="name-defined, no-untyped-call"
"""Tests of arrays, ids, atomics, vectors, random numbers, reports and prints, through the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

import vkjit as vk
from tests.unit.frontend.harness import lower, run, text
from vkjit.errors import BoundsError, KernelAssertionError


def shapes(x: vk.In[vk.f32, "A B C"], y: vk.Out[vk.i64, "N"]):
    a, b, c = x.shape
    y[0] = a
    y[1] = b
    y[2] = c
    y[3] = x.size
    y[4] = x.ndim
    y[5] = x.strides[0]
    y[6] = x.strides[2]
    y[7] = len(x)
    y[8] = 1 if x.dtype == vk.f32 else 2
    s = vk.local(vk.i32, (3, 4))
    y[9] = s.strides[0] + len(s) * 10
    y[-1] = s.size


def test_shapes_and_strides() -> None:
    x = np.zeros((4, 6, 5), np.float32)[::2, :, ::-1]
    y = np.zeros(12, np.int64)
    run(shapes, x, y)
    assert y.tolist() == [2, 6, 5, 60, 3, 60, -1, 2, 1, 34, 0, 12]


def get_and_put(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "K"], z: vk.InOut[vk.f32, "N"]):
    i, j = vk.global_id(0) - 2, vk.global_id(0) % 3
    y[vk.global_id(0)] = x.get(i, j, pad=-1) + x.get(j, i)
    z.put(i, i * 2)


def test_get_and_put_never_leave_the_array() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, z = np.zeros(8, np.float32), np.full(3, 9, np.float32)
    run(get_and_put, x, y, z, groups=8)
    inside = lambda i, j, pad: x[i, j] if 0 <= i < 2 and 0 <= j < 3 else pad
    expected = [inside(g - 2, g % 3, -1) + inside(g % 3, g - 2, 0) for g in range(8)]
    assert y.tolist() == expected
    assert z.tolist() == [0, 2, 4]


def negative(x: vk.InOut[vk.f32, "M N"]):
    x[-1, -2] = x[0, -1] + 1
    t = (1, 2, 3)
    x[0, 0] = t[-1]


def test_negative_constants_count_from_the_end() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    run(negative, x)
    assert x[2, 2] == 4
    assert x[0, 0] == 3


def runtime_negative(x: vk.InOut[vk.f32, "N"], i: vk.i32):
    x[i] = 1


def test_a_negative_index_at_run_time_is_out_of_bounds() -> None:
    with pytest.raises(BoundsError):
        run(runtime_negative, np.zeros(4, np.float32), np.int32(-1))


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (2, 3, 4, 5), (2, 1, 3, 2, 3), (0,), (3, 0, 2, 2)])
def test_over_any_rank(shape: tuple[int, ...]) -> None:
    def kernel(x, y):
        at = vk.index()
        y[at] = x[at] * 10 + vk.global_id(0)

    x = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    y = np.zeros_like(x)
    if x.size:
        run(kernel, x, y, over="y", local=(2, 2, 2))
    np.testing.assert_array_equal(y, x * 10 + np.arange(shape[-1], dtype=np.int32))


def axes(y: vk.Out[vk.i32, "A B C D"]):
    y[vk.index()] = vk.global_id(3) * 1000 + vk.global_id(2) * 100 + vk.global_id(1) * 10 + vk.global_id(0)


def test_global_id_counts_axes_from_the_last() -> None:
    y = np.zeros((2, 3, 2, 4), np.int32)
    run(axes, y, over="y")
    a, b, c, d = np.indices(y.shape)
    np.testing.assert_array_equal(y, a * 1000 + b * 100 + c * 10 + d)


def histogram(x: vk.In[vk.i32, "N"], h: vk.InOut[vk.i32, "B"], f: vk.InOut[vk.f32, "K"]):
    i = vk.global_id(0)
    old = vk.atomic.add(h, x[i], 1)
    vk.atomic.max(h, 4, old, order="acq_rel")
    vk.atomic.add(f, 0, 0.5, scope="workgroup")
    vk.atomic.cas(h, 5, 0, 42)
    vk.atomic.store(h, 6, 7)
    vk.atomic.or_(h, 7, 1 << (i & 3))
    f[1] = vk.atomic.load(h, 6)


def test_atomics() -> None:
    x = np.array([0, 1, 1, 2, 2, 2, 0, 1], np.int32)
    h, f = np.zeros(8, np.int32), np.zeros(2, np.float32)
    run(histogram, x, h, f, groups=8)
    assert h.tolist() == [2, 3, 3, 0, 2, 42, 7, 15]
    assert f.tolist() == [4, 7]


def transpose(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    tile = vk.shared(vk.f32, (4, 4))
    i, j = vk.local_id(1), vk.local_id(0)
    tile[i, j] = x[i * 4 + j]
    vk.barrier()
    y[i * 4 + j] = tile[j, i]


def test_shared_memory() -> None:
    x = np.arange(16, dtype=np.float32)
    y = np.zeros_like(x)
    run(transpose, x, y, local=(4, 4, 1))
    np.testing.assert_array_equal(y.reshape(4, 4), x.reshape(4, 4).T)


def test_an_allocation_in_a_loop_is_one_array() -> None:
    def kernel(x):
        for k in range(3):
            s = vk.local(vk.f32, 4)
            s[0] = x[k]
            x[k] = s[0] + 1

    assert text(kernel, np.zeros(3, np.float32)).count("= local ") == 1


def test_constant_parameters_leave_no_trace() -> None:
    def kernel(x: vk.InOut[vk.f32, "N"], n: vk.Const[int], flag: vk.Const[bool] = True):
        if flag and n > 2:
            x[0] = n * 2
        else:
            x[0] = undefined_name  # noqa: F821

    module = lower(kernel, np.zeros(1, np.float32), 4, True)
    assert module.kernel.attrs["arg_index"] == (0,)
    assert not any(op.name == "if" for op in module.kernel.body.walk())


def vectors(x: vk.InOut[vk.f32, "N"]):
    V = vk.vec(vk.f32, 4)
    v = V(x[0], x[1], x[2], x[3])
    w = v * 2 + V(1) - v.wzyx
    x[4] = vk.dot(v, w)
    x[5] = vk.max(v, w).y + v[0] + V(v.xy, w.zw).w
    a, b, c, d = vk.where(v > 1.5, w, 0)
    x[6] = a + b + c + d
    u = vk.vec(vk.i32, 4)(v)
    x[7] = u.x + u.w
    s = vk.local(vk.vec(vk.f32, 2), 3)
    s[1] = v.xy
    x[8] = s[1].y
    for _ in range(2):
        v = v + 1
    x[9] = v.x if x[0] > 0 else 0
    x[10] = vk.exp(v).x


def test_vectors() -> None:
    x = np.array([1, 2, 3, 4, *[0] * 7], np.float32)
    v = x[:4].copy()
    run(vectors, x)
    w = v * 2 + 1 - v[::-1]
    chosen = np.where(v > 1.5, w, 0).sum()
    expected = [v @ w, max(v[1], w[1]) + v[0] + w[3], chosen, 5, 2, 3, np.exp(np.float32(3))]
    np.testing.assert_allclose(x[4:], expected, rtol=1e-6)


def random_numbers(words: vk.Out[vk.u32, "N K"], f: vk.Out[vk.f32, "N K"], n: vk.Out[vk.i32, "N"], seed: vk.u64):
    i = vk.global_id(0)
    a, b, c, d = vk.philox(seed, i)
    words[i, 0] = a
    words[i, 1] = b
    words[i, 2] = c
    words[i, 3] = d
    f[i, 0] = vk.rand(seed, i)
    f[i, 1] = vk.randn(seed, i, stream=3)
    n[i] = vk.randint(7, i, -3, 5)


def philox_reference(key: int, counter: int, stream: int = 0) -> list[int]:
    k = [key & 0xFFFFFFFF, key >> 32]
    c = [counter & 0xFFFFFFFF, counter >> 32, stream, 0]
    for step in range(10):
        if step:
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [q >> 32 ^ c[1] ^ k[0], q & 0xFFFFFFFF, p >> 32 ^ c[3] ^ k[1], p & 0xFFFFFFFF]
    return c


def test_random_numbers() -> None:
    count, seed = 2000, 0x1234567890ABCDEF
    words, f, n = np.zeros((count, 4), np.uint32), np.zeros((count, 2), np.float32), np.zeros(count, np.int32)
    run(random_numbers, words, f, n, np.uint64(seed), groups=count)
    assert words[5].tolist() == philox_reference(seed, 5)
    assert f[5, 0] == np.float32((philox_reference(seed, 5)[0] >> 8) * 2.0**-24)
    assert set(n) == set(range(-3, 5))
    assert 0 <= f[:, 0].min()
    assert f[:, 0].max() < 1
    assert abs(f[:, 0].mean() - 0.5) < 4 / np.sqrt(12 * count)
    assert abs(f[:, 1].mean()) < 4 / np.sqrt(count)
    assert abs(f[:, 1].var() - 1) < 4 * np.sqrt(2 / count)


def test_the_published_vectors_of_philox() -> None:
    assert philox_reference(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def asserting(x: vk.In[vk.i32, "N"], limit: vk.i32):
    i = vk.global_id(0)
    assert x[i] < limit, f"element {i} is {x[i]}, limit {limit} {{}}"


def test_assert_reports_and_goes_on() -> None:
    x = np.arange(5, dtype=np.int32)
    run(asserting, x, np.int32(9), groups=5)
    with pytest.raises(KernelAssertionError, match=r"element 3 is 3, limit 3 \{\}"):
        run(asserting, x, np.int32(3), groups=5)


def printing(x: vk.In[vk.f32, "N"], K: vk.Const[int]):
    i = vk.global_id(0)
    if i == 2:
        print("x", i, x[i], K, sep=", ")
        print(f"{x[i]:.2f} {K + 1} {{}}", end="!\n")


def test_print() -> None:
    lines = run(printing, np.arange(4, dtype=np.float32), 7, groups=4)
    assert "".join(lines).replace("\n", "") == "x, 2, 2.0, 72.00 8 {}!"


def grid_stride(y: vk.InOut[vk.i32, "N"]):
    for i in vk.grid_stride(len(y)):
        y[i] += i


def test_grid_stride_visits_each_index_once() -> None:
    y = np.ones(37, np.int32)
    run(grid_stride, y, groups=3, local=(4, 1, 1))
    np.testing.assert_array_equal(y, 1 + np.arange(37))
