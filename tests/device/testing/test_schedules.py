"""Schedules vary how a launch is executed and reveal dependencies on it: the vector width on CPUs, merged accesses on
Vulkan devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.testing.cases.case import Case
from vkjit.testing.cases.schedules import Schedule, choices_for, variant
from vkjit.testing.execution.run import Executor
from vkjit.testing.masks import masked


@vk.kernel(over="y")
def row_sums(x: vk.In[vk.f32, "N 4"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = (x[i, 0] + x[i, 1]) + (x[i, 2] + x[i, 3])


@vk.kernel(groups=lambda y: vk.cdiv(y.shape[0], 32), local=32)
def vectors(y: vk.Out[vk.i32, "N"]):
    y.put(vk.global_id(0), vk.i32(vk.subgroup().size()))


@vk.kernel(groups=lambda x: vk.cdiv(x.shape[0], 32), local=32)
def eights(x: vk.In[vk.i32, "N"], y: vk.Out[vk.i32, "N"]):
    i, sg = vk.global_id(0), vk.subgroup()
    y.put(i, sg.sum(x.get(i, pad=0)))  # sums as many elements as the vector width


def widths(device: Any, kernel: Any) -> list[Any]:
    found = dict(choices_for(kernel, device, uses_subgroups=False, has_groups=False))
    return list(found.get("vector_width", [None]))


def test_results_are_the_same_at_every_width(device: Any) -> None:
    x = np.arange(400, dtype=np.float32).reshape(100, 4)
    chosen = widths(device, row_sums)
    assert (len(chosen) > 1) == (device.caps.kind != "interpreter")
    for width in chosen:
        arguments = {"x": x, "y": vk.testing.out(vk.f32, (100,))}
        y = vk.testing.run(row_sums, arguments, device=device, schedule=Schedule(vector_width=width))
        assert (y["y"] == x.sum(axis=1)).all()


def test_a_processor_takes_narrower_vectors(device: Any) -> None:
    if device.caps.kind != "llvm-cpu":
        pytest.skip("vectors of invocations are the processor's device's")
    before = device.caps
    executor = Executor(vectors, device)
    case = Case({}, {}, {"y": vk.testing.out(vk.i32, (40,))})
    for width in (4, None):
        found = executor.run(case, Schedule(vector_width=width)).raw["y"]
        assert (found == (width or before.subgroup_size)).all()
    assert device.caps is before


def test_nothing_that_was_learnt_beside_other_vectors_is_repeated(device: Any) -> None:
    if device.caps.kind != "llvm-cpu":
        pytest.skip("vectors of invocations are the processor's device's")
    tables = []

    def groups(y: Any) -> int:
        device.dispatch_cache["learnt"] = 0
        tables.append(device.dispatch_cache)
        return 2

    case = Case({}, {}, {"y": vk.testing.out(vk.i32, (40,))})
    free = vk.kernel(local=32)(vectors.spec.fn)
    for width in (4, None):
        Executor(free, device, groups).run(case, Schedule(vector_width=width))
    assert device.dispatch_cache is tables[1] is not tables[0]  # the cache of a plain schedule is kept


@vk.kernel(groups=1)
def size(y: vk.Out[vk.i32, "1"]):
    y[0] = vk.i32(vk.local_size(0))


@vk.kernel(over="y")
def doubled(x: vk.In[vk.f64, "N"], y: vk.Out[vk.f64, "N"]):
    y[vk.global_id(0)] = 2.0 * x[vk.global_id(0)]


def test_a_mask_holds_for_kernels_that_were_launched_before(device: Any) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("a masked interpreter is another device")
    if "f64" not in device.caps.dtypes:
        pytest.skip("the device lacks f64 by itself")
    y, x, out = vk.empty(1, dtype=vk.i32), vk.ones(3, dtype=vk.f64), vk.empty(3, dtype=vk.f64)

    def launched() -> int:
        for _ in range(3):  # until the fastest path is taken
            size(y)
        return int(y.numpy()[0])

    def refused() -> bool:
        try:
            doubled(x, out)
        except vk.FeatureError:
            return True
        return False

    usual = launched()
    assert usual > 32 and not refused()
    with masked("invocations=32 without=f64", device):
        assert launched() == 32
        assert refused() or device.caps.kind == "llvm-cpu"  # the CPU device computes in f64 regardless of its caps
    assert launched() == usual and not refused()


def test_a_kernel_that_counts_on_its_subgroup_is_found_on_a_processor(device: Any) -> None:
    if device.caps.kind != "llvm-cpu" or device.caps.subgroup_size <= 4:
        pytest.skip("the processor's device with vectors of 8 or 16 is needed")
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(eights, devices=device, max_examples=60, seed=1)
    assert caught.value.schedule.vector_width == 4


def test_accesses_one_by_one_are_another_program(device: Any) -> None:
    if device.caps.kind in ("llvm-cpu", "interpreter"):
        pytest.skip("accesses are joined on Vulkan devices")
    for width in (None, 1):
        kernel = variant(row_sums, Schedule(vector_width=width))
        with vk.use_device(device):
            kernel(np.ones((8, 4), np.float32))
        assert [code.signature.aligned for code in kernel._plans.values()] == [width is None]
