"""Choice of the engine that computes a tile product.

A product is a `tile_mma`. `mma_fragments` decides which products run on cooperative matrices ("matrix"). Each other
product is computed by multiply-add in registers, where each invocation holds a block of the accumulators (see
`fma_matmul`). Its engine says where the operands are read:

    fma         from shared memory, where they are staged
    direct      from global memory: on CPUs, where shared memory is no faster
    registers   from registers, or from global memory if neither operand is in registers: for tiles of a subgroup, as a
                subgroup has no shared memory of its own
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
    """The engine that computes a product, and why it was chosen.

    `engine` is "matrix" or a name from the module's list. `reason` is text for the notes about the lowering.
    """

    engine: str
    reason: str


def choose_engine(op: Op, options: Options, caps: DeviceCaps) -> Choice:
    """Return the engine for a product that doesn't run on cooperative matrices."""
    kind = op.attrs["type"]
    assert isinstance(kind, Tile)
    if kind.scope == "subgroup":
        return Choice("registers", "a subgroup has no shared memory of its own")
    if options.reads_global_memory:
        return Choice("direct", f"devices of kind {caps.kind} read shared memory no faster than any other")
    return Choice("fma", "multiply-add in registers runs everywhere")
