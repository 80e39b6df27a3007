"""Which memory accesses may touch the same memory: the alias classes that `cse` and others share.

Enters: arrays of a function. Leaves: a class for each; accesses of different classes never overlap. A shared or
local array is a class of its own, and so is a global array that is `restrict`; all other global arrays are one class.
A linear view belongs to the class of its array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..ir.core import Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.types import Array

__all__ = ["ALL", "OTHERS", "AliasClass", "alias_class", "origin", "written_classes"]

AliasClass = Value | str

OTHERS = "others"
"""The class of all global arrays without `restrict`."""
ALL = "all"
"""Stands for every class that other invocations can see, or that a callee can reach."""


def origin(array: Value) -> Value:
    """The parameter or allocation that an array value denotes."""
    while array.op is not None and array.op.name == "linear":
        array = array.op.operands[0]
    return array


def alias_class(array: Value) -> AliasClass:
    """The class of an array."""
    root = origin(array)
    owned = isinstance(root.type, Array) and (root.type.space != "global" or root.type.restrict)
    return root if owned else OTHERS


def _writes(op: Op) -> Iterator[AliasClass]:
    effect = OPS[op.name].effect
    if op.name == "call" or effect == Effect.SYNC:
        yield ALL
    elif effect == Effect.READ_WRITE:
        yield alias_class(op.operands[0])
        if op.attrs.get("order", "relaxed") != "relaxed":
            yield ALL
    elif effect == Effect.WRITE:
        yield alias_class(op.operands[0])


def written_classes(region: Region, into: dict[Op, frozenset[AliasClass]]) -> frozenset[AliasClass]:
    """The classes that a region writes; `into` receives those of each operation that writes."""
    total: set[AliasClass] = set()
    for op in region.ops:
        inside: Iterable[AliasClass] = _writes(op)
        if op.regions:
            inside = frozenset().union(*(written_classes(inner, into) for inner in op.regions))
        found = frozenset(inside)
        if found:
            into[op] = found
            total |= found
    return frozenset(total)
