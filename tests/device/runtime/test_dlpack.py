"""DLPack import and export with NumPy and PyTorch."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from vkjit.tensor import dlpack

TYPES = [vk.f32, vk.f16, vk.f64, vk.i8, vk.i16, vk.i32, vk.i64, vk.u8, vk.u16, vk.u32, vk.u64, vk.boolean]


def is_shared(device: Any) -> bool:
    return bool(vk.zeros(4, device=device).__dlpack_device__() == (1, 0))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_numpy_gets_what_the_tensor_holds(device: Any, dtype: Any) -> None:
    x = vk.tensor(np.arange(24).reshape(2, 3, 4) % 2, dtype=dtype)
    host = (1, 0)
    for part in (x, x[:, 1:, ::2], x.transpose(0, 2), x[0, 0, 0], x[:0]):
        values = np.from_dlpack(part) if is_shared(device) else np.from_dlpack(part, device="cpu", copy=True)
        assert values.dtype == dtype.storage and np.array_equal(values, part.numpy())
    capsule = x.__dlpack__(dl_device=host, max_version=(1, 0))
    assert "dltensor_versioned" in repr(capsule)
    assert 'capsule object "dltensor"' in repr(x.__dlpack__(dl_device=host))


def test_memory_is_shared_where_the_host_sees_it(device: Any) -> None:
    if not is_shared(device):
        pytest.skip("the host doesn't see this device's memory")
    x = vk.zeros(5)
    values = np.from_dlpack(x)
    x += 2
    device.synchronize()
    assert values.tolist() == [2.0] * 5
    copied = np.from_dlpack(x, copy=True)
    x += 1
    device.synchronize()
    assert copied.tolist() == [2.0] * 5 and values.tolist() == [3.0] * 5


def test_given_memory_outlives_the_tensor(device: Any) -> None:
    if not is_shared(device):
        pytest.skip("the host doesn't see this device's memory")
    before = len(dlpack._exported)
    x = vk.tensor(np.arange(1000))
    values = np.from_dlpack(x)
    assert len(dlpack._exported) == before + 1
    del x
    gc.collect()
    others = [vk.zeros(1000, dtype=vk.i64) for _ in range(10)]
    device.synchronize()
    assert np.array_equal(values, np.arange(1000)) and len(others) == 10
    del values
    gc.collect()
    assert len(dlpack._exported) == before
    vk.zeros(3).__dlpack__()  # a capsule that is never consumed
    gc.collect()
    assert len(dlpack._exported) == before


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_tensors_of_numpy_arrays(device: Any, dtype: Any) -> None:
    whole = (np.arange(24).reshape(2, 3, 4) % 2).astype(dtype.storage)
    for part in (whole, whole[:, 1:, ::2], whole.transpose(2, 0, 1), whole[:, ::-1], whole[:0], whole[0, 0, 0]):
        x = vk.from_dlpack(np.asarray(part), device=device)
        assert x.dtype is dtype and x.device is device and np.array_equal(x.numpy(), part)
        assert np.array_equal((x + x).numpy(), part + part)


def test_memory_of_others_is_used_in_place_on_the_processor(device: Any) -> None:
    values = np.arange(6, dtype=np.float32)
    if device.caps.kind != "llvm-cpu":
        x = vk.from_dlpack(values)
        x += 1
        assert values.tolist() == list(range(6)) and x.numpy().tolist() == [1, 2, 3, 4, 5, 6]
        with pytest.raises(BufferError, match="needs a copy of this array"):
            vk.from_dlpack(values, copy=False)
        return
    x = vk.from_dlpack(values, copy=False)
    x += 1
    device.synchronize()
    assert values.tolist() == [1, 2, 3, 4, 5, 6]
    y = vk.from_dlpack(values, copy=True)
    values[0] = 50
    assert y.numpy()[0] == 1 and x.numpy()[0] == 50
    values.flags.writeable = False
    z = vk.from_dlpack(values)
    z += 1
    assert values[0] == 50
    with pytest.raises(BufferError, match="read-only"):
        vk.from_dlpack(values, copy=False)


def test_pytorch_both_ways(device: Any) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    ours = vk.from_dlpack(theirs.t())
    assert ours.dtype is vk.bf16 and np.array_equal(ours.numpy(), theirs.t().float().numpy())
    if is_shared(device):
        back = torch.from_dlpack(ours)
        assert back.dtype == torch.bfloat16 and torch.equal(back, theirs.t())
        x = vk.tensor(np.arange(6.0, dtype=np.float32))
        torch.from_dlpack(x).mul_(2)
        assert (x + 0).numpy().tolist() == [0, 2, 4, 6, 8, 10]


def test_tensors_of_tensors(device: Any) -> None:
    x = vk.tensor([1.0, 2.0], device=device)
    assert vk.from_dlpack(x, device=device)._array is x._array
    other = vk.from_dlpack(x, device="interpreter", copy=True)
    assert other.device.name == "interpreter" and other.numpy().tolist() == [1.0, 2.0]


def test_misuse_is_told(device: Any) -> None:
    x = vk.zeros(3, requires_grad=True)
    with pytest.raises(BufferError, match="export x.detach"):
        x.__dlpack__()
    with pytest.raises(BufferError, match="memory of the CPU has no stream"):
        x.detach().__dlpack__(stream=1)
    with pytest.raises(BufferError, match="can't be exported to"):
        x.detach().__dlpack__(dl_device=(2, 0))
    with pytest.raises(vk.ArgumentError, match="offers __dlpack__, found list"):
        vk.from_dlpack([1, 2])
    with pytest.raises(vk.DTypeError, match="type code 5, 64 bits"):
        vk.from_dlpack(np.zeros(3, np.complex64))
    with pytest.raises(vk.ArgumentError, match=r"made by vk.tensor\(...\)"):
        vk.Tensor(np.zeros(3))
    capsule = np.zeros(3).__dlpack__()

    class Used:
        def __dlpack__(self) -> Any:
            return capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    vk.from_dlpack(Used())
    with pytest.raises(vk.ArgumentError, match="no fresh DLPack capsule"):
        vk.from_dlpack(Used())


def test_other_libraries_get_no_negative_strides(device: Any) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (base[::-1, ::-2], base[::-1], base.T[:, ::-1], base[::-1][1:3]):
        x = vk.from_dlpack(array, device=device)
        if x.__vkjit_array__.strides == tuple(s // 4 for s in array.strides):  # shared: the device uses host memory
            with pytest.raises(BufferError, match=r"negative, which other libraries lack: export x.contiguous\(\)"):
                x.__dlpack__(dl_device=(1, 0))
        for export in (x.contiguous(), x):
            np.testing.assert_array_equal(np.from_dlpack(_Copied(export)), array)
    # strides along axes of one element, or of arrays without elements, don't matter
    strided = np.lib.stride_tricks.as_strided
    for array in (base[:1][::-1], base[:, :1][:, ::-1], base[:0, ::-1], strided(base, (1, 6), (2**62, 4))):
        x = vk.from_dlpack(array, device=device)
        for exported in (np.from_dlpack(_Copied(x)), x.numpy()):
            assert exported.shape == array.shape
            np.testing.assert_array_equal(exported, array)
        if x.__dlpack_device__() == (1, 0):
            capsule_strides = np.from_dlpack(x).strides
            assert all(s >= 0 for s in capsule_strides)


def test_pytorch_gets_no_negative_strides(device: Any) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch isn't installed")
    if vk.zeros(1, device=device).__dlpack_device__() != (1, 0):
        pytest.skip("the device's memory isn't host-visible")
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    reversed_rows = vk.tensor(array, device=device)[::-1, ::-2]
    with pytest.raises(BufferError, match="are negative"):
        torch.from_dlpack(reversed_rows)
    np.testing.assert_array_equal(torch.from_dlpack(reversed_rows.contiguous()).numpy(), array[::-1, ::-2])
    one = vk.tensor(array, device=device)[:1][::-1]
    for tensor in (torch.from_dlpack(one), one.torch()):
        np.testing.assert_array_equal(tensor.numpy(), array[:1])


class _Copied:
    """An array that is exported as a copy in host memory."""

    def __init__(self, x: Any) -> None:
        self._x = x

    def __dlpack__(self, **options: Any) -> Any:
        options.pop("copy", None)
        options.pop("dl_device", None)
        return self._x.__dlpack__(**options, dl_device=(1, 0), copy=True)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Handmade:
    """Producer of a DLPack array of 64 floats with any layout, even one that can't be right."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...] | None, /, **fields: Any) -> None:
        self.values = np.arange(64, dtype=np.float32)
        self.managed = dlpack._Managed()
        tensor = self.managed.tensor
        self.shape, self.strides = ((ctypes.c_int64 * max(1, len(v)))(*v) for v in (shape, strides or ()))
        tensor.data, tensor.device, tensor.ndim = self.values.ctypes.data, dlpack._Device(1, 0), len(shape)
        tensor.dtype, tensor.shape = dlpack._DataType(2, 32, 1), self.shape
        if strides is not None:
            tensor.strides = self.strides
        for name, value in fields.items():
            setattr(tensor, name, value)

    def __dlpack__(self, **_: Any) -> Any:
        return dlpack._new_capsule(ctypes.addressof(self.managed), b"dltensor", None)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("copy", [None, True])
