"""Dead store elimination: remove stores that are overwritten before anything reads them.

Works on any form of the IR (see `ir.verify`)::

    store %y, %i, %a                        (gone)
    %v = load %x, %i : f32          ->      %v = load %x, %i : f32
    store %y, %i, %v                        store %y, %i, %v

A store is removed if a later store overwrites it under these conditions:

1. Both stores are in the same region and have the same array and index values.
2. Between them there is no load from the array's alias class (see `alias`), no call, and no operation with regions
   that accesses memory, or in which a loop or the function may be left.
3. If the array is global or shared, so that other invocations can see it, there is no atomic, barrier, fence, report or
   print between the stores either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect
from vkjit.ir.rewrite import LOOPS
from vkjit.ir.types import Array

from ..analysis.alias import AliasClass, alias_class

__all__ = ["DeadStores"]

Location = tuple[Value, ...]
"""An array and indices."""
_TOUCHES = frozenset({Effect.READ, Effect.WRITE, Effect.READ_WRITE, Effect.SYNC, Effect.REPORT})
"""Effects that access memory or make it visible to others."""
_ORDERS = frozenset({Effect.READ_WRITE, Effect.SYNC, Effect.REPORT})
"""Effects that make earlier stores visible to others (rule 3)."""


@dataclass(frozen=True, slots=True)
class DeadStores:
    """Remove overwritten stores."""

    name: ClassVar[str] = "dead_stores"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _sweep(function.body)
        return module


@dataclass(frozen=True, slots=True)
class _Effects:
    """The effects of a region or operation.

    `memory` is True if it may access memory, `exits` if it may exit the enclosing loop, and `returns` if it may return.
    """

    memory: bool = False
    exits: bool = False
    returns: bool = False

    def __or__(self, other: _Effects) -> _Effects:
        return _Effects(self.memory | other.memory, self.exits | other.exits, self.returns | other.returns)


def _sweep(region: Region) -> _Effects:
    """Remove dead stores from a region, walking backward, and return its effects."""
    kept: list[Op] = []
    pending = _Pending()
    effects = _Effects()
    for op in reversed(region.ops):
        inside = _effects(op)
        effects |= inside
        effect = OPS[op.name].effect
        if op.name == "store":
            if pending.covers(op):  # rule 1
                continue
            pending.add(op)
        elif op.regions or op.name == "call":
            if inside != _Effects():  # rule 2
                pending.clear()
        elif effect == Effect.READ:
            pending.read(alias_class(op.operands[0]))
        elif effect in _ORDERS:
            pending.order()
            if effect == Effect.READ_WRITE:
                pending.read(alias_class(op.operands[0]))
        kept.append(op)
    region.ops = kept[::-1]
    return effects


def _effects(op: Op) -> _Effects:
    """Return the effects of an operation and its regions, after removing dead stores from the regions."""
    effect = OPS[op.name].effect
    effects = _Effects(op.name == "call" or effect in _TOUCHES, op.name in ("break", "continue"), op.name == "return")
    for inner in op.regions:
        effects |= _sweep(inner)
    leaves_loop = effects.exits and op.name not in LOOPS  # the exits in a loop are its own
    return _Effects(effects.memory, leaves_loop, effects.returns)


class _Pending:
    """The locations, by alias class, that are overwritten after the current operation of the backward walk, with no
    read in between.
    """

    def __init__(self) -> None:
        self.locations: dict[AliasClass, set[Location]] = {}

    def covers(self, store: Op) -> bool:
        """True if the location of a store is overwritten later."""
        return tuple(store.operands[:-1]) in self.locations.get(alias_class(store.operands[0]), ())

    def add(self, store: Op) -> None:
        self.locations.setdefault(alias_class(store.operands[0]), set()).add(tuple(store.operands[:-1]))

    def clear(self) -> None:
        self.locations.clear()

    def read(self, memory: AliasClass) -> None:
        """Apply rule 2 for a load from an alias class."""
        self.locations.pop(memory, None)

    def order(self) -> None:
        """Apply rule 3: only stores to local arrays stay pending."""
        self.locations = {memory: locations for memory, locations in self.locations.items() if _is_local(memory)}


def _is_local(memory: AliasClass) -> bool:
    return isinstance(memory, Value) and isinstance(memory.type, Array) and memory.type.space == "local"
