"""The code of a kernel for the CPU as text, for `Kernel.inspect`."""

from __future__ import annotations

from vkjit.backends.codegen.listing import Listing
from vkjit.ir.core import Module
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import DeviceCaps

from ..runtime import llvm
from .lower import text_of

__all__ = ["listings"]


def listings(module: Module, caps: DeviceCaps, _artifact: KernelArtifact) -> list[Listing]:
    """Return the LLVM IR, the optimized LLVM IR, and the assembly."""
    text = text_of(module, caps)
    optimized, assembly = llvm.texts_of(text)
    return [
        Listing("llvm", "llvm", "LLVM", text),
        Listing("llvm-optimised", "llvm", "LLVM, optimised", optimized),
        Listing("assembly", "assembly", "Instructions of the processor", assembly),
    ]
