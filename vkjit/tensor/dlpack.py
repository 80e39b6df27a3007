"""Exchange of arrays with other libraries by DLPack 1.x (https://dmlc.github.io/dlpack).

The array is shared without a copy if both sides can access the memory, else copied. Capsules hold a DLManagedTensor or
a DLManagedTensorVersioned. Exported memory stays alive until the consumer calls the deleter. Imported memory stays
alive until its last use here; then its producer's deleter is called once. Host-visible memory is exported as CPU
memory. An export waits for the work launched before it; the caller orders later work (`vk.synchronize()`).
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
from ..errors import ArgumentError, DTypeError, shown
from ..interop import torch
from ..runtime.array import exchange_strides
from ..runtime.device import Device, DeviceArray, contiguous_strides
from .memory import allocate
from .ops.creation import check_unmasked
from .tensor import Tensor

__all__ = ["from_dlpack"]

# constants of dlpack.h: device types, flags and type codes
CPU, VULKAN = 1, 7
_READ_ONLY, _COPIED = 1, 2
_VERSION = (1, 0)
"""The DLPack version that is exported and requested."""
_MAX_AXES = 64
"""The maximum number of axes of an imported array, that of NumPy's."""
_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "bool": 6}


# structures of dlpack.h, in its layout


class _Device(ctypes.Structure):
    """DLDevice."""

    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _DataType(ctypes.Structure):
    """DLDataType."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _DLTensor(ctypes.Structure):
    """DLTensor; strides count elements."""

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
"""C type of a deleter, which takes the address of the managed structure, and of a capsule's destructor."""


class _Managed(ctypes.Structure):
    """DLManagedTensor, of versions before 1.0."""

    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, from version 1.0 on."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


_NAMES: dict[type[ctypes.Structure], bytes] = {_Managed: b"dltensor", _Versioned: b"dltensor_versioned"}
"""Capsule names that DLPack prescribes, by the structure in the capsule."""

# functions of Python's C API
_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", _api))

_raise_pending = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_Occurred", _api))
"""Raises the exception that is pending in the interpreter, if there is one (ctypes checks for it after the call)."""

_exported: dict[int, tuple[Any, ...]] = {}
"""What exported tensors keep alive, by the address of their managed structure.

These are the structure itself, its shape and strides, and the memory's owner.
"""

_USED = {name: b"used_" + name for name in _NAMES.values()}
"""The name that a consumer gives a capsule when it takes the tensor, by the capsule's original name."""


def _release(address: int | None) -> None:
    """Deleter of an exported tensor, which the consumer calls when it no longer uses the memory."""
    if address is not None:
        _exported.pop(address, None)


