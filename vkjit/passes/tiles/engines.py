"""Choice of the engine that computes a tile product.

Cooperative matrices are planned before (see `mma_fragments`); the products without a plan run on one of these:

    fma         multiply-add in registers: a block of accumulators per invocation, operands staged in shared memory
    direct      the same, with operands read from global memory: on CPUs, where shared memory is no faster
    registers   the same, with operands in registers: for a subgroup's tiles, as a subgroup has no shared memory
"""

from __future__ import annotations

from dataclasses import dataclass

from vkjit.ir.core import Op
from vkjit.ir.types import Tile
from vkjit.runtime.device import DeviceCaps

from .tile_state import Options

__all__ = ["Choice", "choose_engine"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine of a product and the reason for the choice, which `inspect` shows."""

    engine: str
    reason: str


def choose_engine(op: Op, options: Options, caps: DeviceCaps) -> Choice:
    """Return the engine for a product without cooperative matrices."""
    kind = op.attrs["type"]
    assert isinstance(kind, Tile)
    if kind.scope == "subgroup":
        return Choice("registers", "a subgroup has no shared memory of its own")
    if options.direct:
        return Choice("direct", f"devices of kind {caps.kind} read shared memory no faster than any other")
    return Choice("fma", "multiply-add in registers runs everywhere")
