"""Managed tensors, whose memory migrates to the device that uses it.

A managed tensor has no fixed device: an operation uses it on the thread's default device (see `vk.use_device`), and
moves its memory there first. There is one copy of the values, shared by all views of the tensor. Results of operations
are ordinary tensors on the device that computed them.

`Tensor` code reads the attribute `_array`; `ManagedTensor` makes it a property that migrates the memory when it is
read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backends.selection import default_device
from ..errors import ArgumentError
from ..launch import host_arrays
from ..runtime.capture import is_capturing
from ..runtime.device import Buffer, Device, DeviceArray
from ..runtime.handles import new_lock
from .autograd.tape import GradMeta
from .tensor import Tensor, Version

__all__ = ["ManagedTensor", "make_managed"]

_CHUNK_BYTES = 64 << 20
"""Chunk size for transfers between devices, which go through host memory."""


class _MigratingBuffer:
    """Memory of managed tensors: a buffer on one device, which is replaced by one on another device to migrate."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._lock = new_lock()

    def on(self, device: Device) -> Buffer:
        """Return a buffer on this device with the values, after moving them there if necessary.

        If the device lacks the memory, OutOfMemoryError is raised and the values stay on the old device.
        """
        with self._lock:
            # the memory of a closed device counts as elsewhere: reading it raises DeviceError
            if self.buffer.device is not device or self.buffer.device.closed:
                self.buffer = _moved(self.buffer, device)
            return self.buffer


def _moved(source: Buffer, device: Device) -> Buffer:
    """Return a new buffer on `device` with a copy of the bytes."""
    target = device.allocate(source.nbytes)
    for start in range(0, source.nbytes, _CHUNK_BYTES):
        piece = device.host_array(min(_CHUNK_BYTES, source.nbytes - start))
        source.device.read(source, start, piece)
        device.write(target, start, piece)
    return target


class _ManagedView:
    """A view of managed memory; a `ManagedTensor` holds one in place of a `DeviceArray`.

    `memory` is the memory, shared by all its views. `array` has the view's layout; its buffer is the one where this view
    was last used, which is outdated if the memory has migrated since.
    """

    __slots__ = ("array", "memory")

    def __init__(self, memory: _MigratingBuffer, array: DeviceArray) -> None:
        self.memory = memory
        self.array = array

    def on_default_device(self) -> DeviceArray:
        """Move the memory to the thread's default device if necessary, and return the view as an array there.

        Raises ArgumentError during graph capture.
        """
        device = default_device()
        if is_capturing(device):
            raise ArgumentError("a managed tensor in a capture: graphs stay on their device, so give them x.clone()")
        buffer = self.memory.on(device)
        array = self.array
        if array.buffer is not buffer:
            array = self.array = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        return array


class ManagedTensor(Tensor):
    """A tensor whose memory moves to the default device of the thread that uses it: `vk.Tensor(data, managed=True)`.

    Use it from one thread at a time. It can't require a gradient or be part of a captured graph.
    """

    __slots__ = ()

    @property
    def _array(self) -> DeviceArray:  # type: ignore[override]  # the slot of `Tensor` holds the view
        return _managed_view_of(self).on_default_device()

    __vkjit_array__ = _array  # `Tensor` uses the slot, which holds the view here

    @property
    def shape(self) -> tuple[int, ...]:
        """Size along each axis."""
        return _managed_view_of(self).array.shape

    @property
    def location(self) -> Device:
        """The device on which the values currently reside."""
        return _managed_view_of(self).memory.buffer.device

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Raise ArgumentError if `value` is True: managed tensors can't require a gradient."""
        if value:
            raise ArgumentError("a managed tensor can't require a gradient: use x.clone().requires_grad_()")
        return self

    def detach(self) -> Tensor:
        """Return another tensor object for the same memory."""
        return self.view_of(self._array)

    def alias(self) -> Tensor:
        """Same as `detach()`."""
        return self.detach()

    def view_of(self, array: DeviceArray) -> Tensor:
        """Return a view of this tensor's memory with the layout of `array`; it is a managed tensor, too."""
        return _managed(_managed_view_of(self).memory, array, self._version)

    def _fetch(self) -> Any:
        """Copy the values to the host from the device they are on, as `Tensor._fetch` does."""
        managed_view = _managed_view_of(self)
        buffer = managed_view.memory.buffer
        array = managed_view.array
        current = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        values = host_arrays.fetch(current).reshape(array.shape)
        # bf16 is fetched as 16-bit integers, which are the upper half of an f32
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32) if array.dtype.name == "bf16" else values


_slot: Any = Tensor.__dict__["_array"]
"""The slot descriptor of `Tensor._array`, which the property `ManagedTensor._array` hides."""


def _managed_view_of(x: ManagedTensor) -> _ManagedView:
    """Return the `_ManagedView` that a managed tensor holds, without moving its memory."""
    view: _ManagedView = _slot.__get__(x)
    return view


def _managed(memory: _MigratingBuffer, array: DeviceArray, version: Version | None) -> ManagedTensor:
    """Return a managed tensor for `memory`, with the layout of `array`.

    If it is a view of another managed tensor, `version` is that tensor's version counter.
    """
    tensor = ManagedTensor.__new__(ManagedTensor)
    _set_slots(tensor, _ManagedView(memory, array), version)
    return tensor


def _set_slots(x: Tensor, view: _ManagedView, version: Version | None) -> None:
    """Set all slots of a managed tensor, as `Tensor.__init__` does for other tensors.

    For a view, `version` is that of the tensor whose memory it shares; else it is None.
    """
    _slot.__set__(x, view)
    x._is_view = version is not None
    x._version = version if version is not None else Version()
    x._history = x._version.recorded
    x._root = None
    x.meta = GradMeta(view.array.shape, view.array.dtype, view.array.device)


def make_managed(x: Tensor, array: DeviceArray) -> None:
    """Turn a newly created tensor object into a managed tensor that takes over the array's memory."""
    x.__class__ = ManagedTensor
    _set_slots(x, _ManagedView(_MigratingBuffer(array.buffer), array), None)
