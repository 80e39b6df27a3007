"""Launches with checked memory accesses: of a single kernel (`run`), or all launches of a device (`Watcher`).

For each launch, a report buffer is allocated, and the kernel is instrumented with the address of this buffer in its
code. After the launch has completed, the report is read. The result is one line of text for each site (a check in the
code) with an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType

import numpy as np
import numpy.typing as npt

from vkjit.backends.table import target_of
from vkjit.errors import ArgumentError, DeviceError
from vkjit.runtime.artifact import PRINT_BYTES, REPORT_WORDS, KernelArtifact
from vkjit.runtime.capture import is_capturing
from vkjit.runtime.device import Buffer, Device
from vkjit.runtime.observers import LaunchRequest, Observer

from .helpers import DISTANCE, MISALIGNED, RECORD_BYTES, SCRATCH_BYTES, SEEN
from .instrument import Site, Span, Watched, watched
from .reader import HEADER_WORDS

__all__ = ["Watcher", "run"]

_RUNTIME_SPANS: dict[tuple[str, int], Span] = {("report", -1): (0, 4 * REPORT_WORDS), ("print", -1): (0, PRINT_BYTES)}
"""The accessible byte ranges of the buffers for reports and prints."""
Launch = Callable[[KernelArtifact], None]
"""A function that launches a compiled kernel."""


def run(device: Device, artifact: KernelArtifact, spans: Mapping[tuple[str, int], Span], launch: Launch) -> list[str]:
    """Instrument an artifact, call `launch` with it, and wait for the device. Return the errors as lines of text.

    `spans` are the accessible byte ranges of the arrays (see `watched`).
    """
    report = device.allocate(SCRATCH_BYTES + RECORD_BYTES * _max_sites(artifact.code))
    try:
        device.write(report, 0, np.zeros(report.nbytes, np.uint8))
        # the launch doesn't declare its use of the report buffer, so nothing else orders it after this write
        device.synchronize()
        instrumented = watched(
            artifact.code, artifact.fields, {**_RUNTIME_SPANS, **spans}, report.address, indirect=artifact.indirect
        )
        try:
            launch(replace(artifact, code=instrumented.code))
        finally:
            device.synchronize()
        records = np.empty(RECORD_BYTES * len(instrumented.sites), np.uint8)
        device.read(report, SCRATCH_BYTES, records)
    finally:
        report.close()
    return _lines(instrumented, records)


def _max_sites(code: bytes) -> int:
    """Return an upper bound of the number of checks that `watched` adds to a module: the module's number of words.

    A checked instruction has at least three words and at most one check per word.
    """
    return len(code) // 4 - HEADER_WORDS


def _lines(instrumented: Watched, records: npt.NDArray[np.uint8]) -> list[str]:
    """Describe the errors in the records of a launch, one line per site."""
    words = records.view(np.uint64).tolist()
    return [_line(site, word) for site, word in zip(instrumented.sites, words, strict=True) if word & SEEN]


def _line(site: Site, record: int) -> str:
    """Describe the error at a site in one line of text, from its 64-bit record (see `helpers`)."""
    distance = record & DISTANCE
    distance -= (DISTANCE + 1) * (distance > DISTANCE // 2)  # the upper half stands for negative distances
    line = f" ({site.line})" if site.line else ""
    if site.name == "index":  # here, the distance is the index
        return f"index {distance} into a {site.target}{line}"
    errors = []
    if not 0 <= distance <= site.room:
        errors.append("outside of what may be accessed")
    if record & MISALIGNED:
        errors.append(f"not a multiple of {site.align}")
    # records of matrices in workgroup memory never have the bit MISALIGNED: if they are in range, they are misaligned
    if not errors and "workgroup" in site.target:
        errors.append(f"its place, or its stride, is no multiple of {site.align}")
    text = " and ".join(errors) or "by a negative index"  # the only other reason (see `Helpers._check`)
    return f"{site.name} of {site.size} bytes, {site.target}, {distance} bytes from its lowest: {text}{line}"


@dataclass(eq=False)
class Watcher(Observer):
    """Context manager that checks every launch of a device, on all threads.

    An access is valid anywhere in the buffer that contains the array. `lines` collects the errors. `launches` is the
    number of launches so far. The replays of graphs are checked, too, but a launch can't be captured in the block.
    """

    device: Device
    lines: list[str] = field(default_factory=list)
    launches: int = 0
    calls_device = True

    def __enter__(self) -> Watcher:
        self.device.add_observer(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.device.remove_observer(self)

    def check(self, device: Device) -> None:
        """Raise DeviceError if the device runs no SPIR-V, or if another watcher instruments its kernels already."""
        if not target_of(device.caps).spirv:
            raise DeviceError(f"{device.name} runs no SPIR-V, so that the launches of its kernels can't be watched")
        if any(isinstance(observer, Watcher) for observer in device.observers):
            raise DeviceError(f"the launches of {device.name} are watched already: one watcher after the other")

    def launch(self, proceed: Callable[..., None], request: LaunchRequest) -> None:
        """Launch an instrumented copy of the kernel."""
        artifact = request.kernel.artifact
        if 0 in request.groups:
            return
        if is_capturing(self.device):
            raise ArgumentError(
                f"kernel {artifact.name} is launched in a capture, so that its accesses can't be checked: capture it "
                "before, and replay the graph while launches are watched"
            )

        def launch(changed: KernelArtifact) -> None:
            proceed(request._replace(kernel=self.device.load(changed)))

        self.launches += 1
        spans = _buffer_spans(artifact, request.block, [*request.reads, *request.writes])
        errors = run(self.device, artifact, spans, launch)
        self.lines += [f"{artifact.name}: {line}" for line in errors]


def _buffer_spans(artifact: KernelArtifact, block: bytes, buffers: Sequence[Buffer]) -> dict[tuple[str, int], Span]:
    """Return, for each array address in an argument block, the byte range of its buffer relative to the address."""
    spans: dict[tuple[str, int], Span] = {}
    for item in artifact.fields:
        if item.role != "address":
            continue
        address = int.from_bytes(block[item.offset : item.offset + 8], "little")
        containing = [b for b in buffers if b.address <= address < b.address + max(b.nbytes, 1)]
        spans[item.role, item.arg] = (
            (containing[0].address - address, containing[0].address + containing[0].nbytes - address)
            if containing
            else (0, 0)
        )
    return spans
