"""Exchange of arrays with other libraries by DLPack 1.x (https://dmlc.github.io/dlpack), zero-copy where the memory
allows it.

Capsules hold a DLManagedTensor or a DLManagedTensorVersioned. Exported memory stays alive until the consumer calls the
deleter; imported memory stays alive until its last use here, and then its producer's deleter is called once.
Host-visible memory is exported as CPU memory. Work launched before the exchange is complete by then; ordering later
work is up to the caller (`vk.synchronize()`).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..backends.selection import device as open_device
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError
from ..interop import torch
from ..runtime.device import Device, DeviceArray, contiguous_strides
from .memory import allocate
from .tensor import Tensor

__all__ = ["from_dlpack"]

CPU, VULKAN = 1, 7
_READ_ONLY, _COPIED = 1, 2
_OURS = (1, 0)
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_NAMES: dict[type[ctypes.Structure], bytes] = {_Managed: b"dltensor", _Versioned: b"dltensor_versioned"}

_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))

_raise_pending = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", _api))
"""Raises the pending exception of C code; does nothing if there is none."""

_exported: dict[int, tuple[Any, ...]] = {}
"""Exported tensors by the address of their managed structure: the structure, its shape and strides, and the memory's
owner.
"""

_USED = {name: b"used_" + name for name in _NAMES.values()}


def _release(address: int | None) -> None:
    """Deleter for exported tensors: the consumer is done with the memory."""
    if address is not None:
        _exported.pop(address, None)


def _drop_capsule(capsule: int | None) -> None:
    """Capsule destructor: release an exported tensor that no consumer has taken.

    If it runs while an exception is pending in the consumer, no C API function may be called before that one is
    cleared. It can't be restored from here, so it is raised again and ctypes prints it.
    """
    pending: BaseException | None = None
    try:
        _raise_pending()
    except BaseException as error:  # noqa: BLE001  # any pending exception
        pending = error
    for name in _NAMES.values():
        if capsule is not None and _is_valid(capsule, name):
            address = _pointer_in(capsule, name)
            if address is not None:
                _exported.pop(address, None)
    if pending is not None:
        raise pending


_DELETE, _DESTROY = _DELETER(_release), _DELETER(_drop_capsule)
for _callback in (_DELETE, _DESTROY):  # never freed: other libraries may call them after this module is gone
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_callback))


def device_of(x: Tensor) -> tuple[int, int]:
    """Return the DLPack device: (1, 0), the CPU, if the memory is host-visible, else (7, index), Vulkan."""
    array = x.__vkjit_array__
    if array.device.host_view(array.buffer) is not None:
        return CPU, 0
    return VULKAN, array.device.index


def export(
    x: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a DLPack capsule, for `numpy.from_dlpack`, `torch.from_dlpack` and the like.

    No copy is made if the memory is host-visible (the `cpu` device, lavapipe, integrated GPUs); work launched so
    far is complete. Elsewhere pass `dl_device=(1, 0)`, which copies. Raises BufferError for tensors that require a
    gradient, types that DLPack lacks, and copies forbidden by `copy=False`.
    """
    if stream is not None:
        raise BufferError(f"stream={stream!r}: memory of the CPU has no stream, leave it out")
    if x.requires_grad:
        raise BufferError("this tensor requires a gradient: export x.detach()")
    own_device = device_of(x)
    target_device = own_device if dl_device is None else (int(dl_device[0]), int(dl_device[1]))
    if target_device not in (own_device, (CPU, 0)):
        raise BufferError(
            f"a tensor on DLPack device {own_device} can't be exported to {target_device}: copy it over first"
        )
    copied = bool(copy) or target_device != own_device
    if copied and copy is False:
        raise BufferError(
            f"exporting from DLPack device {own_device} to {target_device} takes a copy, and copy=False forbids it"
        )
    if target_device[0] == VULKAN:
        raise BufferError(
            "no other library takes a Vulkan buffer's address: export with dl_device=(1, 0), or use .numpy()"
        )
    address, strides, owner = _on_host(x, copied)
    versioned = max_version is not None and max_version[0] >= 1
    kind: type[ctypes.Structure] = _Versioned if versioned else _Managed
    managed: Any = kind()
    shape = (ctypes.c_int64 * len(x.shape))(*x.shape)
    c_strides = (ctypes.c_int64 * len(x.shape))(*strides)
    code, bits = _code_of(x.dtype)
    tensor = managed.tensor
    tensor.data, tensor.device, tensor.ndim = address, _Device(*target_device), len(x.shape)
    tensor.dtype, tensor.shape, tensor.strides = _DataType(code, bits, 1), shape, c_strides
    managed.deleter = ctypes.cast(_DELETE, ctypes.c_void_p)
    if versioned:
        managed.major, managed.minor = _OURS
        managed.flags = _COPIED if copied else 0
    managed_address = ctypes.addressof(managed)
    _exported[managed_address] = (managed, shape, c_strides, owner)
    return _new_capsule(managed_address, _NAMES[kind], ctypes.cast(_DESTROY, ctypes.c_void_p))


