"""Softmax on CPUs (LLVM): choose between the kernels of `softmax_cpu` and those for GPUs.

A workgroup is a loop over vectors there and workgroup collectives are cheap, so rows are processed by workgroups as on a GPU.
Importing the module registers the variants.
"""

from __future__ import annotations

from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.partial_sums import accumulator_type
from vkjit.stdlib.registry import forcing_class, variant
from vkjit.stdlib.rows import softmax as rows, softmax_cpu as lines

__all__: list[str] = []


@variant("softmax", "llvm-cpu")
def _softmax(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    size = x.device.caps.subgroup_size
    held = lines.elements_per_invocation(x.shape[1], size)
    if x.shape[2] == 1 and held <= lines.MAX_ELEMENTS_PER_INVOCATION:
        lines.softmax_per_subgroup(rows.matrix(x), rows.matrix(y), accumulator_type(x.dtype), size, held, log)
        return
    with forcing_class("gpu"):
        rows.softmax(x, y, log=log)


@variant("softmax_gradient", "llvm-cpu")
def _softmax_gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    if g.shape[2] == 1:
        size = g.device.caps.subgroup_size
        matrices = (rows.matrix(array) for array in (g, y, z))
        lines.gradient_per_subgroup(*matrices, accumulator_type(g.dtype), size, log)
        return
    with forcing_class("gpu"):
        rows.gradient(g, y, z, log=log)
