"""Memory shared with PyTorch: on the CPU where the host can access it, on CUDA for an NVIDIA device."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vkjit as vk
from tests.device.language.staged import open_staged
from vkjit import errors
from vkjit.backends.vulkan.runtime.device import VulkanDevice

torch = pytest.importorskip("torch", reason="PyTorch isn't installed")

TYPES = {
    "f32": torch.float32, "f16": torch.float16, "f64": torch.float64, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool, "bf16": torch.bfloat16,
}  # fmt: skip


@vk.kernel(over="y")
def scale(x: vk.In[vk.f32, "*N"], y: vk.Out[vk.f32, "*N"], a: vk.f32):
    i = vk.global_id(0)
    y[i] = a * x[i]


@vk.kernel(over="y")
def add_into(x: vk.In[vk.f32, "N"], y: vk.InOut[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = y[i] + x[i]


@vk.kernel(over="y")
def slowly(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], rounds: vk.i32):
    i = vk.global_id(0)
    value = x[i]
    for _ in range(rounds):
        value = value * 0.5 + 1.0
    y[i] = value + x[i]


@vk.kernel(over="y")
def failing(x: vk.In[vk.f32, "N"], y: vk.Out[vk.f32, "N"], z: vk.Out[vk.f32, "N"]):
    i = vk.global_id(0)
    y[i] = x[i]
    z[i] = x[i]
    assert x[i] < 1, "too large"


@pytest.fixture
def here(device: Any) -> Iterator[Any]:
    """The device, if its memory is accessible to the host or to CUDA."""
    if device.host_view(device.allocate(4)) is None and not torch.cuda.is_available():
        pytest.skip(f"{device.name}'s memory isn't the host's, and PyTorch has no CUDA here")
    if isinstance(device, VulkanDevice):
        can_share(device)
    with vk.use_device(device):
        yield device


@pytest.fixture
def cuda() -> Iterator[VulkanDevice]:
    """The vkjit device for PyTorch's CUDA device."""
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA device")
    uuids = {info.uuid: info for info in vk.devices() if info.uuid and not info.missing}
    info = uuids.get(str(torch.cuda.get_device_properties(0).uuid).replace("-", ""))
    if info is None:
        pytest.skip("no Vulkan device is PyTorch's GPU")
    device = vk.device(info)
    assert isinstance(device, VulkanDevice)
    can_share(device)
    with vk.use_device(device):
        yield device


def can_share(device: VulkanDevice) -> None:
    """Skip if the device was opened before PyTorch was imported, and so without shared memory."""
    if not (device.caps.unified_memory or device._storage.memory.main.kind.exported):
        pytest.skip("the device was opened to share nothing: run with VKJIT_SHARE_MEMORY=1")


def settle() -> None:
    vk.synchronize()
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@pytest.mark.parametrize("name", TYPES)
def test_types_and_values(here: Any, name: str) -> None:
    dtype = vk.dtypes.by_name[name]
    if dtype.name not in here.caps.dtypes:
        pytest.skip(f"{here.name} has no {name}")
    values = np.arange(24).reshape(2, 3, 4) % 2 if name == "bool" else np.arange(24).reshape(2, 3, 4)
    ours = vk.tensor(values, dtype)
    theirs = ours.torch()
    assert theirs.dtype is TYPES[name] and tuple(theirs.shape) == (2, 3, 4)
    assert np.array_equal(theirs.cpu().to(torch.float64).numpy(), values)


def test_views_keep_their_strides_and_share(here: Any) -> None:
    ours = vk.tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    theirs = ours.t()[1:].torch()
    assert tuple(theirs.stride()) == (1, 4)
    assert theirs.cpu().tolist() == ours.numpy().T[1:].tolist()
    theirs[0, 0] = 50.0
    settle()
    assert ours.numpy()[0, 1] == 50.0
    assert vk.zeros(0, 3).torch().shape == (0, 3)
    assert vk.tensor(3.0).torch().item() == 3.0