def _drop_capsule(capsule: int | None) -> None:
    """Destructor of a capsule: release the exported tensor if no consumer has taken it.

    It may run while an exception is pending in the consumer. C API functions must not be called until that exception is
    cleared, and ctypes can't restore it afterwards, so it is raised again at the end and ctypes prints it.
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
    """Return a DLPack capsule, for `numpy.from_dlpack`, `torch.from_dlpack` and similar functions.

    Waits for the work launched before. No copy is made if the memory is host-visible (the `cpu` device, lavapipe,
    integrated GPUs). For other memory pass `dl_device=(1, 0)`, the CPU, to export a copy in host memory. Raises
    BufferError for tensors that require a gradient, negative strides (unless a copy is made), types that DLPack lacks, and
    copies forbidden by `copy=False`.
    """
    for name, pair in (("max_version", max_version), ("dl_device", dl_device)):
        if pair is not None and not (
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(i, int) for i in pair)
        ):
            raise ArgumentError(f"__dlpack__({name}=): expected two ints, found {shown(pair)}")
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
    strides = contiguous_strides(x.shape) if copied else exchange_strides(x.shape, x.__vkjit_array__.strides)
    if any(stride < 0 for stride in strides):  # PyTorch ends the process when it gets them
        raise BufferError(f"the strides {strides} are negative, which other libraries lack: export x.contiguous()")
    address, owner = _on_host(x, copied)
    versioned = max_version is not None and max_version[0] >= 1
    structure: type[ctypes.Structure] = _Versioned if versioned else _Managed
    managed: Any = structure()
    shape = (ctypes.c_int64 * len(x.shape))(*x.shape)
    c_strides = (ctypes.c_int64 * len(x.shape))(*strides)
    code, bits = _code_of(x.dtype)
    tensor = managed.tensor
    tensor.data = address
    tensor.device = _Device(*target_device)
    tensor.ndim = len(x.shape)
    tensor.dtype = _DataType(code, bits, 1)
    tensor.shape = shape
    tensor.strides = c_strides
    managed.deleter = ctypes.cast(_DELETE, ctypes.c_void_p)
    if versioned:
        managed.major, managed.minor = _VERSION
        managed.flags = _COPIED if copied else 0
    managed_address = ctypes.addressof(managed)
    _exported[managed_address] = (managed, shape, c_strides, owner)
    return _new_capsule(managed_address, _NAMES[structure], ctypes.cast(_DESTROY, ctypes.c_void_p))


def _on_host(x: Tensor, copied: bool) -> tuple[int, Any]:
    """Return the address of x's elements in host memory, and an object that keeps that memory alive.

    If `copied` is set, or x's memory isn't host-visible, the elements are copied to new memory, in C order.
    """
    array = x.__vkjit_array__
    memory = None if copied else array.device.host_view(array.buffer)
    if memory is None:
        from ..launch import host_arrays

        values = host_arrays.fetch(array)
        return values.ctypes.data, values
    array.device.synchronize()
    return int(memory.ctypes.data) + array.offset, (memory, array.buffer)


def _code_of(dtype: DType) -> tuple[int, int]:
    """Return the DLPack type code and the number of bits. Raises BufferError for types that DLPack lacks."""
    if dtype is dtypes.bf16:
        return _CODES["bfloat"], 16
    if dtype is dtypes.boolean:
        return _CODES["bool"], 8
    if dtype.is_float and dtype.bits < 16:
        raise BufferError(
            f"DLPack {_VERSION[0]}.{_VERSION[1]} has no element type for {dtype!r}: convert with .to(vk.f32)"
        )
    kind = "float" if dtype.is_float else "uint" if dtype.name.startswith("u") else "int"
    return _CODES[kind], dtype.bits


def _dtype_of(dl_type: Any) -> DType:
    """Return the element type for a `_DataType`. Raises DTypeError if vkjit lacks it."""
    names = {value: name for name, value in _CODES.items()}
    kind = names.get(dl_type.code)
    prefix = {"int": "i", "uint": "u", "float": "f", "bfloat": "bf"}.get(kind or "")
    # for an unknown type code, the prefix and thus the name are invalid
    name = "bool" if kind == "bool" and dl_type.bits == 8 else f"{prefix}{dl_type.bits}"
    if dl_type.lanes != 1 or name not in dtypes.by_name:
        raise DTypeError(
            f"an array of DLPack type code {dl_type.code}, {dl_type.bits} bits, {dl_type.lanes} lanes: expected a real number type"
        )
    return dtypes.by_name[name]


class _ImportedMemory:
    """Owner of memory imported from another library: calls the producer's deleter when it is itself deleted.

    `address` is the address of the producer's managed structure, `deleter` the address of its deleter, or None.
    """

    def __init__(self, address: int, deleter: int | None) -> None:
        if deleter:
            weakref.finalize(self, _DELETER(deleter), address).atexit = False


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return a tensor made from an array that implements `__dlpack__`.

    The array is in CPU memory, or it is a PyTorch CUDA tensor. An array in CPU memory (NumPy, PyTorch, JAX...) isn't
    copied if `device` (by default, the default device) can use host memory; both sides then see each other's writes. A
    PyTorch CUDA tensor becomes a tensor of the Vulkan device on the same GPU unless `device` names another: without a
    copy if its memory came from `Tensor.torch()`, else by a copy on the GPU. `copy=True` always copies; `copy=False`
    raises BufferError if a copy is needed. Raises ArgumentError for objects without `__dlpack__` and arrays in other
    memory, DTypeError for types that vkjit lacks (complex).
    """
    target = open_device(device)
    check_unmasked(x)
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
    """Import a PyTorch CUDA tensor; see `from_dlpack`. `target` None means the Vulkan device on the same GPU."""
    array, shared = torch.from_torch(x)  # `shared`: the array uses x's memory; else it is a copy already
    if copy is False and not (shared and target in (None, array.device)):
        raise BufferError("PyTorch's own CUDA memory can't be imported, and copy=False forbids to copy it")
    return Tensor(array).to(device=array.device if target is None else target, copy=bool(copy) and shared)


def _capsule_of(x: Any) -> Any:
    """Return the array's DLPack capsule, of version 1.x if its library supports that."""
    try:
        return x.__dlpack__(max_version=_VERSION)
    except TypeError:  # a library from before DLPack 1.0
        return x.__dlpack__()


