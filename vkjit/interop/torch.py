"""PyTorch interoperability: shared memory where the hardware supports it, else copies on the device.

`to_torch` and `from_torch` convert arrays; `launch` is called by kernels that get PyTorch tensors as arguments.

PyTorch CPU tensors are passed as NumPy arrays, without a copy. A CUDA tensor shares memory with the Vulkan device of
the same GPU (matched by UUID) if vkjit allocated that memory. Memory that PyTorch allocated can't be imported to
Vulkan. It is copied within the GPU to a new buffer before a launch, and back after a kernel wrote it, so neither
library ever sees stale data. Vulkan and CUDA wait for each other on the GPU, so that launches and the work in PyTorch's
current stream run in the order of the calls.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import device as open_device, devices
from ..backends.vulkan import cuda
from ..dtypes import DType
from ..errors import ArgumentError, FeatureError
from ..runtime.array import exchange_strides
from ..runtime.device import Device, DeviceArray, contiguous_strides

__all__ = ["from_torch", "has_torch_arguments", "is_torch", "launch", "to_torch"]

_TORCH_NAMES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
    "u32": "uint32", "u64": "uint64", "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64",
}  # fmt: skip
"""PyTorch dtype names by vkjit type name."""

_INTEGER_TYPESTRS = {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}
"""Type strings of integers, by size in bytes.

Memory is passed to PyTorch as integers and then viewed as its element type, because NumPy and
`__cuda_array_interface__` lack types such as bf16.
"""


def is_torch(value: Any) -> bool:
    """True if `value` is a PyTorch tensor."""
    library = sys.modules.get("torch")
    return library is not None and isinstance(value, getattr(library, "Tensor", ()))


def has_torch_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True if any argument is a PyTorch tensor."""
    return "torch" in sys.modules and (any(map(is_torch, args)) or any(map(is_torch, kwargs.values())))


def _library() -> Any:
    """Return the module `torch`. Raises FeatureError if it isn't installed."""
    try:
        import torch
    except ImportError as error:
        raise FeatureError(f"PyTorch isn't installed: {error}") from error
    return torch


def _torch_type(dtype: DType) -> Any:
    """Return the PyTorch dtype for a vkjit type. Raises ArgumentError if PyTorch lacks it."""
    torch_dtype = getattr(_library(), _TORCH_NAMES.get(dtype.name, "?"), None)
    if torch_dtype is None:
        raise ArgumentError(f"this PyTorch has no element type for {dtype!r}: convert with .to(vk.f32)")
    return torch_dtype


def _vkjit_dtype(x: Any) -> DType:
    """Return the vkjit type of a PyTorch tensor. Raises ArgumentError if there is none."""
    name = str(x.dtype).removeprefix("torch.")
    for ours, theirs in _TORCH_NAMES.items():
        if theirs == name:
            return dtypes.by_name[ours]
    raise ArgumentError(f"vkjit has no element type for {x.dtype}: convert with .float()")


# -- vkjit to PyTorch


def to_torch(array: DeviceArray) -> Any:
    """Return a PyTorch tensor that shares the array's memory.

    It is a CPU tensor if the device uses host memory, else a CUDA tensor. Raises FeatureError if the device's memory
    can't be shared, ArgumentError for layouts or types that PyTorch lacks.
    """
    library, torch_dtype = _library(), _torch_type(array.dtype)
    strides = exchange_strides(array.shape, array.strides)
    if any(stride < 0 for stride in strides):
        raise ArgumentError(f"PyTorch has no negative strides, found {strides}: call .contiguous() first")
    memory = array.device.host_view(array.buffer)
    if memory is not None:
        array.device.synchronize()
        return _on_host(library, array, strides, memory).view(torch_dtype)
    share = _share_of(array.device)
    cuda_device = f"cuda:{share.ordinal}"
    if 0 in array.shape:
        return library.empty(array.shape, dtype=torch_dtype, device=cuda_device)
    integers = library.as_tensor(_CudaArrayInterface(share.lend(array.buffer), array, strides), device=cuda_device)  # type: ignore[arg-type]
    return integers.view(torch_dtype).reshape(()) if not array.shape else integers.view(torch_dtype)


def _on_host(library: Any, array: DeviceArray, strides: tuple[int, ...], memory: Any) -> Any:
    """Return a CPU tensor of integers over `memory`, the bytes of the array's buffer."""
    integer = np.dtype(_INTEGER_TYPESTRS[array.dtype.itemsize])
    if 0 in array.shape:
        return library.from_numpy(np.empty(array.shape, integer))
    byte_strides = [stride * integer.itemsize for stride in strides]
    return library.from_numpy(np.ndarray(array.shape, integer, memory.data, array.offset, byte_strides))


class _CudaArrayInterface:
    """The `__cuda_array_interface__` of an array, with elements as integers.

    PyTorch keeps this object alive as long as it uses the memory. The object holds a `Loan`, which keeps the buffer
    allocated and tells Vulkan that CUDA uses it. An array without axes gets the shape (1,); `to_torch` reshapes it.
    """

    def __init__(self, loan: cuda.Loan, array: DeviceArray, strides: tuple[int, ...]) -> None:
        self._loan = loan
        item = array.dtype.itemsize
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": _INTEGER_TYPESTRS[item],
            "shape": array.shape or (1,),
            "strides": tuple(stride * item for stride in strides) or (item,),
            "data": (loan.address + array.offset, False),
        }


