"""Reduction of failing programs: removes operations, branches and loops and simplifies constants while the failure
persists.

`shrink` takes a program and a predicate that is True if a candidate fails in the same way, and returns the smallest
failing program found within the time limit. It works on the IR: a candidate is a changed copy of the module. A
candidate is tried only if it is valid IR, is smaller, and certainly ends soon. Operations are identified by their index
in preorder, since a copy of the module has the same indices.

Reduction must not introduce races. So it keeps barriers, and the operations that compute the indices `row` and `slot`.
By these, invocations write different elements: `row` is an index into arrays in global memory, `slot` into arrays in
shared memory (see `generate`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from vkjit.ir.builder import Builder
from vkjit.ir.core import Function, Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import clone_module, constant_of, exits_of, is_constant, replace_uses, use_counts
from vkjit.ir.types import Array, Scalar, Vector
from vkjit.ir.verify import violations

from .program import Program

__all__ = ["shrink"]

Fails = Callable[[Program], bool]
"""A predicate that is True if a candidate fails in the same way as the original program."""


def shrink(program: Program, fails: Fails, seconds: float = 60.0) -> Program:
    """Return the smallest failing program found within `seconds`.

    The first candidate for which `fails` is True replaces the program, and the search starts again with it. The search
    ends when no candidate fails.
    """
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for candidates in (_without_chunks, _without_control, _without_ops, _plainer_constants):
            for candidate in candidates(program):
                if time.monotonic() > deadline:
                    return program
                smaller = _valid(program, candidate)
                if smaller is not None and fails(smaller):
                    program, changed = smaller, True
                    break
            if changed:
                break
    return program


def _valid(program: Program, module: Module | None) -> Program | None:
    """Return the candidate without dead code as a program; None if it is invalid, not smaller, or may not end soon."""
    if module is None:
        return None
    _sweep(module)
    if _weight(module) >= _weight(program.module) or violations(module) or not _ends(module):
        return None
    return program.with_module(module)


def _ends(module: Module) -> bool:
    """True if all loops end soon: each `loop` counts down as generated loops do, and each `for` has a short range."""
    ops = [op for function in module.all_functions() for op in function.body.walk()]
    short_ranges = all(_is_short(op) for op in ops if op.name == "for")
    return short_ranges and all(_counts_down(op) for op in ops if op.name == "loop")


MAX_ITERATIONS = 64
"""Maximum trip count of a loop in a candidate."""


def _is_short(loop: Op) -> bool:
    """True if a `for` has at most `MAX_ITERATIONS` iterations, by the constants, masks and clamps in its bounds."""
    low, high = (_limit_of(v) for v in loop.operands[:2])
    return low is not None and high is not None and abs(low - high) <= MAX_ITERATIONS


def _limit_of(value: Value) -> int | None:
    """Return the value of a loop bound if it is constant, or an upper limit of the value; None if no limit is known.

    Limits come from `and` with a constant and from a clamp, `min(max(x, low), high)`. The number of subgroups counts as
    0, since it is always small.
    """
    if is_constant(value):
        return int(constant_of(value))
    op = value.op
    if op is None:
        return None
    if op.name == "num_subgroups":
        return 0
    if op.name == "and" or (op.name == "min" and _is_named(op.operands[0], "max")):
        constants = [int(constant_of(v)) for v in op.operands if is_constant(v)]
        # a negative mask limits nothing
        return constants[0] if constants and (op.name == "min" or constants[0] >= 0) else None
    return None


def _is_named(value: Value, name: OpName) -> bool:
    return value.op is not None and value.op.name == name


def _counts_down(loop: Op) -> bool:
    """True if a `loop` has the form of generated loops.

    Its last carried value is a counter that starts small and decreases by 1 in every iteration; when the counter is 0
    or less, a `break` ends the loop.
    """
    body = loop.regions[0]
    start = _limit_of(loop.operands[-1]) if loop.operands else None
    if start is None or start > MAX_ITERATIONS:
        return False
    counter = body.args[-1]
    guards = [op for op in body.ops if op.name == "if" and op.regions[0].terminator.name == "break"]
    tests = [op.operands[0].op for op in guards]
    guarded = any(test is not None and test.name == "le" and test.operands[0] is counter for test in tests)
    steps = [exit.operands[-1].op for exit in exits_of(body) if exit.name == "continue" and exit.operands]
    decreases = all(
        step is not None and step.name == "sub" and step.operands[0] is counter and _is_one(step.operands[1])
        for step in steps
    )
    return guarded and decreases


def _is_one(value: Value) -> bool:
    return bool(constant_of(value) == 1)


def _weight(module: Module) -> tuple[int, int]:
    """Return the size by which candidates are compared: the numbers of operations and of constants except 0 and 1."""
    ops = [op for f in module.all_functions() for op in f.body.walk()]
    other_constants = sum(op.name == "const" and op.attrs["value"] not in (0, 1) for op in ops)
    return len(ops), other_constants


_IDS: frozenset[OpName] = frozenset({"global_id", "local_id", "group_id", "lane_id", "subgroup_id"})
_KEPT: frozenset[OpName] = frozenset({"barrier", "shared", "local", "linear"})
"""Operations that are never removed: barriers order accesses, the others define arrays."""


def _is_fixed(op: Op) -> bool:
    """True for operations whose removal could introduce races: those in `_KEPT`, and any that may compute `row` or
    `slot`.
    """
    return op.name in _KEPT or any(_is_index_of_invocation(r) for r in op.results)


def _is_index_of_invocation(value: Value) -> bool:
    """True for an id, or a sum or product of ids and constants. `row` and `slot` have this form."""
    op = value.op
    if op is None:
        return False
    if op.name in ("add", "mul"):
        return all(_is_index_of_invocation(v) or is_constant(v) for v in op.operands) and any(
            map(_is_index_of_invocation, op.operands)
        )
    return op.name in _IDS


def _positions(module: Module) -> list[tuple[Region, int]]:
    """Return the location of every operation, in preorder: its region, and its position in the region."""
    locations: list[tuple[Region, int]] = []

    def visit(region: Region) -> None:
        for position, op in enumerate(region.ops):
            locations.append((region, position))
            for inner in op.regions:
                visit(inner)

    for function in module.all_functions():
        visit(function.body)
    return locations


def _function_of(module: Module, region: Region) -> Function:
    """Return the function that contains a region."""
    for function in module.all_functions():
        if region is function.body or any(region in op.regions for op in function.body.walk()):
            return function
    raise ValueError("the region is in no function")


def _removed(module: Module, numbers: Sequence[int]) -> Module | None:
    """Return a copy of the module without the operations at these preorder indices; zeros replace their results."""
    copy = clone_module(module)
    locations = _positions(copy)
    by_region: dict[int, tuple[Region, set[int]]] = {}
    for number in numbers:
        region, position = locations[number]
        by_region.setdefault(id(region), (region, set()))[1].add(position)
    removals = [(_function_of(copy, region).body, region, positions) for region, positions in by_region.values()]
    for body, region, positions in removals:
        _drop(body, region, positions)
    return copy


def _drop(body: Region, region: Region, positions: set[int]) -> None:
    """Remove the operations at these positions of a region, except fixed ones and those that return arrays.

    In `body`, the body of the function, zeros replace the results of removed operations.
    """
    mapping: dict[Value, Value] = {}
    source, region.ops = region.ops, []
    builder = Builder(region)
    for position, op in enumerate(source):
        if position not in positions or _is_fixed(op) or any(isinstance(r.type, Array) for r in op.results):
            region.ops.append(op)
            continue
        for result in op.results:
            mapping[result] = _zero(builder, result)
    replace_uses(body, mapping)


def _zero(builder: Builder, value: Value) -> Value:
    """Emit a constant 0 or false of the value's type."""
    dtype = value.type.dtype  # type: ignore[attr-defined]
    return builder.const(False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0, value.type)


