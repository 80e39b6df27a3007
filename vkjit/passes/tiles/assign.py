"""Gives each tile of a function a layout.

Enters: a function with operations on tiles. Leaves: a `Layout` for each tile value, and for each why it has that one.
Holds: values that control flow hands on, and operands and results of one shape, have the same layout; it is chosen for
sums of products first, then for what follows from them, then for matrices that are only loaded, transposed and stored (blocks of
them, so that both sides are reached by vectors), then for the largest tile that has none yet.

1. Tied: what a loop carries or a branch gives; operands of an elementwise operation that have its shape; the accumulator of
   a product and its result; what is scanned.
2. Derived: a reduction has its operand's layout without the axis, a transposed tile its operand's axes in their order, a
   tile with other axes of size 1 the same ones, an operand that is broadcast those of the result that it has.
3. Whatever isn't of that layout where it is used gets moved there through shared memory, or by shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ...ir.core import Function, Op, Value
from ...ir.rewrite import LOOPS, exits_of
from ...ir.types import Tile
from .layout import Layout, blocks, canonical, squared

__all__ = ["Assignment", "assign"]

Derive = Callable[[Layout], "Layout | None"]


@dataclass(slots=True)
class Assignment:
    """`layouts` by the representative of each class of tied values."""

    bits: dict[str, int]
    vector: int
    lanes: int
    parents: dict[Value, Value] = field(default_factory=dict)
    layouts: dict[Value, Layout] = field(default_factory=dict)

    def find(self, value: Value) -> Value:
        while value in self.parents:
            value = self.parents[value]
        return value

    def tie(self, *values: Value) -> None:
        first = self.find(values[0])
        for other in values[1:]:
            root = self.find(other)
            if root is not first:
                self.parents[root] = first

    def of(self, value: Value) -> Layout:
        """The layout of a tile value."""
        root = self.find(value)
        found = self.layouts.get(root)
        if found is None:
            found = self.layouts[root] = self.own(value)
        return found

    def sums(self, op: Op) -> Layout:
        """The layout of a product's sums: where factors have 32 bits, neighbours along both axes are held together, so that
        multiply-add reads vectors of either factor.
        """
        layout, wide = self.of(op.result), all(tile_of(v).dtype.bits == 32 for v in op.operands[:2])
        if wide and self.vector > 1 and not self.lanes and layout.scope == "workgroup":
            layout = self.layouts[self.find(op.result)] = squared(layout, self.vector)
        return layout

    def own(self, value: Value) -> Layout:
        kind = tile_of(value)
        return canonical(kind.shape, self.bits[kind.scope], kind.scope, self.vector, self.lanes)


def tile_of(value: Value) -> Tile:
    """The type of a tile value."""
    assert isinstance(value.type, Tile)
    return value.type


def assign(function: Function, bits: dict[str, int], vector: int, lanes: int) -> Assignment:
    """See the module's docstring; `bits` is the logarithm of the invocations of each scope."""
    found = Assignment(bits, vector, lanes)
    relations: list[tuple[Value, Value, Derive]] = []
    values: list[Value] = []
    for op in function.body.walk():
        tiles = [v for v in op.results if isinstance(v.type, Tile)]
        values += tiles
        if op.regions and op.name not in ("tile_map", "tile_each"):
            _tie_control(found, op)
            values += [a for region in op.regions for a in region.args if isinstance(a.type, Tile)]
        if op.name.startswith("tile_"):
            _relate(found, op, relations)
    for op in function.body.walk():
        if op.name == "tile_mma":
            found.sums(op)
    _propagate(found, relations)
    if vector > 1 and not lanes:
        for value in _turned(function):
            layout = blocks(tile_of(value).shape, bits[tile_of(value).scope], tile_of(value).scope, vector)
            if layout is not None and found.find(value) not in found.layouts:
                found.layouts[found.find(value)] = layout
        _propagate(found, relations)
    for value in sorted(values, key=lambda v: -tile_of(v).size):  # stable: in program order among equals
        if found.find(value) not in found.layouts:
            found.of(value)
            _propagate(found, relations)
    return found


def _turned(function: Function) -> list[Value]:
    """Matrices that are loaded, transposed and stored, and nothing else."""
    users: dict[Value, list[Op]] = {}
    loaded: list[Value] = []
    for op in function.body.walk():
        for value in op.operands:
            if isinstance(value.type, Tile):
                users.setdefault(value, []).append(op)
        if op.name == "tile_load":
            loaded.append(op.result)
    turned: list[Value] = []
    for value in loaded:
        uses = users.get(value, [])
        if len(uses) != 1 or uses[0].name != "tile_transpose" or uses[0].attrs["axes"] != (1, 0):
            continue
        if all(use.name == "tile_store" for use in users.get(uses[0].result, [])):
            turned.append(value)
    return turned


def _tie_control(found: Assignment, op: Op) -> None:
    """Rule 1 for loops and branches."""
    if op.name == "if":
        for region in op.regions:
            if region.terminator.name == "yield":
                _tie_all(found, op.results, region.terminator.operands)
        return
    if op.name not in LOOPS:
        return
    first = 3 if op.name == "for" else 0
    arguments = op.regions[0].args[1 if first else 0 :]
    _tie_all(found, arguments, op.operands[first:])
    if op.name == "for":
        _tie_all(found, arguments, op.results)
    for end in exits_of(op.regions[0]):
        _tie_all(found, op.results if end.name == "break" else arguments, end.operands)


def _tie_all(found: Assignment, first: list[Value], second: list[Value]) -> None:
    for a, b in zip(first, second, strict=True):
        if isinstance(a.type, Tile):
            found.tie(a, b)


def _relate(found: Assignment, op: Op, relations: list[tuple[Value, Value, Derive]]) -> None:
    """Rules 1 and 2 for an operation on tiles."""
    operands = [v for v in op.operands if isinstance(v.type, Tile)]
    if op.name in ("tile_map", "tile_each"):
        main = op.result if op.results else operands[0]
        for value in operands:
            shape = tile_of(value).shape
            if shape == tile_of(main).shape:
                found.tie(main, value)
            else:
                relations.append((main, value, lambda layout, shape=shape: layout.operand(shape)))  # type: ignore[misc]
    elif op.name == "tile_mma":
        found.tie(operands[2], op.result)
    elif op.name == "tile_scan":
        found.tie(operands[0], op.result)
    elif op.name in ("tile_reduce", "tile_argument"):
        axis = op.attrs["axis"]
        relations.append((operands[0], op.result, lambda layout: layout.without(axis)))
    elif op.name == "tile_transpose":
        axes = op.attrs["axes"]
        back = tuple(axes.index(a) for a in range(len(axes)))
        relations.append((operands[0], op.result, lambda layout: layout.permuted(axes)))
        relations.append((op.result, operands[0], lambda layout: layout.permuted(back)))
    elif op.name == "tile_reshape":
        before, after = tile_of(operands[0]).shape, tile_of(op.result).shape
        relations.append((operands[0], op.result, lambda layout: layout.reshaped(after)))
        relations.append((op.result, operands[0], lambda layout: layout.reshaped(before)))


def _propagate(found: Assignment, relations: list[tuple[Value, Value, Derive]]) -> None:
    changed = True
    while changed:
        changed = False
        for source, target, derive in relations:
            known = found.layouts.get(found.find(source))
            root = found.find(target)
            if known is None or root in found.layouts:
                continue
            derived = derive(known)
            if derived is not None:
                found.layouts[root] = derived
                changed = True
