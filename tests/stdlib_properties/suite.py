"""All properties of the standard library, collected from the modules that define them."""

from __future__ import annotations

from tests.stdlib_properties.boundaries import BOUNDARY_KERNELS, BOUNDARY_OPERATIONS
from tests.stdlib_properties.catalogue import KERNELS, OPERATIONS, KernelProperty
from tests.stdlib_properties.operations import Operation
from tests.stdlib_properties.orders import ORDERS
from tests.stdlib_properties.passes import PASSES
from tests.stdlib_properties.refused_inputs import REFUSED_INPUTS
from tests.stdlib_properties.selection import SELECTION
from tests.stdlib_properties.special_inputs import SPECIAL_INPUTS
from tests.stdlib_properties.sums import SUMS
from tests.stdlib_properties.tile_sums import TILE_SUMS
from tests.stdlib_properties.tiles import TILE_KERNELS, TILE_OPERATIONS

__all__ = ["ALL_KERNELS", "ALL_OPERATIONS"]

ALL_KERNELS: tuple[KernelProperty, ...] = (
    *KERNELS, *BOUNDARY_KERNELS, *TILE_KERNELS, *TILE_SUMS, *SELECTION, *SUMS,
)  # fmt: skip
ALL_OPERATIONS: tuple[Operation, ...] = (
    *OPERATIONS, *BOUNDARY_OPERATIONS, *SPECIAL_INPUTS, *REFUSED_INPUTS, *ORDERS, *TILE_OPERATIONS, *PASSES,
)  # fmt: skip
