"""Lowering of `barrier` and `fence` to OpControlBarrier and OpMemoryBarrier.

A barrier has workgroup scope and acquire-release semantics on shared memory, which every driver implements. It also
orders accesses to buffers if invocations may communicate through them.
"""

from __future__ import annotations

from collections.abc import Callable

from vkjit.ir.core import Op
from vkjit.ir.ops import OpName

from .atomics import scope_of
from .context import Context
from .memory import orders_buffers

__all__ = ["HANDLERS"]

_SHARED = "AcquireRelease|WorkgroupMemory|MakeAvailable|MakeVisible"
_BOTH = "AcquireRelease|UniformMemory|WorkgroupMemory|MakeAvailable|MakeVisible"


def _barrier(ctx: Context, _: Op) -> None:
    workgroup = ctx.writer.scope("Workgroup")
    semantics = ctx.writer.semantics(_BOTH if orders_buffers(ctx) else _SHARED)
    ctx.block.emit_void("OpControlBarrier", workgroup, workgroup, semantics)


def _fence(ctx: Context, op: Op) -> None:
    ctx.block.emit_void("OpMemoryBarrier", scope_of(ctx, op.attrs["scope"]), ctx.writer.semantics(_BOTH))


HANDLERS: dict[OpName, Callable[[Context, Op], None]] = {"barrier": _barrier, "fence": _fence}
