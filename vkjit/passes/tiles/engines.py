"""Which engine computes a product of tiles.

Enters: a `tile_mma` and what the device can do. Leaves: a `Choice` with its reason, for `inspect`. An engine is tried where it
fits; multiply-add in registers fits always:

    fma         a block of sums per invocation, operands staged in shared memory by the whole workgroup
    direct      the same, operands read where they are: on processors, where shared memory is no faster than any other
    registers   the same, operands in registers too: a subgroup alone, which has no memory of its own
"""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Op
from ...ir.types import Tile
from ...runtime.interface import DeviceCaps
from .held import Options

__all__ = ["Choice", "choose_engine"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The engine of a product, and why it is that one."""

    engine: str
    reason: str


def choose_engine(op: Op, options: Options, caps: DeviceCaps) -> Choice:
    """The engine for a product on a device."""
    kind = op.attrs["type"]
    assert isinstance(kind, Tile)
    if kind.scope == "subgroup":
        return Choice("registers", "a subgroup has no shared memory of its own")
    if options.direct:
        return Choice("direct", f"devices of kind {caps.kind} read shared memory no faster than any other")
    return Choice("fma", "multiply-add in registers runs everywhere")
