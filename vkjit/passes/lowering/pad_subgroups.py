"""Fill up the last subgroup of workgroups whose size isn't a multiple of the subgroup size.

Takes a kernel in primitive form whose lanes are numbered by subgroups (the attribute `subgroups`). Vulkan numbers them
so only in full subgroups, so the workgroup gets the missing invocations, which skip the whole body::

    %v = ...                 ->     if %subgroup_id * %subgroup_size + %lane_id < 33 {
    return                            %v = ...
                                    }
                                    return

1. At least one invocation of each subgroup runs the body, so each subgroup arrives at the barriers in it.
2. Kernels that use `vk.subgroup()` or cooperative matrices (the attribute `full_subgroups`) aren't changed: their
   workgroups have to be multiples of the subgroup size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Region

__all__ = ["PadSubgroups"]


@dataclass(frozen=True, slots=True)
class PadSubgroups:
    """Guard the body of a kernel with a partial subgroup, and give it the attribute `padded`."""

    subgroup_size: int

    name: ClassVar[str] = "pad_subgroups"

    def run(self, module: Module) -> Module:
        kernel = module.kernel
        size = kernel.attrs.get("subgroup_size") or self.subgroup_size
        invocations = math.prod(kernel.attrs["local_size"])
        if not kernel.attrs.get("subgroups") or kernel.attrs.get("full_subgroups") or invocations % size == 0:
            return module
        kernel.attrs["padded"] = True
        body, inside, outside = kernel.body, Region(), Region()
        *inside.ops, end = body.ops
        body.ops = []
        builder = Builder(body, kernel.loc)
        first = builder.emit("mul", builder.emit("subgroup_id"), builder.emit("subgroup_size"))
        number = builder.emit("add", first, builder.emit("lane_id"))
        for region in (inside, outside):
            with builder.at(region):
                builder.op("yield")
        test = builder.emit("lt", number, builder.index(invocations))
        builder.op("if", test, types=[], regions=[inside, outside])
        body.ops.append(end)
        return module
