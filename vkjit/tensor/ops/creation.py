"""Tensor creation: from data, filled with one value, and sequences of numbers.

Data are Python numbers, nested lists, NumPy arrays or tensors. Results are contiguous, on the given device or the
default one. `dtype` takes a vkjit element type or its name, a NumPy type, or `float`, `int`, `bool`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from vkjit import dtypes
from vkjit.backends.selection import device as open_device
from vkjit.dtypes import DType
from vkjit.errors import ArgumentError, DTypeError, OutOfMemoryError, check_nesting
from vkjit.launch.bind import poison
from vkjit.runtime.capture import constant_buffer
from vkjit.runtime.device import Device, DeviceArray, contiguous_strides
from vkjit.settings import boolean_setting

from ..argument_errors import explain_errors
from ..memory import allocate, as_int, check_fits, to_storage, write_value
from ..tensor import Tensor, as_shape

__all__ = [
    "arange",
    "as_dtype",
    "as_tensor",
    "check_model",
    "empty",
    "empty_like",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "scalar_tensor",
    "tensor",
    "upload",
    "zeros",
    "zeros_like",
]

DeviceLike = Any
"""A device, its name, or None for the default device."""
_MAX_ON_HOST = (2**63 - 1) // 8
"""Maximum number of 8-byte numbers that an address space can hold."""
_PYTHON_TYPES: dict[Any, DType] = {float: dtypes.f32, int: dtypes.i64, bool: dtypes.boolean}
"""Element types by the Python types of scalars."""


def as_dtype(spec: Any) -> DType:
    """Return the element type that a `dtype=` argument denotes. Raises DTypeError if it is none."""
    if isinstance(spec, DType):
        # the base class of the element types has no name; `index` isn't stored in arrays
        if "name" not in vars(spec) or spec is dtypes.index:
            raise DTypeError(f"{spec!r} is no type of an array's elements: use one of {dtypes.ALL}")
        return spec
    if isinstance(spec, type) and spec in _PYTHON_TYPES:
        return _PYTHON_TYPES[spec]
    if isinstance(spec, str) and spec in dtypes.by_name:
        return as_dtype(dtypes.by_name[spec])
    try:
        return dtypes.from_numpy(spec)
    except TypeError as error:
        raise DTypeError(f"dtype={spec!r} is no element type: use one of {dtypes.ALL}") from error


def empty(*shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return an uninitialized tensor: `vk.empty(2, 3)`. With VKJIT_DEBUG=1 floats are NaN."""
    array = allocate(as_shape(shape), as_dtype(dtype), open_device(device))
    if boolean_setting("VKJIT_DEBUG"):
        poison(array)
    tensor = Tensor(array)
    return tensor.requires_grad_() if requires_grad else tensor


def check_unmasked(values: Any) -> None:
    """Raise ArgumentError for a masked array of NumPy's: a tensor would lose the mask."""
    if type(values) is not np.ndarray and isinstance(values, np.ndarray) and hasattr(values, "mask"):
        raise ArgumentError(
            f"found a {type(values).__name__}, and tensors have no masks: pass its .data, .filled(...), or the mask as an array "
            "of its own"
        )


def upload(values: npt.NDArray[Any], dtype: DType, device: DeviceLike = None) -> Tensor:
    """Return a tensor with these values, converted to `dtype`. Raises ArgumentError for masked arrays."""
    check_unmasked(values)
    target = open_device(device)
    array = allocate(values.shape, dtype, target)
    stored = to_storage(values, dtype)
    if stored.nbytes:
        target.write(array.buffer, 0, stored.reshape(-1).view(np.uint8))
    return Tensor(array)


def constant(values: npt.NDArray[Any], dtype: DType, device: Device) -> DeviceArray:
    """Return an array with these values for a cache: it has them at once, also if work is captured, and stays as it is."""
    stored = to_storage(np.ascontiguousarray(values), dtype)
    buffer = constant_buffer(device, stored.reshape(-1).view(np.uint8))
    return DeviceArray(buffer, 0, dtype, values.shape, contiguous_strides(values.shape))


def _values_of(data: Any, dtype: Any) -> tuple[npt.NDArray[Any], DType]:
    """Return data as a NumPy array, and the element type of the tensor: `dtype`, or what the data implies."""
    check_unmasked(data)
    typed = isinstance(data, (np.ndarray, np.generic)) or hasattr(data, "__array__")  # has an element type of its own
    try:
        values = np.asarray(data)
    except ValueError as error:
        check_nesting(data, "tensor(): the data")
        raise ArgumentError(f"the nested lists don't form an array: {error}") from error
    if values.dtype.kind in "OSU":
        raise ArgumentError(f"a tensor is made of numbers, found a {type(data).__name__} that holds other objects")
    if dtype is not None:
        element = as_dtype(dtype)
        if not typed and element.is_integer and values.dtype.kind in "iuf" and values.size:
            values = _as_integers(data, values, element)
        return values, element
    inferred = dtypes.from_numpy(values.dtype)
    if not typed and inferred is dtypes.f64:
        _check_exact(data, values)
        inferred = dtypes.f32  # the default type of Python floats
    return values, inferred


