# mypy: disable-error-code="arg-type, assignment, attr-defined, call-arg, index, misc, no-untyped-call, no-untyped-def, valid-type"
"""Structs and vectors in memory and as arguments, on every executor."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError, CompileError, DTypeError, ShapeError

T = TypeVar("T", bound=vk.Element)
V2, V3 = vk.vec(vk.f32, 2), vk.vec(vk.f32, 3)


@vk.struct
class Inner(vk.Struct):
    flag: vk.boolean
    weight: vk.f64


@vk.struct
class Particle(vk.Struct):
    position: V3
    mass: vk.f32
    alive: vk.boolean
    inner: Inner
    table: vk.Array[vk.i16, "2 3"]
    count: vk.u8 = 7

    def momentum(self, factor):
        return self.mass * factor


DTYPE: Any = vk.struct_dtype(Particle)


def particles(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    array = np.zeros(count, DTYPE)
    array["position"] = rng.integers(-9, 9, (count, 3))
    array["mass"] = rng.integers(1, 9, count)
    array["alive"] = rng.integers(0, 2, count)
    array["inner"]["weight"] = rng.random(count)
    array["inner"]["flag"] = rng.integers(0, 2, count)
    array["table"] = rng.integers(-99, 99, (count, 2, 3))
    return array


def test_layout_is_that_of_numpy() -> None:
    inner = np.dtype([("flag", np.bool_), ("weight", np.float64)], align=True)
    fields = [("position", np.float32, (3,)), ("mass", np.float32), ("alive", np.bool_), ("inner", inner),
              ("table", np.int16, (2, 3)), ("count", np.uint8)]  # fmt: skip
    assert np.dtype(fields, align=True) == DTYPE
    assert DTYPE.itemsize % 8 == 0


@vk.kernel(over="p")
def step(p: vk.InOut[Particle, "N"], out: vk.Out[vk.f64, "N 6"], dt: vk.f32):
    i = vk.global_id(0)
    p[i].position.x += dt
    p[i].position[1] = p[i].mass
    p[i].position.zx = p[i].position.xz
    p[i].alive = not p[i].alive
    p[i].inner.weight *= 2
    p[i].table[1, 2] = p[i].table[0, 0] + vk.i16(1)
    k = vk.i32(p[i].count) + 2
    p[i].table[0, k % 3] -= vk.i16(5)
    q = p[i]
    q.mass = 100.0
    q.position.y = 5.0
    out[i, 0] = q.mass
    out[i, 1] = p[i].mass
    out[i, 2] = p[i].momentum(3)
    out[i, 3] = q.position.y
    out[i, 4] = q.table[1, 2]
    out[i, 5] = 1.0 if p[i].inner.flag else 0.0
    p[i].count += vk.u8(250)


def test_fields_are_read_and_written(device: Any) -> None:
    p = particles(19)
    before = p.copy()
    out = np.zeros((19, 6))
    step(p, out, 0.5)
    position = before["position"].copy()
    position[:, 0] += 0.5
    position[:, 1] = before["mass"]
    position[:, [0, 2]] = position[:, [2, 0]]
    assert np.array_equal(p["position"], position)
    assert np.array_equal(p["alive"], ~before["alive"])
    assert np.array_equal(p["inner"]["weight"], before["inner"]["weight"] * 2)
    assert np.array_equal(p["inner"]["flag"], before["inner"]["flag"])
    table = before["table"].copy()
    table[:, 1, 2] = table[:, 0, 0] + 1
    table[:, 0, (7 * 0 + 0 + 2) % 3] -= 5
    assert np.array_equal(p["table"], table)
    assert np.array_equal(p["mass"], before["mass"])
    assert np.array_equal(p["count"], (before["count"].astype(int) + 250).astype(np.uint8))
    assert np.array_equal(out[:, 0], np.full(19, 100))
    assert np.array_equal(out[:, 1], before["mass"])
    assert np.array_equal(out[:, 2], before["mass"] * 3)
    assert np.array_equal(out[:, 3], np.full(19, 5))
    assert np.array_equal(out[:, 4], table[:, 1, 2])
    assert np.array_equal(out[:, 5], before["inner"]["flag"])


@vk.kernel(over="p")
def made(p: vk.Out[Particle, "N"], x: vk.In[vk.f32, "N"], scale: V2, base: Inner):
    i = vk.global_id(0)
    p[i] = Particle(V3(x[i], scale.x, scale.y), 2.0, True, base, ((1, 2, 3), (4, 5, 6)))


def test_whole_elements_values_and_outs_left_out(device: Any) -> None:
    p = made(np.arange(4, dtype=np.float32), (10, 20), Inner(True, 0.25))
    assert p.dtype == DTYPE
    assert p["position"].tolist() == [[i, 10, 20] for i in range(4)]
    assert p["mass"].tolist() == [2] * 4
    assert p["alive"].all() and p["inner"]["flag"].all()
    assert p["inner"]["weight"].tolist() == [0.25] * 4
    assert p["table"].tolist() == [[[1, 2, 3], [4, 5, 6]]] * 4
    assert p["count"].tolist() == [7] * 4


@vk.kernel(over="b")
def moved(a: vk.In[Particle, "M N"], b: vk.InOut[Particle, "M N"]):
    i, j = vk.index()
    b[i, j] = a[-1, j] if a[i, j].alive else a.get(i + 1, j, pad=0)


@vk.kernel(over="y")
def padded(p: vk.In[vk.vec(vk.f32, 2), "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = p.get(i + 1, pad=y.shape[0] * 0.5).y


def test_a_pad_can_be_a_number_of_run_time(device: Any) -> None:
    assert padded(np.array([[1, 2], [3, 4], [5, 6]], np.float32)).tolist() == [4, 6, 1.5]


def test_elements_are_copied_and_chosen(device: Any) -> None:
    a = particles(12).reshape(3, 4)
    b = particles(24, 1).reshape(3, 8)[:, ::2]
    moved(a, b)
    following = np.concatenate([a[1:], np.zeros((1, 4), DTYPE)])
    expected = np.where(a["alive"], np.broadcast_to(a[-1], a.shape), following)
    for name in DTYPE.names or ():
        assert np.array_equal(b[name], expected[name]), name


@vk.kernel(over="p")
def swapped(p: vk.InOut[Inner, "N"], q: vk.InOut[Inner, "N"]):
    i = vk.global_id(0)
    t = p[i]
    p[i] = q[i]
    q[i] = t


def test_arrays_that_overlap(device: Any) -> None:
    whole = np.zeros(6, vk.struct_dtype(Inner))
    whole["weight"] = np.arange(6)
    swapped(whole[:3], whole[3:])
    assert whole["weight"].tolist() == [3, 4, 5, 0, 1, 2]
    swapped(whole, whole)
    assert whole["weight"].tolist() == [3, 4, 5, 0, 1, 2]


@vk.func
def energy(p: vk.In[Particle, "N"], i, gravity: V3):
    return p[i].mass * vk.dot(p[i].position, gravity)


@vk.kernel(over="y")
def energies(p: vk.In[Particle, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = energy(p, i, V3(0, 1, 0)) + len(p) + p.shape[0] + p.size + p.mass[i]


def test_arrays_of_structs_in_device_functions(device: Any) -> None:
    p = particles(5)
    assert np.array_equal(energies(p), p["mass"] * p["position"][:, 1] + 15 + p["mass"])


@vk.kernel(groups=1, local=8)
def reversed_by_workgroup(p: vk.InOut[Particle, "N"], total: vk.InOut[vk.f32, "_"]):
    s = vk.shared(Particle, 8)
    mine = vk.local(Inner, 2)
    i = vk.local_id(0)
    s[i] = p[i]
    mine[1] = p[i].inner
    mine[0].weight = 1.0
    vk.barrier()
    p[i] = s[7 - i]
    p[i].inner = mine[1]
    p[i].inner.weight += mine[0].weight
    vk.atomic.add(total, 0, s[i].mass)
    vk.atomic.max(p.mass, 0, 1000.0)


def test_structs_in_shared_and_local_memory(device: Any) -> None:
    p = particles(8)
    before, total = p.copy(), np.zeros(1, np.float32)
    reversed_by_workgroup(p, total)
    assert np.array_equal(p["position"], before["position"][::-1])
    assert np.array_equal(p["table"], before["table"][::-1])
    assert np.array_equal(p["inner"]["weight"], before["inner"]["weight"] + 1)
    assert total[0] == before["mass"].sum()
    assert p["mass"][0] == 1000


@vk.struct
class Pair(vk.Struct):
    first: T
    second: T


@vk.kernel(over="y")
def sums(p: vk.In[Pair, "N"], q: Pair, y: vk.Out[vk.f64, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f64(p[i].first) + vk.f64(p[i].second) + vk.f64(q.second)


def test_generic_structs_take_the_types_of_the_array(device: Any) -> None:
    for dtype in (np.int32, np.float64, np.int8):
        p = np.zeros(3, np.dtype([("first", dtype), ("second", dtype)], align=True))
        p["first"], p["second"] = [1, 2, 3], [10, 20, 30]
        assert sums(p, (1, 5)).tolist() == [16, 27, 38]


@vk.kernel(over="v")
def normalized(v: vk.InOut[vk.Vec[vk.f32, 3], "N"], length: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    length[i] = vk.sqrt(vk.dot(v[i], v[i]))
    v[i] /= length[i]
    v[i].xy = v[i].yx
    for k in range(3):
        v[i][k] *= 2


def test_arrays_of_vectors_have_one_axis_more(device: Any) -> None:
    v = np.array([[3, 4, 0], [0, 0, 2]], np.float32)
    assert normalized(v).tolist() == [5, 2]
    np.testing.assert_allclose(v, np.array([[1.6, 1.2, 0], [0, 0, 2]], np.float32))
    with pytest.raises(ShapeError, match="last axis of 3"):
        normalized(np.zeros((3, 2), np.float32))


@vk.func
def longest(a: vk.Vec[T, 2], b: vk.Vec[T, 2]):
    return a if vk.dot(a, a) > vk.dot(b, b) else b


@vk.func
def first_of(v: vk.In[vk.Vec[T, 2], "N"]):
    return vk.vec(T, 2)(v[0]) * T(2)


@vk.kernel(over="v")
def generic(v: vk.InOut[vk.Vec[T, 2], "N"], by: vk.Vec[T, 2], scale: T):
    i = vk.global_id(0)
    if i > 0:
        v[i] = longest(v[i] * scale, by) + first_of(v)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int8])
def test_vectors_of_type_variables(device: Any, dtype: Any) -> None:
    v = np.array([[1, 2], [3, 4], [0, 1]], dtype)
    generic(v, (1, 5), 2)
    assert v.tolist() == [[1, 2], [8, 12], [3, 9]]
    with pytest.raises(vk.ArgumentError, match=r"v: InOut\[vk\.vec\(T, 2\), \"N\"\], by: vk\.vec\(T, 2\), scale: T"):
        generic(v)


@vk.kernel(over="y")
def lanes(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    v = vk.vec(vk.f32, 4)(x[i], 2, 3, 4)
    w = v
    for _ in range(3):
        v.x += 1
        v[2] = v.y
        v.wy = v.yw
        if x[i] > 1:
            w.xyz = V3(1)
    y[i] = v.x + 10 * v.y + 100 * v.z + 1000 * v.w + w.x + w.w


def test_lanes_in_registers_are_assigned(device: Any) -> None:
    v = [[x, 2.0, 3.0, 4.0] for x in (1.0, 2.0)]
    for one in v:
        for _ in range(3):
            one[0] += 1
            one[2] = one[1]
            one[3], one[1] = one[1], one[3]
    expected = [sum(a * b for a, b in zip(one, (1, 10, 100, 1000), strict=True)) + 1 + 4 for one in v]
    assert lanes(np.array([1, 2], np.float32)).tolist() == expected


@vk.kernel(groups=1, local=1)
def indexed_once(p: vk.InOut[Inner, "N"], v: vk.InOut[vk.Vec[vk.f32, 2], "N"], count: vk.InOut[vk.i32, "_"]):
    p[vk.atomic.add(count, 0, 1)].weight += 10
    v[vk.atomic.add(count, 0, 1)].y += 5
    v[vk.atomic.add(count, 0, 1)].yx = V2(7, 8)
    held = vk.local(V2, 5)
    held[vk.atomic.add(count, 0, 1)].x = 4.0
    v[vk.atomic.add(count, 0, 1)][0] = held[3].x


def test_indices_of_targets_are_evaluated_once(device: Any) -> None:
    p, v, count = np.zeros(5, vk.struct_dtype(Inner)), np.zeros((5, 2), np.float32), np.zeros(1, np.int32)
    indexed_once(p, v, count)
    assert p["weight"].tolist() == [10, 0, 0, 0, 0]
    assert v.tolist() == [[0, 0], [0, 5], [8, 7], [0, 0], [4, 0]]
    assert count[0] == 5


@vk.struct
class Matrix(vk.Struct):
    m: vk.Array[vk.f32, "2 2"]


@vk.func
def product(a, b):
    return Matrix(tuple_of_rows(a, b))


@vk.func
def tuple_of_rows(a, b):
    return (row(a, b, 0), row(a, b, 1))


@vk.func
def row(a, b, i: vk.Const[int]):
    return (a.m[i, 0] * b.m[0, 0] + a.m[i, 1] * b.m[1, 0], a.m[i, 0] * b.m[0, 1] + a.m[i, 1] * b.m[1, 1])


@vk.kernel(over="c")
def products(a: vk.In[Matrix, "N"], b: vk.In[Matrix, "N"], c: vk.Out[Matrix, "N"]):
    i = vk.global_id(0)
    result = a[i]
    for _ in range(2):
        result = product(result, b[i])
    c[i] = result


def test_arrays_in_structs_pass_through_functions_and_loops(device: Any) -> None:
    a, b = (np.zeros(3, vk.struct_dtype(Matrix)) for _ in range(2))
    a["m"], b["m"] = np.random.default_rng(1).integers(-5, 5, (2, 3, 2, 2))
    assert np.array_equal(products(a, b)["m"], a["m"] @ b["m"] @ b["m"])


@vk.kernel(over="p")
def stepped(p: vk.InOut[Inner, "*N"]):
    i = vk.index()
    p[i].weight += 1
    p[i].flag = True


VIEWS = {
    "reversed": lambda a: a[::-1],
    "every second": lambda a: a[::2],
    "matrix": lambda a: a.reshape(2, 3),
    "transposed": lambda a: a.reshape(2, 3).T,
    "empty": lambda a: a[:0],
    "both": lambda a: a.reshape(1, 6)[:, ::-2],
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_structured_arrays(device: Any, view: str) -> None:
    a = np.zeros(6, vk.struct_dtype(Inner))
    expected = a.copy()
    VIEWS[view](expected)["weight"] += 1
    VIEWS[view](expected)["flag"] = True
    stepped(VIEWS[view](a))
    assert np.array_equal(a["weight"], expected["weight"])
    assert np.array_equal(a["flag"], expected["flag"])


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(DTypeError, match=r"argument p of step\(\) is an array of float32, expected a structured"):
        step(np.zeros(3, np.float32), np.zeros((3, 6)), 0.5)
    with pytest.raises(DTypeError, match="expected those of Particle: position, mass"):
        step(np.zeros(3, [("x", np.float32)]), np.zeros((3, 6)), 0.5)
    wrong = np.dtype([(n, np.float64 if n == "mass" else DTYPE.fields[n][0]) for n in DTYPE.names], align=True)
    with pytest.raises(DTypeError, match="its field mass is float64, expected float32"):
        step(np.zeros(3, wrong), np.zeros((3, 6)), 0.5)
    packed = np.dtype([(n, DTYPE.fields[n][0]) for n in DTYPE.names])
    with pytest.raises(DTypeError, match=r"vk\.struct_dtype\(Particle\)"):
        step(np.zeros(3, packed), np.zeros((3, 6)), 0.5)
    with pytest.raises(ShapeError, match="argument p"):
        step(np.zeros(3, DTYPE), np.zeros((4, 6)), 0.5)
    with pytest.raises(DTypeError, match="out of range|float32|f32"):
        made(np.zeros(1, np.float32), (1e300, 1), Inner(True, 1.0))
    with pytest.raises(ArgumentError, match="expected a Inner"):
        made(np.zeros(1, np.float32), (1, 1), 3)
    with pytest.raises(ArgumentError, match="misses the field 'weight'"):
        Inner(True)


def test_what_can_not_be_assigned() -> None:
    @vk.kernel(over="p")
    def read_only(p: vk.In[Inner, "N"]):
        p[vk.global_id(0)].weight = 1.0

    @vk.kernel(over="p")
    def unknown(p: vk.InOut[Inner, "N"]):
        p[vk.global_id(0)].wait = 1.0

    @vk.kernel(over="p")
    def other(p: vk.InOut[Inner, "N"]):
        p[vk.global_id(0)] = 1.0

    @vk.kernel(groups=1, local=4)
    def shared_lane(p: vk.InOut[Inner, "N"]):
        s = vk.shared(V2, 4)
        s[vk.local_id(0)].x = 1.0

    @vk.kernel(over="p")
    def twice(p: vk.InOut[Inner, "N"]):
        v = V2(1)
        v.xx = V2(2)

    p = np.zeros(2, vk.struct_dtype(Inner))
    for kernel, message in (
        (read_only, "is an input"), (unknown, "Inner has no wait"), (other, "an element is Inner"),
        (shared_lane, "can't be written alone"), (twice, "names a lane twice"),
    ):  # fmt: skip
        with pytest.raises(CompileError, match=message):
            kernel(p)


@vk.kernel(over="y", debug=True)
def out_of_bounds(p: vk.In[Inner, "N"], y: vk.Out[vk.f64, "M"]):
    i = vk.global_id(0)
    y[i] = p[i + 1].weight


def test_bounds_of_arrays_of_structs(device: Any) -> None:
    with pytest.raises(vk.BoundsError, match="out_of_bounds"):
        out_of_bounds(np.zeros(3, vk.struct_dtype(Inner)), np.zeros(3))
