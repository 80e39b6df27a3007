"""Limits on the size of kernels, so that compilation takes seconds or fails with a CompileError."""

from __future__ import annotations

import math

from ..errors import CompileError
from ..ir.core import Module
from ..ir.types import Array
from ..runtime.device import DeviceCaps

__all__ = ["check_driver_limits", "check_size"]

MAX_OPS = 65_536
"""The maximum number of operations of a kernel after inlining. The passes take about 0.1 ms per operation."""
MAX_BRANCHES = 800
"""The maximum number of branches and loops for Vulkan drivers on the CPU: llvmpipe's compile time is quadratic in their
number, some 10 s for 300.
"""
MAX_LOCAL_ELEMENTS = 4096
"""The maximum number of elements of local arrays for Vulkan drivers on the CPU: llvmpipe takes 2 ms to compile each."""
_HINT = "use range() instead of vk.unroll, split the kernel, or let functions be called fewer times"


def check_size(module: Module) -> None:
    """Raise CompileError if the kernel has more than `MAX_OPS` operations when all functions are inlined."""
    sizes: dict[str, int] = {}
    for function in module.all_functions():  # callees come before their callers
        sizes[function.name] = sum(
            sizes.get(op.attrs["callee"], 0) if op.name == "call" else 1 for op in function.body.walk()
        )
    count = sizes[module.kernel.name]
    if count > MAX_OPS:
        _refuse(
            module, f"it has {count} operations with all loops unrolled and functions inlined, {MAX_OPS} are allowed"
        )


def check_driver_limits(module: Module, caps: DeviceCaps) -> None:
    """Raise CompileError for a lowered kernel that a Vulkan driver on the CPU (kind "cpu") takes minutes to compile."""
    if caps.kind != "cpu":
        return
    branches = 0
    for op in module.kernel.body.walk():
        branches += op.name in ("if", "for", "loop")
        kind = op.attrs["type"] if op.name == "local" else None
        if isinstance(kind, Array):
            count = math.prod(kind.shape or ())
            if count > MAX_LOCAL_ELEMENTS:
                raise CompileError(
                    f"a local array of {count} elements is too large for this driver, whose compile time grows with it "
                    f"(up to {MAX_LOCAL_ELEMENTS})",
                    op.loc,
                    hint='use an array of the kernel, or the device "cpu"',
                )
    if branches > MAX_BRANCHES:
        _refuse(
            module,
            f"it has {branches} branches and loops, those of bounds checks included, and this driver's compile time is "
            f"quadratic in their number ({MAX_BRANCHES} are allowed)",
        )


def _refuse(module: Module, reason: str) -> None:
    raise CompileError(f"the kernel is too large: {reason}", module.kernel.loc, hint=_HINT)