def _share_of(device: Device) -> cuda.CudaShare:
    """Return the device's connection to CUDA, set to order its work with PyTorch's current stream.

    Raises FeatureError if the device isn't a Vulkan device, or if CUDA isn't available.
    """
    library, share = _library(), cuda.share_of(device)
    if share is None:
        raise FeatureError(f"{device.name} isn't CUDA's: use torch.from_numpy(x.numpy())")
    if not library.cuda.is_available():
        raise FeatureError("this PyTorch has no CUDA: use torch.from_numpy(x.numpy())")
    share.use_stream(lambda: int(library.cuda.current_stream(share.ordinal).cuda_stream))
    return share


# -- PyTorch to vkjit


def from_torch(x: Any) -> tuple[DeviceArray, bool]:
    """Convert a CUDA tensor to an array of the Vulkan device on the same GPU.

    Returns the array and True if it shares the tensor's memory, False if it is a copy. Raises FeatureError if no Vulkan
    device of that GPU shares memory with CUDA.
    """
    share, device = _same_gpu(x)
    dtype, itemsize = _vkjit_dtype(x), x.element_size()
    shape = tuple(x.shape)
    x = x.detach().resolve_neg()  # materializes a lazy negation, which the memory doesn't show
    # the number of elements from the first to the last one in memory
    span = sum((n - 1) * s for n, s in zip(shape, x.stride(), strict=True)) + 1
    # (buffer, offset) of x's memory if vkjit allocated it
    shared = share.find(x.data_ptr(), span * itemsize) if 0 not in shape else None
    if shared is not None:
        return DeviceArray(shared[0], shared[1], dtype, shape, tuple(x.stride())), True
    nbytes = math.prod(shape) * itemsize
    buffer = device.allocate((nbytes + 3) & ~3)  # whole 32-bit words
    if nbytes:
        share.take(x.contiguous().data_ptr(), buffer, nbytes)  # type: ignore[arg-type]  # a buffer of the Vulkan device
    return DeviceArray(buffer, 0, dtype, shape, contiguous_strides(shape)), False


def _same_gpu(x: Any) -> tuple[cuda.CudaShare, Device]:
    """Return the Vulkan device on the GPU of a CUDA tensor, and its connection to CUDA."""
    if x.device.type != "cuda":
        raise ArgumentError(f"a PyTorch tensor on {x.device}: bring it to the CPU or to CUDA")
    uuid = cuda.gpu_uuid(x.device.index)
    for info in devices():
        if info.uuid == uuid and not info.missing:
            device = open_device(info.index)
            return _share_of(device), device
    raise FeatureError(f"no Vulkan device is the GPU of {x.device}: see python -m vkjit doctor")


class _CudaArgument:
    """Adapter that passes a CUDA tensor to kernels as a device array.

    Implements the protocol of `Kernel`: `__vkjit_array__` is the array, `__vkjit_wrap__` converts allocated results,
    and `__vkjit_written__` is called after a launch.
    """

    def __init__(self, x: Any) -> None:
        self._tensor = x
        self.__vkjit_array__, self._shared = from_torch(x)

    @staticmethod
    def __vkjit_wrap__(array: DeviceArray) -> Any:
        return to_torch(array)

    def __vkjit_written__(self) -> None:
        """Make a kernel's writes visible to PyTorch.

        Copies them back to the tensor, or if memory is shared, increments the tensor's version counter.
        """
        if self._shared:
            _bump_version(self._tensor)
        else:
            self._tensor.detach().copy_(to_torch(self.__vkjit_array__))


def _bump_version(x: Any) -> None:
    """Increment the tensor's version counter, by which PyTorch's autograd detects in-place writes."""
    increment = getattr(getattr(_library().autograd, "graph", None), "increment_version", None)
    if increment is not None:
        increment(x)


def launch(run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Launch a kernel with PyTorch tensors among its arguments; allocated Out arrays are returned as PyTorch tensors.

    `run(*args, **kwargs)` launches the kernel with arguments that it supports itself. Raises ArgumentError for tensors
    that require a gradient while gradients are enabled.
    """
    __tracebackhide__ = True  # pytest leaves this frame out of tracebacks
    given = [*args, *kwargs.values()]
    converted = [_converted(value) if is_torch(value) else value for value in given]
    on_host = [x for x, array in zip(given, converted, strict=True) if is_torch(x) and isinstance(array, np.ndarray)]
    try:
        result = run(*converted[: len(args)], **dict(zip(kwargs, converted[len(args) :], strict=True)))
    finally:
        # CUDA tensors are handled by _CudaArgument; it isn't known which CPU tensors were written, so all are bumped
        for x in on_host:
            _bump_version(x)
    if not on_host:
        return result
    return tuple(map(_from_numpy, result)) if isinstance(result, tuple) else _from_numpy(result)


def _converted(x: Any) -> Any:
    """Convert a PyTorch tensor to an argument that kernels support: a NumPy array or a `_CudaArgument`."""
    if x.requires_grad and _library().is_grad_enabled():
        raise ArgumentError(
            "a PyTorch tensor that requires a gradient was given to a kernel, which autograd doesn't follow: pass x.detach()"
        )
    if x.device.type != "cpu":
        return _CudaArgument(x)
    if x.dtype is _library().bfloat16:
        raise ArgumentError("NumPy has no bfloat16, and so no PyTorch tensor of it on the CPU: convert with .float()")
    _vkjit_dtype(x)  # raises for unsupported types
    array = x.detach().resolve_neg().numpy()
    if x.is_neg():  # a copy: what a kernel writes to it would be lost, so it is refused
        array.setflags(write=False)
    return array


def _from_numpy(value: Any) -> Any:
    return _library().from_numpy(value) if isinstance(value, np.ndarray) else value
