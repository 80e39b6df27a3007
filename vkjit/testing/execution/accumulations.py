"""Rounding counts of IR operations that accumulate many terms in an unspecified order.

These operations are the products and reductions of tiles and cooperative matrices, and reductions and scans of
subgroups. Their rounding counts serve to derive error bounds (`compare.tolerances`) and to perturb results (`shadow`).
Each rounding error is at most half a ULP of the sum of the terms' magnitudes.
"""

from __future__ import annotations

from vkjit.ir.core import Op
from vkjit.ir.ops import OpName
from vkjit.ir.types import Matrix, Tile

__all__ = ["ACCUMULATIONS", "SUBGROUP_LEVELS", "roundings"]

ACCUMULATIONS: frozenset[OpName] = frozenset({"tile_mma", "mat_mma", "tile_reduce", "tile_scan", "mat_map"})
"""Names of the operations on tiles and matrices for which `roundings` counts.

`mat_map` is elementwise: it is included because its operation is an attribute, as in reductions.
"""

SUBGROUP_LEVELS = 7
"""Roundings per result of a subgroup reduction or scan: the levels of a tree that adds up to 128 lanes."""


def roundings(op: Op) -> int:
    """Return the number of roundings per result of an operation in `ACCUMULATIONS`.

    It is two per term of a matrix product, one per term of a sum or product, and 0 for operations that don't round,
    such as min and max.
    """
    first = op.operands[0].type
    if op.name in ("tile_mma", "mat_mma"):  # the first operand is A, with K columns
        k = 1
        if isinstance(first, Tile):
            k = first.shape[1]
        elif isinstance(first, Matrix):
            k = first.columns
        return 2 * k
    if op.attrs["op"] not in ("add", "sub", "mul"):
        return 0
    return first.shape[op.attrs["axis"]] if isinstance(first, Tile) else 1