def _on_host(x: Tensor, copied: bool) -> tuple[int, tuple[int, ...], Any]:
    """Return the address and strides of the elements in host memory, and an object that keeps that memory alive."""
    array = x.__vkjit_array__
    memory = None if copied else array.device.host_view(array.buffer)
    if memory is None:
        from ..launch import host_arrays

        values = host_arrays.fetch(array)
        return values.ctypes.data, contiguous_strides(x.shape), values
    array.device.synchronize()
    return int(memory.ctypes.data) + array.offset, array.strides, (memory, array.buffer)


def _code_of(dtype: DType) -> tuple[int, int]:
    if dtype is dtypes.bf16:
        return _CODES["bfloat"], 16
    if dtype is dtypes.boolean:
        return _CODES["bool"], 8
    if dtype.is_float and dtype.bits < 16:
        raise BufferError(f"DLPack {_OURS[0]}.{_OURS[1]} has no element type for {dtype!r}: convert with .to(vk.f32)")
    kind = "float" if dtype.is_float else "uint" if dtype.name.startswith("u") else "int"
    return _CODES[kind], dtype.bits


def _dtype_of(found: Any) -> DType:
    names = {value: name for name, value in _CODES.items()}
    kind = names.get(found.code)
    prefix = {"int": "i", "uint": "u", "float": "f", "bfloat": "bf"}.get(kind or "")
    name = "bool" if kind == "bool" and found.bits == 8 else f"{prefix}{found.bits}"
    if found.lanes != 1 or name not in dtypes.by_name:
        raise DTypeError(
            f"an array of DLPack type code {found.code}, {found.bits} bits, {found.lanes} lanes: expected a real number type"
        )
    return dtypes.by_name[name]


