"""Utilities for passes: walk, count uses, replace, clone, and query control flow.

Values have no use lists. A pass that replaces values collects a mapping from old to new values. It applies the mapping
during its walk of the IR (`rewrite_region`) or at the end (`replace_uses`). All functions take linear time in the size
of the IR that they visit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .builder import Builder
from .core import Function, Module, Op, Region, Value
from .ops import OpName

__all__ = [
    "breaks_of",
    "clone_function",
    "clone_module",
    "clone_op",
    "clone_region",
    "completes",
    "constant_of",
    "exits_of",
    "is_constant",
    "outer_values",
    "replace_uses",
    "resolve",
    "rewrite_region",
    "use_counts",
    "used_values",
    "walk_with_parents",
]

LOOPS: frozenset[OpName] = frozenset({"for", "loop"})


# -- queries


def constant_of(value: Value) -> Any:
    """Return the Python number of a constant; None for any other value."""
    op = value.op
    return op.attrs["value"] if op is not None and op.name == "const" else None


def is_constant(value: Value) -> bool:
    """True for the result of a `const`."""
    op = value.op
    return op is not None and op.name == "const"


def exits_of(region: Region) -> Iterator[Op]:
    """Iterate over the `break`s and `continue`s that belong to the loop whose body is `region`."""
    for op in region.ops:
        if op.name in ("break", "continue"):
            yield op
        elif op.regions and op.name not in LOOPS:
            for inner in op.regions:
                yield from exits_of(inner)


def breaks_of(loop: Op) -> list[Op]:
    """Return the `break`s of a loop."""
    return [op for op in exits_of(loop.regions[0]) if op.name == "break"]


def completes(op: Op) -> bool:
    """True if control may reach the operation after `op`.

    The result is False for an `if` that exits in both regions, and for a `loop` without `break`.
    """
    if op.name == "if":
        return any(region.ops and region.ops[-1].name == "yield" for region in op.regions)
    return op.name != "loop" or any(e.name == "break" for e in exits_of(op.regions[0]))


def outer_values(region: Region) -> list[Value]:
    """Return the values that a region uses but doesn't define, in the order of their first use."""
    own = set(region.args)
    for op in region.walk():
        own.update(op.results)
        for inner in op.regions:
            own.update(inner.args)
    return list(dict.fromkeys(value for op in region.walk() for value in op.operands if value not in own))


def walk_with_parents(region: Region, parents: tuple[Op, ...] = ()) -> Iterator[tuple[Op, tuple[Op, ...]]]:
    """Iterate over all operations in program order, each with its enclosing operations, outermost first."""
    for op in region.ops:
        yield op, parents
        for inner in op.regions:
            yield from walk_with_parents(inner, (*parents, op))


def use_counts(region: Region) -> Counter[Value]:
    """Count how often each value is an operand inside the region."""
    return Counter(value for op in region.walk() for value in op.operands)


def used_values(region: Region) -> set[Value]:
    """Return the values that are operands inside the region."""
    return {value for op in region.walk() for value in op.operands}


# -- replacement


def resolve(mapping: Mapping[Value, Value], value: Value) -> Value:
    """Follow a chain of replacements to its end."""
    while value in mapping:
        value = mapping[value]
    return value


def replace_uses(region: Region, mapping: Mapping[Value, Value]) -> None:
    """Replace operands inside the region by `mapping` (old to new value). Chains in the mapping are followed."""
    if not mapping:
        return
    for op in region.walk():
        if any(value in mapping for value in op.operands):
            op.operands[:] = [resolve(mapping, value) for value in op.operands]


Rule = Callable[[Op, Builder], "Sequence[Value] | None"]
"""A function (operation, builder) that rewrites one operation, whose operands have already been replaced.

It returns None to keep the operation. Otherwise it returns the values that replace the operation's results, and the
operations that it has appended to the builder take the operation's place.
"""


def rewrite_region(region: Region, rule: Rule, mapping: dict[Value, Value] | None = None) -> dict[Value, Value]:
    """Apply a rule to each operation in program order, outer operations before nested ones.

    `mapping` has replacements (old to new values) to apply to operands from the start. The replaced results are added
    to it. Returns the mapping.
    """
    mapping = {} if mapping is None else mapping
    source, region.ops = region.ops, []
    builder = Builder(region)
    for op in source:
        if mapping:
            op.operands[:] = [resolve(mapping, value) for value in op.operands]
        builder.loc = op.loc
        values = rule(op, builder)
        if values is None:
            region.ops.append(op)
            for inner in op.regions:
                rewrite_region(inner, rule, mapping)
            continue
        for old, new in zip(op.results, values, strict=True):
            new.name = new.name or old.name
            mapping[old] = new
    return mapping


# -- cloning


def clone_op(op: Op, mapping: dict[Value, Value]) -> Op:
    """Return a copy of an operation with its regions.

    Operands that are keys of `mapping` are replaced by its values. The old results are added to `mapping` as keys, with
    the results of the copies as values.
    """
    operands = [mapping.get(value, value) for value in op.operands]
    copy = Op(op.name, operands, [r.type for r in op.results], op.attrs.copy(), None, op.loc)
    for old, new in zip(op.results, copy.results, strict=True):
        new.name = old.name
        mapping[old] = new
    copy.regions = [clone_region(region, mapping) for region in op.regions]
    return copy


def clone_region(region: Region, mapping: dict[Value, Value]) -> Region:
    """Return a copy of a region.

    `mapping` is used and extended as in `clone_op`. The region's arguments are added to it, too.
    """
    copy = Region([a.type for a in region.args], [a.name for a in region.args])
    mapping.update(zip(region.args, copy.args, strict=True))
    copy.ops = [clone_op(op, mapping) for op in region.ops]
    return copy


def clone_function(function: Function) -> Function:
    """Return a copy of a function that shares nothing that a pass may change."""
    body = clone_region(function.body, {})
    return Function(function.name, body, list(function.result_types), function.attrs.copy(), function.loc)


def clone_module(module: Module) -> Module:
    """Return a copy of a module that shares nothing that a pass may change."""
    functions = {name: clone_function(function) for name, function in module.functions.items()}
    return Module(clone_function(module.kernel), functions, list(module.sites))
