"""PyTorch interoperability: shared memory where the hardware supports it, else copies on the device.

PyTorch CPU tensors share the host's memory. A CUDA tensor shares memory with the Vulkan device of the same GPU (matched
by UUID) if vkjit allocated that memory. Memory that PyTorch allocated can't be imported, so it is copied from GPU
memory to GPU memory, and back if a kernel wrote it; neither side ever sees stale data. Work of both sides runs in call
order with respect to PyTorch's current stream.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import device as open_device, devices
from ..backends.vulkan.runtime.cuda.driver import driver
from ..backends.vulkan.runtime.cuda.share import CudaShare, Loan
from ..backends.vulkan.runtime.device import VulkanDevice
from ..dtypes import DType
from ..errors import ArgumentError, FeatureError
from ..runtime.device import Device, DeviceArray, contiguous_strides

__all__ = ["from_torch", "has_torch_arguments", "is_torch", "launch", "to_torch"]

_TORCH_NAMES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip
"""PyTorch dtype names by vkjit type name."""

_INTEGER_TYPESTRS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}
"""Integer types by size in bytes, as which memory is exchanged before it is reinterpreted as its element type."""


def is_torch(value: Any) -> bool:
    """True if `value` is a PyTorch tensor."""
    library = sys.modules.get("torch")
    return library is not None and isinstance(value, getattr(library, "Tensor", ()))


def has_torch_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if any argument is a PyTorch tensor."""
    return "torch" in sys.modules and (any(map(is_torch, args)) or any(map(is_torch, kwargs.values())))


def _library() -> Any:
    try:
        import torch
    except ImportError as error:
        raise FeatureError(f"PyTorch isn't installed: {error}") from error
    return torch


def _torch_type(dtype: DType) -> Any:
    torch_dtype = getattr(_library(), _TORCH_NAMES.get(dtype.name, "?"), None)
    if torch_dtype is None:
        raise ArgumentError(f"this PyTorch has no element type for {dtype!r}: convert with .to(vk.f32)")
    return torch_dtype


def _vkjit_dtype(x: Any) -> DType:
    name = str(x.dtype).removeprefix("torch.")
    for ours, theirs in _TORCH_NAMES.items():
        if theirs == name:
            return dtypes.by_name[ours]
    raise ArgumentError(f"vkjit has no element type for {x.dtype}: convert with .float()")


# -- vkjit to PyTorch


def to_torch(array: DeviceArray) -> Any:
    """Return a PyTorch tensor that shares the array's memory: on the CPU if the memory is visible to the host, else on
    CUDA.

    Raises FeatureError if the device's memory can't be shared, ArgumentError for layouts or types that PyTorch lacks.
    """
    library, kind = _library(), _torch_type(array.dtype)
    if any(stride < 0 for stride in array.strides):
        raise ArgumentError(f"PyTorch has no negative strides, found {array.strides}: call .contiguous() first")
    memory = array.device.host_view(array.buffer)
    if memory is not None:
        array.device.synchronize()
        return _on_host(library, array, memory).view(kind)
    share = _share_of(array.device)
    place = f"cuda:{share.ordinal}"
    if 0 in array.shape:
        return library.empty(array.shape, dtype=kind, device=place)
    whole = library.as_tensor(_CudaArrayInterface(share.lend(array.buffer), array), device=place)  # type: ignore[arg-type]
    return whole.view(kind).reshape(()) if not array.shape else whole.view(kind)


def _on_host(library: Any, array: DeviceArray, memory: Any) -> Any:
    whole = np.dtype(_INTEGER_TYPESTRS[array.dtype.itemsize])
    if 0 in array.shape:
        return library.from_numpy(np.empty(array.shape, whole))
    steps = [stride * whole.itemsize for stride in array.strides]
    return library.from_numpy(np.ndarray(array.shape, whole, memory.data, array.offset, steps))


class _CudaArrayInterface:
    """The `__cuda_array_interface__` of an array. PyTorch keeps this object alive as long as it uses the memory."""

    def __init__(self, loan: Loan, array: DeviceArray) -> None:
        self._loan = loan
        item = array.dtype.itemsize
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": _INTEGER_TYPESTRS[item],
            "shape": array.shape or (1,),
            "strides": tuple(stride * item for stride in array.strides) or (item,),
            "data": (loan.address + array.offset, False),
        }


