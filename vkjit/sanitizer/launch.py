"""Launch sanitized kernels: allocate shadow memory before the launch, decode the kernel's reports after it.

The artifact of a sanitized kernel has a `SanitizerPlan` in its `info`, which lists the hidden arguments.
`vkjit.passes.sanitizer.layout` describes their formats: records, shadow cells and shadow words.

Launches are synchronous. Reports are appended to a list or raised as `SanitizerError`. Afterwards, the user's arrays
have the same contents as after a launch without the sanitizer, with three exceptions: out-of-bounds accesses are not
performed, loops that seem infinite are exited, and differing values of `assume_uniform` are made equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import UNKNOWN, ArgumentError, LoopLimitError, ReportSite
from ..launch.grid import Grid
from ..launch.host_arrays import byte_range
from ..launch.plan import LaunchPlan
from ..passes.sanitizer.layout import (
    EPOCH_BITS,
    FIRST_VALUE,
    GROUP_BITS,
    HASH_BITS,
    LOCAL_BITS,
    RECORD_WORDS,
    SITE_BITS,
    Hidden,
    HostValue,
    SanitizerPlan,
)
from ..runtime.artifact import KernelArtifact
from ..runtime.capture import is_capturing
from ..runtime.device import Buffer, Device, DeviceArray
from ..runtime.sanitizer_reports import Access, Invocation, SanitizerError, SanitizerReport, report_of
from .redzones import Redzones

__all__ = ["launch"]

Triple = tuple[int, int, int]

MAX_SHADOW_BYTES = 2 << 30
"""Maximum shadow memory of one launch, in bytes."""

_KINDS = {
    "bounds": "out_of_bounds",
    "zero_division": "division_by_zero",
    "uninitialised": "uninitialised_read",
    "fresh_shared": "uninitialised_read",
    "overflow": "integer_overflow",
    "nan": "nan_birth",
    "uniform": "divergent_barrier",
    "loops": "loop_limit",
    "race": "race_global",
}
"""Maps the kind of a report site to the kind of its reports. For shared arrays, "race" becomes "race_shared"."""


def launch(plan: LaunchPlan, groups: Grid, values: Sequence[Any], reports_out: list[SanitizerReport] | None) -> None:
    """Launch a sanitized kernel, wait for it, and decode its reports.

    `values` are the arguments. Appends the reports to `reports_out` if it is given; otherwise raises SanitizerError if
    there are any. Raises ArgumentError in a capture.
    """
    artifact, device = plan.artifact, plan.device
    sanitizer_plan: SanitizerPlan = artifact.info["sanitizer"]
    if 0 in groups:
        return
    if is_capturing(device):
        raise ArgumentError(
            f"kernel {artifact.name} is launched with the sanitizer in a capture: its reports are read when it has run, so "
            "capture it without the sanitizer"
        )
    shadows = _Shadows.of(sanitizer_plan, artifact, device, groups, values)
    reports: list[SanitizerReport] = []
    redzones = Redzones(sanitizer_plan.stores, values) if "outside" in sanitizer_plan.checks else None
    try:
        plan.launch(groups, [*values, *shadows.arguments])
        try:
            device.synchronize()
        except LoopLimitError as error:
            reports.append(report_of("loop_limit", error.loc, error.message, artifact.name))
        records = shadows.records()
        if redzones is not None:
            reports += redzones.reports(artifact.name)
    finally:
        shadows.close()
    reports += _reports(sanitizer_plan, artifact, groups, records, values)
    if reports_out is not None:
        reports_out += reports
    elif reports:
        raise SanitizerError(reports, artifact.name)


@dataclass(slots=True)
class _Shadows:
    """The hidden arguments of one launch, and the memory behind them.

    `buffers` has the memory by the role of the argument (see `Hidden`). `record_count` is the number of records, at
    least 1.
    """

    device: Device
    arguments: list[Any]
    buffers: dict[str, Buffer]
    record_count: int

    @classmethod
    def of(
        cls,
        sanitizer_plan: SanitizerPlan,
        artifact: KernelArtifact,
        device: Device,
        groups: Grid,
        values: Sequence[Any],
    ) -> _Shadows:
        """Allocate the buffers, filled with zeros, and make the hidden arguments."""
        cells = _Cells.of(sanitizer_plan, groups, values)
        count = max(len(artifact.sites), 1)
        workgroups = math.prod(groups)
        sizes = {  # in bytes: records and marks are u32 words, shadow words and votes are u64
            "records": 4 * RECORD_WORDS * count,
            "written": 4 * cells.total,
            "shadow": 8 * sanitizer_plan.planes * cells.total,
            "votes": 8 * sanitizer_plan.votes * workgroups,
        }
        roles = {hidden.role for hidden in sanitizer_plan.hidden} & set(sizes)
        _check_sizes(artifact, sanitizer_plan, workgroups, sum(sizes[role] for role in roles))
        shadows = cls(device, [], {}, count)
        try:
            for role in sorted(roles):
                nbytes = max(sizes[role], 8)  # one u64: a buffer can't be empty
                shadows.buffers[role] = device.allocate(nbytes)
                device.fill(shadows.buffers[role], 0, nbytes, 0)
            shadows.arguments = [shadows._argument(hidden, cells) for hidden in sanitizer_plan.hidden]
        except BaseException:
            shadows.close()
            raise
        return shadows

    def _argument(self, hidden: Hidden, cells: _Cells) -> Any:
        """Return the argument for a hidden parameter."""
        if hidden.role == "cells":
            return np.int64(cells.total)
        if hidden.role == "shared":
            return np.int64(cells.shared)
        if hidden.role == "per_group":
            return np.int64(cells.per_group)
        if hidden.role == "zero":
            return np.int64(0)
        if hidden.role == "votes_per_group":
            return np.int64(cells.votes)
        if hidden.role == "base":
            return np.int64(cells.bases[hidden.arg])
        if hidden.role == "scale":
            return np.int64(cells.scales[hidden.arg])
        from .. import dtypes

        # all other roles are memory
        buffer = self.buffers["records" if hidden.role == "values" else hidden.role]
        dtype = dtypes.u32 if hidden.role in ("records", "written") else dtypes.u64
        return DeviceArray(buffer, 0, dtype, (buffer.nbytes // dtype.itemsize,), (1,))

    def records(self) -> npt.NDArray[np.uint32]:
        """Return the records, one row per report site; no rows if the kernel has no report sites."""
        if "records" not in self.buffers:
            return np.zeros((0, RECORD_WORDS), np.uint32)
        raw = np.empty(4 * RECORD_WORDS * self.record_count, dtype=np.uint8)
        self.device.read(self.buffers["records"], 0, raw)
        return raw.view(np.uint32).reshape(self.record_count, RECORD_WORDS)

    def close(self) -> None:
        for buffer in self.buffers.values():
            buffer.close()


def _check_sizes(artifact: KernelArtifact, sanitizer_plan: SanitizerPlan, workgroups: int, nbytes: int) -> None:
    """Raise ArgumentError if the launch needs too much shadow memory, or has too many workgroups for shadow words."""
    if nbytes > MAX_SHADOW_BYTES:
        raise ArgumentError(
            f"{artifact.name}: the sanitizer needs {nbytes >> 20} MiB of shadow memory for this launch, more than "
            f"{MAX_SHADOW_BYTES >> 20}: launch it with smaller arrays or fewer workgroups, or leave out the check 'races'"
        )
    if sanitizer_plan.planes and workgroups >= 1 << GROUP_BITS:
        raise ArgumentError(
            f"{artifact.name}: the sanitizer tells {1 << GROUP_BITS} workgroups apart, found {workgroups}: launch fewer, "
            "or leave out the check 'races'"
        )


@dataclass(frozen=True, slots=True)
class _Cells:
    """The numbering of shadow cells: those of global arrays in order of address, then those of each workgroup's shared
    arrays.

    `bases` maps the argument number of each global array to the cell of its first element, `scales` maps it to the
    number of cells per element. `shared` is the first cell of shared arrays, `per_group` the number of cells of one
    workgroup's shared arrays. `votes` is the number of votes per workgroup, `total` the number of cells.
    """

    bases: dict[int, int]
    scales: dict[int, int]
    shared: int
    per_group: int
    votes: int
    total: int

    @classmethod
    def of(cls, sanitizer_plan: SanitizerPlan, groups: Grid, values: Sequence[Any]) -> _Cells:
        """Number the cells. Overlapping arrays share cells of the size of the smallest of their element types."""
        arrays = {arg: values[arg] for arg in sanitizer_plan.tracked}
        ranges = {arg: byte_range(array) for arg, array in arrays.items() if 0 not in array.shape}
        bases = dict.fromkeys(arrays, 0)
        scales = dict.fromkeys(arrays, 1)
        total_global = 0
        for low, high, members in _merged_ranges(ranges):
            cell_bytes = min(arrays[arg].dtype.storage.itemsize for arg in members)
            for arg in members:
                bases[arg] = total_global + (arrays[arg].address - low) // cell_bytes
                scales[arg] = arrays[arg].dtype.storage.itemsize // cell_bytes
            total_global += -(-(high - low) // cell_bytes)  # rounded up
        total_cells = total_global + sanitizer_plan.shared_cells * math.prod(groups)
        return cls(bases, scales, total_global, sanitizer_plan.shared_cells, sanitizer_plan.votes, total_cells)


def _merged_ranges(ranges: dict[int, tuple[int, int]]) -> list[tuple[int, int, list[int]]]:
    """Merge the address ranges [low, high) of arrays that overlap. Return (low, high, argument numbers) of each."""
    merged: list[tuple[int, int, list[int]]] = []
    for arg, (low, high) in sorted(ranges.items(), key=lambda item: item[1]):
        if merged and low < merged[-1][1]:
            start, end, members = merged[-1]
            merged[-1] = (start, max(end, high), [*members, arg])
        else:
            merged.append((low, high, [arg]))
    return merged


# -- decoding


def _reports(
    sanitizer_plan: SanitizerPlan,
    artifact: KernelArtifact,
    groups: Grid,
    records: npt.NDArray[np.uint32],
    arguments: Sequence[Any],
) -> list[SanitizerReport]:
    """Decode the records and return the reports in source order.

    There is one report per kind and set of source locations. The set has two locations for a race, else one.
    """
    if not records[:, 0].any():
        return []
    reports: dict[tuple[Any, ...], SanitizerReport] = {}
    for site_number in np.flatnonzero(records[:, 0]).tolist():
        values = _values(sanitizer_plan.value_kinds.get(site_number, ()), records[site_number], arguments)
        report = _report(sanitizer_plan, artifact, groups, artifact.sites[site_number], values, records[site_number])
        locations = {report.loc} if report.other is None else {report.loc, report.other.loc}
        reports.setdefault((report.kind, frozenset(locations)), report)
    racing = {loc for report in reports.values() if report.other is not None for loc in (report.loc, report.other.loc)}
    # a race at a location explains an uninitialized read there
    result = [r for r in reports.values() if r.kind != "uninitialised_read" or r.loc not in racing]
    return sorted(result, key=lambda report: (report.file, report.line, report.col))


def _report(
    sanitizer_plan: SanitizerPlan,
    artifact: KernelArtifact,
    groups: Grid,
    site: ReportSite,
    values: tuple[Any, ...],
    words: npt.NDArray[np.uint32],
) -> SanitizerReport:
    """Return the report for a record with the words `words`; `values` are its decoded values."""
    local_size = _local_size(artifact)
    invocation = _invocation(int(words[0]) - 1, int(words[1]), groups, local_size)
    kind = _KINDS[site.kind]
    other = None
    if site.kind == "race":  # the last value is the shadow word of the other access
        other = _other_side(sanitizer_plan, int(values[-1]), groups, local_size)
        values = values[:-1]
        kind = "race_shared" if site.message.startswith("shared") else "race_global"
    # the messages of races begin with the memory space, which the kind of the report already tells
    text = site.message.format(*values).removeprefix("shared ").removeprefix("global ")
    return report_of(kind, site.loc, text, artifact.name, invocation, values, other)


def _local_size(artifact: KernelArtifact) -> Triple:
    """Return the workgroup size that the kernel was written for.

    It may differ from `artifact.local_size`, since the code may have been emitted for a one-dimensional workgroup with
    the same number of invocations.
    """
    size: Triple = artifact.info["sanitizer"].local_size
    return size


def _values(
    kinds: tuple[str | HostValue, ...], words: npt.NDArray[np.uint32], arguments: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the values of a report. `kinds` tells how to decode each value (see `SanitizerPlan.value_kinds`).

    `words` is the record. `arguments` are the launch's arguments, whose extents may be among the values.
    """
    raw = np.ascontiguousarray(words[FIRST_VALUE:])
    values: list[Any] = []
    position = 0  # of the next value that the record stores
    for kind in kinds:
        if isinstance(kind, HostValue):
            values.append(kind.number if kind.arg < 0 else arguments[kind.arg].shape[kind.axis])
            continue
        pair = raw[2 * position : 2 * position + 2]
        position += 1
        if kind == "f32":
            values.append(float(pair[:1].view(np.float32)[0]))
        else:
            as_type = {"f64": np.float64, "int": np.int64, "uint": np.uint64}[kind]
            values.append(pair.view(as_type)[0].item())
    return tuple(values)


