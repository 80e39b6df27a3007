"""The least code generator: an artifact whose code is the IR module itself, for devices that run IR."""

from __future__ import annotations

from vkjit.ir.core import Module
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import DeviceCaps

from .argument_layout import argument_set, block_layout
from .reports import describe
from .usage import usage_of

__all__ = ["ir_artifact"]


def ir_artifact(module: Module, caps: DeviceCaps) -> KernelArtifact:
    """Return the artifact of a module's kernel with the module as its code; all arguments are passed."""
    kernel = module.kernel
    usage = usage_of(module, used_only=False)
    written = usage.writes if module.functions else usage_of(module).writes
    usage.prints.clear()  # devices that run IR print without a print buffer
    fields, size, _ = block_layout(module, caps, usage=usage)
    x, y, z = kernel.attrs["local_size"]
    return KernelArtifact(
        name=kernel.name,
        code=module,
        entry=kernel.name,
        local_size=(x, y, z),
        fields=fields,
        block_size=size,
        indirect=False,
        reads=argument_set(kernel, usage.reads),
        writes=argument_set(kernel, written),
        sites=tuple(module.sites),
        info=describe(usage.reports),
    )
