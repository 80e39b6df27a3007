"""Gathers along an axis: vec4 kernels for GPUs, and the choice between them and the kernels of `gather_scatter`.

Arrays have the axes of `gather_scatter`: (A, E, B) with the indexed axis E, or (A, E). `where` holds integer indices,
and FROM_END is True if negative ones count from the end. Out-of-range indices read 0; the vec4 kernels don't report
them. These kernels compute four adjacent elements per invocation. They require that the last axis of the result be a
multiple of four and the indexed axis nonempty.
"""

from __future__ import annotations

from typing import Any, TypeVar

import vkjit as vk
from vkjit.runtime.device import DeviceArray

from ..registry import device_class
from . import gather_scatter

__all__ = ["gather_last", "gather_last_vec4", "take", "take_last", "take_last_vec4", "take_vec4"]

T = TypeVar("T", bound=vk.Element)
I = TypeVar("I", bound=vk.Element)  # noqa: E741  # the type of indices

GROUP = 256
"""Invocations of a workgroup."""


@vk.func
def checked_index(position, extent, FROM_END):
    """Return (in_range, index) for an index `position` along a nonempty axis of `extent` elements.

    Unlike `gather_scatter.checked_index`, this function reports nothing.

    The returned index is counted from the start of the axis. If `position` is out of range, it is 0, so that an element
    can be loaded without a branch; the caller then discards the element.
    """
    wrapped = gather_scatter.from_start(vk.i64(position), vk.i64(extent), FROM_END)
    in_range = (wrapped >= 0) & (wrapped < vk.i64(extent))
    return in_range, vk.index(vk.where(in_range, wrapped, vk.i64(0)))


# debug=False: no bounds checks, even in debug mode and on CPUs, since indices are in range or checked by the kernels
@vk.kernel(groups=lambda y: (vk.cdiv(y.shape[1], 4 * GROUP), y.shape[0]), local=GROUP, debug=False)
def take_last_vec4(x: vk.In[T, "A E"], where: vk.In[I, "N"], y: vk.Out[T, "A N"], FROM_END: vk.Const[bool]):
    """y[a, n] = x[a, where[n]], four n per invocation."""
    n, a = vk.global_id(0) * 4, vk.global_id(1)
    if n < y.shape[1]:
        checked = ()
        for k in vk.unroll(4):
            checked = checked + (checked_index(where[n + k], x.shape[1], FROM_END),)
        values = ()
        for k in vk.unroll(4):
            values = values + (x[a, checked[k][1]],)
        for k in vk.unroll(4):
            y[a, n + k] = vk.where(checked[k][0], values[k], T(0))


@vk.kernel(groups=lambda y: (vk.cdiv(y.shape[1], 4 * GROUP), y.shape[0]), local=GROUP, debug=False)
def gather_last_vec4(x: vk.In[T, "A E"], where: vk.In[I, "A N"], y: vk.Out[T, "A N"], FROM_END: vk.Const[bool]):
    """y[a, n] = x[a, where[a, n]], four n per invocation."""
    n, a = vk.global_id(0) * 4, vk.global_id(1)
    if n < y.shape[1]:
        checked = ()
        for k in vk.unroll(4):
            checked = checked + (checked_index(where[a, n + k], x.shape[1], FROM_END),)
        values = ()
        for k in vk.unroll(4):
            values = values + (x[a, checked[k][1]],)
        for k in vk.unroll(4):
            y[a, n + k] = vk.where(checked[k][0], values[k], T(0))


@vk.kernel(
    groups=lambda y, LOCAL: (vk.cdiv(y.shape[2], 4 * LOCAL), y.shape[1], y.shape[0]),
    local=lambda LOCAL: LOCAL,
    debug=False,
)
def take_vec4(
    x: vk.In[T, "A E B"], where: vk.In[I, "N"], y: vk.Out[T, "A N B"], FROM_END: vk.Const[bool], LOCAL: vk.Const[Any]
):
    """y[a, n, b] = x[a, where[n], b], four b per invocation, in workgroups of LOCAL invocations along b."""
    b, n, a = (vk.group_id(0) * LOCAL + vk.local_id(0)) * 4, vk.global_id(1), vk.global_id(2)
    in_range, position = checked_index(where[n], x.shape[1], FROM_END)
    if b < y.shape[2]:
        values = ()
        for k in vk.unroll(4):
            values = values + (x[a, position, b + k],)
        for k in vk.unroll(4):
            y[a, n, b + k] = vk.where(in_range, values[k], T(0))


def _supports_vec4(x: DeviceArray, y: DeviceArray, min_length: int = 2 * GROUP) -> bool:
    """True if the vec4 kernels support the arrays, and y's last axis has at least `min_length` elements.

    In shorter axes, most invocations of a workgroup would be idle: with the default, at least half of them are busy.
    """
    length = y.shape[-1]
    return device_class(y.device) == "gpu" and x.shape[1] > 0 and length % 4 == 0 and length >= min_length


def take_last(x: DeviceArray, where: DeviceArray, y: DeviceArray, from_end: bool) -> None:
    """y[a, n] = x[a, where[n]]."""
    (take_last_vec4 if _supports_vec4(x, y) else gather_scatter.take_last)(x, where, y, from_end)


def gather_last(x: DeviceArray, where: DeviceArray, y: DeviceArray, from_end: bool) -> None:
    """y[a, n] = x[a, where[a, n]]."""
    (gather_last_vec4 if _supports_vec4(x, y) else gather_scatter.gather_last)(x, where, y, from_end)


def take(x: DeviceArray, where: DeviceArray, y: DeviceArray, from_end: bool) -> None:
    """y[a, n, b] = x[a, where[n], b]."""
    # workgroups of `take_vec4` are as small as 32 invocations, so 128 elements fill one; loads are vectorized only if
    # the last axis of x is contiguous
    if _supports_vec4(x, y, 128) and x.strides[2] == 1:
        vec4s = y.shape[2] // 4
        workgroup_size = next((size for size in (32, 64, 128) if vec4s <= size), GROUP)
        take_vec4(x, where, y, from_end, workgroup_size)
    else:
        gather_scatter.take(x, where, y, from_end)
