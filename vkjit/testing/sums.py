"""How often sums of tiles and of cooperative matrices round: operations that add many terms at once, in the device's order.

Enters: an operation of `SUMS`. Leaves: its roundings, each of at most half an ULP of the sum of its terms' magnitudes.
"""

from __future__ import annotations

from ..ir.core import Op
from ..ir.types import Matrix, Tile

__all__ = ["SUMS", "roundings"]

SUMS = frozenset({"tile_mma", "mat_mma", "tile_reduce", "tile_scan", "mat_map"})
"""Names of the operations."""


def roundings(op: Op) -> int:
    """Roundings of one result: two for each term of a product and one for each of a sum; 0 for extremes, signs and the like."""
    first = op.operands[0].type
    if op.name in ("tile_mma", "mat_mma"):
        return 2 * (first.shape[1] if isinstance(first, Tile) else first.columns if isinstance(first, Matrix) else 1)
    if op.attrs["op"] not in ("add", "sub", "mul"):
        return 0
    return first.shape[op.attrs["axis"]] if isinstance(first, Tile) else 1