class _ImportedMemory:
    """Owner of memory imported from another library; calls the producer's deleter when the last user is gone."""

    def __init__(self, address: int, deleter: int | None) -> None:
        if deleter:
            weakref.finalize(self, _DELETER(deleter), address).atexit = False


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor of an array in CPU memory that implements `__dlpack__` (NumPy, PyTorch, JAX, CuPy...).

    Zero-copy if the device (by default, the default device) works on host memory; both sides then see each other's
    writes. PyTorch CUDA tensors become tensors of the Vulkan device on the same GPU unless `device` names another:
    zero-copy if the memory came from `Tensor.torch()`, else by a copy on the GPU. `copy=True` always copies;
    `copy=False` raises BufferError where a copy is needed. Raises ArgumentError for objects without `__dlpack__` and
    for other memory, DTypeError for types that vkjit lacks (complex).
    """
    target = open_device(device)
    if isinstance(x, Tensor) and x.device is target and not copy:
        return x.detach()
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError(f"from_dlpack() takes an array that offers __dlpack__, found {type(x).__name__}")
    if int(x.__dlpack_device__()[0]) != CPU:
        if isinstance(x, Tensor):
            return x.to(device=target, copy=True)
        if torch.is_torch(x):
            return _from_cuda(x, None if device is None else target, copy)
        raise ArgumentError(f"an array on DLPack device {tuple(x.__dlpack_device__())}: bring it to the CPU first")
    return _imported(_capsule_of(x), target, copy)


def _from_cuda(x: Any, target: Device | None, copy: bool | None) -> Tensor:
    array, shared = torch.from_torch(x)
    if copy is False and not (shared and target in (None, array.device)):
        raise BufferError("PyTorch's own CUDA memory can't be imported, and copy=False forbids to copy it")
    return Tensor(array).to(device=array.device if target is None else target, copy=bool(copy) and shared)


def _capsule_of(x: Any) -> Any:
    try:
        return x.__dlpack__(max_version=_OURS)
    except TypeError:  # a library from before DLPack 1.0
        return x.__dlpack__()


def _imported(capsule: Any, target: Device, copy: bool | None) -> Tensor:
    unused = [(kind, name) for kind, name in _NAMES.items() if _is_valid(id(capsule), name)]
    if not unused:
        raise ArgumentError("__dlpack__ gave no fresh DLPack capsule: expected one that nobody has used yet")
    kind, name = unused[0]
    address = _pointer_in(id(capsule), name)
    managed: Any = kind.from_address(address)
    if kind is _Versioned and managed.major != _OURS[0]:
        raise ArgumentError(f"a DLPack array of version {managed.major}.{managed.minor}, expected version 1")
    _set_name(capsule, _USED[name])
    owner = _ImportedMemory(address, managed.deleter)
    read_only = kind is _Versioned and bool(managed.flags & _READ_ONLY)
    dl_tensor = managed.tensor
    shape = tuple(dl_tensor.shape[i] for i in range(dl_tensor.ndim))
    strides = (
        tuple(dl_tensor.strides[i] for i in range(dl_tensor.ndim)) if dl_tensor.strides else contiguous_strides(shape)
    )
    return _tensor_around(target, dl_tensor, _dtype_of(dl_tensor.dtype), shape, strides, owner, read_only, copy)


def _tensor_around(
    target: Device,
    found: Any,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    owner: _ImportedMemory,
    read_only: bool,
    copy: bool | None,
) -> Tensor:
    data_address = (found.data or 0) + found.byte_offset
    item = dtype.itemsize
    extents = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low = data_address + item * sum(r for r in extents if r < 0)
    high = data_address + item * (sum(r for r in extents if r > 0) + 1)
    if 0 in shape:
        low = high = data_address
    if not copy and not read_only and data_address and data_address % item == 0 and 0 not in shape:
        buffer = target.adopt(low, high - low, owner)
        if buffer is not None:
            return Tensor(DeviceArray(buffer, data_address - low, dtype, shape, strides))
    if copy is False:
        reason = "it is read-only" if read_only else "kernels there can't work on this memory"
        raise BufferError(f"{target.name} needs a copy of this array ({reason}), and copy=False forbids it")
    out = allocate(shape, dtype, target)
    size = math.prod(shape)
    if size:
        source = np.ctypeslib.as_array(ctypes.cast(low, ctypes.POINTER(ctypes.c_uint8)), shape=(high - low,))
        view = np.ndarray(shape, dtype.storage, source.data, data_address - low, [s * item for s in strides])
        target.write(out.buffer, 0, np.ascontiguousarray(view).reshape(-1).view(np.uint8))
    del owner
    return Tensor(out)


METHODS: dict[str, Callable[..., Any]] = {"__dlpack__": export, "__dlpack_device__": device_of}
"""Methods of `Tensor` by name."""
