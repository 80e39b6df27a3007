# mypy: disable-error-code="arg-type, attr-defined, call-arg, call-overload, index, misc, no-untyped-call, no-untyped-def"
# mypy: disable-error-code="operator, valid-type"
"""Repeated calls, which take the fast path on Vulkan devices: the same results and errors as on the slow path."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.backends.cpu import obstacle
from vkjit.backends.vulkan.runtime.device import VulkanDevice
from vkjit.backends.vulkan.runtime.fast_path import accelerator
from vkjit.launch.kernel import Kernel
from vkjit.runtime import sanitizer_reports

OFFSET: Any = 1
T = vk.f32


@vk.kernel(over="out")
def along(a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = a[i] - 2.0 * b[i]


@vk.kernel(over="out")
def across(a: vk.In[vk.f32, "M N"], b: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "M N"]):
    i, j = vk.index()
    out[i, j] = a[i, j] - b[j]


@vk.kernel(over="out")
def deep(a: vk.In[vk.f32, "L M N"], out: vk.Out[vk.f32, "L M N"]):
    i, j, k = vk.index()
    out[i, j, k] = a[i, j, k] + 1.0


@vk.kernel(over="out")
def numbers(a: vk.In[vk.f32, "N"], factor: vk.f32, shift: vk.i32, flip: vk.boolean, out: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = (a[i] * factor + vk.f32(shift)) * (-1.0 if flip else 1.0)


@vk.kernel(over="x")
def constant(x: vk.InOut[vk.i32, "N"], K: vk.Const[int]):
    i = vk.global_id(0)
    x[i] = x[i] * K


@vk.kernel(over="x")
def captured(x: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    x[i] = x[i] + OFFSET


@vk.kernel(groups=lambda x: x.shape[0], local=32)
def rows(x: vk.In[vk.f32, "R C"], y: vk.Out[vk.f32, "R"]):
    r, t = vk.group_id(0), vk.local_id(0)
    if t == 0:
        y[r] = x[r, 0] + vk.f32(x.shape[1])


@vk.kernel(groups=1, local=lambda y: 64 if y.shape[0] < 100 else 32)
def chosen(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.local_id(0)
    y[i] = x[i] + vk.f32(vk.local_size(0))


@vk.kernel(local=64)
def filled(x: vk.Out[vk.i32, "N"]):
    i = vk.global_id(0)
    if i < x.shape[0]:
        x[i] = i + 1


@vk.kernel(over="x")
def fixed(x: vk.InOut[vk.f32, "4 N"], y: vk.In[vk.f32, "N N"]):
    i, j = vk.index()
    x[i, j] = x[i, j] + y[j, j]


@contextmanager
def slow_path_launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the names of the kernels that are launched through the slow path."""
    names: list[str] = []
    usual = Kernel._launch_fully

    def launch_fully(self: Any, *rest: Any) -> Any:
        names.append(self.name)
        return usual(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "_launch_fully", launch_fully)
        yield names