def _invocation(group: int, number: int, groups: Grid, local: Triple) -> Invocation:
    """Return the invocation with the linear local id `number` in the workgroup with the linear id `group`."""
    group_id, local_id = _unravel(group, groups), _unravel(number, local)
    ids = [g * s + i for g, s, i in zip(group_id, local, local_id, strict=True)]
    return Invocation((ids[0], ids[1], ids[2]), group_id, local_id)


def _other_side(sanitizer_plan: SanitizerPlan, word: int, groups: Grid, local: Triple) -> Access:
    """Decode the access that a shadow word describes."""
    site = (word >> HASH_BITS) & ((1 << SITE_BITS) - 1)
    invocation = (word >> (HASH_BITS + SITE_BITS + EPOCH_BITS)) & ((1 << LOCAL_BITS) - 1)
    group = word >> (HASH_BITS + SITE_BITS + EPOCH_BITS + LOCAL_BITS)
    accessor = _invocation(group, invocation, groups, local)
    if site >= len(sanitizer_plan.sites):
        return Access(UNKNOWN, "access", accessor)
    entry = sanitizer_plan.sites[site]
    return Access(entry.loc, entry.kind, accessor)


def _unravel(number: int, extents: Triple) -> Triple:
    """Return the three-dimensional id of a linear id, x first."""
    x, y, _ = extents
    return number % x, number // x % y, number // (x * y)
