"""Managed tensors: memory that moves to where it is used.

Enters: data. Leaves: a tensor without a device of its own: whatever uses it finds it on the default device of the thread (see
`vk.use_device`), to which its memory moves first. Holds: there is one copy of the values, which all of its views share and move
with; results of operations are ordinary tensors where they were computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import staging
from ..autograd.tape import GradMeta
from ..devices import default_device
from ..errors import ArgumentError
from ..runtime.graph import is_capturing
from ..runtime.handles import new_lock
from ..runtime.interface import Buffer, Device, DeviceArray
from .tensor import Tensor, Version

__all__ = ["ManagedTensor", "manage"]

_PIECE = 64 << 20
"""Bytes that are in the host's memory at a time on the way from one device to another."""


class _Home:
    """Memory that is on one device at a time."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._lock = new_lock()

    def on(self, device: Device) -> Buffer:
        """The memory on this device, moved there if need be. Raises OutOfMemoryError, and then it stays where it is."""
        with self._lock:
            if self.buffer.device is not device or getattr(self.buffer.device, "closed", False):
                self.buffer = _moved(self.buffer, device)
            return self.buffer


def _moved(source: Buffer, device: Device) -> Buffer:
    target = device.allocate(source.nbytes)
    for start in range(0, source.nbytes, _PIECE):
        piece = device.host_array(min(_PIECE, source.nbytes - start))
        source.device.read(source, start, piece)
        device.write(target, start, piece)
    return target


class _Place:
    """A view of managed memory: a `DeviceArray` for each device."""

    __slots__ = ("array", "home")

    def __init__(self, home: _Home, array: DeviceArray) -> None:
        self.home = home
        self.array = array

    def here(self) -> DeviceArray:
        """The view where this thread works."""
        device = default_device()
        if is_capturing(device):
            raise ArgumentError("a managed tensor in a capture: graphs stay on their device, so give them x.clone()")
        buffer = self.home.on(device)
        array = self.array
        if array.buffer is not buffer:
            array = self.array = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        return array


class ManagedTensor(Tensor):
    """A tensor whose memory moves to the default device of the thread that uses it: `vk.Tensor(data, managed=True)`.

    Use it from one thread at a time. It can't require a gradient, and can't be part of a captured graph.
    """

    __slots__ = ()

    @property
    def _array(self) -> DeviceArray:  # type: ignore[override]  # the slot of `Tensor` holds the place
        return _place_of(self).here()

    __vkjit_array__ = _array  # in `Tensor` that is the slot itself

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return _place_of(self).array.shape

    @property
    def location(self) -> Device:
        """Where the values are at the moment."""
        return _place_of(self).home.buffer.device

    def requires_grad_(self, value: bool = True) -> Tensor:
        """Raises ArgumentError: gradients belong to tensors that stay."""
        if value:
            raise ArgumentError("a managed tensor can't require a gradient: use x.clone().requires_grad_()")
        return self

    def detach(self) -> Tensor:
        """Another object for the same memory."""
        return self.view_of(self._array)

    def alias(self) -> Tensor:
        """As `detach()`."""
        return self.detach()

    def view_of(self, array: DeviceArray) -> Tensor:
        """A view, which moves with this tensor."""
        return _managed(_place_of(self).home, array, self._version)

    def _fetch(self) -> Any:
        """As `Tensor._fetch`, from where the values are."""
        place = _place_of(self)
        buffer = place.home.buffer
        array = place.array
        here = DeviceArray(buffer, array.offset, array.dtype, array.shape, array.strides)
        values = staging.fetch(here).reshape(array.shape)
        return (values.astype(np.uint32) << np.uint32(16)).view(np.float32) if array.dtype.name == "bf16" else values


_slot: Any = Tensor.__dict__["_array"]


def _place_of(x: ManagedTensor) -> _Place:
    place: _Place = _slot.__get__(x)
    return place


def _managed(home: _Home, array: DeviceArray, version: Version | None) -> ManagedTensor:
    made = ManagedTensor.__new__(ManagedTensor)
    _fill(made, _Place(home, array), version)
    return made


def _fill(x: Tensor, place: _Place, version: Version | None) -> None:
    _slot.__set__(x, place)
    x._is_view = version is not None
    x._version = version if version is not None else Version()
    x._history = x._version.recorded
    x._root = None
    x.meta = GradMeta(place.array.shape, place.array.dtype, place.array.device)


def manage(x: Tensor, data: Any) -> None:
    """Makes a fresh object a managed tensor with a copy of the data: numbers, nested lists, a NumPy array or a tensor."""
    from .creation import tensor

    array = tensor(data, device=default_device()).contiguous()._array
    x.__class__ = ManagedTensor
    _fill(x, _Place(_Home(array.buffer), array), None)
