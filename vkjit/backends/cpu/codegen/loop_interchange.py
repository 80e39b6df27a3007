"""Loops over what a workgroup shares out: rounds outside, vectors inside.

Enters: a kernel with barriers, in primitive form. Leaves: loops whose invocations take every n-th element, from their own
number on, as loops over rounds that are equal in the whole workgroup::

    for %rank, %n, 256 (%i, %a) {              for 0, %n, 256 (%base, %a) {       (attribute `rounds`)
      ... %i ...                                 %left = sub %n, %base
      continue %b                                %in = lt %rank, %left
    }                                     ->     %i = add %base, %rank
                                                 %c = if %in { ... %i ...; yield %b } else { yield %a }
                                                 continue %c
                                               }

One round then touches memory in order, as prefetchers want it, and the vectors' sums don't wait for each other. What each
invocation computes, and in which order, stays.

Holds: only loops that end by themselves, without loops, barriers or collectives inside, in straight code or in `if`s whose
conditions are equal in the workgroup; bounds are equal in it, too, and the first element's number isn't negative.
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
"""The attribute of loops that run once per workgroup."""
_MAX_OPS = 100
_IDS: frozenset[OpName] = frozenset({"lane_id", "subgroup_id", "subgroup_size", "local_id"})
_SAME: frozenset[OpName] = frozenset(
    {"const", "group_id", "num_groups", "local_size", "subgroup_size", "num_subgroups", "extent", "stride"}
)


@dataclass(slots=True)
class UniformIterations:
    """Which values are equal in the whole workgroup by what they are computed from."""

    params: set[Value]
    known: dict[Value, bool] = field(default_factory=dict)

    def holds(self, value: Value) -> bool:
        if value in self.params:
            return True
        if value not in self.known:
            self.known[value] = value.op is not None and self._by_operation(value.op)
        return self.known[value]

    def _by_operation(self, op: Op) -> bool:
        if op.name in _SAME:
            return True
        row = OPS[op.name]
        if row.effect != Effect.NONE or row.convergent or op.regions or row.uniformity not in ("operands", "always"):
            return False
        if op.name in _IDS or op.name in ("global_id", "assume_uniform"):
            return False
        return all(self.holds(v) for v in op.operands)


def interchange(module: Module, vectors: int) -> Module:
    """See the module's docstring; `vectors` is the number of vectors of a workgroup."""
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
        """Whether all invocations of a workgroup run what is inside together."""
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
    """Whether a value is an invocation's number in its workgroup, or a sum of such: never negative, never large."""
    op = value.op
    if op is None:
        return False
    if op.name == "cast":
        return isinstance(value.type, Scalar) and value.type.dtype.bits >= 32 and _is_count(op.operands[0])
    if op.name in ("add", "mul"):
        return all(_is_count(v) for v in op.operands)
    return op.name in _IDS


def _rewritten(op: Op, b: Builder) -> list[Value]:
    """Appends the loop over rounds; gives what stands for the old one's results."""
    low, high, step = op.operands[:3]
    carried = op.operands[3:]
    kinds = [v.type for v in carried]
    old = op.regions[0]
    region, taken, other = Region([low.type, *kinds]), Region(), Region()
    zero = b.const(0, low.type)
    with b.at(region):
        base, state = region.args[0], region.args[1:]
        left = b.emit("sub", high, base)
        inside = b.emit("lt", low, left)
        place = b.emit("add", base, low)
        mapping = dict(zip(old.args, [place, *state], strict=True))
        taken.ops = [clone_op(inner, mapping) for inner in old.ops[:-1]]
        with b.at(taken):
            b.op("yield", *(mapping.get(v, v) for v in old.terminator.operands))
        with b.at(other):
            b.op("yield", *state)
        chosen = b.op("if", inside, types=list(kinds), regions=[taken, other])
        b.op("continue", *chosen.results)
    made = b.op("for", zero, high, step, *carried, types=kinds, regions=[region], rounds=True)
    return made.results