def _as_integers(data: Any, values: npt.NDArray[Any], element: DType) -> npt.NDArray[Any]:
    """Return Python numbers, of which `values` is the array, as integers. Raises DTypeError if `element` can't hold them."""
    limits = np.iinfo(element.storage)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise DTypeError(f"numbers that aren't finite don't fit {element!r} ({limits.min} to {limits.max})")
        exact = np.array(data, dtype=object)  # f64 rounds large ints that stand beside floats
        values = np.array([int(v) for v in exact.reshape(-1)], dtype=object).reshape(exact.shape)
    if int(values.min()) < limits.min or int(values.max()) > limits.max:
        raise DTypeError(
            f"numbers from {values.min()} to {values.max()} don't fit {element!r} ({limits.min} to {limits.max})"
        )
    return values


def _check_exact(data: Any, values: npt.NDArray[Any]) -> None:
    """Raise DTypeError for ints, of which `values` is the array, that NumPy has turned to floats: no type holds them all."""
    if np.abs(values).max(initial=0) >= 2**63 and all(type(v) is int for v in np.array(data, dtype=object).reshape(-1)):
        raise DTypeError("ints beyond 2**63 beside negative ones fit no integer type: give dtype=, such as vk.f32")


@explain_errors
def tensor(data: Any, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a new tensor with a copy of `data`: a number, nested lists, a NumPy array or a tensor.

    Without `dtype`, Python floats give f32, ints i64, bools bool; NumPy arrays and tensors keep their type.
    """
    if isinstance(data, Tensor):
        result = data.detach().to(dtype=dtype or data.dtype, device=device, copy=True)
    else:
        values, element = _values_of(data, dtype)
        result = upload(values, element, device)
    return result.requires_grad_() if requires_grad else result


def as_tensor(data: Any, dtype: Any = None, device: DeviceLike = None) -> Tensor:
    """Return `data` as a tensor. A tensor of that type and device is returned itself, still on the autograd tape."""
    if isinstance(data, Tensor):
        return data.to(dtype=dtype or data.dtype, device=device if device is not None else data.device)
    return tensor(data, dtype, device)


def from_numpy(values: npt.NDArray[Any], device: DeviceLike = None) -> Tensor:
    """Return a tensor with a copy of a NumPy array, of the same element type."""
    if not isinstance(values, np.ndarray):
        raise ArgumentError(f"from_numpy() takes a NumPy array, found {type(values).__name__}: use vk.tensor(...)")
    return upload(values, dtypes.from_numpy(values.dtype), device)


def full(
    shape: Any, fill_value: Any, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor filled with `fill_value`; without `dtype`, floats give f32, ints i64, bools bool."""
    sizes = as_shape((shape,)) if not isinstance(shape, int) else (shape,)
    if not isinstance(fill_value, (bool, int, float, np.generic)):
        raise ArgumentError(f"full() takes a number to fill with, found {type(fill_value).__name__}")
    element = as_dtype(dtype) if dtype is not None else _number_type(fill_value)
    result = empty(sizes, dtype=element, device=device)
    try:
        write_value(result._array, fill_value)
    except OverflowError:
        raise ArgumentError(f"full(): {fill_value} is out of the range of {element!r}") from None
    return result.requires_grad_() if requires_grad else result


def _number_type(value: Any) -> DType:
    """Return the default element type for a Python or NumPy scalar."""
    if isinstance(value, np.generic) and not isinstance(value, float):  # np.float64 is a Python float, too
        return dtypes.from_numpy(value.dtype)
    return _PYTHON_TYPES[type(value) if type(value) in _PYTHON_TYPES else float]


def zeros(*shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor of zeros: `vk.zeros(2, 3)`."""
    return full(as_shape(shape), 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(*shape: Any, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor of ones: `vk.ones(2, 3)`."""
    return full(as_shape(shape), 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(x: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return an uninitialized tensor of x's shape, with x's type and device unless given."""
    check_model(x, "empty_like")
    return empty(x.shape, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def check_model(x: Any, name: str) -> None:
    """Raise ArgumentError if the tensor whose shape the function `name` takes isn't one."""
    if not isinstance(x, Tensor):
        raise ArgumentError(
            f"{name}() takes a tensor, found {type(x).__name__}: give the shape to a function like vk.zeros"
        )


def full_like(
    x: Tensor, fill_value: Any, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return a tensor of x's shape filled with `fill_value`, with x's type and device unless given."""
    check_model(x, "full_like")
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device, requires_grad=requires_grad)


def zeros_like(x: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor of zeros of x's shape, with x's type and device unless given."""
    check_model(x, "zeros_like")
    return full_like(x, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(x: Tensor, *, dtype: Any = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Return a tensor of ones of x's shape, with x's type and device unless given."""
    check_model(x, "ones_like")
    return full_like(x, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def _with_requires_grad(x: Tensor, requires_grad: bool) -> Tensor:
    """Return a new tensor, made a leaf that requires a gradient if `requires_grad` is set."""
    return x.requires_grad_() if requires_grad else x


def scalar_tensor(
    value: Any, *, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return a 0-d tensor with the given value."""
    return full((), value, dtype=dtype, device=device, requires_grad=requires_grad)


@contextlib.contextmanager
def _on_host(name: str, count: int) -> Iterator[None]:
    """Context manager for code in which function `name` makes `count` 8-byte numbers with NumPy.

    Raises OutOfMemoryError, in place of MemoryError, if the host lacks the memory.
    """
    try:
        if count > _MAX_ON_HOST:
            raise MemoryError
        yield
    except MemoryError as error:
        raise OutOfMemoryError(f"{name}(): no memory for {8 * count} bytes on the host") from error


def arange(
    start: Any, end: Any = None, step: Any = 1, *, dtype: Any = None, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the numbers from `start` to `end`, exclusive, in steps of `step`.

    `arange(n)` starts at 0 and ends before n. Without `dtype`, ints give i64, anything else f32.
    """
    low, high = (0, start) if end is None else (start, end)
    low, high, step = (v.item() if isinstance(v, Tensor) else v for v in (low, high, step))
    element = as_dtype(dtype) if dtype is not None else None
    if element is dtypes.i64 and all(map(math.isfinite, (low, high, step))):
        # as in PyTorch: for i64 truncate before the length is computed, for other integer types after it (below)
        low, high, step = int(low), int(high), int(step)
    if step == 0 or not all(map(math.isfinite, (low, high, step))):
        raise ArgumentError(f"arange({low}, {high}, {step}): expected finite numbers and a step other than 0")
    if low != high and (low < high) is not (step > 0):
        raise ArgumentError(
            f"arange({low}, {high}, {step}): the end is on the other side of the start than the step goes; "
            f"expected a step {'above' if low < high else 'below'} 0"
        )
    integral = all(isinstance(v, (int, np.integer)) for v in (low, high, step))
    # ceil((high - low) / step), for integers without floats
    if not integral and not math.isfinite((high - low) / step):
        raise ArgumentError(f"arange({low}, {high}, {step}): too many elements for a tensor")
    length = math.ceil((high - low) / step) if not integral else -((int(low) - int(high)) // int(step))
    count = max(0, length)
    if element is None:
        element = dtypes.i64 if integral else dtypes.f32
    for value in (low, high, low + count * step) if integral and count else ():
        check_fits(value - (value == 2**63), dtypes.i64)  # an end of 2**63 is exclusive
    if element.is_integer and not integral:
        low, step, integral = int(low), int(step), True
    with _on_host("arange", count):
        indices: Any = np.arange(count, dtype=np.int64 if integral else np.float64)
        values = np.asarray(low + indices * step)
    return _with_requires_grad(upload(values, element, device), requires_grad)


def _evenly_spaced(name: str, start: Any, end: Any, steps: int, dtype: DType) -> Any:
    """Return `steps` evenly spaced numbers from `start` to `end` as a NumPy array, for the function `name`.

    As in PyTorch, each number is computed from the nearer end. If `dtype` is an integer type, the ends are truncated
    first, and `logspace` computes its exponents in f32.
    """
    steps = as_int(steps, f"{name}(steps=)", 0)
    low, high = (float(v.item()) if isinstance(v, Tensor) else float(v) for v in (start, end))
    if dtype.is_integer:
        for value in (low, high):
            check_fits(value, dtype)
        low, high = float(int(low)), float(int(high))
    float_type: Any = np.float32 if name == "logspace" and dtype.is_integer else np.float64
    step = float_type(high - low) / float_type(max(steps - 1, 1))
    with _on_host(name, steps):
        indices = np.arange(steps)
        return (
            np.where(
                indices < steps // 2,
                float_type(low) + step * indices.astype(float_type),
                float_type(high) - step * (steps - 1 - indices).astype(float_type),
            )
            if steps > 1
            else np.full(steps, low)
        )


def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return `steps` evenly spaced numbers from `start` to `end`, inclusive."""
    return _with_requires_grad(
        upload(_evenly_spaced("linspace", start, end, steps, as_dtype(dtype)), as_dtype(dtype), device), requires_grad
    )


def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = dtypes.f32, device: DeviceLike = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return `steps` powers of `base`, with exponents evenly spaced from `start` to `end`, inclusive."""
    exponents = _evenly_spaced("logspace", start, end, steps, as_dtype(dtype))
    base = float(base)
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.power(base, exponents.astype(np.float64))
    return _with_requires_grad(upload(values, as_dtype(dtype), device), requires_grad)


def eye(
    n: int, m: int | None = None, *, dtype: Any = dtypes.f32, device: DeviceLike = None, requires_grad: bool = False
) -> Tensor:
    """Return an n by m matrix (m defaults to n) with ones on the diagonal and zeros elsewhere."""
    n = as_int(n, "eye(n=)", 0)
    m = n if m is None else as_int(m, "eye(m=)", 0)
    with _on_host("eye", n * m):
        values = np.eye(n, m)
    return _with_requires_grad(upload(values, as_dtype(dtype), device), requires_grad)
