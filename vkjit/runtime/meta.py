"""The meta device: tensors on it have a shape, an element type and a size, but no data.

Buffers record their size only. Writes are discarded; reads and launches raise ArgumentError, so that no result is ever
computed from data that doesn't exist.
"""

from __future__ import annotations

import functools
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from .. import dtypes
from ..errors import ArgumentError
from .artifact import KernelArtifact
from .device import Buffer, Device, DeviceCaps, LoadedKernel
from .handles import new_lock
from .observers import LaunchFields

__all__ = ["META_KIND", "MetaBuffer", "MetaDevice", "meta_device"]

META_KIND = "meta"
"""The device's kind, which is also the name that opens it."""

_FEATURES = frozenset({
    "buffer_device_address", "float16", "float64", "int16", "int64", "int8", "memory_model", "memory_model_device_scope",
    "storage_16bit", "storage_8bit", "subgroup_arithmetic", "subgroup_ballot", "subgroup_basic", "subgroup_shuffle",
    "subgroup_vote",
})  # fmt: skip
"""Features of common kernels, so that a launch gets as far as `load`, which raises the error."""

_CAPS = DeviceCaps(
    kind=META_KIND,
    subgroup_sizes=(32,),
    max_invocations=1024,
    max_local_size=(1024, 1024, 1024),
    max_groups=(2**31 - 1, 2**31 - 1, 2**31 - 1),
    shared_bytes=48 << 10,
    push_constant_bytes=256,
    dtypes=frozenset(dtype.name for dtype in dtypes.ALL),
    features=_FEATURES,
    driver="vkjit",
)


class MetaBuffer(Buffer):
    """A buffer without memory, which has only a size."""

    __slots__ = ("address", "device", "nbytes")

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device, self.nbytes, self.address = device, nbytes, 0

    def close(self) -> None:
        """Do nothing: there is no memory to free."""


class MetaDevice(Device):
    """The "meta" device; use `meta_device` to get the only instance."""

    def __init__(self) -> None:
        self.name, self.caps, self.index = META_KIND, _CAPS, -1
        self._lock = new_lock()

    def allocate(self, nbytes: int) -> Buffer:
        """Return a buffer of this size without memory."""
        return MetaBuffer(self, nbytes)

    def write(self, buffer: Buffer, offset: int, data: npt.NDArray[np.uint8]) -> None:
        """Discard the values."""

    def copy(self, source: Buffer, source_offset: int, target: Buffer, target_offset: int, nbytes: int) -> None:
        """Do nothing: there are no values."""

    def fill(self, buffer: Buffer, offset: int, nbytes: int, pattern: int) -> None:
        """Discard the values."""

    def read(self, buffer: Buffer, offset: int, out: npt.NDArray[np.uint8]) -> None:
        """Raise ArgumentError: there is no data."""
        del buffer, offset, out
        _refuse("be read")

    def load(self, artifact: KernelArtifact) -> LoadedKernel:
        """Raise ArgumentError: there is no data to compute with."""
        del artifact
        _refuse("be computed with")

    def launch(self, request: LaunchFields) -> None:
        """Raise ArgumentError: there is no data to compute with."""
        del request
        _refuse("be computed with")

    def synchronize(self) -> None:
        """Do nothing: no work is ever queued."""

    def close(self) -> None:
        """Do nothing: the device owns no resources."""

    @property
    def report_address(self) -> int:
        return 0

    def memory_stats(self) -> dict[str, int]:
        """Return zeros for all statistics."""
        return {"allocated": 0, "reserved": 0, "peak": 0, "count": 0}

    def reset_peak_memory(self) -> None:
        """Do nothing: the peak is always 0."""


def _refuse(what: str) -> NoReturn:
    raise ArgumentError(
        f'a tensor on the device "meta" has no values and can\'t {what}: give the model memory first, with '
        "model.materialize(device=...)"
    )


@functools.lru_cache(maxsize=1)
def meta_device() -> MetaDevice:
    """Return the meta device; always the same object."""
    return MetaDevice()