def _imported(capsule: Any, target: Device, copy: bool | None) -> Tensor:
    """Take the tensor out of a capsule and import it on the device `target`."""
    # a used capsule has another name; the C functions take the address of the capsule object, which is its id
    unused = [(structure, name) for structure, name in _NAMES.items() if _is_valid(id(capsule), name)]
    if not unused:
        raise ArgumentError("__dlpack__ gave no fresh DLPack capsule: expected one that nobody has used yet")
    structure, name = unused[0]
    address = _pointer_in(id(capsule), name)
    managed: Any = structure.from_address(address)
    if structure is _Versioned and managed.major != _VERSION[0]:
        raise ArgumentError(f"a DLPack array of version {managed.major}.{managed.minor}, expected version 1")
    _set_name(capsule, _USED[name])
    owner = _ImportedMemory(address, managed.deleter)
    read_only = structure is _Versioned and bool(managed.flags & _READ_ONLY)
    dl_tensor = managed.tensor
    shape, strides = _checked_layout(dl_tensor)
    return _tensor_around(target, dl_tensor, _dtype_of(dl_tensor.dtype), shape, strides, owner, read_only, copy)


def _checked_layout(dl_tensor: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape and the strides of a `_DLTensor`. Raises ArgumentError for a structure that can't be right.

    Strides of axes with less than two elements, which are never used, are replaced by those of a contiguous array.
    """
    rank = dl_tensor.ndim
    if not 0 <= rank <= _MAX_AXES:
        raise ArgumentError(f"a DLPack array with {rank} axes: expected 0 to {_MAX_AXES}")
    if rank and not dl_tensor.shape:
        raise ArgumentError(
            f"a DLPack array with {rank} axes and without a shape (a null pointer): its library is broken"
        )
    shape = tuple(dl_tensor.shape[i] for i in range(rank))
    if any(extent < 0 for extent in shape):
        raise ArgumentError(f"a DLPack array of shape {shape}: expected extents of at least 0")
    strides = contiguous_strides(shape)
    if dl_tensor.strides:
        strides = tuple(dl_tensor.strides[i] if shape[i] > 1 else strides[i] for i in range(rank))
    if 0 not in shape:
        reach = 16 * sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))
        if not dl_tensor.data or reach >= 2**63 or math.prod(shape) >= 2**63:
            where = "at a null pointer" if not dl_tensor.data else "which no address space holds"
            raise ArgumentError(
                f"a DLPack array of shape {shape} with strides {strides}, {where}: its library is broken"
            )
    return shape, strides


def _tensor_around(
    target: Device,
    dl_tensor: Any,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    owner: _ImportedMemory,
    read_only: bool,
    copy: bool | None,
) -> Tensor:
    """Return a tensor on `target` for the elements of a `_DLTensor`, sharing their memory if possible.

    `owner` keeps the memory alive. `copy` is that of `from_dlpack`.
    """
    data_address = (dl_tensor.data or 0) + dl_tensor.byte_offset
    item_size = dtype.itemsize
    # the range of addresses of all elements, given the offset of the last element along each axis; strides may be
    # negative
    reaches = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    low_address = data_address + item_size * sum(r for r in reaches if r < 0)
    high_address = data_address + item_size * (sum(r for r in reaches if r > 0) + 1)
    if 0 in shape:
        low_address = high_address = data_address
    if not copy and not read_only and data_address and data_address % item_size == 0 and 0 not in shape:
        buffer = target.adopt(low_address, high_address - low_address, owner)
        if buffer is not None:
            return Tensor(DeviceArray(buffer, data_address - low_address, dtype, shape, strides))
    if copy is False and 0 not in shape:  # without elements, there is nothing to share
        reason = "it is read-only" if read_only else "kernels there can't work on this memory"
        raise BufferError(f"{target.name} needs a copy of this array ({reason}), and copy=False forbids it")
    out = allocate(shape, dtype, target)
    size = math.prod(shape)
    if size:
        source = np.ctypeslib.as_array(
            ctypes.cast(low_address, ctypes.POINTER(ctypes.c_uint8)), shape=(high_address - low_address,)
        )
        view = np.ndarray(
            shape, dtype.storage, source.data, data_address - low_address, [s * item_size for s in strides]
        )
        target.write(out.buffer, 0, np.ascontiguousarray(view).reshape(-1).view(np.uint8))
    del owner  # the source's memory had to stay alive until here
    return Tensor(out)


METHODS: dict[str, Callable[..., Any]] = {"__dlpack__": export, "__dlpack_device__": device_of}
"""Methods of `Tensor` by name."""