def wait_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the machine code of launches, if that is possible here."""
    with monkeypatch.context() as patch:
        patch.setenv("VKJIT_NATIVE_LAUNCH", "1")
        accelerator.queue_code.start()


def tensor(device: Any, values: Any, dtype: Any = np.float32) -> Any:
    return vk.from_numpy(np.asarray(values, dtype=dtype), device=device)


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-50, 50, shape).astype(np.float32)


def test_fresh_arrays_of_fresh_shapes(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with slow_path_launches(monkeypatch) as slow:
        for n in (7, 64, 1, 129, 3000, 16):
            a, b = random(n, seed=n), random(n, seed=n + 1)
            out = vk.empty(n, device=device)
            along(tensor(device, a), tensor(device, b), out)
            np.testing.assert_array_equal(out.numpy(), a - 2 * b)
            m = n % 5 + 1
            c, wide = random(m, n, seed=n), vk.empty((m, n), device=device)
            across(tensor(device, c), tensor(device, b), wide)
            np.testing.assert_array_equal(wide.numpy(), c - b)
            d, high = random(m, 3, n, seed=n), vk.empty((m, 3, n), device=device)
            deep(tensor(device, d), high)
            np.testing.assert_array_equal(high.numpy(), d + 1)
    assert len(slow) <= 6  # rows aligned to 16 bytes or not are two specialization classes


def test_numbers_of_each_type_and_those_that_do_not_fit(device: Any) -> None:
    a, out = tensor(device, random(50)), vk.empty(50, device=device)
    for factor, shift, flip in ((2.0, 3, False), (-0.5, -7, True), (float("inf"), 2**31 - 1, False), (3, 0, True)):
        numbers(a, factor, shift, flip, out)
        with np.errstate(invalid="ignore"):
            expected = (a.numpy() * np.float32(factor) + np.float32(shift)) * (-1 if flip else 1)
        np.testing.assert_array_equal(out.numpy(), expected)
    for wrong in ((1e39, 0, False), (1.0, 2**31, False), (1.0, 1.5, False), (1.0, 1, 1)):
        with pytest.raises(vk.DTypeError):
            numbers(a, *wrong, out)


def test_constants_choose_the_code(device: Any) -> None:
    x = tensor(device, [1, 2, 3], np.int32)
    for factor in (2, 3, 2, -1, 3):
        before = x.numpy()
        constant(x, factor)
        np.testing.assert_array_equal(x.numpy(), before * factor)
    with pytest.raises(vk.ArgumentError, match="Const"):
        constant(x, [2])


def test_what_is_captured_counts(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, factor = vk.zeros(10, device=device), 2.0

    @vk.kernel(over="y")
    def inner(y: vk.InOut[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = y[i] + factor

    for value in (1, 1, 1, 10, 1, 10):
        monkeypatch.setitem(globals(), "OFFSET", value)
        before = x.numpy()
        captured(x)
        np.testing.assert_array_equal(x.numpy(), before + value)
        factor = value * 3.0
        before = x.numpy()
        inner(x)
        np.testing.assert_array_equal(x.numpy(), before + factor)


def test_functions_of_the_launch_see_the_arguments(device: Any) -> None:
    for shape in ((3, 5), (3, 5), (7, 2), (3, 9), (3, 5)):
        x, y = tensor(device, random(*shape)), vk.empty(shape[0], device=device)
        rows(x, y)
        np.testing.assert_array_equal(y.numpy(), x.numpy()[:, 0] + shape[1])
    for n in (64, 200, 64, 300, 65, 200):
        x, y = tensor(device, random(n)), vk.empty(n, device=device)
        chosen(x, y)
        size = 64 if n < 100 else 32
        np.testing.assert_array_equal(y.numpy()[:size], x.numpy()[:size] + size)


def test_grids_in_brackets(device: Any) -> None:
    for groups in (2, 1, 2, (1,), 2, 1, 0):
        x = vk.zeros(100, dtype=vk.i32, device=device)
        filled[groups](x)
        reached = 64 * (groups if isinstance(groups, int) else groups[0])
        expected = np.where(np.arange(100) < reached, np.arange(100) + 1, 0)
        np.testing.assert_array_equal(x.numpy(), expected)


def test_shapes_that_disagree_are_errors_every_time(device: Any) -> None:
    a, b = vk.zeros(8, device=device), vk.zeros(9, device=device)
    for _ in range(3):
        along(a, a, vk.empty(8, device=device))
        with pytest.raises(vk.ShapeError, match="argument b has shape"):
            along(a, b, vk.empty(8, device=device))
        with pytest.raises(vk.ShapeError):
            along(a, a, b)
    x, y = vk.zeros((4, 3), device=device), tensor(device, np.eye(3))
    for _ in range(3):
        fixed(x, y)
        with pytest.raises(vk.ShapeError):
            fixed(vk.zeros((3, 3), device=device), y)
        with pytest.raises(vk.ShapeError):
            fixed(x, vk.zeros((3, 4), device=device))
    np.testing.assert_array_equal(x.numpy(), np.full((4, 3), 3))


def test_wrong_arguments_after_right_ones(device: Any) -> None:
    a = vk.zeros(8, device=device)
    for _ in range(2):
        along(a, a, vk.empty(8, device=device))
    with pytest.raises(vk.ArgumentError, match="expected an array"):
        along(a, 1.0, a)
    with pytest.raises(vk.ArgumentError, match="argument b is None"):
        along(a, None, a)
    with pytest.raises(vk.DTypeError):
        along(a, vk.zeros(8, dtype=vk.i32, device=device), vk.empty(8, device=device))
    out = np.zeros(8, np.float32)
    with vk.use_device(device):
        along(np.ones(8, np.float32), np.ones(8, np.float32), out)
    np.testing.assert_array_equal(out, -np.ones(8))


def test_views_and_overlaps(device: Any) -> None:
    base = random(101)
    for _ in range(3):
        x = tensor(device, base)
        along(x[::2], x[1:52], x[::2])  # in place, with overlap
        expected = base.copy()
        half = base[::2] - 2 * base[1:52]
        found = x.numpy()
        assert np.array_equal(found[1::2], expected[1::2])
        assert np.array_equal(found[100:], half[50:])
        y = tensor(device, base)
        along(y[:30], y[30:60], y[60:90])  # disjoint parts of one buffer
        np.testing.assert_array_equal(y.numpy()[60:90], base[:30] - 2 * base[30:60])
        z = tensor(device, base)
        along(z, z, z)
        np.testing.assert_array_equal(z.numpy(), -base)
        w = tensor(device, base)[::-1]
        out = vk.empty(101, device=device)
        along(w, w, out)
        np.testing.assert_array_equal(out.numpy(), -base[::-1])


@vk.kernel(over="o")
def one(o: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    o[i] = o[i] + 1.0


@vk.kernel(over="o")
def two(a: vk.In[vk.f32, "N"], o: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    o[i] = o[i] + a[i]


@vk.kernel(over="o")
def five(
    a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.In[vk.f32, "N"], p: vk.InOut[vk.f32, "N"],
    o: vk.InOut[vk.f32, "N"],
):  # fmt: skip
    i = vk.global_id(0)
    p[i] = p[i] + 1.0
    o[i] = o[i] + a[i] + b[i] + c[i]


@vk.kernel(over="o")
def eight(
    a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.In[vk.f32, "N"], d: vk.In[vk.f32, "N"], e: vk.In[vk.f32, "N"],
    f: vk.In[vk.f32, "N"], g: vk.In[vk.f32, "N"], o: vk.InOut[vk.f32, "N"],
):  # fmt: skip
    i = vk.global_id(0)
    o[i] = o[i] + a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i]


@vk.kernel(over="o")
def nine(
    a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.In[vk.f32, "N"], d: vk.In[vk.f32, "N"], e: vk.In[vk.f32, "N"],
    f: vk.In[vk.f32, "N"], g: vk.In[vk.f32, "N"], h: vk.In[vk.f32, "N"], o: vk.InOut[vk.f32, "N"],
):  # fmt: skip
    i = vk.global_id(0)
    o[i] = o[i] + a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i]


@vk.kernel(over="o")
def twenty(
    a: vk.In[vk.f32, "N"], b: vk.In[vk.f32, "N"], c: vk.In[vk.f32, "N"], d: vk.In[vk.f32, "N"], e: vk.In[vk.f32, "N"],
    f: vk.In[vk.f32, "N"], g: vk.In[vk.f32, "N"], h: vk.In[vk.f32, "N"], z: vk.In[vk.f32, "N"], j: vk.In[vk.f32, "N"],
    k: vk.In[vk.f32, "N"], l: vk.In[vk.f32, "N"], m: vk.In[vk.f32, "N"], n: vk.In[vk.f32, "N"], p: vk.In[vk.f32, "N"],
    q: vk.In[vk.f32, "N"], r: vk.In[vk.f32, "N"], s: vk.In[vk.f32, "N"], t: vk.In[vk.f32, "N"],
    o: vk.InOut[vk.f32, "N"],
):  # fmt: skip
    i = vk.global_id(0)
    # unused arguments take no argument space, which is 128 bytes of push constants on small drivers
    o[i] = o[i] + (a[i] + c[i] + e[i] + g[i] + z[i] + k[i] + m[i] + p[i] + r[i] + t[i])


@pytest.mark.parametrize("kernel", [one, two, five, eight, nine, twenty])
def test_any_number_of_arrays(device: Any, kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(kernel.spec.params)
    with slow_path_launches(monkeypatch) as slow:
        for n in (4, 8, 12, 16):
            arrays = [vk.full((n,), float(i + 2), device=device) for i in range(count)]
            expected = 3 if count == 1 else {2: 5, 5: 15, 8: 44, 9: 54, 20: 131}[count]
            kernel(*arrays)
            np.testing.assert_array_equal(arrays[-1].numpy(), np.full(n, expected))
    assert len(slow) == 1


def test_tensors_learn_that_they_were_written(device: Any) -> None:
    x, y = vk.zeros(4, device=device), vk.zeros(4, device=device)
    for _ in range(3):
        before = x.version, y.version
        two(x, y)
        assert (x.version, y.version) == (before[0], before[1] + 1)


def test_captures_profiles_and_the_sanitizer_see_each_launch(device: Any) -> None:
    x, y = vk.ones(4, device=device), vk.zeros(4, device=device)
    for _ in range(3):
        two(x, y)
    with vk.capture(device) as graph:
        two(x, y)
        two(x, y)
    np.testing.assert_array_equal(y.numpy(), np.full(4, 3))
    graph.replay()
    two(x, y)
    graph.replay()
    np.testing.assert_array_equal(y.numpy(), np.full(4, 8))
    if isinstance(device, VulkanDevice):
        with vk.profile(device) as measured:
            two(x, y)
        assert [row.launches for row in measured.kernels() if row.name == "two"] == [1]
    with sanitizer_reports.sanitized("races"):
        two(x, y)
    two(x, y)
    expected = 10 + isinstance(device, VulkanDevice)
    np.testing.assert_array_equal(y.numpy(), np.full(4, expected))


def test_an_interruption_in_the_middle_costs_a_barrier_and_no_order(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("it has no short way")
    x, y = vk.ones(4, device=device), vk.zeros(4, device=device)
    two(x, y)
    two(x, y)
    two._forms[2]._drop_plans()  # machine code can't be interrupted
    reached = []

    def interrupted(*_: Any) -> None:
        reached.append(True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(accelerator.queue_code, "recorder", None)
        patch.setattr(type(device._queue), "emit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two(x, y)
    two(x, y)
    assert reached
    np.testing.assert_array_equal(y.numpy(), np.full(4, 3))


def test_native_and_python_record_the_same(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(device, VulkanDevice):
        pytest.skip("it has no short way")
    found = []
    for native in (True, False):
        x, y = vk.ones(1000, device=device), vk.zeros(1000, device=device)
        c, wide = tensor(device, random(9, 40)), vk.empty((9, 40), device=device)
        if not native:
            for kernel in (two, deep):
                kernel._forget()
            monkeypatch.setattr(accelerator, "queue_code", accelerator.QueueCode())
            monkeypatch.setattr(accelerator.queue_code, "failed", True)
        else:
            wait_for_machine_code(monkeypatch)
        for _ in range(1200):
            two(x, y)
            deep(c.reshape(3, 3, 40), wide.reshape(3, 3, 40))
        found.append((y.numpy(), wide.numpy()))
        if native:
            assert (two._forms[2].call is None) == bool(obstacle())
    for one_way, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one_way, other)
    np.testing.assert_array_equal(found[0][0], np.full(1000, 1200))


def test_threads_and_streams(device: Any) -> None:
    """Streams order their use of shared arrays; on devices without streams, threads must synchronize themselves."""
    total, errors = vk.zeros(64, device=device), []
    shared = isinstance(device, VulkanDevice)

    def work(number: int) -> None:
        try:
            stream = vk.Stream(device)
            with stream:
                x, y = vk.full((64,), float(number), device=device), vk.zeros(64, device=device)
                for _ in range(300):
                    two(x, y)
                    if shared:
                        one(total)
                np.testing.assert_array_equal(y.numpy(), np.full(64, 300.0 * number))
        except BaseException as error:  # noqa: BLE001  checked below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    np.testing.assert_array_equal(total.numpy(), np.full(64, 1200 if shared else 0))


SHIFT: Any = 1


@vk.func
def shifted(v):
    return v + SHIFT


@vk.kernel(over="x")
def by_function(x: vk.InOut[vk.f32, "N"], f: vk.Const[Any]):
    i = vk.global_id(0)
    x[i] = f(x[i])


def test_what_constants_capture_counts(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = vk.zeros(10, device=device)
    with slow_path_launches(monkeypatch) as slow:
        for value in (1, 1, 1, 10, 10, 10, 1, 1):
            monkeypatch.setitem(globals(), "SHIFT", value)
            before = x.numpy()
            by_function(x, shifted)
            np.testing.assert_array_equal(x.numpy(), before + value)
    assert len(slow) == 3


def test_grids_that_are_cut_and_grids_that_are_not(device: Any) -> None:
    """The same kernel with grids that fit in one dispatch and grids that are split, in mixed order."""
    most = device.caps.max_groups[0]
    if most > 1 << 17:
        pytest.skip(f"{device.name} takes {most} workgroups: too many for a test")

    @vk.kernel(over="y", local=1)
    def plus(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] + 1

    with vk.use_device(device):
        for size in (5, most + 3, 7, most + 3, most, 9, most + 1):
            x, y = vk.arange(size, dtype=vk.f32), vk.zeros(size)
            plus(x, y)
            np.testing.assert_array_equal(y.numpy(), np.arange(size, dtype=np.float32) + 1)


@vk.func
def larger(v):
    return max(v, 2.0)


@vk.kernel(over="y")
def with_builtins(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], f: vk.Const[Any]):
    i = vk.global_id(0)
    y[i] = f(abs(x[i]))


def test_kernels_that_use_builtins_take_the_short_way(device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tensor(device, random(9)), vk.empty(9, device=device)
    with slow_path_launches(monkeypatch) as slow:
        for _ in range(3):
            with_builtins(x, y, larger)
            np.testing.assert_array_equal(y.numpy(), np.maximum(np.abs(x.numpy()), 2))
        with monkeypatch.context() as patch:
            patch.setitem(globals(), "max", min)  # a global hides the builtin
            for _ in range(3):
                with_builtins(x, y, larger)
                np.testing.assert_array_equal(y.numpy(), np.minimum(np.abs(x.numpy()), 2))
        with_builtins(x, y, larger)
        np.testing.assert_array_equal(y.numpy(), np.maximum(np.abs(x.numpy()), 2))
    assert len(slow) == 3
