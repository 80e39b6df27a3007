"""Lower an IR module to SPIR-V.

The module must be in normal form: a kernel that consists of primitive operations, without calls. A kernel that needs a
feature that the device lacks is rejected with a FeatureError.
"""

from __future__ import annotations

from functools import partial

from vkjit.backends.codegen.argument_layout import argument_set, block_layout
from vkjit.backends.codegen.reports import describe
from vkjit.backends.codegen.usage import usage_of
from vkjit.errors import InternalError
from vkjit.ir.core import Module
from vkjit.runtime.artifact import KernelArtifact
from vkjit.runtime.device import DeviceCaps

from . import (
    arguments,
    arithmetic,
    atomics,
    barriers,
    conversions,
    ids,
    matrices,
    memory,
    printing,
    report,
    requirements,
    subgroups,
    wide,
)
from .context import Context
from .control_flow import Loops, lower_for, lower_if, lower_loop, lower_region

__all__ = ["emit"]

_HANDLERS = {
    **arithmetic.HANDLERS,
    **conversions.HANDLERS,
    **ids.HANDLERS,
    **memory.HANDLERS,
    **atomics.HANDLERS,
    **barriers.HANDLERS,
    **subgroups.HANDLERS,
    **matrices.HANDLERS,
    **report.HANDLERS,
    **printing.HANDLERS,
    **wide.HANDLERS,
}


def emit(module: Module, caps: DeviceCaps, *, debug: bool = True) -> KernelArtifact:
    """Return the artifact of a module's kernel, compiled to SPIR-V. `debug=False` omits names and source lines.

    Raises FeatureError if the device can't run the kernel, InternalError for operations that earlier passes should have
    lowered.
    """
    kernel = module.kernel
    usage = usage_of(module)
    layout = block_layout(module, caps, usage=usage)
    ctx = Context(module, caps, usage, layout, debug=debug)
    local_size = ids.emitted_local_size(ctx)
    requirements.check_sizes(ctx, local_size)
    _lower_body(ctx)
    ctx.writer.entry_point(ctx.function, "main", local_size)
    requirements.execution_modes(ctx)
    code = ctx.writer.to_bytes()
    shared = memory.shared_bytes(ctx)
    features = requirements.check_features(ctx, shared)
    return KernelArtifact(
        name=kernel.name,
        code=code,
        entry="main",
        local_size=local_size,
        fields=layout[0],
        block_size=layout[1],
        indirect=layout[2],
        reads=argument_set(kernel, usage.reads),
        writes=argument_set(kernel, usage.writes),
        features=features,
        shared_bytes=shared,
        subgroup_size=ctx.subgroup_size if kernel.attrs.get("subgroups") else None,
        sites=tuple(module.sites),
        info=describe(usage.reports) | printing.describe_prints(usage.prints, kernel.attrs["local_size"]),
    )


def _lower_body(ctx: Context) -> None:
    """Lower the kernel's body, then terminate the entry block, to which the lowering adds instructions until then."""
    loops = Loops(dict(_HANDLERS))
    loops.handlers["if"] = partial(_structured, loops, lower_if)
    loops.handlers["for"] = partial(_structured, loops, lower_for)
    loops.handlers["loop"] = partial(_structured, loops, lower_loop)
    arguments.map_scalars(ctx)
    first = ctx.block.label
    if lower_region(ctx, loops, ctx.kernel.body) is not None:
        raise InternalError(f"kernel {ctx.kernel.name} ends in yield: expected return")
    ctx.entry.branch(first)


def _structured(loops: Loops, lower: object, ctx: Context, op: object) -> None:
    lower(ctx, loops, op)  # type: ignore[operator]
