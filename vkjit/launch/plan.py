"""Launch plans: the part of a launch that depends only on the signature, prepared once.

A `LaunchPlan` loads an artifact on a device. Its launches pack the argument block with one struct call and queue the
dispatch, or several if the grid exceeds the device's limits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import DType
from ..errors import ArgumentError
from ..frontend import ArrayArg, Signature
from ..runtime.array import ROW_ALIGNMENT
from ..runtime.artifact import ArgField, KernelArtifact
from ..runtime.capture import is_capturing, open_captures
from ..runtime.device import Device, DeviceArray
from ..runtime.prepared_launch import REPORT, Hole, PreparedLaunch, prepare
from . import host_arrays
from .grid import Grid, is_split, parts

if TYPE_CHECKING:
    from ..passes.analysis.trip_bound import TripBound

__all__ = ["LaunchPlan", "alignments", "array_extents", "field_code", "of_library"]

_STRUCT_CODES = {
    "bool": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H", "u32": "I", "u64": "Q",
    "f16": "e", "f32": "f", "f64": "d", "index": "q", "bf16": "f",
}  # fmt: skip

MAX_INVOCATIONS = 2**63 - 1
"""Maximum number of invocations of a launch: ids are signed 64-bit integers."""

CAP_MARGIN = 64
"""Safety margin below a driver's cap on loop iterations."""


def of_library(module: str | None) -> bool:
    """Return True if a module belongs to the standard library; False for None, of code run in a bare namespace."""
    return module is not None and module.startswith("vkjit.stdlib.")


def alignments(signature: Signature, module: str | None) -> dict[int, int]:
    """Return, by argument index, the alignment in bytes to keep when a graph's arrays are replaced.

    A replacement must have this alignment if the original does. `module` is the module of the kernel. Standard library
    kernels always count as relying on `ROW_ALIGNMENT`: the library also selects kernels by address, such as matrix
    products with vector loads.
    """
    relies = signature.aligned or of_library(module)
    arrays = {i: arg for i, arg in enumerate(signature.args) if isinstance(arg, ArrayArg)}
    return {i: ROW_ALIGNMENT if relies else arg.dtype.itemsize for i, arg in arrays.items()}


