"""Kernel launches: binding, allocation, strides, overlap, grids, errors; the same on every executor."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import vkjit as vk
from vkjit.errors import ArgumentError
from vkjit.runtime.device import DeviceArray

T = TypeVar("T", bound=vk.Element)


@vk.kernel(over="y")
def scale(a: T, x: vk.In[T, "N"], y: vk.Out[T, "N"]):
    i = vk.global_id(0)
    y[i] = a * x[i]


@vk.kernel(over="out")
def add2d(x: vk.In[vk.f32, "R C"], y: vk.In[vk.f32, "R C"], out: vk.Out[vk.f32, "R C"]):
    r, c = vk.index()
    out[r, c] = x[r, c] + y[r, c]


@vk.kernel(over="x")
def increment(x: vk.InOut[T, "*S"], by: T):
    i = vk.index()
    x[i] = x[i] + by


@vk.kernel(groups=1, local=1)
def shift(x: vk.In[vk.i32, "N"], y: vk.InOut[vk.i32, "N"]):
    for i in range(x.shape[0]):
        y[i] = x[i] + 1


@vk.kernel(over="a")
def swap_halves(a: vk.InOut[vk.i32, "N"], b: vk.InOut[vk.i32, "N"]):
    i = vk.global_id(0)
    t = a[i]
    a[i] = b[i]
    b[i] = t


@vk.kernel(local=4)
def group_numbers(out: vk.InOut[vk.i32, "N"], total: vk.InOut[vk.i32, "1"]):
    out.put(vk.global_id(0), vk.group_id(0))
    if vk.global_id(0) == 0:
        total[0] = vk.num_groups(0)


@vk.kernel(over="out")
def split(x: vk.In[vk.f32, "N"], out: vk.Out[vk.f32, "N"], rest: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    out[i] = vk.floor(x[i])
    rest[i] = x[i] - vk.floor(x[i])


DTYPES = [np.float32, np.int32, np.uint32, np.float16, np.int8, np.uint8, np.int16, np.uint16, np.int64, np.uint64,
          np.float64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_left_out_output_is_allocated_in_the_type_of_the_input(device: Any, dtype: type) -> None:
    if vk.dtypes.from_numpy(dtype).name not in device.caps.dtypes:
        pytest.skip(f"{device.name} has no arithmetic for {dtype.__name__}")
    x: Any = np.arange(37).astype(dtype)
    y = scale(3, x)
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x * dtype(3))


def test_output_given_by_position_or_keyword(device: Any) -> None:
    x = np.arange(5, dtype=np.float32)
    y, z = np.zeros(5, np.float32), np.zeros(5, np.float32)
    assert scale(2.0, x, y) is None
    assert scale(2.0, x, y=z) is None
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(z, 2 * x)


def test_several_outputs_come_as_a_tuple_in_order(device: Any) -> None:
    x = np.array([1.25, -0.5, 3.0], np.float32)
    whole, rest = split(x)
    np.testing.assert_array_equal(whole, [1, -1, 3])
    np.testing.assert_array_equal(rest, [0.25, 0.5, 0])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (1, 7), (7, 1), (33, 65)])
def test_awkward_shapes(device: Any, shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(add2d(x, x), 2 * x)


def _views() -> list[tuple[str, Any]]:
    base = np.arange(96, dtype=np.float32).reshape(8, 12)
    return [
        ("transposed", base.T),
        ("every second row", base[::2]),
        ("every second column", base[:, ::2]),
        ("reversed", base[::-1, ::-1]),
        ("offset", base[3:, 5:]),
        ("column order", np.asfortranarray(base)),
        ("broadcast", np.broadcast_to(np.arange(12, dtype=np.float32), (8, 12))),
        ("stride not a multiple of the item", np.zeros((4, 6), [("a", "u1"), ("b", "f4")])["b"]),
    ]


@pytest.mark.parametrize(("name", "view"), _views(), ids=[name for name, _ in _views()])
def test_any_strides_as_input(device: Any, name: str, view: Any) -> None:
    np.testing.assert_array_equal(add2d(view, view), view + view)


@pytest.mark.parametrize(("name", "view"), _views()[:6], ids=[name for name, _ in _views()[:6]])
def test_any_strides_as_output_keep_their_surroundings(device: Any, name: str, view: Any) -> None:
    owner = np.full((8, 12), -1.0, np.float32)
    mine = {
        "transposed": owner.T, "every second row": owner[::2], "every second column": owner[:, ::2],
        "reversed": owner[::-1, ::-1], "offset": owner[3:, 5:], "column order": owner,
    }[name]  # fmt: skip
    increment(mine, 5.0)
    expected = np.full((8, 12), -1.0, np.float32)
    target = {
        "transposed": expected.T, "every second row": expected[::2], "every second column": expected[:, ::2],
        "reversed": expected[::-1, ::-1], "offset": expected[3:, 5:], "column order": expected,
    }[name]  # fmt: skip
    target += 5.0
    np.testing.assert_array_equal(owner, expected)


@pytest.mark.parametrize("rank", range(6))
def test_over_any_rank(device: Any, rank: int) -> None:
    if rank == 0:
        x: Any = np.array(3, np.int32)
    else:
        x = np.arange(np.prod(range(2, 2 + rank)), dtype=np.int32).reshape(tuple(range(2, 2 + rank)))
    expected = x + 7
    increment(x, 7)
    np.testing.assert_array_equal(x, expected)


def test_overlapping_input_and_output_see_each_other(device: Any) -> None:
    """A sequential kernel sees its own writes: element i + 1 is element i plus 1 only if the arrays share memory."""
    data = np.zeros(9, np.int32)
    shift(data[:-1], data[1:])
    np.testing.assert_array_equal(data, np.arange(9))


def test_arrays_that_interleave_without_sharing_bytes(device: Any) -> None:
    data = np.arange(10, dtype=np.int32)
    swap_halves(data[::2], data[1::2])
    np.testing.assert_array_equal(data, [1, 0, 3, 2, 5, 4, 7, 6, 9, 8])


def test_identical_views(device: Any) -> None:
    data = np.arange(6, dtype=np.int32)
    shift(data, data)
    np.testing.assert_array_equal(data, np.arange(1, 7))


def test_grid_in_brackets(device: Any) -> None:
    out, total = np.full(10, -1, np.int32), np.zeros(1, np.int32)
    group_numbers[3](out, total)
    np.testing.assert_array_equal(out, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    assert total[0] == 3


@vk.func
def row():
    return vk.group_id(1)


@vk.kernel(local=4)
def rows(out: vk.InOut[vk.i32, "R C"]):
    vk.atomic.add(out, (row(), vk.global_id(0)), 1)


@vk.kernel(local=4)
def columns(out: vk.InOut[vk.i32, "C"]):
    for i in vk.grid_stride(out.shape[0]):
        vk.atomic.add(out, i, 1)


@pytest.mark.parametrize("tensors", [False, True])
def test_a_grid_along_an_axis_that_the_kernel_does_not_read(device: Any, tensors: bool) -> None:
    """Such a grid would repeat the work; axes that are read in a device function count as read."""
    flat: Any = np.zeros(8, np.int32)
    table: Any = np.zeros((3, 8), np.int32)
    if tensors:
        flat, table = vk.tensor(flat, device=device), vk.tensor(table, device=device)
    rows[2, 3](table)
    for _ in range(2):
        columns[2](flat)
        columns[2, 1](flat)
        with pytest.raises(vk.ArgumentError, match=r"all 4 workgroups along axis 1 .*, as here; write columns\[2\]"):
            columns[2, 4](flat)
        with pytest.raises(vk.ArgumentError, match="along axis 2"):
            rows[2, 3, 2](table)
    device.synchronize()
    np.testing.assert_array_equal(np.asarray(flat.numpy() if tensors else flat), np.full(8, 4))
    np.testing.assert_array_equal(np.asarray(table.numpy() if tensors else table), np.ones((3, 8)))


def test_zero_workgroups_do_nothing(device: Any) -> None:
    out, total = np.full(4, -1, np.int32), np.zeros(1, np.int32)
    group_numbers[0](out, total)
    np.testing.assert_array_equal(out, [-1] * 4)


def test_grid_past_the_device_limit_is_cut(device: Any) -> None:
    limit = device.caps.max_groups[0]
    if limit > 100_000:
        pytest.skip(f"{device.name} takes {limit} workgroups: too many for a test")
    n = limit + 5
    out, total = np.zeros(4 * n, np.int32), np.zeros(1, np.int32)
    group_numbers[n](out, total)
    np.testing.assert_array_equal(out, np.repeat(np.arange(n), 4))
    assert total[0] == n


def test_array_past_the_grid_limit(device: Any) -> None:
    if device.caps.kind == "interpreter":
        pytest.skip("the interpreter's grids have no limit that a test could pass")
    n = device.caps.max_groups[0] * 128 + 17 if device.caps.max_groups[0] < 100_000 else 1 << 20
    x = np.zeros(n, np.int8)
    increment(x, 1)
    assert x.min() == 1 and x.max() == 1


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: scale(2.0), vk.ArgumentError, ["misses the argument 'x'", "x: In[T, \"N\"]"]),
        (lambda: scale(2.0, np.ones(3, np.float32), np.ones(3, np.float32), 1), vk.ArgumentError, ["3 positional", "4"]),
        (lambda: scale(2.0, np.ones(3, np.float32), z=1), vk.ArgumentError, ["no parameter 'z'"]),
        (lambda: scale(2.0, [1.0, 2.0]), vk.ArgumentError, ["argument x is a list", "np.asarray"]),
        (lambda: scale(2.0, np.ones((2, 2), np.float32)), vk.ShapeError, ["argument x", "(2, 2)"]),
        (lambda: scale(2.5, np.ones(3, np.int32)), vk.DTypeError, ["argument a is 2.5", "vk.i32"]),
        (lambda: scale(300, np.ones(3, np.uint8)), vk.DTypeError, ["out of range", "0 to 255"]),
        (lambda: scale(10**400, np.ones(3, np.float32)), vk.DTypeError, ["a is an integer of 1329 bits", "vk.f32"]),
        (lambda: scale(10**5000, np.ones(3, np.int32)), vk.DTypeError, ["a is an integer of 16610 bits", "vk.i32"]),
        (lambda: scale(2.0, np.ones(3), np.ones(3), a=1.0), vk.ArgumentError, ["several values for 'a'"]),
        (lambda: group_numbers[True](np.zeros(4, np.int32), np.zeros(1, np.int32)), vk.ArgumentError, ["found a bool"]),
        (lambda: scale(2.0, np.ones(3, np.complex64)), vk.DTypeError, ["argument x", "complex64"]),
        (lambda: scale(2.0, np.ones(3, ">f4")), vk.DTypeError, ["byte order"]),
        (lambda: scale(2.0, np.ones(3, np.float32), np.ones(3, np.float64)), vk.DTypeError, ["T is vk.f32", "y"]),
        (
            lambda: add2d(np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)),
            vk.ShapeError, ["argument y", "(2, 4)", "(2, 3)"],
        ),
        (lambda: scale[2](2.0, np.ones(3, np.float32)), vk.ArgumentError, ["runs over 'y'"]),
        (lambda: group_numbers(np.zeros(4, np.int32), np.zeros(1, np.int32)), vk.ArgumentError, ["[groups]"]),
        (lambda: group_numbers[-1](np.zeros(4, np.int32), np.zeros(1, np.int32)), vk.ArgumentError, ["at least 0"]),
        (lambda: group_numbers[1.5](np.zeros(4, np.int32), np.zeros(1, np.int32)), vk.ArgumentError, ["1.5"]),
        (lambda: increment(np.broadcast_to(np.int32(1), (3,)), 1), vk.ArgumentError, ["x is written but read-only"]),
    ],
)  # fmt: skip
def test_errors_say_what_was_found_and_expected(call: Any, error: type, words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


def test_workgroup_past_the_limit(device: Any) -> None:
    @vk.kernel(groups=1, local=4096)
    def wide(x: vk.InOut[vk.f32, "N"]):
        x.put(vk.local_id(0), 1.0)

    with pytest.raises(vk.ArgumentError, match="4096 invocations"):
        wide(np.zeros(3, np.float32))


def test_launch_functions_ask_for_arguments_by_name(device: Any) -> None:
    @vk.kernel(groups=lambda x, K, dev: x.shape[0] // K if dev.caps.max_invocations else 0, local=lambda K: K)
    def fill(x: vk.InOut[vk.i32, "N"], K: vk.Const[int] = 4):
        x[vk.global_id(0)] = vk.group_id(0) * 100 + vk.local_id(0)

    x = np.zeros(8, np.int32)
    fill(x)
    np.testing.assert_array_equal(x, [0, 1, 2, 3, 100, 101, 102, 103])
    fill(x, K=2)
    np.testing.assert_array_equal(x, [0, 1, 100, 101, 200, 201, 300, 301])


FACTOR = 2


def test_a_rebound_global_recompiles(device: Any) -> None:
    global FACTOR

    @vk.kernel(over="x")
    def times_factor(x: vk.InOut[vk.i32, "N"]):
        x[vk.global_id(0)] *= FACTOR

    x = np.ones(3, np.int32)
    times_factor(x)
    FACTOR = 5
    try:
        times_factor(x)
    finally:
        FACTOR = 2
    np.testing.assert_array_equal(x, [10, 10, 10])


def test_unannotated_parameters(device: Any) -> None:
    @vk.kernel(over="y")
    def axpy(a, x, y):
        i = vk.global_id(0)
        y[i] = a * x[i] + y[i]

    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    axpy(2.0, x, y)
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_a_workgroup_with_more_axes_than_the_array_is_refused(device: Any) -> None:
    @vk.kernel(over="x", local=(8, 8))
    def twice(x: vk.InOut[vk.i32, "N"]):
        x[vk.global_id(0)] += 1

    with pytest.raises(vk.ArgumentError, match="1 dimensions"):
        twice(np.zeros(5, np.int32))


def test_expressions_of_dimensions_bound_later_are_checked(device: Any) -> None:
    @vk.kernel(over="z")
    def outer(z: vk.InOut[vk.f32, "A*B"], x: vk.In[vk.f32, "A"], y: vk.In[vk.f32, "B"]):
        i = vk.global_id(0)
        z[i] = x[i // y.shape[0]] * y[i % y.shape[0]]

    x, y, z = np.arange(2, dtype=np.float32), np.arange(3, dtype=np.float32), np.zeros(6, np.float32)
    outer(z, x, y)
    np.testing.assert_array_equal(z, np.outer(x, y).reshape(-1))
    with pytest.raises(vk.ShapeError, match=r"A\*B is 6"):
        outer(np.zeros(7, np.float32), x, y)


def test_several_arrays_with_strides_of_their_own(device: Any) -> None:
    """Each array is transferred with its own range of memory."""
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    big = np.zeros((6, 12), np.float32)
    for y in (
        big[1:5, ::-1][:, :6],
        big[::-1, ::-1][:4, :6],
        big[::-1][:4, :6],
        big[1:5, 2:8],
        big[1:5, ::2],
        big[:4, 5::-1],
    ):
        for view in (x, np.asfortranarray(x), x[::-1, ::-1]):
            big[:] = -1
            add2d(view, view, y)
            np.testing.assert_array_equal(y, 2 * view)
            assert np.count_nonzero(big == -1) >= 72 - 24


@vk.kernel(over="y")
def copied(x, y):
    y[vk.global_id(1), vk.global_id(0)] = x[vk.global_id(1), vk.global_id(0)]


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (2, 3)])
@pytest.mark.parametrize("tensors", [False, True])
def test_an_output_whose_elements_share_a_place_is_refused(
    device: Any, strides: tuple[int, int], tensors: bool
) -> None:
    x: Any = np.arange(20, dtype=np.float32).reshape(5, 4)
    memory = np.zeros(40, np.float32)
    y: Any = np.lib.stride_tricks.as_strided(memory, (5, 4), tuple(4 * stride for stride in strides))
    if tensors:
        x, of = vk.tensor(x), vk.tensor(memory).__vkjit_array__
        y = DeviceArray(of.buffer, 0, of.dtype, (5, 4), strides)
    with pytest.raises(vk.ArgumentError, match="argument y .* several elements in one place: pass a copy"):
        copied(x, y)
    assert not memory.any()


@vk.kernel(over="y")
def copied_f32(x: vk.In[vk.f32, "M N"], y: vk.Out[vk.f32, "M N"]):
    i, j = vk.index()
    y[i, j] = x[i, j]


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (2, 3)])
def test_repeated_launches_refuse_such_outputs_too(device: Any, strides: tuple[int, int]) -> None:
    """Cached checks of outputs with gaps between rows aren't reused for outputs whose elements overlap."""
    x = vk.tensor(np.arange(20, dtype=np.float32).reshape(5, 4))
    of = vk.zeros(120).__vkjit_array__
    for gap in range(5, 25):
        copied_f32(x, DeviceArray(of.buffer, 0, of.dtype, (5, 4), (gap, 1)))
    for _ in range(2):
        with pytest.raises(vk.ArgumentError, match="argument y .* several elements in one place: pass a copy"):
            copied_f32(x, DeviceArray(of.buffer, 0, of.dtype, (5, 4), strides))


