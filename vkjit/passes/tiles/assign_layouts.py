"""Layout assignment: choose a `Layout` for each tile value of a function.

`lower` calls `assign` before it lowers the first operation. Layouts are chosen such that few values have to be
converted to another layout (rule 3), which is costly. They are chosen in this order, and after each choice the layouts
of further values follow by rules 1 and 2:

- the accumulators of products
- on GPUs, matrices that are only loaded, transposed and stored: they get square blocks, so that both the loads and the
  stores are vectorized
- the largest tile that has no layout yet, repeatedly, until all tiles have one

1. Tied values share one layout. A loop-carried value is tied to its initial value and its value in the next iteration;
   the result of a branch to the values that its regions yield; an elementwise operation's result to the operands of the
   same shape; the accumulators of a product to its result; the operand of a scan to its result.
2. Derived layouts: a reduction has its operand's layout without the axis; a transposed tile has its operand's axes,
   permuted; a reshape that only adds or removes axes of size 1 keeps the other axes; an operand that is broadcast has
   the layout of the result along the axes that aren't broadcast.
3. If an operation needs a value in another layout than the value's own, the lowering of the operation converts it,
   through shared memory or by shuffles (see `layout_conversion`).
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
"""Derives the layout of one value from that of another one (rule 2); None if that isn't possible."""


@dataclass(slots=True)
class Assignment:
    """The layouts of a function's tile values: a union-find structure over tied values (rule 1).

    `parents` are the links of the union-find, and `layouts` has the layout of each class of tied values, by its
    representative. `bits` is the base-2 logarithm of the number of invocations that tiles are distributed over, by
    scope. `vector` is the largest group of contiguous elements in an invocation. At least 2**lane_bits consecutive
    invocations lie along a row (see `default_layout`); `lane_bits` is 0 on GPUs.
    """

    bits: dict[str, int]
    vector: int
    lane_bits: int
    parents: dict[Value, Value] = field(default_factory=dict)
    layouts: dict[Value, Layout] = field(default_factory=dict)

    def find(self, value: Value) -> Value:
        """Return the representative of a value's class."""
        while value in self.parents:
            value = self.parents[value]
        return value

    def tie(self, *values: Value) -> None:
        """Unite the classes of values, so that they share a layout."""
        first = self.find(values[0])
        for other in values[1:]:
            root = self.find(other)
            if root is not first:
                self.parents[root] = first

    def of(self, value: Value) -> Layout:
        """Return the layout of a tile value; if it has none yet, choose the default layout."""
        root = self.find(value)
        layout = self.layouts.get(root)
        if layout is None:
            layout = self.layouts[root] = self.default(value)
        return layout

    def accumulator_layout(self, op: Op) -> Layout:
        """Choose and return the layout of a product's accumulators.

        On GPUs, if the operands have 32-bit elements, each invocation holds groups of contiguous elements along both
        axes, so that multiply-add can read both operands as vectors.
        """
        layout = self.of(op.result)
        are_32_bit = all(tile_of(v).dtype.bits == 32 for v in op.operands[:2])
        on_gpu = self.vector > 1 and not self.lane_bits
        if are_32_bit and on_gpu and layout.scope == "workgroup":
            layout = self.layouts[self.find(op.result)] = grouped_rows(layout, self.vector)
        return layout

    def default(self, value: Value) -> Layout:
        """Return the default layout for the type of a tile value."""
        tile = tile_of(value)
        return default_layout(tile.shape, self.bits[tile.scope], tile.scope, self.vector, self.lane_bits)


def tile_of(value: Value) -> Tile:
    """Return the type of a tile value."""
    assert isinstance(value.type, Tile)
    return value.type


