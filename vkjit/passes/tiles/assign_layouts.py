"""Layout assignment: choose a `Layout` for each tile value of a function.

Values that are connected by control flow, and operands and results of the same shape, share a layout. Layouts are
chosen first for the accumulators of products, and for all that can be derived from them. Matrices that are only loaded,
transposed and stored come next: they get square blocks, so that both the loads and the stores are vectorized. The
largest tile without a layout follows, until all have one.

1. Tied values share a layout: loop-carried values and the results of branches; operands of an elementwise operation
   that have its shape; the accumulator of a product and its result; the operand of a scan and its result.
2. Derived layouts: a reduction has its operand's layout without the axis; a transposed tile has its operand's axes,
   permuted; a reshape that only adds or removes axes of size 1 keeps the other axes; an operand that is broadcast has
   the axes of the result that it shares.
3. A value that is used in another layout than its own is converted at the use, through shared memory or by shuffles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vkjit.ir.core import Function, Op, Value
from vkjit.ir.rewrite import LOOPS, exits_of
from vkjit.ir.tiles import permutation
from vkjit.ir.types import Tile

from .layout import Layout, blocked, default_layout, grouped_rows

__all__ = ["Assignment", "assign"]

Derive = Callable[[Layout], "Layout | None"]


@dataclass(slots=True)
class Assignment:
    """The layouts of a function's tile values: a union-find structure over tied values.

    `layouts` is keyed by the representative of each class. `bits` is the logarithm of the number of invocations by
    scope; `vector` and `lanes` are passed to `default_layout`.
    """

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
        """Return the layout of a tile value; choose the canonical one if it has none yet."""
        root = self.find(value)
        layout = self.layouts.get(root)
        if layout is None:
            layout = self.layouts[root] = self.default(value)
        return layout

    def accumulator_layout(self, op: Op) -> Layout:
        """Return the layout of a product's accumulators.

        For operands with 32-bit elements, each invocation holds groups of contiguous elements along both axes, so that
        multiply-add reads vectors of either operand.
        """
        layout, wide = self.of(op.result), all(tile_of(v).dtype.bits == 32 for v in op.operands[:2])
        if wide and self.vector > 1 and not self.lanes and layout.scope == "workgroup":
            layout = self.layouts[self.find(op.result)] = grouped_rows(layout, self.vector)
        return layout

    def default(self, value: Value) -> Layout:
        kind = tile_of(value)
        return default_layout(kind.shape, self.bits[kind.scope], kind.scope, self.vector, self.lanes)


def tile_of(value: Value) -> Tile:
    """Return the type of a tile value."""
    assert isinstance(value.type, Tile)
    return value.type


def assign(function: Function, bits: dict[str, int], vector: int, lanes: int) -> Assignment:
    """Assign a layout to each tile value of a function.

    `bits` is the logarithm of the number of invocations by scope; `vector` and `lanes` are passed to `default_layout`.
    """
    assignment = Assignment(bits, vector, lanes)
    relations: list[tuple[Value, Value, Derive]] = []
    values: list[Value] = []
    for op in function.body.walk():
        tiles = [v for v in op.results if isinstance(v.type, Tile)]
        values += tiles
        if op.regions and op.name not in ("tile_map", "tile_each"):
            _tie_control(assignment, op)
            values += [a for region in op.regions for a in region.args if isinstance(a.type, Tile)]
        if op.name.startswith("tile_"):
            _relate(assignment, op, relations)
    for op in function.body.walk():
        if op.name == "tile_mma":
            assignment.accumulator_layout(op)
    _propagate(assignment, relations)
    if vector > 1 and not lanes:
        for value in _transposed_copies(function):
            layout = blocked(tile_of(value).shape, bits[tile_of(value).scope], tile_of(value).scope, vector)
            if layout is not None and assignment.find(value) not in assignment.layouts:
                assignment.layouts[assignment.find(value)] = layout
        _propagate(assignment, relations)
    for value in sorted(values, key=lambda v: -tile_of(v).size):  # stable: program order among tiles of equal size
        if assignment.find(value) not in assignment.layouts:
            assignment.of(value)
            _propagate(assignment, relations)
    return assignment


def _transposed_copies(function: Function) -> list[Value]:
    """Return the matrices that are loaded, transposed and stored, and not used otherwise."""
    users: dict[Value, list[Op]] = {}
    loaded: list[Value] = []
    for op in function.body.walk():
        for value in op.operands:
            if isinstance(value.type, Tile):
                users.setdefault(value, []).append(op)
        if op.name == "tile_load":
            loaded.append(op.result)
    transposed: list[Value] = []
    for value in loaded:
        uses = users.get(value, [])
        if len(uses) != 1 or uses[0].name != "tile_transpose" or uses[0].attrs["axes"] != (1, 0):
            continue
        if all(use.name == "tile_store" for use in users.get(uses[0].result, [])):
            transposed.append(value)
    return transposed


def _tie_control(assignment: Assignment, op: Op) -> None:
    """Apply rule 1 to loops and branches."""
    if op.name == "if":
        for region in op.regions:
            if region.terminator.name == "yield":
                _tie_all(assignment, op.results, region.terminator.operands)
        return
    if op.name not in LOOPS:
        return
    first = 3 if op.name == "for" else 0
    arguments = op.regions[0].args[1 if first else 0 :]
    _tie_all(assignment, arguments, op.operands[first:])
    if op.name == "for":
        _tie_all(assignment, arguments, op.results)
    for end in exits_of(op.regions[0]):
        _tie_all(assignment, op.results if end.name == "break" else arguments, end.operands)


def _tie_all(assignment: Assignment, first: list[Value], second: list[Value]) -> None:
    for a, b in zip(first, second, strict=True):
        if isinstance(a.type, Tile):
            assignment.tie(a, b)


def _relate(assignment: Assignment, op: Op, relations: list[tuple[Value, Value, Derive]]) -> None:
    """Apply rules 1 and 2 to an operation on tiles."""
    operands = [v for v in op.operands if isinstance(v.type, Tile)]
    if op.name in ("tile_map", "tile_each"):
        main = op.result if op.results else operands[0]
        for value in operands:
            shape = tile_of(value).shape
            if shape == tile_of(main).shape:
                assignment.tie(main, value)
            else:
                relations.append((main, value, lambda layout, shape=shape: layout.operand(shape)))  # type: ignore[misc]
    elif op.name == "tile_mma":
        assignment.tie(operands[2], op.result)
    elif op.name == "tile_scan":
        assignment.tie(operands[0], op.result)
    elif op.name in ("tile_reduce", "tile_argument"):
        axis = op.attrs["axis"]
        relations.append((operands[0], op.result, lambda layout: layout.without(axis)))
    elif op.name == "tile_transpose":
        axes = permutation(op)
        back = tuple(axes.index(a) for a in range(len(axes)))
        relations.append((operands[0], op.result, lambda layout: layout.permuted(axes)))
        relations.append((op.result, operands[0], lambda layout: layout.permuted(back)))
    elif op.name == "tile_reshape":
        before, after = tile_of(operands[0]).shape, tile_of(op.result).shape
        relations.append((operands[0], op.result, lambda layout: layout.reshaped(after)))
        relations.append((op.result, operands[0], lambda layout: layout.reshaped(before)))


def _propagate(assignment: Assignment, relations: list[tuple[Value, Value, Derive]]) -> None:
    """Derive layouts along the relations until nothing changes."""
    changed = True
    while changed:
        changed = False
        for source, target, derive in relations:
            layout = assignment.layouts.get(assignment.find(source))
            root = assignment.find(target)
            if layout is None or root in assignment.layouts:
                continue
            derived = derive(layout)
            if derived is not None:
                assignment.layouts[root] = derived
                changed = True