@pytest.mark.parametrize(
    ("shape", "strides", "fields", "message"),
    [
        ((-4,), (1,), {}, r"shape \(-4,\): expected extents of at least 0"),
        ((-4, -4), (4, 1), {}, "expected extents of at least 0"),
        ((4,), (1,), {"ndim": -1}, "with -1 axes: expected 0 to 64"),
        ((1,) * 70, None, {}, "with 70 axes: expected 0 to 64"),
        ((4,), (1,), {"shape": None}, "without a shape"),
        ((4,), (1,), {"data": None}, "at a null pointer"),
        ((), (), {"data": None}, "at a null pointer"),
        ((2**62, 4), (4, 1), {}, "which no address space holds"),
        ((2**62, 2**62), (0, 0), {}, "which no address space holds"),
        ((2, 2), (-(2**62), 1), {}, "which no address space holds"),
        ((2,), (-(2**63),), {}, "which no address space holds"),
    ],
)
def test_layouts_that_cannot_be_right_are_refused(
    device: Any, copy: bool | None, shape: Any, strides: Any, fields: Any, message: str
) -> None:
    with pytest.raises(vk.ArgumentError, match=message):
        vk.from_dlpack(Handmade(shape, strides, **fields), copy=copy)


@pytest.mark.parametrize("copy", [None, True])
def test_strides_that_are_never_used_may_be_anything(device: Any, copy: bool | None) -> None:
    for shape, strides in (((1, 4), (2**62, 1)), ((1, 4, 1), (-(2**63), 1, 2**63 - 1)), ((4,), (1,)), ((), ())):
        producer = Handmade(shape, strides)
        x = vk.from_dlpack(producer, copy=copy)
        assert x.is_contiguous() and np.array_equal((x + 1).numpy().ravel(), producer.values[: x.numel()] + 1)
    assert vk.from_dlpack(Handmade((0, 4), (2**62, 1), data=None), copy=copy).shape == (0, 4)


