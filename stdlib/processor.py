"""Which variants serve best on the device "cpu", whose workgroups are loops over vectors.

Enters: the variants of other modules. Leaves: those registered for the device's kind. Collectives of a workgroup cost
little there, so rows are taken by workgroups as on a GPU; products have kernels of their own (`matmul_panels`).
"""

from __future__ import annotations

from vkjit.runtime.interface import DeviceArray
from vkjit.stdlib import matmul_panels as _products  # noqa: F401  registers its variant
from vkjit.stdlib import softmax as rows
from vkjit.stdlib.registry import as_class, variant

__all__: list[str] = []


@variant("softmax", "llvm-cpu")
def _softmax(x: DeviceArray, y: DeviceArray, log: bool) -> None:
    with as_class("gpu"):
        rows.softmax(x, y, log=log)


@variant("softmax_gradient", "llvm-cpu")
def _softmax_gradient(g: DeviceArray, y: DeviceArray, z: DeviceArray, log: bool) -> None:
    with as_class("gpu"):
        rows.gradient(g, y, z, log=log)
