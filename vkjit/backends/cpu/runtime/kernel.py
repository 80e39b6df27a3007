"""Kernels loaded on the CPU device."""

from __future__ import annotations

from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import LoadedKernel

from . import llvm
from .workers import Pace, function_at

__all__ = ["CpuKernel"]


class CpuKernel(LoadedKernel):
    """A kernel's linked machine code."""

    __slots__ = ("address", "artifact", "function", "linked", "pace", "prints", "report_offset")

    def __init__(self, artifact: KernelArtifact) -> None:
        self.artifact = artifact
        self.linked = llvm.link(artifact.code, artifact.entry)
        self.address = self.linked.addresses[artifact.entry]
        self.function = function_at(self.address)
        self.pace = Pace()
        found = [f.offset for f in artifact.fields if f.role == "report"]
        self.report_offset = found[0] if found else None
        self.prints = any(site.kind == "print" for site in artifact.sites)