def _without_chunks(program: Program) -> Iterator[Module | None]:
    """Yield candidates each of which lacks a sequence of removable operations, long sequences first."""
    locations = _positions(program.module)
    removable = [n for n, (region, p) in enumerate(locations) if _is_removable(region, p)]
    size = max(len(removable) // 2, 1)
    while size >= 3:
        for start in range(len(removable) - size, -1, -size):
            yield _removed(program.module, removable[start : start + size])
        size //= 2


def _is_removable(region: Region, position: int) -> bool:
    """True if the operation at this position may be removed.

    Constants are left to `_sweep`, which removes those without a use.
    """
    op = region.ops[position]
    # the operation before `unreachable` never completes and must stay, since `unreachable` is only valid after it
    following = region.ops[position + 1].name if position + 1 < len(region.ops) else ""
    is_terminator = position == len(region.ops) - 1
    return not (is_terminator or _is_fixed(op) or op.name in ("const", "poison") or following == "unreachable")


def _without_ops(program: Program) -> Iterator[Module | None]:
    """Yield candidates that lack one operation each, the last operations first. Then yield candidates in which an
    operand of the same type replaces the result of an operation.
    """
    locations = _positions(program.module)
    for number in range(len(locations) - 1, -1, -1):
        region, position = locations[number]
        if _is_removable(region, position):
            yield _removed(program.module, [number])
    for number in range(len(locations) - 1, -1, -1):
        region, position = locations[number]
        op = region.ops[position]
        if len(op.results) == 1 and not op.regions and not _is_fixed(op):
            for operand_index, operand in enumerate(op.operands):
                if operand.type == op.result.type:
                    yield _forwarded(program.module, number, operand_index)


def _forwarded(module: Module, number: int, operand_index: int) -> Module:
    """Return a copy of the module without one operation; one of its operands replaces its result.

    `number` is the operation's preorder index.
    """
    copy = clone_module(module)
    region, position = _positions(copy)[number]
    op = region.ops.pop(position)
    replace_uses(_function_of(copy, region).body, {op.result: op.operands[operand_index]})
    return copy


def _without_control(program: Program) -> Iterator[Module | None]:
    """Yield candidates in which a branch is replaced by one of its regions, or a loop by its first iteration."""
    locations = _positions(program.module)
    for number, (region, position) in enumerate(locations):
        op = region.ops[position]
        if op.name == "if":
            for region_index in (0, 1):
                if op.regions[region_index].terminator.name == "yield":
                    yield _inlined(program.module, number, region_index)
        elif op.name in ("for", "loop"):
            yield _inlined(program.module, number, 0)


def _inlined(module: Module, number: int, region_index: int) -> Module:
    """Return a copy in which region number `region_index` of a branch or loop replaces the whole operation.

    `number` is the operation's preorder index. The body of a loop becomes its first iteration.
    """
    copy = clone_module(module)
    region, position = _positions(copy)[number]
    op = region.ops[position]
    inner = op.regions[region_index]
    body = _function_of(copy, region).body
    mapping: dict[Value, Value] = {}
    if op.name == "if":
        terminator = inner.ops.pop()
        mapping.update(zip(op.results, terminator.operands, strict=True))
    else:
        terminator = inner.ops.pop()
        # a `for` has the operands low, high, step and initial values; `low` is the first value of its counter
        initial = op.operands if op.name == "loop" else [op.operands[0], *op.operands[3:]]
        mapping.update(zip(inner.args, initial, strict=True))
        if len(terminator.operands) == len(op.results):
            mapping.update(zip(op.results, terminator.operands, strict=True))
    region.ops[position : position + 1] = inner.ops
    replace_uses(body, mapping)
    return copy


def _plainer_constants(program: Program) -> Iterator[Module | None]:
    """Yield candidates in which 0 or 1 replaces a constant that isn't an operand of a fixed operation (`_is_fixed`)."""
    kept = {v for f in program.module.all_functions() for op in f.body.walk() if _is_fixed(op) for v in op.operands}
    for number, (region, position) in enumerate(_positions(program.module)):
        op = region.ops[position]
        if op.name != "const" or op.attrs["value"] in (0, 1) or op.result in kept:
            continue
        for value in (0, 1):
            copy = clone_module(program.module)
            copied_region, copied_position = _positions(copy)[number]
            assert isinstance(op.result.type, (Scalar, Vector))
            copied_region.ops[copied_position].attrs["value"] = float(value) if op.result.type.dtype.is_float else value
            yield copy


_PURE: frozenset[OpName] = frozenset(
    {"const", "poison", "extent", "stride", "global_id", "local_id", "group_id", "load"}
)
"""Operations that have no side effects even if they have array operands (see `_is_dead`)."""


def _sweep(module: Module) -> None:
    """Remove unused operations without side effects, and functions that aren't called."""
    for function in module.all_functions():
        before = -1
        # removing an operation may leave its operands unused, so repeat until the number of operations stays the same
        while before != sum(1 for _ in function.body.walk()):
            before = sum(1 for _ in function.body.walk())
            uses = use_counts(function.body)
            for region in [function.body, *(r for op in function.body.walk() for r in op.regions)]:
                region.ops = [op for op in region.ops if not _is_dead(op, uses)]
    called = {op.attrs["callee"] for f in module.all_functions() for op in f.body.walk() if op.name == "call"}
    module.functions = {name: f for name, f in module.functions.items() if name in called}


def _is_dead(op: Op, uses: object) -> bool:
    """True if an operation has results but no uses, and no side effects. `uses` are the use counts of all values."""
    if not op.results or op.regions or any(uses[r] for r in op.results):  # type: ignore[index]
        return False
    # without array operands, only collectives, atomics and calls may have side effects
    on_values_only = all(isinstance(v.type, (Scalar, Vector)) for v in (*op.operands, *op.results))
    return op.name in _PURE or (on_values_only and not op.name.startswith(("sg_", "atomic")) and op.name != "call")
