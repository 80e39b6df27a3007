"""Layout of a kernel's argument block: the bytes in which a launch passes its arguments.

Fields are little-endian, naturally aligned and sorted by decreasing size, so that there is no padding between them.
"""

from __future__ import annotations

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.errors import InternalError
from vkjit.ir.core import Function, Module
from vkjit.ir.types import Array, Scalar
from vkjit.runtime.artifact import ArgField
from vkjit.runtime.device import DeviceCaps

from .usage import Usage, usage_of

__all__ = ["Layout", "argument_numbers", "argument_set", "block_layout"]

Layout = tuple[tuple[ArgField, ...], int, bool]
"""(fields, size of the block in bytes, True if the block is passed by address)."""

_Item = tuple[str, int, int, DType]


def argument_numbers(kernel: Function) -> tuple[int, ...]:
    """Return the number of each IR parameter in the launch arguments."""
    numbers = tuple(kernel.attrs.get("arg_index", range(len(kernel.params))))
    if len(numbers) != len(kernel.params):
        raise InternalError(f"kernel {kernel.name}: {len(kernel.params)} parameters, {len(numbers)} numbers")
    return numbers


def argument_set(kernel: Function, positions: set[int]) -> frozenset[int]:
    """Return the numbers in the launch arguments of the IR parameters at these positions."""
    numbers = argument_numbers(kernel)
    return frozenset(numbers[position] for position in positions)


def block_layout(module: Module, caps: DeviceCaps, *, used_only: bool = True, usage: Usage | None = None) -> Layout:
    """Return the layout of a kernel's argument block. With `used_only`, it has only the fields that the kernel reads.

    Extents and strides are i32 in narrow kernels, else i64. If the grid may be split, the base and the total number of
    workgroups are i64. A bf16 scalar is passed as f32. If `usage` is given, it replaces `usage_of(module)`.
    """
    if usage is None:
        usage = usage_of(module, used_only=used_only)
    items = _array_items(module.kernel, usage)
    items += _scalar_items(module.kernel, usage)
    items += _grid_items(module.kernel, usage)
    items.sort(key=lambda item: -item[3].itemsize)
    fields: list[ArgField] = []
    offset = 0
    for role, arg, axis, dtype in items:
        fields.append(ArgField(role, arg, axis, dtype, offset, dtype.itemsize))
        offset += dtype.itemsize
    size = -(-offset // 8) * 8 if fields and fields[0].size == 8 else -(-offset // 4) * 4
    return tuple(fields), size, size > caps.push_constant_bytes


def _index_dtype(kernel: Function) -> DType:
    return dtypes.i32 if kernel.attrs.get("narrow") else dtypes.i64


def _array_items(kernel: Function, usage: Usage) -> list[_Item]:
    items: list[_Item] = []
    numbers = argument_numbers(kernel)
    index_dtype = _index_dtype(kernel)
    for position, param in enumerate(kernel.params):
        array = param.type
        if not isinstance(array, Array):
            continue
        arg = numbers[position]
        if position in usage.addresses:
            items.append(("address", arg, 0, dtypes.u64))
        items += [("extent", arg, axis, index_dtype) for axis in range(array.rank) if (position, axis) in usage.extents]
        items += [("stride", arg, axis, index_dtype) for axis in range(array.rank) if (position, axis) in usage.strides]
    return items


def _scalar_items(kernel: Function, usage: Usage) -> list[_Item]:
    items: list[_Item] = []
    numbers = argument_numbers(kernel)
    for position in sorted(usage.scalars):
        kind = kernel.params[position].type
        if not isinstance(kind, Scalar):
            raise InternalError(f"kernel {kernel.name}: a parameter of type {kind} can't be passed")
        dtype = dtypes.f32 if kind.dtype is dtypes.bf16 else kind.dtype
        items.append(("scalar", numbers[position], 0, dtype))
    return items


def _grid_items(kernel: Function, usage: Usage) -> list[_Item]:
    items: list[_Item] = [("report", -1, 0, dtypes.u64)] if usage.reports else []
    items += [("print", -1, 0, dtypes.u64)] if usage.prints else []
    if not kernel.attrs.get("cut"):
        return items
    base_axes = {axis for name, axis in usage.ids if name in ("global_id", "group_id")}
    items += [("base", -1, axis, dtypes.i64) for axis in sorted(base_axes)]
    items += [("groups", -1, axis, dtypes.i64) for name, axis in sorted(usage.ids) if name == "num_groups"]
    return items