def test_both_sides_see_each_others_writes(here: Any) -> None:
    ours = vk.ones(1000)
    theirs = ours.torch()
    theirs += 1
    settle()
    doubled = vk.empty(1000)
    scale(ours, doubled, 2.0)
    assert doubled.numpy().tolist() == [4.0] * 1000
    scale(doubled, ours, 0.5)
    settle()
    assert theirs.cpu().tolist() == [2.0] * 1000


def test_memory_lives_as_long_as_either_side_needs_it(here: Any) -> None:
    theirs = vk.full((1000,), 7.0).torch()
    gc.collect()
    others = [vk.full((1000,), float(i)) for i in range(20)]
    settle()
    assert theirs.cpu().tolist() == [7.0] * 1000
    del others


def test_memory_that_was_not_made_for_it_says_so() -> None:
    device = open_staged()
    with vk.use_device(device), pytest.raises(errors.FeatureError, match="VKJIT_SHARE_MEMORY=1"):
        vk.ones(3).__vkjit_array__.buffer.chunk.block.file_descriptor()
    device.close()


def test_what_cannot_be_shared_says_so(here: Any) -> None:
    with pytest.raises(errors.ArgumentError, match=r"detach\(\)\.torch"):
        vk.ones(3, requires_grad=True).torch()
    with pytest.raises(errors.ArgumentError, match=r"pass x\.detach"):
        scale(torch.ones(3, requires_grad=True), a=1.0)
    with pytest.raises(errors.ArgumentError, match="no element type for torch.complex64"):
        scale(torch.ones(3, dtype=torch.complex64), a=1.0)


def test_tensors_of_the_cpu_as_arguments(device: Any) -> None:
    with vk.use_device(device):
        x, y = torch.arange(6.0), torch.zeros(6)
        add_into(x, y)
        add_into(x, y)
        assert y.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        made = scale(x.reshape(2, 3).t().contiguous().reshape(6), a=3.0)
        assert isinstance(made, torch.Tensor) and made.tolist() == [0.0, 9.0, 3.0, 12.0, 6.0, 15.0]
        assert scale(vk.ones(3), a=2.0).numpy().tolist() == [2.0] * 3
        version = y._version
        add_into(x, y=y)
        assert y._version > version


def test_lazily_negated_tensors_are_read_and_not_written(device: Any) -> None:
    memory = torch.ones(3, 2)
    negative = torch.view_as_complex(memory).conj().imag
    assert negative.is_neg()
    with vk.use_device(device):
        y = torch.zeros(3)
        add_into(negative, y)
        assert y.tolist() == [-1.0] * 3
        with pytest.raises(errors.ArgumentError, match="argument y is written but read-only: pass a copy"):
            add_into(y, negative)
        add_into(y, memory[:, 1])  # the memory itself stays writable
        assert negative.tolist() == [0.0] * 3


def test_tensors_of_the_cpu_count_as_written_if_the_kernel_reports_an_error(device: Any) -> None:
    with vk.use_device(device):
        y = torch.zeros(3)
        with pytest.raises(errors.KernelAssertionError):
            failing(np.ones(3, np.float32), y, torch.zeros(3))
        assert y._version == 1


@pytest.mark.gpu
def test_cuda_tensors_as_arguments(cuda: VulkanDevice) -> None:
    x, y = torch.arange(6.0, device="cuda"), torch.zeros(6, device="cuda")
    for _ in range(3):
        add_into(x, y)
        y += 1
    assert y.tolist() == [3.0 + 3 * i for i in range(6)]
    made = scale(x, a=3.0)
    assert made.device.type == "cuda" and made.tolist() == [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]
    wide = torch.arange(12.0, device="cuda").reshape(3, 4)
    add_into(x[:3], wide[:, 1])
    assert wide[:, 1].tolist() == [1.0, 6.0, 11.0] and wide[:, 0].tolist() == [0.0, 4.0, 8.0]
    mixed = scale(vk.ones(6), torch.zeros(6, device="cuda"), 2.0)
    assert mixed is None


