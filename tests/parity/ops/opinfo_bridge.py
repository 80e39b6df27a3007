"""Conversion of PyTorch samples to vkjit calls: names, arguments, results.

Tensor arguments keep their strides, offsets and types. Results are converted back to PyTorch tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import vkjit as vk
from vkjit.dtypes import DType
from vkjit.tensor.ops.views import strided

from .function_names import function_of

__all__ = ["Unsupported", "function_of", "leaves", "to_torch", "to_vkjit", "torch_dtype", "upload"]

DTYPES: dict[torch.dtype, DType] = {
    torch.float64: vk.f64,
    torch.float32: vk.f32,
    torch.float16: vk.f16,
    torch.bfloat16: vk.bf16,
    torch.int64: vk.i64,
    torch.int32: vk.i32,
    torch.int16: vk.i16,
    torch.int8: vk.i8,
    torch.uint8: vk.u8,
    torch.bool: vk.boolean,
}
_BACK = {ours.name: theirs for theirs, ours in DTYPES.items()}


class Unsupported(Exception):
    """Raised for a sample that is out of scope (complex numbers, memory formats, sparse layouts), with the reason."""


def _tensor(value: torch.Tensor, device: Any, memo: dict[int, Any]) -> Any:
    if value.dtype not in DTYPES:
        raise Unsupported(f"a tensor of {value.dtype}")
    if value.layout is not torch.strided or value.is_quantized:
        raise Unsupported(f"a tensor of layout {value.layout}")
    if id(value) in memo:
        return memo[id(value)]
    plain = value.detach()
    dtype = DTYPES[value.dtype]
    if plain.is_contiguous() or not plain.numel():
        made = upload(plain, dtype, device)
    else:
        elements = plain.untyped_storage().nbytes() // plain.element_size()
        storage = torch.as_strided(plain, (elements,), (1,), 0)
        made = strided(
            upload(storage, dtype, device), tuple(plain.shape), plain.stride(), plain.storage_offset()
        ).detach()
    if value.requires_grad:
        made.requires_grad_()
    memo[id(value)] = made
    return made


def upload(plain: torch.Tensor, dtype: DType, device: Any) -> Any:
    values = plain.float().numpy() if plain.dtype is torch.bfloat16 else plain.contiguous().numpy()
    return vk.tensor(np.asarray(values), dtype=dtype, device=device)


def to_vkjit(value: Any, device: Any, memo: dict[int, Any]) -> Any:
    """Convert an argument from PyTorch to vkjit; `memo` maps each PyTorch tensor to one vkjit tensor."""
    if isinstance(value, torch.Tensor):
        return _tensor(value, device, memo)
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        items = [to_vkjit(v, device, memo) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {k: to_vkjit(v, device, memo) for k, v in value.items()}
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Unsupported(f"the type {value}")
        return DTYPES[value]
    if isinstance(value, (torch.device, torch.layout, torch.memory_format, torch.Generator)):
        raise Unsupported(f"an argument of {type(value).__name__}")
    if isinstance(value, complex):
        raise Unsupported("a complex number")
    return value


_IGNORED = ("device", "layout", "pin_memory")
"""Keyword arguments that control where PyTorch places a result."""


def keywords(kwargs: dict[str, Any], device: Any, memo: dict[int, Any]) -> dict[str, Any]:
    """Convert keyword arguments, except for those that only control placement."""
    kept = {}
    for name, value in kwargs.items():
        if name in _IGNORED:
            if isinstance(value, torch.layout) and value is not torch.strided:
                raise Unsupported(f"layout {value}")
            continue
        if name == "memory_format":
            if value not in (torch.contiguous_format, torch.preserve_format):
                raise Unsupported(f"memory format {value}")
            continue
        kept[name] = to_vkjit(value, device, memo)
    return kept


def torch_dtype(dtype: DType) -> torch.dtype:
    """Return PyTorch's counterpart of an element type."""
    return _BACK.get(dtype.name, torch.complex32)


def to_torch(value: Any) -> Any:
    """Convert a vkjit result: tensors to PyTorch tensors of the same type and shape, others unchanged."""
    if isinstance(value, vk.Tensor):
        dtype = torch_dtype(value.dtype)
        return torch.from_numpy(np.array(value._fetch())).to(dtype).reshape(value.shape)
    if isinstance(value, (list, tuple)):
        return [to_torch(v) for v in value]
    return value


def leaves(value: Any, kind: type) -> list[Any]:
    """Return all tensors of a kind in nested containers, in order."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, (list, tuple)):
        return [found for v in value for found in leaves(v, kind)]
    if isinstance(value, dict):
        return [found for v in value.values() for found in leaves(v, kind)]
    return []
