"""Tests of arrays: any strides, every element type, linear views, shared and local memory, bounds, poison."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.interp.kernels import carried, kernel, one_op, run, samples, storage_of
from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from vkjit.ir import F32, Array, Builder, Function, Module, Region, Vector
from vkjit.ir.ops import op_name

COPY_2D = """%j = global_id {dim = 0} : index
    %i = global_id {dim = 1} : index
    %v = load %x, %i, %j : f32
    store %y, %i, %j, %v
    return"""


def copy_2d(x: np.ndarray, y: np.ndarray) -> None:
    """Run `y[...] = x[...]` on the interpreter."""
    module = kernel("%x: array<f32, 2, in>, %y: array<f32, 2, out>", COPY_2D, (x.shape[1], x.shape[0], 1))
    run(module, 1, x, y)


BASE = np.arange(400, dtype=np.float32).reshape(20, 20)
VIEWS = {
    "transposed": BASE[:6, :8].T,
    "reversed": BASE[5::-1, 7::-1],
    "one axis reversed": BASE[2:8, 19:3:-2],
    "stepped": BASE[1:13:2, ::5],
    "broadcast": np.broadcast_to(BASE[3, :7], (5, 7)),
    "one element": np.broadcast_to(BASE[3:4, 4:5], (4, 4)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_reads_any_strides(name: str) -> None:
    x = VIEWS[name]
    y = np.zeros(x.shape, np.float32)
    copy_2d(x, y)
    np.testing.assert_array_equal(y, x)


@pytest.mark.parametrize("name", ["transposed", "reversed", "one axis reversed", "stepped"])
def test_writes_any_strides_and_nothing_else(name: str) -> None:
    memory = np.full((20, 20), -1, np.float32)
    offset = (VIEWS[name].__array_interface__["data"][0] - BASE.__array_interface__["data"][0]) // 4
    target = np.lib.stride_tricks.as_strided(memory.reshape(-1)[offset:], VIEWS[name].shape, VIEWS[name].strides)
    x = np.arange(target.size, dtype=np.float32).reshape(target.shape)
    copy_2d(x, target)
    np.testing.assert_array_equal(target, x)
    assert np.count_nonzero(memory == -1) == 400 - target.size


def test_overlapping_arguments_are_one_memory() -> None:
    memory = np.arange(65, dtype=np.float32)
    module = kernel(
        "%x: array<f32, 1, in>, %y: array<f32, 1, out>",
        """%i = global_id {dim = 0} : index
        %v = load %x, %i : f32
        %two = const 2.0 : f32
        %w = mul %v, %two : f32
        store %y, %i, %w
        return""",
    )
    run(module, 1, memory[:64], memory[:64])
    np.testing.assert_array_equal(memory, np.append(np.arange(64) * 2, 64))


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("space", ["shared", "local"])
def test_every_element_type_through_every_space(dtype: DType, space: str) -> None:
    name = dtype.name
    module = kernel(
        f"%x: array<{name}, 1, in>, %y: array<{name}, 1, out>",
        f"""%i = global_id {{dim = 0}} : index
        %l = local_id {{dim = 0}} : index
        %c2 = const 2 : index
        %m = {space} : {space}<{name}, 64>
        %v = load %x, %i : {name}
        store %m, %l, %v
        barrier
        %w = load %m, %l : {name}
        store %y, %i, %w
        return""",
    )
    x = storage_of(samples(dtype, 192), dtype)
    y = np.zeros(192, dtype=dtype.storage)
    run(module, 3, x, y)
    assert y.tobytes() == x.tobytes()


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize("uniform", [True, False])
def test_vectors_in_shared_and_local_memory(space: str, uniform: bool) -> None:
    module = kernel(
        "%x: array<vec<f32, 3>, 1, in>, %y: array<vec<f32, 3>, 1, out>, %k: index",
        f"""%i = global_id {{dim = 0}} : index
        %l = local_id {{dim = 0}} : index
        %m = {space} : {space}<vec<f32, 3>, 64>
        %v = load %x, %i : vec<f32, 3>
        %zero = const 0 : index
        %at = {"add %k, %zero" if uniform else "add %l, %k"} : index
        store %m, %at, %v
        barrier
        %w = load %m, %at : vec<f32, 3>
        store %y, %i, %w
        return""",
    )
    x = samples(dtypes.f32, 128 * 3).reshape(128, 3)
    y = np.zeros_like(x)
    run(module, 2, x, y, 0)
    if uniform and space == "shared":
        wanted = np.repeat(x[[63, 127]], 64, axis=0)  # the last invocation's write wins
    else:
        wanted = x
    np.testing.assert_array_equal(y, wanted)


def test_reduction_in_shared_memory() -> None:
    module = kernel(
        "%x: array<f32, 1, in>, %y: array<f32, 1, out>",
        """%i = global_id {dim = 0} : index
        %l = local_id {dim = 0} : index
        %g = group_id {dim = 0} : index
        %s = shared : shared<f32, 64>
        %v = load %x, %i : f32
        store %s, %l, %v
        barrier
        %c32 = const 32 : index
        %c0 = const 0 : index
        %c2 = const 2 : index
        loop %c32 (%d: index) {
          %end = eq %d, %c0 : bool
          if %end {
            break
          } else {
            yield
          }
          %low = lt %l, %d : bool
          if %low {
            %o = add %l, %d : index
            %a = load %s, %l : f32
            %b = load %s, %o : f32
            %t = add %a, %b : f32
            store %s, %l, %t
            yield
          } else {
            yield
          }
          barrier
          %h = floordiv %d, %c2 : index
          continue %h
        }
        %first = eq %l, %c0 : bool
        if %first {
          %r = load %s, %c0 : f32
          store %y, %g, %r
          yield
        } else {
          yield
        }
        return""",
    )
    x = samples(dtypes.i16, 640).astype(np.float32)
    wanted = x.reshape(10, 64).copy()
    for d in (32, 16, 8, 4, 2, 1):
        wanted[:, :d] += wanted[:, d : 2 * d]
    for options in ({}, {"lanes_per_batch": 64}, {"lanes_per_batch": 200}, {"order": "reverse"}, {"order": 5}):
        y = np.zeros(10, np.float32)
        run(module, 10, x, y, **options)
        np.testing.assert_array_equal(y, wanted[:, 0])


def test_linear_views_reinterpret() -> None:
    module = kernel(
        "%x: array<f32, 2, in>, %y: array<u32, 1, out>, %z: array<f32, 1, out>",
        """%i = global_id {dim = 0} : index
        %l = local_id {dim = 0} : index
        %xl = linear %x : array<u32, 1, in, linear>
        %off = cast %i : i32
        %v = load %xl, %off : u32
        store %y, %i, %v
        %s = shared : shared<u32, 8x8>
        %sl = linear %s : shared<f32, 64, linear>
        %f = bitcast %v : f32
        store %sl, %l, %f
        %p = local : local<u32, 4>
        %pl = linear %p : local<f32, 4, linear>
        %c1 = const 1 : index
        store %pl, %c1, %f
        barrier
        %eight = const 8 : index
        %row = floordiv %l, %eight : index
        %col = floormod %l, %eight : index
        %a = load %s, %row, %col : u32
        %b = load %p, %c1 : u32
        %same = eq %a, %b : bool
        %fa = bitcast %a : f32
        %bad = const -1.0 : f32
        %r = select %same, %fa, %bad : f32
        store %z, %i, %r
        return""",
    )
    x = np.abs(samples(dtypes.f32, 64)).reshape(8, 8)
    y, z = np.zeros(64, np.uint32), np.zeros(64, np.float32)
    run(module, 1, x, y, z)
    np.testing.assert_array_equal(y, x.view(np.uint32).reshape(-1))
    np.testing.assert_array_equal(z, x.reshape(-1))


@pytest.mark.parametrize("space", ["global", "shared", "local"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_linear_views_as_vectors(space: str, size: int) -> None:
    """A linear view shows an array of scalars as vectors from its first element, as vectorizing passes need it."""
    count = 4 * size
    body = Region([Array(F32, 1, linear=True), Array(F32, 1, linear=True)], ["x", "y"])
    builder = Builder(body)
    x, y = body.args
    vector, scalars = Vector(F32.dtype, size), Array(F32, 1, space=space, shape=(count,))
    source = x
    if space != "global":
        source = builder.emit(op_name(space), type=scalars)
        for k in range(count):
            builder.op("store", source, builder.index(k), builder.emit("load", x, builder.index(k)))
    wide = Array(vector, 1, space=space, shape=None if space == "global" else (4,), linear=True)
    view = builder.emit("linear", source, type=wide)
    out = builder.emit("linear", y, type=Array(vector, 1, linear=True))
    for k in range(4):
        builder.op("store", out, builder.index(k), builder.emit("load", view, builder.index(3 - k)))
    builder.op("return")
    module = Module(Function("k", body, attrs={"local_size": (1, 1, 1)}))
    memory, result = np.arange(count + 1, dtype=np.float32), np.zeros(count + 1, np.float32)
    run(module, 1, memory[1:], result[1:])
    wanted = memory[1:].reshape(4, size)[::-1].reshape(-1)
    np.testing.assert_array_equal(result[1:], wanted)


def test_a_linear_view_starts_at_the_first_element_and_reaches_back() -> None:
    module = kernel(
        "%x: array<i32, 1, in>, %y: array<i32, 1, out>",
        """%i = global_id {dim = 0} : index
        %s = stride %x {axis = 0} : index
        %n = extent %x {axis = 0} : index
        %o = mul %i, %s : index
        %xl = linear %x : array<i32, 1, in, linear>
        %in = lt %i, %n : bool
        if %in {
          %v = load %xl, %o : i32
          store %y, %i, %v
          yield
        } else {
          yield
        }
        return""",
    )
    x = np.arange(100, dtype=np.int32)[80:20:-1]
    y = np.zeros(60, np.int32)
    run(module, 1, x, y)
    np.testing.assert_array_equal(y, x)


LOAD_AT = """%i = global_id {dim = 0} : index
    %at = load %where, %i : i64
    %k = cast %at : index
    %v = load %x, %k : f32 loc("user.py", 7, 4, 8)
    store %y, %i, %v
    return"""


@pytest.mark.parametrize("bad", [10, -1, 2**62, -(2**63)])
@pytest.mark.parametrize("linear", [False, True])
def test_an_index_outside_names_place_and_invocation(bad: int, linear: bool) -> None:
    flags = ", linear" if linear else ""
    module = kernel(f"%x: array<f32, 1, in{flags}>, %where: array<i64, 1, in>, %y: array<f32, 1, out>", LOAD_AT)
    where = np.arange(128) % 10
    where[[70, 100]] = bad
    with pytest.raises(BoundsError) as caught:
        run(module, 2, np.zeros(10, np.float32), where, np.zeros(128, np.float32))
    error = caught.value
    assert (error.invocation, error.kernel, error.loc.line) == ((70, 0, 0), "k", 7)
    assert f"{bad} is outside x" in str(error)
    assert isinstance(error, IndexError)


def test_stores_outside_are_refused_and_nothing_is_written() -> None:
    module = kernel(
        "%y: array<f32, 2, out>",
        """%i = global_id {dim = 0} : index
        %c0 = const 0 : index
        %v = const 1.0 : f32
        store %y, %c0, %i, %v
        return""",
    )
    memory = np.zeros((4, 64), np.float32)
    with pytest.raises(BoundsError, match=r"index \(0, 63\) is outside y, shape \(4, 63\) \(axis 1\)"):
        run(module, 1, memory[:, :63])
    assert not memory.any()


def test_inactive_invocations_may_be_anywhere() -> None:
    module = kernel(
        "%x: array<f32, 1, in>, %y: array<f32, 1, out>",
        """%i = global_id {dim = 0} : index
        %n = extent %x {axis = 0} : index
        %c = lt %i, %n : bool
        %big = const 1000000 : index
        %far = mul %i, %big : index
        %at = select %c, %i, %far : index
        if %c {
          %v = load %x, %at : f32
          store %y, %at, %v
          yield
        } else {
          yield
        }
        return""",
    )
    x = samples(dtypes.f32)[:37]
    y = np.zeros(37, np.float32)
    run(module, 2, x, y)
    np.testing.assert_array_equal(y, x)
    run(module, 2, x[:0], y[:0])


@pytest.mark.parametrize("dtype", dtypes.ALL)
@pytest.mark.parametrize("space", ["shared", "local"])
def test_fresh_memory_is_poison(dtype: DType, space: str) -> None:
    module = kernel(
        f"%y: array<{dtype.name}, 1, out>",
        f"""%i = global_id {{dim = 0}} : index
        %m = {space} : {space}<{dtype.name}, 64>
        %v = load %m, %i : {dtype.name}
        store %y, %i, %v
        return""",
    )
    y = np.zeros(64, dtype=dtype.storage)
    run(module, 1, y)
    if dtype.is_float:
        assert np.isnan(carried(y, dtype)).all()
    elif dtype is dtypes.boolean:
        assert y.all()
    else:
        assert set(y.tobytes()) == {0xAA}


def test_poison_values_are_the_same_pattern() -> None:
    for dtype in dtypes.ALL:
        module = kernel(
            f"%y: array<{dtype.name}, 1, out>",
            f"%i = global_id {{dim = 0}} : index\n%v = poison : {dtype.name}\nstore %y, %i, %v\nreturn",
        )
        y = np.zeros(64, dtype=dtype.storage)
        run(module, 1, y)
        assert np.isnan(carried(y, dtype)).all() if dtype.is_float else set(y.tobytes()) in ({0xAA}, {1})


def test_the_last_invocation_wins() -> None:
    module = kernel(
        "%y: array<i32, 1, out>",
        """%i = global_id {dim = 0} : index
        %c3 = const 3 : index
        %k = floormod %i, %c3 : index
        %v = cast %i : i32
        store %y, %k, %v
        return""",
    )
    y = np.zeros(3, np.int32)
    run(module, 2, y)
    assert y.tolist() == [126, 127, 125]
    run(module, 2, y, order="reverse")
    assert y.tolist() == [63, 61, 62]


def test_extents_and_strides() -> None:
    module = kernel(
        "%x: array<i16, 3, in>, %y: array<i64, 1, out>",
        "%i = global_id {dim = 0} : index\n"
        + "".join(
            f"%e{a} = {what} %x {{axis = {a % 3}}} : index\n%c{a} = const {a} : index\n"
            f"%w{a} = cast %e{a} : i64\nstore %y, %c{a}, %w{a}\n"
            for a, what in enumerate(["extent"] * 3 + ["stride"] * 3)
        )
        + "return",
    )
    y = np.zeros(6, np.int64)
    x = np.zeros((4, 6, 5), np.int16).transpose(2, 0, 1)[:, ::-1]
    run(module, 1, x, y)
    assert y.tolist() == [5, 4, 6, 1, -30, 5]


def test_rank_zero() -> None:
    module = kernel(
        "%y: array<f32, 0, inout>", "%v = load %y : f32\n%w = add %v, %v : f32\nstore %y, %w\nreturn", (1, 1, 1)
    )
    y = np.array(3.0, np.float32)
    run(module, 1, y)
    assert y == 6


def test_arguments_that_do_not_fit() -> None:
    module = kernel("%x: array<f32, 1, inout>, %a: f32", "return")
    good = np.zeros(4, np.float32)
    for error, args in [
        (DTypeError, (good.astype(np.float64), 1)),
        (ShapeError, (good.reshape(2, 2), 1)),
        (ArgumentError, (good,)),
        (ArgumentError, ([1.0], 1)),
        (ArgumentError, (good, good)),
        (ArgumentError, (np.zeros(4, [("a", np.float32), ("b", np.uint8)])["a"], 1)),
    ]:
        with pytest.raises(error):
            run(module, 1, *args)
    for options in ({"subgroup_size": 12}, {"order": "sideways"}):
        with pytest.raises(ArgumentError):
            run(module, 1, good, 1.0, **options)
    with pytest.raises(ArgumentError):
        run(module, (1, -1), good, 1.0)
    with pytest.raises(DTypeError):
        run(one_op("neg", [dtypes.bf16], dtypes.bf16), 1, np.zeros(64, np.float32), np.zeros(64, np.uint16))
