"""Expand operations into formulas of simpler operations, until no rule applies.

The lowering passes (`lower_math`, `lower_arithmetic`, ...) call `expand` with a chooser. The chooser returns the rule
that expands an operation, or None to keep the operation. The module is rewritten in place. Operations that a rule emits
are expanded in turn. Vector operations are scalarized first, so rules see scalars only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vkjit import dtypes
from vkjit.dtypes import DType
from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.rewrite import resolve
from vkjit.ir.types import Scalar, Vector

from .formula import Formula, Term

__all__ = ["Chooser", "Rule", "expand"]

Rule = Callable[..., Term]
"""rule(formula, *operands) emits the expansion and returns the value that replaces the operation's result."""

Chooser = Callable[[Function, Op], "Rule | None"]
"""chooser(function, operation) returns the rule for an operation of that function, None if the operation is kept."""


def expand(module: Module, choose: Chooser, word: DType = dtypes.u64) -> Module:
    """Expand all operations of the module for which `choose` returns a rule. `word` is that of `Formula`."""
    for function in module.all_functions():
        _Expander(function, choose, word).region(function.body)
    return module


class _Expander:
    """The expansion of one function.

    `mapping` maps the results of expanded operations to their replacements. `strict` is True if the function has the
    attribute `strict`: nothing is fused or reordered.
    """

    def __init__(self, function: Function, choose: Chooser, word: DType) -> None:
        self.function = function
        self.choose = choose
        self.word = word
        self.strict = bool(function.attrs.get("strict"))
        self.mapping: dict[Value, Value] = {}

    def region(self, region: Region) -> None:
        """Expand the operations of a region."""
        source, region.ops = region.ops, []
        builder = Builder(region)
        for op in source:
            self.operation(op, builder)

    def operation(self, op: Op, builder: Builder) -> None:
        """Append an operation if it is kept; else append the operations that its rule emits, expanded in turn."""
        op.operands[:] = [resolve(self.mapping, value) for value in op.operands]
        rule = self.choose(self.function, op)
        if rule is None:
            builder.region.ops.append(op)
            for inner in op.regions:
                self.region(inner)
            return
        scratch = Region()  # for the operations of the rule, before their own expansion
        scratch_builder = Builder(scratch, op.loc)
        if _lanes(op):
            result = self.by_lanes(op, scratch_builder)
        else:
            formula = Formula(scratch_builder, strict=self.strict, word=self.word)
            result = rule(formula, *(formula.term(value) for value in op.operands)).value
        for inner_op in scratch.ops:
            self.operation(inner_op, builder)
        result = resolve(self.mapping, result)
        result.name = result.name or op.result.name
        self.mapping[op.result] = result

    def by_lanes(self, op: Op, builder: Builder) -> Value:
        """Emit a vector operation as one scalar operation per lane; these are expanded when they are visited."""
        lanes = []
        for lane in range(_lanes(op)):
            operands = [_extract(builder, value, lane) for value in op.operands]
            attrs = op.attrs.copy()
            target = attrs.get("type")
            if isinstance(target, Vector):
                attrs["type"] = Scalar(target.dtype)
            lanes.append(builder.emit(op.name, *operands, **attrs))
        return builder.emit("vec_make", *lanes, type=op.result.type)


def _lanes(op: Op) -> int:
    """Return the number of lanes of an operation on vectors, 0 for scalars."""
    values: Sequence[Value] = (*op.operands, *op.results)
    return next((v.type.size for v in values if isinstance(v.type, Vector)), 0)


def _extract(builder: Builder, value: Value, lane: int) -> Value:
    """Return a lane of a vector. If the value is a scalar, return the scalar, as it stands for all lanes."""
    if not isinstance(value.type, Vector):
        return value
    return builder.emit("vec_extract", value, lane=lane, type=Scalar(value.type.dtype))
