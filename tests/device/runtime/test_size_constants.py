"""Const parameters with the name of a dimension: inferred from the arrays, checked against them, never stale when warm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vkjit as vk

CHOICES = vk.tune(1, 2)


@vk.struct
class Particle:
    mass: vk.f32
    charge: vk.f32


@vk.kernel(over="x")
def doubled(x: vk.In[vk.f32, "B N"], y: vk.Out[vk.f32, "B N"], N: vk.Const[int]):
    b, i = vk.index()
    if i < N:
        y[b, i] = x[b, i] * 2


@vk.kernel(over="x")
def times_size(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], N: vk.Const[int]):
    y[vk.global_id(0)] = x[vk.global_id(0)] * N


@vk.kernel(over="x")
def add_size(x: vk.InOut[vk.f32, "N"], N: vk.Const[int]):
    x[vk.global_id(0)] += N


@vk.kernel(groups=lambda N: N, local=32)
def groups_of_size(x: vk.In[vk.f32, "B N"], y: vk.Out[vk.f32, "N"], N: vk.Const[int]):
    if vk.local_id(0) == 0:
        y[vk.group_id(0)] = x[0, vk.group_id(0)] * N


@vk.kernel(over="y")
def counted(y: vk.Out[vk.f32, "N"], value: vk.f32, N: vk.Const[int] = 4):
    y[vk.global_id(0)] = value + N


@vk.kernel(over="x")
def halves(x: vk.In[vk.f32, "2*N"], y: vk.Out[vk.f32, "2*N"], N: vk.Const[int]):
    y[vk.global_id(0)] = x[vk.global_id(0)] + N


@vk.kernel(over="x")
def batched(x: vk.In[vk.f32, "*B N"], y: vk.Out[vk.f32, "*B N"], B: vk.Const[Any]):
    y[vk.index()] = x[vk.index()] * len(B)


@vk.kernel(over="y")
def masses(p: vk.In[Particle, "N"], y: vk.Out[vk.f32, "N"], N: vk.Const[int]):
    y[vk.global_id(0)] = p[vk.global_id(0)].mass * N  # type: ignore[index]


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def test_the_size_is_inferred_or_checked(device: Any) -> None:
    np.testing.assert_array_equal(doubled(ones(2, 32)), 2 * ones(2, 32))
    np.testing.assert_array_equal(doubled(ones(2, 32), 32), 2 * ones(2, 32))
    np.testing.assert_array_equal(doubled(ones(2, 32), N=np.int64(32)), 2 * ones(2, 32))
    with pytest.raises(vk.ShapeError, match=r"x has shape \(2, 32\).*N is 16, found 32; argument N is 16"):
        doubled(ones(2, 32), N=16)


def test_given_or_left_out_together_with_the_output(device: Any) -> None:
    for n in (3, 7, 3):
        x, y = vk.ones(n), vk.zeros(n)
        for _ in range(20):
            times_size(x, y)
            assert y.tolist() == [n] * n
            assert times_size(x, n).tolist() == [n] * n
            times_size(x, y, n)


@pytest.mark.parametrize("kernel", [doubled, groups_of_size])
def test_warm_launches_of_other_sizes(device: Any, kernel: Any) -> None:
    for n in (16, 32, 16, 8, 16, 32, *[8] * 8, 16, 16, 32):
        total = 4 * n if kernel is doubled else n * n
        assert float(kernel(vk.ones(2, n)).sum()) == total
        assert float(kernel(vk.ones(2, n), N=n).sum()) == total
    with pytest.raises(vk.ShapeError, match="N is 32, found 16"):
        kernel(vk.ones(2, 16), N=32)


def test_warm_launches_in_place_and_in_a_capture(device: Any) -> None:
    three, five = vk.zeros(3), vk.zeros(5)
    for _ in range(80):
        add_size(three)
        add_size(five)
        add_size(three, N=3)
        add_size(five, 5)
    assert three.tolist() == [480] * 3 and five.tolist() == [800] * 5
    with pytest.raises(vk.ShapeError):
        add_size(five, 3)
    with vk.capture(x=three) as graph:
        add_size(three)
    graph.replay(x=three)
    assert three.tolist() == [483] * 3


def test_outputs_expressions_batches_and_structs(device: Any) -> None:
    assert counted(1.0).tolist() == [5] * 4  # no array says what N is: its default
    assert counted(1.0, N=2).tolist() == [3] * 2
    y = np.zeros(3, np.float32)
    counted(y, 1.0)
    assert y.tolist() == [4] * 3
    assert halves(ones(6)).tolist() == [4] * 6
    with pytest.raises(vk.ShapeError, match=r"2\*N is 4 where N = 2, found 6"):
        halves(ones(6), N=2)
    assert batched(ones(2, 1, 3)).sum() == 12
    with pytest.raises(vk.ShapeError, match=r"argument B is \(2, 2\)"):
        batched(ones(2, 1, 3), B=(2, 2))
    particles: Any = np.zeros(3, vk.struct_dtype(Particle))
    particles["mass"] = 1
    assert masses(particles).tolist() == [3] * 3


@pytest.mark.parametrize("size", [True, 2.0, -1, None, "2"])
def test_values_that_are_no_sizes(size: Any) -> None:
    with pytest.raises(vk.ShapeError, match="the size of the dimension N: expected an int of at least 0"):
        counted(1.0, N=size)


def test_a_missing_size_and_choices_to_tune_are_refused() -> None:
    @vk.kernel(over="y")
    def product(y: vk.InOut[vk.f32, "M*N"], M: vk.Const[int], N: vk.Const[int]):
        y[vk.global_id(0)] = M

    with pytest.raises(vk.ArgumentError, match="misses the argument 'M'"):
        product(ones(6))
    with pytest.raises(vk.ShapeError):
        product(ones(6), 2, 4)

    with pytest.raises(vk.CompileError, match="N has choices to tune and is the size of a dimension N"):

        @vk.kernel(over="x")
        def tuned(x: vk.InOut[vk.f32, "N"], N: vk.Const[int] = CHOICES):
            x[vk.global_id(0)] = N


def test_declared_costs_and_tuning_get_the_size(device: Any) -> None:
    @vk.kernel(over="x")
    def costly(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], N: vk.Const[int], EACH: vk.Const[int] = CHOICES):
        y[vk.global_id(0)] = x[vk.global_id(0)] * N

    sizes = []

    @costly.cost
    def cost(N: int) -> vk.Cost:
        sizes.append(N)
        return vk.Cost(8 * N, N)

    with vk.profile():
        costly(vk.ones(4))
    assert sizes == [4]
    costly.tune(vk.ones(5), budget=0.1)
    assert costly(vk.ones(5)).tolist() == [5] * 5


def test_property_tests_draw_the_size_and_the_arrays_together() -> None:
    @vk.kernel(over="s")
    def first_seven(x: vk.In[vk.f32, "B N"], s: vk.Out[vk.f32, "B"], N: vk.Const[int]):
        total = vk.f32(0)
        for i in range(vk.min(N, 7)):
            total += x[vk.global_id(0), i]
        s[vk.global_id(0)] = total

    options: dict[str, Any] = {"devices": "interpreter", "max_examples": 60, "seed": 3}
    with pytest.raises(vk.testing.CheckFailure, match="N = 8"):
        vk.testing.check_kernel(first_seven, reference=lambda x: x.sum(axis=1), **options)
    vk.testing.check_kernel(first_seven, reference=lambda x: x.sum(axis=1), elements={"N": [3, 5]}, **options)
    with pytest.raises(vk.ArgumentError, match=r"N is in dims= and in elements="):
        vk.testing.strategies(first_seven, dims={"N": 5}, elements={"N": 6})
