"""Tests of creating, moving and printing tensors, and of the errors for invalid arguments."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.data.batch_workers import collate


def test_types_of_data(device: Any) -> None:
    assert vk.tensor([1.5, 2]).dtype is vk.f32
    assert vk.tensor([1, 2]).dtype is vk.i64
    assert vk.tensor([True]).dtype is vk.boolean
    assert vk.tensor(3).shape == () and vk.tensor(3).item() == 3
    assert vk.tensor(np.float64(2)).dtype is vk.f64 or "f64" not in device.caps.dtypes
    assert vk.tensor(np.arange(3, dtype=np.int16)).dtype is vk.i16
    assert vk.tensor([1, 2], dtype=np.float32).dtype is vk.f32
    assert vk.tensor([1, 2], dtype="f16").dtype is vk.f16
    assert vk.tensor([[1, 2], [3, 4]], dtype=float).tolist() == [[1, 2], [3, 4]]
    assert vk.tensor([]).shape == (0,)


def test_what_is_no_data(device: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="lists"):
        vk.tensor([[1, 2], [3]])
    with pytest.raises(vk.ArgumentError, match="numbers"):
        vk.tensor(["a", None])
    with pytest.raises(vk.DTypeError, match="element type"):
        vk.zeros(2, dtype="f99")
    with pytest.raises(vk.DTypeError, match="complex"):
        vk.tensor([1j])
    with pytest.raises(vk.ArgumentError, match="at least 0"):
        vk.zeros(-1)


@pytest.mark.parametrize(
    "dtype", [vk.boolean, vk.u8, vk.i8, vk.i16, vk.i32, vk.i64, vk.u64, vk.f16, vk.bf16, vk.f32, vk.f64]
)
def test_filled_tensors(device: Any, dtype: Any) -> None:
    if dtype.name not in device.caps.dtypes and dtype is not vk.bf16:
        pytest.skip(f"the device lacks {dtype!r}")
    for shape in ((), (1,), (3,), (5, 7), (0, 4), (257,)):
        assert not vk.zeros(shape, dtype=dtype).numpy().any()
        assert np.array_equal(vk.ones(shape, dtype=dtype).numpy(), np.ones(shape))
        assert np.array_equal(vk.full(shape, 1, dtype=dtype).numpy(), np.ones(shape))
    if dtype is not vk.boolean:
        x = vk.zeros(6, dtype=dtype)
        x[::2].fill_(3)
        assert x.tolist() == [3, 0, 3, 0, 3, 0]
        assert x.zero_().tolist() == [0] * 6


def test_likeness(device: Any) -> None:
    x = vk.zeros(2, 3, dtype=vk.i32)
    for made in (vk.zeros_like(x), vk.ones_like(x), vk.full_like(x, 7), vk.empty_like(x), x.new_zeros(2, 3)):
        assert made.shape == (2, 3) and made.dtype is vk.i32 and made.device is x.device
    assert vk.zeros_like(x, dtype=vk.f32).dtype is vk.f32


def test_sequences(device: Any) -> None:
    assert vk.arange(5).tolist() == [0, 1, 2, 3, 4] and vk.arange(5).dtype is vk.i64
    assert vk.arange(2, 8, 3).tolist() == [2, 5] and vk.arange(8, 2, -3).tolist() == [8, 5]
    assert vk.arange(0, 1, 0.25).tolist() == [0, 0.25, 0.5, 0.75] and vk.arange(0, 1, 0.25).dtype is vk.f32
    assert vk.arange(3, 3).tolist() == [] and vk.arange(3.0, 3.0, -1).tolist() == []
    for ends in ((3, 1), (1, 3, -1), (0.5, 0.25), (0, -1, 1)):
        with pytest.raises(vk.ArgumentError, match="other side of the start"):
            vk.arange(*ends)
    assert vk.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert vk.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(vk.ArgumentError, match="step"):
        vk.arange(0, 5, 0)


def test_bf16_rounds_to_nearest_even(device: Any) -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, 3.4e38, -0.0, np.inf, np.nan], np.float32)
    found = vk.tensor(values, dtype=vk.bf16).numpy()
    assert found[:3].tolist() == [1.0, 1.0, 1.015625] and math.isinf(found[5]) and math.isnan(found[6])
    assert math.copysign(1, found[4]) == -1


def test_random_numbers_follow_the_seed(device: Any) -> None:
    vk.manual_seed(7)
    first = [vk.rand(3, 4), vk.randn(5), vk.randint(0, 9, (6,)), vk.randperm(10)]
    vk.manual_seed(7)
    again = [vk.rand(3, 4), vk.randn(5), vk.randint(0, 9, (6,)), vk.randperm(10)]
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(first, again, strict=True))
    assert sorted(first[3].tolist()) == list(range(10))
    assert vk.rand(2, seed=1).tolist() == vk.rand(2, seed=1).tolist() != vk.rand(2, seed=2).tolist()
    for dtype in (vk.f16, vk.bf16, vk.f32):
        drawn = vk.rand(5000, dtype=dtype, seed=3).numpy()
        assert drawn.min() >= 0 and drawn.max() < 1 and abs(drawn.mean() - 0.5) < 0.03
    with pytest.raises(vk.ArgumentError, match="low < high"):
        vk.randint(3, 3, (2,))


def test_copies_to_types_and_devices(device: Any) -> None:
    x = vk.tensor([1.5, -2.5])
    assert x.to(vk.f32) is x and x.to(device) is x
    assert x.to(vk.i32).tolist() == [1, -2]
    assert x.to(vk.f32, copy=True) is not x
    other = x.to("interpreter")
    assert other.tolist() == [1.5, -2.5] and other.device.name == "interpreter"
    assert vk.as_tensor(x) is x and vk.as_tensor([1, 2]).dtype is vk.i64
    assert vk.from_numpy(np.eye(2, dtype=np.float32)).tolist() == [[1, 0], [0, 1]]
    assert x.half().dtype is vk.f16 and x.bool().dtype is vk.boolean


def test_deep_copies_are_leaves_with_memory_of_their_own(device: Any) -> None:
    x: Any = vk.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy({"w": x, "again": x})
    assert y["w"] is y["again"] and y["w"].is_leaf and y["w"].requires_grad and y["w"].grad.tolist() == [3, 3]
    with vk.no_grad():
        y["w"].zero_()
    assert x.tolist() == [1, 1]
    with pytest.raises(vk.ArgumentError, match="leaves"):
        copy.deepcopy(x * 2)


def test_tensors_as_numbers_and_text(device: Any) -> None:
    x = vk.tensor([2])
    assert float(x) == 2 and int(x) == 2 and bool(x) and [10, 20, 30][x] == 30
    assert "vk.i64" in repr(x) and "[2]" in repr(x)
    assert len(vk.zeros(3, 2)) == 3 and [r.tolist() for r in vk.eye(2)] == [[1, 0], [0, 1]]
    with pytest.raises(vk.ArgumentError, match="ambiguous"):
        bool(vk.zeros(2))
    with pytest.raises(vk.ArgumentError, match="one element"):
        vk.zeros(2).item()
    with pytest.raises(TypeError, match="0-d"):
        len(vk.tensor(1))
    with pytest.raises(vk.ArgumentError, match="detach"):
        vk.zeros(2, requires_grad=True).numpy()
    with pytest.raises(vk.DTypeError, match="float"):
        vk.zeros(2, dtype=vk.i32, requires_grad=True)
    assert np.asarray(vk.ones(2)).tolist() == [1, 1]


def test_numpy_arrays_are_not_mixed_in_silently(device: Any) -> None:
    with pytest.raises(vk.ArgumentError, match="vk.tensor"):
        vk.zeros(2) + np.zeros(2)
    with pytest.raises(vk.ArgumentError, match="vk.tensor"):
        np.zeros(2) + vk.zeros(2)
    assert (vk.zeros(2) + np.float32(1)).tolist() == [1, 1]
    assert (np.float32(2) * vk.ones(2) + np.float64(1)).tolist() == [3, 3]
    with pytest.raises(TypeError, match="ufunc"):
        np.exp(vk.zeros(2))


def test_kernels_take_tensors_and_their_names_work_on_the_host(device: Any) -> None:
    assert vk.exp(vk.zeros(2)).tolist() == [1, 1]
    assert vk.max(vk.tensor([1, 3]), vk.tensor([2, 2])).tolist() == [2, 3]
    with pytest.raises(vk.VkjitError, match="inside kernels"):
        vk.barrier()
    with pytest.raises(vk.ArgumentError, match="takes a tensor"):
        vk.exp(1.0)


def test_numbers_that_do_not_fit(device: Any) -> None:
    with pytest.raises(vk.DTypeError, match="300"):
        vk.zeros(2, dtype=vk.u8) + 300
    assert (vk.zeros(2) + 1e300).tolist() == [math.inf] * 2
    assert (vk.full((1,), 2**63, dtype=vk.u64) + (2**63 - 1)).tolist() == [2**64 - 1]


def test_methods_of_the_type_stub_are_up_to_date() -> None:
    from tools import tensor_stubs

    assert tensor_stubs.main(["--check"]) == 0, "run: python -m tools.tensor_stubs"


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_whole_numbers_can_not_be(value: float) -> None:
    with vk.use_device("interpreter"):
        with pytest.raises(vk.DTypeError, match="out of range"):
            vk.zeros(3, dtype=vk.i32).fill_(value)
        assert vk.zeros(3, dtype=vk.boolean).fill_(value).all().item()


@pytest.mark.parametrize("name", ["empty", "zeros", "ones", "full", "rand", "randn", "randint"])
@pytest.mark.parametrize("model", [None, (2, 3), 1.0])
def test_models_of_new_tensors_that_are_no_tensors_are_refused(name: str, model: Any) -> None:
    further = {"full": (1,), "randint": (3,)}.get(name, ())
    with pytest.raises(vk.ArgumentError, match=rf"{name}_like\(\) takes a tensor, found {type(model).__name__}"):
        getattr(vk, f"{name}_like")(model, *further)


@pytest.mark.parametrize("value", [np.ones(3, np.float32), [1.0, 2.0, 3.0], (1,), None, "1"])
def test_tensors_are_filled_with_numbers_and_tensors_only(value: Any) -> None:
    x = vk.zeros(3)
    for write in (x.copy_, x.fill_):
        with pytest.raises(vk.ArgumentError, match=f"a number or a tensor, found {type(value).__name__}"):
            write(value)
    x.copy_(np.array(2.0)).fill_(np.float32(3))
    assert x.tolist() == [3, 3, 3]


@pytest.mark.parametrize("use", [
    vk.tensor, vk.as_tensor, vk.from_numpy, vk.from_dlpack,
    lambda masked: vk.zeros(2).__setitem__(slice(None), masked),
    lambda masked: vk.zeros(2)[masked.astype(np.int64)],
    lambda masked: collate([masked]),
    lambda masked: list(vk.data.DataLoader(vk.data.ArrayDataset(masked))),
])  # fmt: skip
def test_masked_arrays_are_refused(use: Any) -> None:
    with (
        pytest.raises(vk.ArgumentError, match="found a MaskedArray, and tensors have no masks"),
        vk.use_device("interpreter"),
    ):
        use(np.ma.masked_array([0.0, 1.0], mask=[False, True]))
