"""Accumulators in cooperative matrices: which tile values are held in them, and how they are partitioned.

A product (`tile_mma`) can run on cooperative matrices of a shape that the device supports; each subgroup then holds a
block of the accumulators in matrices. The invocations of a subgroup can't access single elements of a matrix, so
accumulators are held in matrices only along chains of `tile_mma` that start with a splat (a tile of one value) and pass
only through loops and multiplications of whole rows by factors.

Before the tile lowering starts, `plans_of` returns a `Plan` for each value that is held in matrices. `shared_operands`
stages the operands in shared memory, and `mma_matmul` emits the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vkjit import dtypes
from vkjit.ir.core import Function, Op, Value
from vkjit.ir.rewrite import exits_of
from vkjit.ir.types import Matrix, Tile
from vkjit.runtime.device import DeviceCaps, MatrixShape

__all__ = ["Fragments", "Plan", "Splat", "plans_of", "splat_of"]

_MAX_BYTES = 16 * 16 * 16 * 4
"""The limit for the accumulators of one subgroup, in bytes: 16 matrices of 16 x 16 f32."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A partition of an M x N tile: `down` x `across` subgroups, each with `rows` x `columns` matrices of `shape`.

    `operand_dtype` is the element type of the operands A and B, `accumulator_dtype` that of the accumulators.
    """

    shape: MatrixShape
    down: int
    across: int
    rows: int
    columns: int
    operand_dtype: dtypes.DType
    accumulator_dtype: dtypes.DType

    @property
    def kind(self) -> Matrix:
        """The type of the accumulator matrices."""
        return Matrix(self.accumulator_dtype, self.shape.m, self.shape.n, "acc")

    @property
    def matrices_per_subgroup(self) -> int:
        """The number of accumulator matrices of one subgroup."""
        return self.rows * self.columns

    def __str__(self) -> str:
        s = self.shape
        return f"{self.down} x {self.across} subgroups of {self.rows} x {self.columns} matrices {s.m}x{s.n}x{s.k}"


@dataclass(frozen=True, slots=True)
class Fragments:
    """Accumulators in cooperative matrices: `values` are the matrices of the subgroup's block, in row-major order."""

    plan: Plan
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Splat:
    """A tile whose elements all have the same value."""

    value: Value