def _share_of(device: Device) -> CudaShare:
    """Return the CUDA side of the device and make it follow PyTorch's current stream."""
    if not isinstance(device, VulkanDevice):
        raise FeatureError(f"{device.name} isn't CUDA's: use torch.from_numpy(x.numpy())")
    library, share = _library(), device.cuda
    if not library.cuda.is_available():
        raise FeatureError("this PyTorch has no CUDA: use torch.from_numpy(x.numpy())")
    share.use_stream(lambda: int(library.cuda.current_stream(share.ordinal).cuda_stream))
    return share


# -- PyTorch to vkjit


def from_torch(x: Any) -> tuple[DeviceArray, bool]:
    """Return a CUDA tensor as an array of the Vulkan device on the same GPU, and True if it shares memory (False: a
    copy).

    Raises FeatureError if no Vulkan device of that GPU shares memory with CUDA.
    """
    share, device = _same_gpu(x)
    dtype, item = _vkjit_dtype(x), x.element_size()
    shape = tuple(x.shape)
    x = x.detach().resolve_neg()
    reach = sum((n - 1) * s for n, s in zip(shape, x.stride(), strict=True)) + 1
    shared = share.find(x.data_ptr(), reach * item) if 0 not in shape else None
    if shared is not None:
        return DeviceArray(shared[0], shared[1], dtype, shape, tuple(x.stride())), True
    nbytes = math.prod(shape) * item
    buffer = device.allocate((nbytes + 3) & ~3)
    if nbytes:
        share.take(x.contiguous().data_ptr(), buffer, nbytes)
    return DeviceArray(buffer, 0, dtype, shape, contiguous_strides(shape)), False


def _same_gpu(x: Any) -> tuple[CudaShare, VulkanDevice]:
    if x.device.type != "cuda":
        raise ArgumentError(f"a PyTorch tensor on {x.device}: bring it to the CPU or to CUDA")
    uuid = driver().uuid_of(x.device.index).hex()
    for info in devices():
        if info.uuid == uuid and not info.missing:
            device = open_device(info.index)
            return _share_of(device), device  # type: ignore[return-value]  # a UUID is a Vulkan device's
    raise FeatureError(f"no Vulkan device is the GPU of {x.device}: see python -m vkjit doctor")


class _CudaArgument:
    """Adapter that passes a CUDA tensor to kernels as a device array."""

    def __init__(self, x: Any) -> None:
        self._tensor = x
        self.__vkjit_array__, self._shared = from_torch(x)

    @staticmethod
    def __vkjit_wrap__(array: DeviceArray) -> Any:
        return to_torch(array)

    def __vkjit_written__(self) -> None:
        """Called after a kernel wrote the array: update the tensor or its version."""
        if self._shared:
            _bump_version(self._tensor)
        else:
            self._tensor.detach().copy_(to_torch(self.__vkjit_array__))


def _bump_version(x: Any) -> None:
    """Bump the version counter of the tensor for PyTorch's autograd."""
    increment = getattr(getattr(_library().autograd, "graph", None), "increment_version", None)
    if increment is not None:
        increment(x)


def launch(run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch with PyTorch tensors among the arguments. Out arrays that the launch allocates are returned as PyTorch
    tensors.

    Raises ArgumentError for tensors that require a gradient while gradients are enabled.
    """
    __tracebackhide__ = True
    given = [*args, *kwargs.values()]
    converted = [_converted(value) if is_torch(value) else value for value in given]
    result = run(*converted[: len(args)], **dict(zip(kwargs, converted[len(args) :], strict=True)))
    on_host = [
        (x, array) for x, array in zip(given, converted, strict=True) if is_torch(x) and isinstance(array, np.ndarray)
    ]
    for x, _ in on_host:
        _bump_version(x)
    if not on_host:
        return result
    return tuple(map(_from_numpy, result)) if isinstance(result, tuple) else _from_numpy(result)


def _converted(x: Any) -> Any:
    if x.requires_grad and _library().is_grad_enabled():
        raise ArgumentError(
            "a PyTorch tensor that requires a gradient was given to a kernel, which autograd doesn't follow: pass x.detach()"
        )
    if x.device.type != "cpu":
        return _CudaArgument(x)
    if x.dtype is _library().bfloat16:
        raise ArgumentError("NumPy has no bfloat16, and so no PyTorch tensor of it on the CPU: convert with .float()")
    _vkjit_dtype(x)
    return x.detach().resolve_neg().numpy()


def _from_numpy(value: Any) -> Any:
    return _library().from_numpy(value) if isinstance(value, np.ndarray) else value