def test_windows_that_are_read_and_axes_that_interleave(device: Any) -> None:
    """Overlapping elements may be read; interleaved strides don't necessarily overlap."""
    memory = np.arange(20, dtype=np.float32)
    windows = np.lib.stride_tricks.as_strided(memory, (5, 3), (8, 4))
    y = np.zeros((5, 3), np.float32)
    copied(windows, y)
    np.testing.assert_array_equal(y, [[2 * i + j for j in range(3)] for i in range(5)])
    woven = np.lib.stride_tricks.as_strided(np.zeros(20, np.float32), (5, 2), (8, 28))
    copied(np.ones((5, 2), np.float32), woven)
    assert (woven == 1).all()


def test_frames_of_the_launch_are_hidden(device: Any) -> None:
    """pytest and IPython hide the frames between the call and the error."""
    with pytest.raises(vk.ShapeError) as caught:
        add2d(np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))
    assert [entry.name for entry in caught.traceback.filter(caught)] == ["test_frames_of_the_launch_are_hidden"]


def test_filling_elements_that_share_a_place_is_no_mistake(device: Any) -> None:
    row = vk.ones(1)
    row.expand(3).fill_(2.0)
    assert row.numpy().tolist() == [2.0]
    row.expand(3, 2).zero_()
    assert row.numpy().tolist() == [0.0]