def test_exchanged_arrays_may_live_to_the_end_of_the_process() -> None:
    code = (
        "import numpy as np, vkjit as vk\n"
        "a = np.from_dlpack(vk.ones(4, device='interpreter'))\n"
        "b = vk.from_dlpack(np.ones(4), device='interpreter')\n"
        "c = vk.ones(3, device='interpreter').__dlpack__()\n"
        "print(a.sum() + b.sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "8.0", "")


def test_two_imports_of_one_array_overlap(device: Any) -> None:
    """A launch of arrays apart isn't repeated for imports of the same memory, as the kernel is compiled for no overlap."""
    if device.caps.kind != "llvm-cpu":
        pytest.skip("NumPy's memory is imported on the processor")

    @vk.kernel(over="y")
    def increase(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"], z: vk.Out[vk.f32, "N"]):
        i = vk.global_id(0)
        y[i] = x[i] + 1
        z[i] = x[i]

    arrays = [np.zeros(64, np.float32) for _ in range(4)]
    for _ in range(3):
        increase(*map(vk.from_dlpack, arrays[:3]))
    same, seen = arrays[3], arrays[2]
    increase(vk.from_dlpack(same), vk.from_dlpack(same), vk.from_dlpack(seen))
    device.synchronize()
    assert (same == 1).all() and (seen == 1).all()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_arrays_without_elements_need_no_copy(device: Any, shape: tuple[int, ...]) -> None:
    found = vk.from_dlpack(np.empty(shape, np.float32), copy=False)
    assert found.shape == shape and found.dtype is vk.f32