class LaunchPlan:
    """An artifact loaded on a device, with the format of its argument block.

    `guarded` is the variant for launches whose loops may exceed the driver's iteration cap. `trip_bound` is None if no
    launch needs it.
    """

    __slots__ = (
        "_fields", "_packer", "_read_args", "_write_args", "artifact", "device", "guarded", "kernel", "trip_bound",
    )  # fmt: skip

    def __init__(self, device: Device, artifact: KernelArtifact) -> None:
        self.device = device
        self.artifact = artifact
        self.kernel = device.load(artifact)
        self._fields = artifact.fields
        self._packer = struct.Struct(_format(artifact.fields, artifact.block_size))
        self._read_args = sorted(artifact.reads)
        self._write_args = sorted(artifact.writes)
        bound: TripBound | None = artifact.info.get("trip_bound")
        cap = device.caps.loop_cap
        if bound is not None and (cap is None or (bound.kind == "constant" and bound.numbers[0] <= cap - CAP_MARGIN)):
            bound = None  # there is no cap, or a constant bound below it
        self.trip_bound = bound
        self.guarded: LaunchPlan | None = None

    def may_pass_cap(self, groups: Grid, values: Sequence[Any]) -> bool:
        """Return True if a launch may reach the driver's silent cap on loop iterations, so that it must be guarded."""
        if self.trip_bound is None:
            return False
        extents = {i: v.shape for i, v in enumerate(values) if isinstance(v, DeviceArray)}
        scalars = {i: int(v) for i, v in enumerate(values) if isinstance(v, np.integer)}
        cap = self.device.caps.loop_cap
        return cap is not None and self.trip_bound.evaluate(extents, scalars, groups) > cap - CAP_MARGIN

    def launch(self, groups: Grid, values: Sequence[Any]) -> None:
        """Queue the kernel.

        `values` has a DeviceArray or a converted scalar per parameter; those of Consts are ignored.
        """
        if 0 in groups:
            return
        reads = [values[i].buffer for i in self._read_args]
        writes = [values[i].buffer for i in self._write_args]
        dispatches: Iterable[tuple[Grid, Grid]] = (((0, 0, 0), groups),)
        if is_split(groups, self.device.caps):
            self._check_parts(groups, self.device.caps.max_groups)
            dispatches = parts(groups, self.device.caps.max_groups)
        extents = array_extents(enumerate(values)) if open_captures and is_capturing(self.device) else None
        for base, size in dispatches:
            block = self._pack(values, base, groups)
            self.device.launch((self.kernel, size, block, reads, writes, extents))

    def _check_parts(self, groups: Grid, limits: Grid) -> None:
        """Raise ArgumentError for a grid that can't be split into several dispatches."""
        local = self.artifact.local_size
        if math.prod(groups) * math.prod(local) > MAX_INVOCATIONS:
            raise ArgumentError(
                f"{self.artifact.name}: a grid of {groups} workgroups of {math.prod(local)} has more than 2^63 - 1 "
                "invocations, so that ids don't fit vk.index: launch fewer, and have each do more in a loop"
            )
        axes = self.artifact.info.get("grid_axes", (0, 1, 2))
        is_cut = any(f.role in ("base", "groups") for f in self._fields)
        if not is_cut and any(groups[axis] > limits[axis] for axis in axes):
            raise ArgumentError(
                f"{self.artifact.name}: {groups} workgroups are past the device's limit of {limits}: launch it several times"
            )

    def prepare(
        self, groups: Grid, values: Sequence[Any], arrays: Sequence[int], scalars: Sequence[int], shapes: bool
    ) -> PreparedLaunch | None:
        """Return a launch with these values, in which the parameters `arrays` and `scalars` (indices) are left open.

        The values of the prepared launch are the addresses of the arrays (their descriptors with `shapes`), then the
        scalars. None if the grid is empty or must be split.
        """
        if 0 in groups or is_split(groups, self.device.caps):
            return None
        starts, count = {}, 0
        for arg in arrays:
            starts[arg] = count
            count += len(values[arg].descriptor) if shapes else 1
        starts |= {arg: count + number for number, arg in enumerate(scalars)}
        holes = []
        for f in self._fields:
            if f.role == "report":
                holes.append(Hole(f.offset, REPORT))
            elif f.arg in starts and (shapes or f.role in ("address", "scalar")):
                item = 0
                if f.role in ("extent", "stride"):
                    item = 1 + f.axis + (len(values[f.arg].shape) if f.role == "stride" else 0)
                holes.append(Hole(f.offset, starts[f.arg] + item, code=field_code(f.role, f.dtype)))
        block = self._pack(values, (0, 0, 0), groups)
        writes = tuple([list(arrays).index(arg) for arg in self._write_args])
        reads = tuple([number for number in range(len(arrays)) if number not in writes])
        return prepare(self.kernel, block, holes, count + len(scalars), reads, writes)

    def _pack(self, values: Sequence[Any], base: Grid, groups: Grid) -> bytes:
        """Return the argument block of a dispatch. The device fills in the addresses of report and print buffers."""
        items: list[Any] = []
        for f in self._fields:
            role = f.role
            if role == "address":
                items.append(values[f.arg].descriptor[0])
            elif role == "extent":
                items.append(values[f.arg].shape[f.axis])
            elif role == "stride":
                items.append(values[f.arg].strides[f.axis])
            elif role == "scalar":
                items.append(values[f.arg])
            else:
                items.append(base[f.axis] if role == "base" else groups[f.axis] if role == "groups" else 0)
        return self._packer.pack(*items)


def array_extents(arrays: Iterable[tuple[int, Any]]) -> dict[int, tuple[int, int]]:
    """Return the address range [low, high) of each array, by index. The range of an array without elements is empty."""
    return {i: host_arrays.byte_range(v) for i, v in arrays if isinstance(v, DeviceArray)}


def _format(fields: tuple[ArgField, ...], size: int) -> str:
    """Return the struct format of an argument block, with gaps as padding."""
    text, position = "<", 0
    for item in fields:
        text += "x" * (item.offset - position) + field_code(item.role, item.dtype)
        position = item.offset + item.size
    return text + "x" * (size - position)


def field_code(role: str, dtype: DType) -> str:
    """Return the struct code of a field."""
    return "Q" if role in ("address", "report", "print") else _STRUCT_CODES[dtype.name]
