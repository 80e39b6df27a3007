"""Alias analysis: alias classes of arrays.

Arrays of different classes don't overlap in memory. Each shared array, each local array, and each global array with
`restrict` forms a class of its own; all other global arrays together form one class. A linear view of an array is in
the class of the array.
"""

from __future__ import annotations

from collections.abc import Iterator

from vkjit.ir.core import Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.types import Array

__all__ = ["ALL", "OTHERS", "AliasClass", "alias_class", "origin", "written_classes"]

AliasClass = Value | str
"""An alias class: the array (see `origin`) if it forms a class of its own, else `OTHERS`.

A set of classes that an operation writes may also contain `ALL`.
"""

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
        if op.attrs.get("order", "relaxed") != "relaxed":  # an ordered atomic makes writes of other invocations visible
            yield ALL
    elif effect == Effect.WRITE:
        yield alias_class(op.operands[0])


def written_classes(region: Region, into: dict[Op, frozenset[AliasClass]]) -> frozenset[AliasClass]:
    """Return the alias classes that a region writes, and record in `into` those that each operation writes."""
    total: set[AliasClass] = set()
    for op in region.ops:
        if op.regions:  # such operations write only by the operations in their regions
            classes = frozenset(written for inner in op.regions for written in written_classes(inner, into))
        else:
            classes = frozenset(_writes(op))
        if classes:
            into[op] = classes
            total |= classes
    return frozenset(total)
