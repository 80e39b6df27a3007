"""The array API's creation functions."""

from __future__ import annotations

from typing import Any

from .. import dtypes
from ..errors import ArgumentError
from ..tensor import creation, scans
from ..tensor.dlpack import from_dlpack
from ..tensor.tensor import Tensor

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid", "ones",
    "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """`obj` as a tensor: a number, nested sequences, a tensor, or what has DLPack or the buffer protocol."""
    if isinstance(obj, Tensor):
        made = obj.to(dtype=dtype or obj.dtype, device=device if device is not None else obj.device)
        if made is obj:
            return obj.clone() if copy else obj
        if copy is False:
            raise ValueError(f"asarray(copy=False): {obj.dtype!r} on {obj.device.name} needs a copy to fit")
        return made
    if copy is False:
        raise ValueError("asarray(copy=False) takes a tensor: other data are always copied")
    return creation.tensor(_plain(obj), dtype=dtype, device=device)


def _plain(obj: Any) -> Any:
    """Nested sequences with 0-d tensors as numbers."""
    if isinstance(obj, (list, tuple)):
        return [_plain(v) for v in obj]
    return obj.item() if isinstance(obj, Tensor) else obj


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """The numbers from start to stop, exclusive."""
    low, high = (0, start) if stop is None else (start, stop)
    whole = dtype is not None and dtype.is_integer and any(isinstance(v, float) for v in (low, high, step))
    made = creation.arange(low, high, step, dtype=dtypes.f64 if whole else dtype, device=device)
    return made.to(dtype) if whole else made


def empty(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Undefined elements."""
    return creation.empty(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def zeros(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros."""
    return creation.zeros(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def ones(shape: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones."""
    return creation.ones(_shape(shape), dtype=dtype or dtypes.f32, device=device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value everywhere."""
    return creation.full(_shape(shape), fill_value, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Undefined elements of x's shape."""
    return creation.empty_like(x, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Zeros of x's shape."""
    return creation.zeros_like(x, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones of x's shape."""
    return creation.ones_like(x, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
    """One value of x's shape."""
    return creation.full_like(x, fill_value, dtype=dtype, device=device)


def eye(n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: Any = None) -> Tensor:
    """Ones on a diagonal."""
    import numpy as np

    return creation.upload(np.eye(n_rows, n_cols, k), dtype or dtypes.f32, device)


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers at equal distances."""
    import numpy as np

    values = np.linspace(float(start), float(stop), num, endpoint=endpoint)
    return creation.upload(values, dtype or dtypes.f32, device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Coordinates of a grid."""
    if len({a.dtype.name for a in arrays}) > 1:
        raise ArgumentError(f"meshgrid() takes tensors of one type, found {sorted({a.dtype.name for a in arrays})}")
    return list(scans.meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """On and below a diagonal."""
    return scans.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """On and above a diagonal."""
    return scans.triu(x, k)
