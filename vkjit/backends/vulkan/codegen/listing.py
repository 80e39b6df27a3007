"""The SPIR-V of an artifact as text, for `Kernel.inspect`."""

from __future__ import annotations

from vkjit.backends.codegen.listing import Listing
from vkjit.ir.core import Module
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import DeviceCaps
from vkjit.spirv import tools
from vkjit.spirv.disassemble import disassemble

__all__ = ["listings"]


def listings(_module: Module, _caps: DeviceCaps, artifact: KernelArtifact) -> list[Listing]:
    """Disassemble the code with spirv-dis if it is installed, else with vkjit's own disassembler."""
    text = tools.spirv_dis(artifact.code) if tools.available() else disassemble(artifact.code)
    return [Listing("spirv", "spirv", "SPIR-V for {device}", text)]