# -- selection of values in matrices
def plans_of(function: Function, caps: DeviceCaps, invocations: int) -> dict[Value, Plan]:
    """Return a plan for each value that is held in matrices: the results of products, and the values that loops and
    multiplications of rows derive from them.

    `invocations` is the number of invocations of a workgroup.
    """
    if not caps.matrices or invocations % caps.subgroup_size:
        return {}
    plans: dict[Value, Plan] = {}
    loops = [op for op in function.body.walk() if op.name == "for"]
    for op in function.body.walk():
        if op.name == "tile_mma":
            plan = _plan(op, caps, invocations // caps.subgroup_size)
            if plan is not None:
                plans[op.result] = plan
    # From products, plans spread to loop-carried values, and from these to multiplications of rows.
    row_scalings = [op for op in function.body.walk() if _row_factor(op) is not None]
    for op in reversed(loops):  # innermost first
        _plan_carried(op, plans)
    for op in row_scalings:
        plan = plans.get(op.operands[0])
        if plan is not None:
            plans[op.result] = plan
    # The removal of one plan may make others impossible.
    while _remove_ungrounded(function, loops, plans):
        pass
    return plans


def _plan_carried(loop: Op, plans: dict[Value, Plan]) -> None:
    """Add plans for the loop-carried values of a loop, and its results, that an iteration passes on in matrices."""
    for position, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
        for end in exits_of(loop.regions[0]):
            plan = plans.get(end.operands[position])
            if plan is not None:
                plans[argument] = plans[result] = plan


def _remove_ungrounded(function: Function, loops: Sequence[Op], plans: dict[Value, Plan]) -> bool:
    """Remove the plans of values that can't be held in matrices. Return True if any were removed.

    A product keeps its plan if its accumulators have the same plan or are a splat; a multiplication of rows, if its
    operand has the same plan; a loop-carried value, if its initial value has the same plan or is a splat, and every
    iteration passes on a value with the same plan.
    """
    size_before = len(plans)

    def grounded(value: Value, plan: Plan) -> bool:
        """True if accumulators can come from this value: it has the same plan, or is a splat."""
        return plans.get(value) == plan or splat_of(value) is not None

    for op in function.body.walk():
        if op.name not in ("tile_mma", "tile_map") or op.result not in plans:
            continue
        accumulator = op.operands[2] if op.name == "tile_mma" else op.operands[0]
        # A product can start from a splat; a scaling of rows needs accumulators that are in matrices already.
        if not grounded(accumulator, plans[op.result]) or (op.name == "tile_map" and splat_of(accumulator) is not None):
            del plans[op.result]
    for loop in loops:
        ends = list(exits_of(loop.regions[0]))
        for position, (argument, result) in enumerate(zip(loop.regions[0].args[1:], loop.results, strict=True)):
            plan = plans.get(argument)
            if plan is None:
                plans.pop(result, None)
                continue
            passes_on = all(e.name == "continue" and plans.get(e.operands[position]) == plan for e in ends)
            # The initial values follow the operands start, end and step.
            if not passes_on or not grounded(loop.operands[3 + position], plan):
                del plans[argument]
                plans.pop(result, None)
    return len(plans) < size_before


def _row_factor(op: Op) -> Value | None:
    """Return the tile of row factors, of shape (M, 1), if the operation multiplies each row of its first operand by a
    factor and does nothing else; else None.
    """
    if op.name != "tile_map" or len(op.operands) != 2 or len(op.regions[0].ops) != 2:
        return None
    tile, factors = (v.type for v in op.operands)
    assert isinstance(tile, Tile)
    assert isinstance(factors, Tile)
    product, end = op.regions[0].ops
    _, _, *elements = op.regions[0].args  # the arguments are the index along each axis, and an element of each operand
    is_product = product.name == "mul" and set(product.operands) == set(elements) and end.operands == product.results
    scales_rows = is_product and factors.shape == (tile.shape[0], 1) and tile.dtype is factors.dtype
    return op.operands[1] if scales_rows else None


def splat_of(value: Value) -> Value | None:
    """Return the value that all elements of a tile have; None if they may differ.

    The value is known for a `tile_map` without operands whose region yields a constant or a value from outside.
    """
    op = value.op
    if op is None or op.name != "tile_map" or op.operands:
        return None
    region = op.regions[0]
    computed = [o for o in region.ops[:-1] if o.name != "const"]
    yielded = region.terminator.operands[0]
    return None if computed or yielded in region.args else yielded


def _plan(op: Op, caps: DeviceCaps, subgroups: int) -> Plan | None:
    """Return the plan of a product on the largest matrices that the device supports for its types and shape.

    Return None if the product can't run on matrices.
    """
    a, b, accumulators = (v.type for v in op.operands)
    assert isinstance(a, Tile)
    assert isinstance(b, Tile)
    assert isinstance(accumulators, Tile)
    if a.dtype is not b.dtype or accumulators.scope != "workgroup":
        return None
    best: tuple[int, Plan] | None = None
    for shape in caps.matrices:
        names = (shape.a, shape.b, shape.c, shape.result)
        if shape.flexible or shape.saturating or shape.scope != "subgroup":
            continue
        if names != (a.dtype.name, a.dtype.name, accumulators.dtype.name, accumulators.dtype.name):
            continue
        if accumulators.shape[0] % shape.m or accumulators.shape[1] % shape.n or a.shape[1] % shape.k:
            continue
        plan = _partition(shape, accumulators, a.dtype, subgroups)
        if plan is not None and (best is None or shape.m * shape.n * shape.k > best[0]):
            best = shape.m * shape.n * shape.k, plan
    return best[1] if best is not None else None


def _partition(shape: MatrixShape, accumulators: Tile, operand_dtype: dtypes.DType, subgroups: int) -> Plan | None:
    """Return the partition of a tile of accumulators into one block for each subgroup; None if no partition fits.

    The blocks are as close to square as possible. `operand_dtype` is the element type of operands A and B, `subgroups`
    the number of subgroups of a workgroup.
    """
    rows, columns = accumulators.shape[0] // shape.m, accumulators.shape[1] // shape.n
    best: Plan | None = None
    for down in (d for d in range(1, subgroups + 1) if subgroups % d == 0):
        across = subgroups // down
        if rows % down or columns % across:
            continue
        plan = Plan(shape, down, across, rows // down, columns // across, operand_dtype, accumulators.dtype)
        if plan.matrices_per_subgroup * shape.m * shape.n * accumulators.dtype.itemsize > _MAX_BYTES:
            continue
        if best is None or plan.rows + plan.columns < best.rows + best.columns:
            best = plan
    return best
