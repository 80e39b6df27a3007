"""Products of tiles on cooperative matrices: each subgroup holds a block of the sums in matrices of the device's size.

Enters: chains of `tile_mma` whose sums begin as one number and are handed on by loops alone. Leaves: which values are in matrices,
and how these are cut: a `Plan` each. `packing` brings factors to shared memory, `matrices` makes the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import dtypes
from ...ir.core import Function, Op, Value
from ...ir.rewrite import exits_of
from ...ir.types import Matrix, Tile
from ...runtime.interface import DeviceCaps, MatrixShape

__all__ = ["Fragments", "Plan", "Splat", "plans_of", "splat_of"]

_MOST_BYTES = 16 * 16 * 16 * 4
"""Of the sums of one subgroup: 16 matrices of 16 x 16 f32."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`down` x `across` subgroups, each with `rows` x `columns` matrices of `shape`."""

    shape: MatrixShape
    down: int
    across: int
    rows: int
    columns: int
    factor: dtypes.DType
    total: dtypes.DType

    @property
    def kind(self) -> Matrix:
        """The type of the sums' matrices."""
        return Matrix(self.total, self.shape.m, self.shape.n, "acc")

    @property
    def held(self) -> int:
        """Matrices of one subgroup."""
        return self.rows * self.columns

    def __str__(self) -> str:
        s = self.shape
        return f"{self.down} x {self.across} subgroups of {self.rows} x {self.columns} matrices {s.m}x{s.n}x{s.k}"


@dataclass(frozen=True, slots=True)
class Fragments:
    """Sums in matrices, row by row."""

    plan: Plan
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Splat:
    """A tile that holds one number everywhere."""

    value: Value


# -- what may be in matrices
def plans_of(function: Function, caps: DeviceCaps, invocations: int) -> dict[Value, Plan]:
    """The values that are held in matrices: results of products, and what loops make of them."""
    if not caps.matrices or invocations % caps.subgroup_size:
        return {}
    found: dict[Value, Plan] = {}
    loops = [op for op in function.body.walk() if op.name == "for"]
    for op in function.body.walk():
        if op.name == "tile_mma":
            plan = _plan(op, caps, invocations // caps.subgroup_size)
            if plan is not None:
                found[op.result] = plan
    scaled = [op for op in function.body.walk() if _row_factor(op) is not None]
    for op in reversed(loops):  # inner ones before those around them
        _carried(op, found)
    for op in scaled:
        plan = found.get(op.operands[0])
        if plan is not None:
            found[op.result] = plan
    while _without_ground(function, loops, found):
        pass
    return found


def _carried(loop: Op, found: dict[Value, Plan]) -> None:
    """What a loop carries is in matrices if what its rounds give is."""
    for place, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
        for end in exits_of(loop.regions[0]):
            plan = found.get(end.operands[place])
            if plan is not None:
                found[argument] = found[result] = plan


def _without_ground(function: Function, loops: Sequence[Op], found: dict[Value, Plan]) -> bool:
    """Takes out what gets something that isn't in matrices; whether there was any."""
    before = len(found)

    def grounded(value: Value, plan: Plan) -> bool:
        return found.get(value) == plan or splat_of(value) is not None

    for op in function.body.walk():
        if op.name not in ("tile_mma", "tile_map") or op.result not in found:
            continue
        before_it = op.operands[2] if op.name == "tile_mma" else op.operands[0]
        if not grounded(before_it, found[op.result]) or (op.name == "tile_map" and splat_of(before_it) is not None):
            del found[op.result]
    for loop in loops:
        ends = list(exits_of(loop.regions[0]))
        for place, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
            plan = found.get(argument)
            if plan is None:
                found.pop(result, None)
                continue
            inner = all(e.name == "continue" and found.get(e.operands[place]) == plan for e in ends)
            if not inner or not grounded(loop.operands[3 + place], plan):
                del found[argument]
                found.pop(result, None)
    return len(found) < before


def _row_factor(op: Op) -> Value | None:
    """What an operation multiplies each row of its first operand by, if that is all that it does."""
    if op.name != "tile_map" or len(op.operands) != 2 or len(op.regions[0].ops) != 2:
        return None
    first, second = (v.type for v in op.operands)
    assert isinstance(first, Tile)
    assert isinstance(second, Tile)
    product, end = op.regions[0].ops
    fits = (
        product.name == "mul"
        and set(product.operands) == set(op.regions[0].args[2:])
        and end.operands == product.results
    )
    return op.operands[1] if fits and second.shape == (first.shape[0], 1) and first.dtype is second.dtype else None


def splat_of(value: Value) -> Value | None:
    """The number that a tile holds everywhere, where that comes from outside of its region or is a constant."""
    op = value.op
    if op is None or op.name != "tile_map" or op.operands:
        return None
    region = op.regions[0]
    inside = [o for o in region.ops[:-1] if o.name != "const"]
    given = region.terminator.operands[0]
    return None if inside or given in region.args else given


def _plan(op: Op, caps: DeviceCaps, subgroups: int) -> Plan | None:
    a, b, total = (v.type for v in op.operands)
    assert isinstance(a, Tile)
    assert isinstance(b, Tile)
    assert isinstance(total, Tile)
    if a.dtype is not b.dtype or total.scope != "workgroup":
        return None
    best: tuple[int, Plan] | None = None
    for shape in caps.matrices:
        names = (shape.a, shape.b, shape.c, shape.result)
        if shape.flexible or shape.saturating or shape.scope != "subgroup":
            continue
        if names != (a.dtype.name, a.dtype.name, total.dtype.name, total.dtype.name):
            continue
        if total.shape[0] % shape.m or total.shape[1] % shape.n or a.shape[1] % shape.k:
            continue
        plan = _divided(shape, total, a.dtype, subgroups)
        if plan is not None and (best is None or shape.m * shape.n * shape.k > best[0]):
            best = shape.m * shape.n * shape.k, plan
    return best[1] if best is not None else None


def _divided(shape: MatrixShape, total: Tile, factor: dtypes.DType, subgroups: int) -> Plan | None:
    """The cut into subgroups whose blocks are nearest to squares."""
    rows, columns = total.shape[0] // shape.m, total.shape[1] // shape.n
    best: Plan | None = None
    for down in (d for d in range(1, subgroups + 1) if subgroups % d == 0):
        across = subgroups // down
        if rows % down or columns % across:
            continue
        plan = Plan(shape, down, across, rows // down, columns // across, factor, total.dtype)
        if plan.held * shape.m * shape.n * total.dtype.itemsize > _MOST_BYTES:
            continue
        if best is None or plan.rows + plan.columns < best.rows + best.columns:
            best = plan
    return best
