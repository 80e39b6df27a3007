"""Variants for the LLVM CPU device ("llvm-cpu"), where a workgroup is a loop over vectors.

Workgroup collectives are cheap there, so rows are processed by workgroups as on a GPU; matrix products have their own
kernels (`matmul_panels`). Importing the module registers the variants.
"""

from __future__ import annotations

from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib import matmul_panels as _products  # noqa: F401  registers its variant
from vkjit.stdlib import softmax as rows
from vkjit.stdlib import softmax_lines as lines
from vkjit.stdlib.partial import accumulator
from vkjit.stdlib.registry import as_class, variant

__all__: list[str] = []


@variant("softmax", "llvm-cpu")
def _softmax(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    size = x.device.caps.subgroup_size
    held = lines.held_for(x.shape[1], size)
    if x.shape[2] == 1 and held <= lines.MOST_HELD:
        lines.softmax_of_lines(rows.matrix(x), rows.matrix(y), accumulator(x.dtype), size, held, log)
        return
    with as_class("gpu"):
        rows.softmax(x, y, log=log)


@variant("softmax_gradient", "llvm-cpu")
def _softmax_gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    if g.shape[2] == 1:
        size = g.device.caps.subgroup_size
        matrices = (rows.matrix(array) for array in (g, y, z))
        lines.gradient_of_lines(*matrices, accumulator(g.dtype), size, log)
        return
    with as_class("gpu"):
        rows.gradient(g, y, z, log=log)
