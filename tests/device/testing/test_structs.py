# mypy: disable-error-code="arg-type, assignment, attr-defined, index, no-untyped-def, operator, valid-type"
"""Property tests of kernels with struct and short-vector parameters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings

import vkjit as vk

T = TypeVar("T", bound=vk.Element)
V3 = vk.vec(vk.f32, 3)
SETTINGS: dict[str, Any] = {"max_examples": 12, "seed": 5}


@vk.struct
class Inner(vk.Struct):
    flag: vk.boolean
    weight: vk.f64


@vk.struct
class Particle(vk.Struct):
    position: V3
    mass: vk.f32
    inner: Inner
    table: vk.Array[vk.i16, "2 3"]
    count: vk.u8


@vk.struct
class Anything(vk.Struct):
    value: Any


@vk.kernel(over="p")
def step(p: vk.InOut[Particle, "N"], v: vk.In[V3, "N"], dt: vk.f32, wind: V3, one: Inner):
    i = vk.global_id(0)
    p[i].position = p[i].position + v[i] * dt + wind
    p[i].count += vk.u8(1)
    if one.flag:
        p[i].inner.weight += one.weight


@vk.kernel(over="p")
def forgets_its_tail(p: vk.InOut[Particle, "N"], v: vk.In[V3, "N"]):
    i = vk.global_id(0)
    if i < 2 or i + 1 < p.shape[0]:
        p[i].position = p[i].position + v[i]


@vk.kernel(over="v")
def made(v: vk.In[V3, "N"], q: vk.Out[Inner, "N"]):
    i = vk.global_id(0)
    q[i].weight = vk.f64(v[i].x)
    if v[i].y <= 0.0:
        q[i].flag = v[i].y < 0.0


@vk.kernel(groups=lambda p: vk.cdiv(p.shape[0], 32), local=32)
def heavy(p: vk.In[Inner, "N"], count: vk.InOut[vk.u32, "1"], kept: vk.Out[Inner, "N"]):
    i = vk.global_id(0)
    if i < p.shape[0]:
        if p[i].weight > 0.0:
            kept[vk.atomic.add(count, 0, 1)] = p[i]


@vk.kernel(over="y")
def scaled(x: vk.In[vk.vec(T, 2), "N"], y: vk.Out[vk.vec(T, 2), "N"], by: vk.vec(T, 2)):
    y[vk.global_id(0)] = x[vk.global_id(0)] * by


def stepped(p: Any, v: Any, dt: Any, wind: Any, one: Any) -> Any:
    made = p.copy()
    made["position"] += v * dt + wind
    made["count"] += np.uint8(1)
    if one["flag"]:
        made["inner"]["weight"] += one["weight"]
    return made


def moved(p: Any, v: Any) -> dict[str, Any]:
    return {"p.position": p["position"] + v}


def test_structs_and_vectors_are_drawn(device: Any) -> None:
    types = device.caps.dtypes
    if not {"f64", "i16", "u8"} <= set(types):
        pytest.skip(f"{device.name} has no f64, i16 or u8")
    result = vk.testing.check_kernel(step, stepped, devices=["interpreter", device], **SETTINGS)
    assert result.examples == 12


def test_vectors_of_a_type_variable(device: Any) -> None:
    vk.testing.check_kernel(
        scaled, lambda x, by: x * by, devices=["interpreter", device], dtypes=[vk.f32, vk.i32], **SETTINGS
    )


def test_a_mistake_in_one_field_is_found_and_made_small(tmp_path: Path) -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(forgets_its_tail, moved, devices="interpreter", seed=5)
    failure = caught.value
    assert failure.array == "p.position" and failure.dims == {"N": 3}
    given = failure.arguments["p"]
    assert given.shape == (3,) and given.dtype.names == Particle.fields
    assert failure.write is not None or failure.origin.stores
    path = failure.write_script(tmp_path / "failure.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr, done.stderr


def test_a_kernel_inside_a_function_takes_its_structs_into_the_script(tmp_path: Path) -> None:
    @vk.struct
    class Sample(vk.Struct):
        place: V3
        size: vk.f32
        inner: Inner

    @vk.kernel(over="s")
    def placed(s: vk.InOut[Sample, "N"], v: vk.In[V3, "N"]):
        i = vk.global_id(0)
        s[i].place = s[i].place + v[i] + 1.0

    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(placed, lambda s, v: {"s.place": s["place"] + v}, devices="interpreter", seed=5)
    path = caught.value.write_script(tmp_path / "failure.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "AssertionError" in done.stderr, done.stderr


def test_a_field_that_nobody_writes_is_found() -> None:
    with pytest.raises(vk.testing.CheckFailure) as caught:
        vk.testing.check_kernel(made, devices="interpreter", seed=5)
    assert caught.value.kind == "unwritten" and caught.value.array == "q.flag" and caught.value.dims == {"N": 1}


def test_rows_of_structs_in_any_order() -> None:
    def reference(p: Any, count: Any) -> dict[str, Any]:
        return {"count": count + (p["weight"] > 0).sum(), "kept": p[p["weight"] > 0]}

    vk.testing.check_kernel(
        heavy, reference, devices="interpreter", unordered={"kept": "count"}, elements={"count": 0}, **SETTINGS
    )


def test_what_may_be_said_of_fields() -> None:
    seen = []

    def light(p: Any, v: Any) -> bool:
        seen.append((p.dtype.names, v.shape[-1]))
        return bool((p["mass"] >= 1).all() and (p["inner"]["weight"] == 2).all())

    vk.testing.check_kernel(
        forgets_its_tail, devices="interpreter", where=light, dims={"N": (0, 2)},
        elements={"p.mass": (1, 5), "p.inner.weight": 2.0, "v": (0, 1)}, **SETTINGS,
    )  # fmt: skip
    assert seen and set(seen) == {(Particle.fields, 3)}


def test_a_field_without_a_type_is_refused() -> None:
    @vk.kernel(over="y")
    def values(p: Anything, y: vk.Out[vk.f32, "N"]):
        y[vk.global_id(0)] = vk.f32(p.value)

    with pytest.raises(vk.FeatureError, match=r"Anything\.value takes values of any type"):
        vk.testing.check_kernel(values, devices="interpreter")


@settings(max_examples=10, deadline=None)
@given(vk.testing.strategies(step, dims={"N": (0, 5)}, devices=["interpreter"]))
def test_arguments_of_ones_own_tests(arguments: Any) -> None:
    assert arguments["p"].dtype == vk.struct_dtype(Particle) and arguments["v"].shape == (len(arguments["p"]), 3)
    before = arguments["p"]["count"].copy()
    with vk.use_device("interpreter"):
        step(**arguments)
    assert (arguments["p"]["count"] == before + np.uint8(1)).all()


def test_a_launch_takes_whole_structs_and_parts() -> None:
    p = np.zeros(2, vk.struct_dtype(Particle))
    v = np.ones((2, 3), np.float32)
    found = vk.testing.run(forgets_its_tail, {"p": p, "v": v}, device="interpreter")
    assert found["p.position"].tolist() == [[1, 1, 1]] * 2
    np.testing.assert_array_equal(found["p"]["position"], found["p.position"])
