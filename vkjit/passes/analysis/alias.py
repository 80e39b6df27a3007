"""Alias analysis: alias classes of arrays.

Accesses to arrays of different classes never overlap. A shared, local or `restrict` global array is a class of its own;
all other global arrays form one class. A linear view belongs to the class of its array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.types import Array

__all__ = ["ALL", "OTHERS", "AliasClass", "alias_class", "origin", "written_classes"]

AliasClass = Value | str
"""An alias class: the array itself if it forms a class of its own, else `OTHERS`. As a set of writes, also `ALL`."""

OTHERS = "others"
"""The class of all global arrays without `restrict`."""
ALL = "all"
"""A pseudo class for the writes of barriers, fences and calls: they may change any array that other invocations or a
callee can access.
"""


def origin(array: Value) -> Value:
    """Return the parameter or allocation behind an array value, looking through linear views."""
    while array.op is not None and array.op.name == "linear":
        array = array.op.operands[0]
    return array


def alias_class(array: Value) -> AliasClass:
    """Return the alias class of an array."""
    root = origin(array)
    owned = isinstance(root.type, Array) and (root.type.space != "global" or root.type.restrict)
    return root if owned else OTHERS


def _writes(op: Op) -> Iterator[AliasClass]:
    """Yield the alias classes that an operation itself writes, without its regions."""
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
    """Return the alias classes that a region writes, and record those of each writing operation in `into`."""
    total: set[AliasClass] = set()
    for op in region.ops:
        inside: Iterable[AliasClass] = _writes(op)
        if op.regions:
            inside = frozenset().union(*(written_classes(inner, into) for inner in op.regions))
        classes = frozenset(inside)
        if classes:
            into[op] = classes
            total |= classes
    return frozenset(total)