@vk.kernel(over="y")
def doubled_bf16(x: vk.In[vk.bf16, "N"], y: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = vk.f32(x[i]) * 2.0


def test_other_elements_in_the_place_of_bf16(device: Any) -> None:
    """Both conversions that the error suggests work."""
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    with pytest.raises(vk.DTypeError, match=r"has elements of vk\.f32, expected vk\.bf16") as caught:
        doubled_bf16(x, y)
    assert str(caught.value).endswith("convert it with vk.tensor(x).to(vk.bf16), or .astype(ml_dtypes.bfloat16)")
    result = vk.tensor(y)
    doubled_bf16(vk.tensor(x).to(vk.bf16), result)
    np.testing.assert_array_equal(result.numpy(), 2 * x)
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="an extra that NumPy's users have for bf16")
    doubled_bf16(x.astype(ml_dtypes.bfloat16), y)
    np.testing.assert_array_equal(y, 2 * x)


@vk.kernel(over="y")
def failing(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], z: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]
    z[i] = x[i]
    assert x[i] < 1, "too large"


@pytest.mark.parametrize("sanitize", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_tensors_count_as_written_if_the_kernel_reports_an_error(device: Any, mixed: bool, sanitize: bool) -> None:
    kernel = failing.variant(sanitize=True) if sanitize else failing
    with vk.use_device(device):
        x, written = np.ones(3, np.float32), vk.zeros(3)
        other = np.zeros(3, np.float32) if mixed else vk.zeros(3)
        before = written._version.value
        arguments = (x if mixed else vk.tensor(x), other, written)
        with pytest.raises(vk.VkjitError, match="too large"):
            (kernel(*arguments), device.synchronize())
        assert written._version.value == before + 1


@vk.kernel(over="y")
def scaled(y: vk.InOut[vk.i32, "N"], by: vk.i32, c: vk.Const[int] = 1) -> None:
    y[vk.global_id(0)] *= by + c


def test_memory_views_and_structs_are_no_scalars(device: Any) -> None:
    y = vk.ones(3, dtype=vk.i32)
    struct = np.zeros(1, [("a", "f4"), ("b", "i4")])[0]
    for value in (struct, memoryview(bytearray(4)), np.datetime64("2020-01-01"), np.str_("1")):
        with pytest.raises(ArgumentError, match="argument by is a .*: expected a number of type vk.i32"):
            scaled(y, value)
    with pytest.raises(ArgumentError, match=r"argument c of scaled\(\) is a memoryview: a Const is compiled"):
        scaled(y, 2, memoryview(bytearray(4)))
    assert y.tolist() == [1, 1, 1]
