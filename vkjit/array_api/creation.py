"""The array API standard's creation functions."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError
from ..tensor.dlpack import from_dlpack
from ..tensor.ops import creation, triangles
from ..tensor.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Return `obj` as a tensor: a number, nested sequences, a tensor, or an object with DLPack or the buffer protocol.

    `copy=True` always copies. `copy=False` raises ValueError if a copy is needed, which is always so for anything but a
    tensor.
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
    return creation.tensor(_plain(obj), dtype=dtype, device=device)


def _plain(obj: Any) -> Any:
    """Replace tensors in nested sequences by Python scalars."""
    if isinstance(obj, (list, tuple)):
        return [_plain(v) for v in obj]
    return obj.item() if isinstance(obj, Tensor) else obj


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return the numbers from `start` to `stop`, exclusive, in steps of `step`."""
    low, high = (0, start) if stop is None else (start, stop)
    truncate = dtype is not None and dtype.is_integer and any(isinstance(v, float) for v in (low, high, step))
    result = creation.arange(low, high, step, dtype=dtypes.f64 if truncate else dtype, device=device)
    return result.to(dtype) if truncate else result


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an uninitialized tensor."""
    return creation.empty(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of zeros."""
    return creation.zeros(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of ones."""
    return creation.ones(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor filled with one value."""
    return creation.full(_shape(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return an uninitialized tensor of x's shape."""
    return creation.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of zeros of x's shape."""
    return creation.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of ones of x's shape."""
    return creation.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a tensor of x's shape filled with one value."""
    return creation.full_like(x, fill_value, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Return a matrix with ones on the k-th diagonal and zeros elsewhere."""
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
    """Return coordinate tensors of a grid. Raises ArgumentError if the types differ."""
    if len({a.dtype.name for a in arrays}) > 1:
        raise ArgumentError(f"meshgrid() takes tensors of one type, found {sorted({a.dtype.name for a in arrays})}")
    return list(triangles.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and below the k-th diagonal, zeros elsewhere."""
    return triangles.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the elements on and above the k-th diagonal, zeros elsewhere."""
    return triangles.triu(x, k)