def assign(function: Function, bits: dict[str, int], vector: int, lane_bits: int) -> Assignment:
    """Assign a layout to each tile value of a function. The parameters are described at `Assignment`."""
    assignment = Assignment(bits, vector, lane_bits)
    relations: list[tuple[Value, Value, Derive]] = []
    values: list[Value] = []
    for op in function.body.walk():
        values += [v for v in op.results if isinstance(v.type, Tile)]
        if op.regions and op.name not in ("tile_map", "tile_each"):  # their regions work on single elements
            _tie_control(assignment, op)
            values += [a for region in op.regions for a in region.args if isinstance(a.type, Tile)]
        if op.name.startswith("tile_"):
            _relate(assignment, op, relations)
    for op in function.body.walk():
        if op.name == "tile_mma":
            assignment.accumulator_layout(op)
    _propagate(assignment, relations)
    if vector > 1 and not lane_bits:  # on GPUs
        for value in _transposed_copies(function):
            tile = tile_of(value)
            layout = blocked(tile.shape, bits[tile.scope], tile.scope, vector)
            if layout is not None and assignment.find(value) not in assignment.layouts:
                assignment.layouts[assignment.find(value)] = layout
        _propagate(assignment, relations)
    for value in sorted(values, key=lambda v: -tile_of(v).size):  # stable: program order among tiles of equal size
        if assignment.find(value) not in assignment.layouts:
            assignment.of(value)
            _propagate(assignment, relations)
    return assignment


def _transposed_copies(function: Function) -> list[Value]:
    """Return the results of `tile_load` that are only used by one transpose, whose result is only stored."""
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
    """Apply rule 1 to a loop or branch: tie the values that control flow connects."""
    if op.name == "if":
        for region in op.regions:
            if region.terminator.name == "yield":
                _tie_all(assignment, op.results, region.terminator.operands)
        return
    if op.name not in LOOPS:
        return
    if op.name == "for":  # the operands start, end and step, and the induction variable, precede the carried values
        initial, arguments = op.operands[3:], op.regions[0].args[1:]
    else:
        initial, arguments = op.operands, op.regions[0].args
    _tie_all(assignment, arguments, initial)
    if (
        op.name == "for"
    ):  # when the range is exhausted, the results are the carried values; a `loop` ends only by `break`
        _tie_all(assignment, arguments, op.results)
    for exit_op in exits_of(op.regions[0]):
        _tie_all(assignment, op.results if exit_op.name == "break" else arguments, exit_op.operands)


def _tie_all(assignment: Assignment, first: list[Value], second: list[Value]) -> None:
    """Tie each tile of the first list to the value at the same index of the second; ignore values that aren't tiles."""
    for a, b in zip(first, second, strict=True):
        if isinstance(a.type, Tile):
            assignment.tie(a, b)


def _relate(assignment: Assignment, op: Op, relations: list[tuple[Value, Value, Derive]]) -> None:
    """Tie the values of a tile operation by rule 1, and add the derivations of rule 2 to `relations`.

    A relation is a source, a target, and the function that derives the layout of the target from that of the source.
    """
    operands = [v for v in op.operands if isinstance(v.type, Tile)]
    if op.name in ("tile_map", "tile_each"):
        reference = op.result if op.results else operands[0]  # a `tile_each` has no result
        for value in operands:
            shape = tile_of(value).shape
            if shape == tile_of(reference).shape:
                assignment.tie(reference, value)
            else:  # a default argument binds this operand's shape, not that of the last operand
                relations.append((reference, value, lambda layout, shape=shape: layout.operand(shape)))  # type: ignore[misc]
    elif op.name == "tile_mma":
        assignment.tie(operands[2], op.result)
    elif op.name == "tile_scan":
        assignment.tie(operands[0], op.result)
    elif op.name in ("tile_reduce", "tile_argument"):
        axis = op.attrs["axis"]
        relations.append((operands[0], op.result, lambda layout: layout.without(axis)))
    elif op.name == "tile_transpose":
        axes = permutation(op)
        inverse = tuple(axes.index(a) for a in range(len(axes)))  # the permutation that undoes `axes`
        relations.append((operands[0], op.result, lambda layout: layout.permuted(axes)))
        relations.append((op.result, operands[0], lambda layout: layout.permuted(inverse)))
    elif op.name == "tile_reshape":
        before, after = tile_of(operands[0]).shape, tile_of(op.result).shape
        relations.append((operands[0], op.result, lambda layout: layout.reshaped(after)))
        relations.append((op.result, operands[0], lambda layout: layout.reshaped(before)))


def _propagate(assignment: Assignment, relations: list[tuple[Value, Value, Derive]]) -> None:
    """Derive layouts for values without one, by the relations of `_relate`, until nothing changes."""
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
