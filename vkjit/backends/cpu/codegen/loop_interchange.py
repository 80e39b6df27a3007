"""Loop interchange: run each iteration of a workgroup-strided loop for all vectors of the workgroup before the next one.

In kernels with barriers, a loop whose invocations take every n-th element, starting at their own id, becomes a loop with
a trip count that is uniform in the workgroup::

    for %rank, %n, 256 (%i, %a) {              for 0, %n, 256 (%base, %a) {       (attribute `rounds`)
      ... %i ...                                 %left = sub %n, %base
      continue %b                                %in = lt %rank, %left
    }                                     ->     %i = add %base, %rank
                                                 %c = if %in { ... %i ...; yield %b } else { yield %a }
                                                 continue %c
                                               }

Loops with the attribute are emitted once per workgroup, around a loop over its vectors (see `barrier_regions`). One
iteration then accesses memory in order, which suits hardware prefetchers, and the accumulators of different vectors are
independent of each other. Each invocation computes the same values in the same order as before.

Only loops without `break`, inner loops, barriers and collectives are rewritten. Their upper bound is uniform in the
workgroup, their step a constant above 1, their lower bound computed from ids by sums and products, so not negative.
All enclosing control flow is uniform: `if`s with uniform conditions, and loops that contain barriers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, Effect, OpName
from vkjit.ir.rewrite import clone_op, constant_of, exits_of, replace_uses
from vkjit.ir.types import Array, Scalar

__all__ = ["UniformIterations", "interchange"]

INTERCHANGED = "rounds"
"""Attribute of loops that are emitted once per workgroup."""
_MAX_OPS = 100
_IDS: frozenset[OpName] = frozenset({"lane_id", "subgroup_id", "subgroup_size", "local_id"})
_UNIFORM: frozenset[OpName] = frozenset(
    {"const", "group_id", "num_groups", "local_size", "subgroup_size", "num_subgroups", "extent", "stride"}
)


@dataclass(slots=True)
class UniformIterations:
    """Values that are uniform in the workgroup because they are computed from uniform values only."""

    params: set[Value]
    known: dict[Value, bool] = field(default_factory=dict)

    def holds(self, value: Value) -> bool:
        if value in self.params:
            return True
        if value not in self.known:
            self.known[value] = value.op is not None and self._by_operation(value.op)
        return self.known[value]

    def _by_operation(self, op: Op) -> bool:
        if op.name in _UNIFORM:
            return True
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or op.regions or row.uniformity not in ("operands", "always"):
            return False
        if op.name in _IDS or op.name in ("global_id", "assume_uniform"):
            return False
        return all(self.holds(v) for v in op.operands)


def interchange(module: Module, vectors: int) -> Module:
    """Interchange the loops of a kernel; `vectors` is the number of vectors of a workgroup."""
    kernel = module.kernel
    if vectors > 1 and not kernel.attrs.get("sanitize") and any(op.name == "barrier" for op in kernel.body.walk()):
        walk = _Walk(UniformIterations(set(kernel.params)))
        walk.region(kernel.body)
        replace_uses(kernel.body, walk.replaced)
    return module


@dataclass(slots=True)
class _Walk:
    alike: UniformIterations
    replaced: dict[Value, Value] = field(default_factory=dict)

    def region(self, region: Region) -> None:
        source, region.ops = region.ops, []
        builder = Builder(region)
        for op in source:
            if self.is_open(op):
                for inner in op.regions:
                    self.region(inner)
            if op.name == "for" and self.fits(op):
                builder.loc = op.loc
                self.replaced.update(zip(op.results, _rewritten(op, builder), strict=True))
            else:
                region.ops.append(op)

    def is_open(self, op: Op) -> bool:
        """True if all invocations of a workgroup run the regions of `op` together."""
        if op.name == "if":
            return self.alike.holds(op.operands[0]) and not any(True for r in op.regions for _ in exits_of(r))
        return bool(op.regions) and any(inner.name == "barrier" for inner in op.walk())

    def fits(self, op: Op) -> bool:
        low, high, step = op.operands[:3]
        number = constant_of(step)
        if not isinstance(number, int) or number <= 1 or self.alike.holds(low) or not self.alike.holds(high):
            return False
        if not _is_count(low) or not isinstance(low.type, Scalar) or not low.type.dtype.is_signed:
            return False
        inside = list(op.regions[0].walk())
        if len(inside) > _MAX_OPS or len(list(exits_of(op.regions[0]))) != 1:
            return False
        if any(
            inner.name in ("for", "loop", "return", "unreachable") or OPS[inner.name].convergent for inner in inside
        ):
            return False
        return any(inner.name in ("load", "store") and _is_global(inner) for inner in inside)


def _is_global(op: Op) -> bool:
    array = op.operands[0].type
    return isinstance(array, Array) and array.space == "global"


def _is_count(value: Value) -> bool:
    """True if a value is computed from ids in the workgroup by sums and products: neither negative nor large."""
    op = value.op
    if op is None:
        return False
    if op.name == "cast":
        return isinstance(value.type, Scalar) and value.type.dtype.bits >= 32 and _is_count(op.operands[0])
    if op.name in ("add", "mul"):
        return all(_is_count(v) for v in op.operands)
    return op.name in _IDS


def _rewritten(op: Op, b: Builder) -> list[Value]:
    """Append the interchanged loop, and return the values that replace the results of the old one."""
    low, high, step = op.operands[:3]
    carried = op.operands[3:]
    kinds = [v.type for v in carried]
    old = op.regions[0]
    region, body, skipped = Region([low.type, *kinds]), Region(), Region()
    zero = b.const(0, low.type)
    with b.at(region):
        base, state = region.args[0], region.args[1:]
        remaining = b.emit("sub", high, base)
        inside = b.emit("lt", low, remaining)
        element = b.emit("add", base, low)
        mapping = dict(zip(old.args, [element, *state], strict=True))
        body.ops = [clone_op(inner, mapping) for inner in old.ops[:-1]]
        with b.at(body):
            b.op("yield", *(mapping.get(v, v) for v in old.terminator.operands))
        with b.at(skipped):
            b.op("yield", *state)
        chosen = b.op("if", inside, types=list(kinds), regions=[body, skipped])
        b.op("continue", *chosen.results)
    loop = b.op("for", zero, high, step, *carried, types=kinds, regions=[region], rounds=True)
    return loop.results
