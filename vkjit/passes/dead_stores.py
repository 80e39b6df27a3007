"""Removes stores that nothing can see, because the same place is stored to again before anybody reads it.

Enters and leaves: any form::

    store %y, %i, %a                        (gone)
    %v = load %x, %i : f32          ->      %v = load %x, %i : f32
    store %y, %i, %v                        store %y, %i, %v

1. Both stores stand in the same region, and have the same array and the same index values.
2. Between them nothing loads from the array's alias class (see `memory`), nor is there a call, or an operation with
   regions that touches memory or may leave in between.
3. For global and shared arrays, which others can see, there is no atomic, barrier, fence, report or print between them
   either.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..ir.core import Module, Op, Region, Value
from ..ir.ops import OPS, Effect
from ..ir.rewrite import LOOPS
from ..ir.types import Array
from .memory import AliasClass, alias_class

__all__ = ["DeadStores"]

Place = tuple[Value, ...]
_TOUCHES = frozenset({Effect.READ, Effect.WRITE, Effect.READ_WRITE, Effect.SYNC, Effect.REPORT})
_ORDERS = frozenset({Effect.READ_WRITE, Effect.SYNC, Effect.REPORT})


@dataclass(frozen=True, slots=True)
class DeadStores:
    """See the module's docstring."""

    name: ClassVar[str] = "dead_stores"

    def run(self, module: Module) -> Module:
        for function in module.all_functions():
            _sweep(function.body)
        return module


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a region holds: accesses to memory, exits of the loop around it, returns."""

    memory: bool = False
    exits: bool = False
    returns: bool = False

    def __or__(self, other: _Seen) -> _Seen:
        return _Seen(self.memory | other.memory, self.exits | other.exits, self.returns | other.returns)


def _sweep(region: Region) -> _Seen:
    """Sweeps a region from its end."""
    kept: list[Op] = []
    pending = _Pending()
    seen = _Seen()
    for op in reversed(region.ops):
        inside = _seen(op)
        seen |= inside
        effect = OPS[op.name].effect
        if op.name == "store":
            if pending.covers(op):  # rule 1
                continue
            pending.add(op)
        elif op.regions or op.name == "call":
            if inside != _Seen():
                pending.clear()
        elif effect == Effect.READ:
            pending.read(alias_class(op.operands[0]))
        elif effect in _ORDERS:
            pending.order()
            if effect == Effect.READ_WRITE:
                pending.read(alias_class(op.operands[0]))
        kept.append(op)
    region.ops = kept[::-1]
    return seen


def _seen(op: Op) -> _Seen:
    """What an operation does, with all that it holds."""
    effect = OPS[op.name].effect
    found = _Seen(op.name == "call" or effect in _TOUCHES, op.name in ("break", "continue"), op.name == "return")
    for inner in op.regions:
        found |= _sweep(inner)
    return _Seen(found.memory, found.exits and op.name not in LOOPS, found.returns)


class _Pending:
    """The places that are stored to further down, by alias class, before anybody reads them."""

    def __init__(self) -> None:
        self.places: dict[AliasClass, set[Place]] = {}

    def covers(self, store: Op) -> bool:
        return tuple(store.operands[:-1]) in self.places.get(alias_class(store.operands[0]), ())

    def add(self, store: Op) -> None:
        self.places.setdefault(alias_class(store.operands[0]), set()).add(tuple(store.operands[:-1]))

    def clear(self) -> None:
        self.places.clear()

    def read(self, memory: AliasClass) -> None:
        """Rule 2."""
        self.places.pop(memory, None)

    def order(self) -> None:
        """Rule 3."""
        self.places = {memory: places for memory, places in self.places.items() if _is_local(memory)}


def _is_local(memory: AliasClass) -> bool:
    return isinstance(memory, Value) and isinstance(memory.type, Array) and memory.type.space == "local"
