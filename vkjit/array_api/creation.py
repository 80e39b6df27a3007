"""The array API standard's creation functions.

In all of them, `dtype` and `device` select the element type and the device of the result. Without `dtype`, the result
is f32, or has the type of the values given. Without `device`, it is on the default device, or on that of the tensor
given.
"""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError, check_nesting
from ..tensor.dlpack import from_dlpack
from ..tensor.ops import creation, triangles
from ..tensor.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _shape(shape: Any) -> tuple[int, ...]:
    """Return the shape as a tuple; an int is the size of a single axis."""
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Convert a number, nested sequences, a tensor, or an object with DLPack or the buffer protocol to a tensor.

    `copy=True` always copies. `copy=False` raises ValueError if a copy is needed, as it is for everything other than a
    tensor. By default, a tensor is copied only if its type or device changes.
    """
    if isinstance(obj, Tensor):
        result = obj.to(dtype=dtype or obj.dtype, device=device if device is not None else obj.device)
        if result is obj:
            return obj.clone() if copy else obj
        if copy is False:
            raise ValueError(f"asarray(copy=False): {obj.dtype!r} on {obj.device.name} needs a copy to fit")
        return result
    if copy is False:
        raise ValueError("asarray(copy=False) takes a tensor: other data are always copied")
    check_nesting(obj, "asarray()")
    return creation.tensor(_plain(obj), dtype=dtype, device=device)


def _plain(obj: Any) -> Any:
    """Replace the tensors in nested sequences, which have one element each, by Python scalars."""
    if isinstance(obj, (list, tuple)):
        return [_plain(v) for v in obj]
    return obj.item() if isinstance(obj, Tensor) else obj


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the numbers from `start` to `stop`, exclusive, in steps of `step`."""
    low, high = (0, start) if stop is None else (start, stop)
    high = low if (high - low) * step < 0 else high  # no numbers, which `vk.arange` refuses
    # integer results from float arguments: compute in f64, then truncate
    truncate = dtype is not None and dtype.is_integer and any(isinstance(v, float) for v in (low, high, step))
    result = creation.arange(low, high, step, dtype=dtypes.f64 if truncate else dtype, device=device)
    return result.to(dtype) if truncate else result


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an uninitialized tensor of the given shape."""
    return creation.empty(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of zeros of the given shape."""
    return creation.zeros(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of ones of the given shape."""
    return creation.ones(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of the given shape, filled with `fill_value`."""
    return creation.full(_shape(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an uninitialized tensor with the shape and type of x."""
    return creation.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of zeros with the shape and type of x."""
    return creation.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of ones with the shape and type of x."""
    return creation.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor with the shape and type of x, filled with `fill_value`."""
    return creation.full_like(x, fill_value, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a matrix with ones on the k-th diagonal and zeros elsewhere; k > 0 is above the main diagonal."""
    import numpy as np

    return creation.upload(np.eye(n_rows, n_cols, k), dtype or dtypes.f32, device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """Return `num` evenly spaced numbers from `start` to `stop`, inclusive unless `endpoint` is False."""
    import numpy as np

    values = np.linspace(float(start), float(stop), num, endpoint=endpoint)
    return creation.upload(values, dtype or dtypes.f32, device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Expand coordinate vectors to tensors over the grid that they span, one tensor per vector.

    With `indexing="xy"`, the first vector varies along axis 1 and the second along axis 0; with "ij", the i-th vector
    varies along axis i. Raises ArgumentError if the types differ.
    """
    if len({a.dtype.name for a in arrays}) > 1:
        raise ArgumentError(f"meshgrid() takes tensors of one type, found {sorted({a.dtype.name for a in arrays})}")
    return list(triangles.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with the elements of x on and below the k-th diagonal, and zeros above it."""
    return triangles.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return matrices with the elements of x on and above the k-th diagonal, and zeros below it."""
    return triangles.triu(x, k)
