"""Kernels loaded on the CPU device."""

from __future__ import annotations

from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import LoadedKernel

from . import llvm
from .workers import SMALL_STACK, Pace, function_at

__all__ = ["CpuKernel"]


class CpuKernel(LoadedKernel):
    """A kernel's linked machine code. `stack_bytes` is the size of the arrays that a workgroup has on the stack."""

    __slots__ = ("address", "artifact", "function", "linked", "pace", "prints", "report_offset", "stack_bytes")

    def __init__(self, artifact: KernelArtifact) -> None:
        self.artifact = artifact
        self.linked = llvm.link(artifact.code, artifact.entry)
        self.address = self.linked.addresses[artifact.entry]
        self.function = function_at(self.address)
        self.stack_bytes: int = artifact.info.get("stack_bytes", 0)
        self.pace = Pace(may_be_short=self.stack_bytes <= SMALL_STACK)
        found = [f.offset for f in artifact.fields if f.role == "report"]
        self.report_offset = found[0] if found else None
        self.prints = any(site.kind == "print" for site in artifact.sites)