@pytest.mark.gpu
def test_cuda_tensors_as_tensors(cuda: VulkanDevice) -> None:
    theirs = torch.arange(12.0, device="cuda").reshape(3, 4)
    ours = vk.from_dlpack(theirs.t())
    theirs.zero_()
    assert ours.device is cuda and ours.tolist() == np.arange(12.0).reshape(3, 4).T.tolist()
    lent = vk.ones(100).torch()
    again = vk.from_dlpack(lent[10:20], copy=False)
    again += 1
    assert lent.tolist() == [1.0] * 10 + [2.0] * 10 + [1.0] * 80
    with pytest.raises(BufferError, match="copy=False"):
        vk.from_dlpack(theirs, copy=False)


@pytest.mark.gpu
def test_lent_memory_that_comes_back_as_an_argument_is_not_copied(cuda: VulkanDevice) -> None:
    ours = vk.zeros(1000)
    theirs = ours.torch()
    before = vk.memory_stats(cuda)["count"]
    for _ in range(4):
        add_into(torch_ones(1000), theirs[:])
        theirs *= 2
    assert theirs.tolist() == [30.0] * 1000 and ours.numpy().tolist() == [30.0] * 1000
    assert vk.memory_stats(cuda)["count"] <= before + 2


def torch_ones(count: int) -> Any:
    return vk.ones(count).torch()


@pytest.mark.gpu
def test_order_is_that_of_the_calls_and_nobody_waits_on_the_host(cuda: VulkanDevice) -> None:
    """Slow work on one side and a dependent step on the other, without host synchronization; repeated 100 times."""
    n = 1 << 16
    ours, out = vk.zeros(n), vk.zeros(n)
    theirs, result = ours.torch(), out.torch()
    a = torch.randn(1024, 1024, device="cuda")
    for step in range(100):
        b = a
        for _ in range(3):
            b = a @ b  # keeps CUDA busy, so that an early read would see the old value
        theirs.fill_(float(step))
        slowly(ours, out, 2000)  # 2 + step
        checked = result.clone()
        assert checked[::4096].tolist() == [2.0 + step] * (n // 4096)


@pytest.mark.gpu
def test_dropped_memory_is_used_again_only_when_cuda_is_done(cuda: VulkanDevice) -> None:
    n = 1 << 20
    a = torch.randn(2048, 2048, device="cuda")
    for step in range(30):
        theirs = vk.full((n,), float(step)).torch()
        b = a @ a @ a @ a
        copied = theirs.clone()  # still pending when the memory is freed
        del theirs
        gc.collect()
        other = vk.full((n,), -1.0)
        assert copied[:: n // 8].tolist() == [float(step)] * 8
        del other, b


@pytest.mark.gpu
def test_other_streams_wait_as_for_any_work_of_the_current_one(cuda: VulkanDevice) -> None:
    ours = vk.zeros(1 << 16)
    theirs = ours.torch()
    side = torch.cuda.Stream()
    for step in range(20):
        slowly(vk.full((1 << 16,), float(step)), ours, 5000)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            copied = theirs + 0
        torch.cuda.current_stream().wait_stream(side)
        assert copied[0].item() == 2.0 + step


@pytest.mark.gpu
def test_graphs_and_transfers_of_lent_memory(cuda: VulkanDevice) -> None:
    x, y = vk.ones(1000), vk.zeros(1000)
    theirs = x.torch()
    with vk.capture(x=x, y=y) as graph:
        scale(x, y, 2.0)
    for step in range(10):
        theirs.fill_(float(step))
        graph.replay()
        assert y.numpy()[0] == 2.0 * step
    x.copy_(vk.full((1000,), 9.0))
    assert theirs.tolist() == [9.0] * 1000
    assert x.numpy()[0] == 9.0


@pytest.mark.gpu
def test_lent_memory_outlives_its_device(cuda: VulkanDevice) -> None:
    from vkjit.backends.vulkan.runtime.instance import get_instance
    from vkjit.backends.vulkan.runtime.physical_device import physical_devices

    device = VulkanDevice(physical_devices(get_instance())[cuda.index])
    with vk.use_device(device):
        theirs = vk.full((1000,), 5.0).torch()
    device.close()
    assert theirs.tolist() == [5.0] * 1000
    del theirs
    torch.cuda.synchronize()
