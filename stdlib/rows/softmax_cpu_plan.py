"""Softmax on the device "cpu" (LLVM): choose between the kernels of `softmax_cpu` and those for GPUs in `softmax`.

The kernels of `softmax_cpu` process rows along the last axis that aren't too long. For all other rows, the GPU variants
are used: on this device, a workgroup is a loop over vectors, and workgroup collectives are cheap. Importing the module
registers the variants.
"""

from __future__ import annotations

from vkjit.runtime.device import DeviceArray
from vkjit.stdlib.partial_sums import accumulator_type
from vkjit.stdlib.registry import forcing_class, variant
from vkjit.stdlib.rows import softmax as generic, softmax_cpu as kernels

__all__: list[str] = []


@variant("softmax", "llvm-cpu")
def _softmax(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    """Use one subgroup per row for rows along the last axis, unless they are too long; else the variant for GPUs."""
    size = x.device.caps.subgroup_size
    per_invocation = kernels.elements_per_invocation(x.shape[1], size)
    if x.shape[2] == 1 and per_invocation <= kernels.MAX_ELEMENTS_PER_INVOCATION:
        kernels.softmax_per_subgroup(
            generic.matrix(x), generic.matrix(y), accumulator_type(x.dtype), size, per_invocation, log
        )
        return
    with forcing_class("gpu"):
        generic.softmax(x, y, log=log)


@variant("softmax_gradient", "llvm-cpu")
def _softmax_gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    """Use one subgroup per row for rows along the last axis, else the variant for GPUs."""
    if g.shape[2] == 1:
        size = g.device.caps.subgroup_size
        matrices = (generic.matrix(array) for array in (g, y, z))
        kernels.gradient_per_subgroup(*matrices, accumulator_type(g.dtype), size, log)
        return
    with forcing_class("gpu"):
        generic.gradient(g, y, z, log=log)
