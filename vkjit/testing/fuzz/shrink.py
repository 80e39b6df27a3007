"""Reduction of failing programs: removes operations, branches and loops and simplifies constants while the failure
persists.

`shrink` takes a program and a predicate that is True if a candidate fails in the same way, and returns the smallest
failing program found within the time limit. It works on the IR: a candidate is a changed copy of the module, and is
tried only if it is valid IR, smaller, and sure to end soon. Operations are identified by their index in preorder, which
a copy of the module preserves.

Reduction must not introduce races. So it keeps barriers, and the operations that compute the two indices by which
invocations write different elements: `row` (of arrays in global memory) and `slot` (of arrays in shared memory).
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


def shrink(program: Program, fails: Fails, seconds: float = 60.0) -> Program:
    """Return the smallest failing program found within `seconds`. `fails` is True if a candidate fails in the same way.

    The first candidate that fails replaces the program, and the search starts again, until no candidate fails.
    """
    deadline = time.monotonic() + seconds
    changed = True
    while changed and time.monotonic() < deadline:
        changed = False
        for step in (_without_chunks, _without_control, _without_ops, _plainer_constants):
            for candidate in step(program):
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
    """Return the candidate without dead code if it is valid IR and smaller, else None."""
    if module is None:
        return None
    _sweep(module)
    if _weight(module) >= _weight(program.module) or violations(module) or not _ends(module):
        return None
    return program.with_module(module)


def _ends(module: Module) -> bool:
    """True if all loops end soon: each `loop` counts down as generated ones do, and each `for` has a short range."""
    ops = [op for function in module.all_functions() for op in function.body.walk()]
    small = all(_is_short(op) for op in ops if op.name == "for")
    return small and all(_counts_down(op) for op in ops if op.name == "loop")


MAX_ITERATIONS = 64
"""Maximum trip count of a loop in a candidate."""


def _is_short(loop: Op) -> bool:
    """True if the constants, masks and clamps that compute the bounds of a `for` limit its trip count."""
    low, high = (_end_of(v) for v in loop.operands[:2])
    return low is not None and high is not None and abs(low - high) <= MAX_ITERATIONS


def _end_of(value: Value) -> int | None:
    """Return the value of a loop bound, or an upper limit of it; None if it is unlimited.

    Limits come from `and` with a constant and from a clamp, `min(max(x, low), high)`. The number of subgroups counts as
    0, since it is always small.
    """
    if is_constant(value):
        return int(constant_of(value))
    op = value.op
    if op is None or op.name == "num_subgroups":
        return 0 if op is not None else None
    if op.name == "and" or (op.name == "min" and _is_named(op.operands[0], "max")):
        numbers = [int(constant_of(v)) for v in op.operands if is_constant(v)]
        return numbers[0] if numbers and (op.name == "min" or numbers[0] >= 0) else None
    return None


def _is_named(value: Value, name: OpName) -> bool:
    return value.op is not None and value.op.name == name


def _counts_down(loop: Op) -> bool:
    """True if a `loop` has the generated form: its last carried value is a counter that starts small, decreases by 1 in
    every iteration, and leads to a `break` when it is 0 or less.
    """
    body = loop.regions[0]
    start = _end_of(loop.operands[-1]) if loop.operands else None
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
    plain = sum(op.name == "const" and op.attrs["value"] not in (0, 1) for op in ops)
    return len(ops), plain


_IDS: frozenset[OpName] = frozenset({"global_id", "local_id", "group_id", "lane_id", "subgroup_id"})
_KEPT: frozenset[OpName] = frozenset({"barrier", "shared", "local", "linear"})
"""Operations that are never removed: barriers order accesses, the others define arrays."""


def _is_fixed(op: Op) -> bool:
    """True if removal could introduce races: for barriers, arrays, and what may compute `row` or `slot`."""
    return op.name in _KEPT or any(_is_index_of_invocation(r) for r in op.results)


def _is_index_of_invocation(value: Value) -> bool:
    """True for an id, or a sum or product of ids and constants: `row` and `slot` are computed by these."""
    op = value.op
    if op is None:
        return False
    if op.name in ("add", "mul"):
        return all(_is_index_of_invocation(v) or is_constant(v) for v in op.operands) and any(
            map(_is_index_of_invocation, op.operands)
        )
    return op.name in _IDS


def _positions(module: Module) -> list[tuple[Region, int]]:
    """Return the region and position of every operation, in preorder."""
    locations: list[tuple[Region, int]] = []

    def visit(region: Region) -> None:
        for position, op in enumerate(region.ops):
            locations.append((region, position))
            for inner in op.regions:
                visit(inner)

    for function in module.all_functions():
        visit(function.body)
    return locations


def _body(module: Module, region: Region) -> Function:
    """Return the function that contains a region."""
    for function in module.all_functions():
        if region is function.body or any(region in op.regions for op in function.body.walk()):
            return function
    raise ValueError("the region is in no function")


def _removed(module: Module, numbers: Sequence[int]) -> Module | None:
    """Return a copy without the operations at these preorder indices; zeros replace their results."""
    copy = clone_module(module)
    table = _positions(copy)
    chosen: dict[int, tuple[Region, set[int]]] = {}
    for number in numbers:
        region, position = table[number]
        chosen.setdefault(id(region), (region, set()))[1].add(position)
    bodies = [(_body(copy, region).body, region, positions) for region, positions in chosen.values()]
    for body, region, positions in bodies:
        _drop(body, region, positions)
    return copy


def _drop(body: Region, region: Region, positions: set[int]) -> None:
    """Remove the operations at these positions of a region, unless they must stay; replace their uses in `body`."""
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
    dtype = value.type.dtype  # type: ignore[attr-defined]
    return builder.const(False if dtype.kind == "bool" else 0.0 if dtype.is_float else 0, value.type)


def _without_chunks(program: Program) -> Iterator[Module | None]:
    """Yield candidates without a run of consecutive operations, long runs first."""
    table = _positions(program.module)
    removable = [n for n, (region, p) in enumerate(table) if _is_removable(region, p)]
    size = max(len(removable) // 2, 1)
    while size >= 3:
        for start in range(len(removable) - size, -1, -size):
            yield _removed(program.module, removable[start : start + size])
        size //= 2


def _is_removable(region: Region, position: int) -> bool:
    """True if an operation may be removed. Constants are left to `_sweep`, which removes unused ones."""
    op = region.ops[position]
    following = region.ops[position + 1].name if position + 1 < len(region.ops) else ""
    terminator = position == len(region.ops) - 1
    return not (terminator or _is_fixed(op) or op.name in ("const", "poison") or following == "unreachable")


def _without_ops(program: Program) -> Iterator[Module | None]:
    """Yield candidates without a single operation, last ones first; then candidates in which an operand of the same
    type replaces an operation's result.
    """
    table = _positions(program.module)
    for number in range(len(table) - 1, -1, -1):
        region, position = table[number]
        if _is_removable(region, position):
            yield _removed(program.module, [number])
    for number in range(len(table) - 1, -1, -1):
        region, position = table[number]
        op = region.ops[position]
        if len(op.results) == 1 and not op.regions and not _is_fixed(op):
            for place, operand in enumerate(op.operands):
                if operand.type == op.result.type:
                    yield _forwarded(program.module, number, place)


def _forwarded(module: Module, number: int, place: int) -> Module:
    """Return a copy in which operand number `place` replaces the result of the operation at preorder index `number`."""
    copy = clone_module(module)
    region, position = _positions(copy)[number]
    op = region.ops.pop(position)
    replace_uses(_body(copy, region).body, {op.result: op.operands[place]})
    return copy


def _without_control(program: Program) -> Iterator[Module | None]:
    """Yield candidates in which one side of a branch replaces the branch, or the first iteration of a loop the loop."""
    table = _positions(program.module)
    for number, (region, position) in enumerate(table):
        op = region.ops[position]
        if op.name == "if":
            for side in (0, 1):
                if op.regions[side].terminator.name == "yield":
                    yield _inlined(program.module, number, side)
        elif op.name in ("for", "loop"):
            yield _inlined(program.module, number, 0)


def _inlined(module: Module, number: int, side: int) -> Module:
    """Return a copy in which region number `side` of a branch or loop replaces the whole operation.

    `number` is the operation's preorder index. The body of a loop becomes its first iteration.
    """
    copy = clone_module(module)
    region, position = _positions(copy)[number]
    op = region.ops[position]
    inner = op.regions[side]
    body = _body(copy, region).body
    mapping: dict[Value, Value] = {}
    if op.name == "if":
        terminator = inner.ops.pop()
        mapping.update(zip(op.results, terminator.operands, strict=True))
    else:
        terminator = inner.ops.pop()
        initial = op.operands if op.name == "loop" else [op.operands[0], *op.operands[3:]]
        mapping.update(zip(inner.args, initial, strict=True))
        if len(terminator.operands) == len(op.results):
            mapping.update(zip(op.results, terminator.operands, strict=True))
    region.ops[position : position + 1] = inner.ops
    replace_uses(body, mapping)
    return copy


def _plainer_constants(program: Program) -> Iterator[Module | None]:
    """Yield candidates in which 0 or 1 replaces a constant that `row` and `slot` don't depend on."""
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
"""Operations that are removed if unused, besides those on scalars and vectors only."""


def _sweep(module: Module) -> None:
    """Remove unused operations without side effects, and functions that aren't called."""
    for function in module.all_functions():
        before = -1
        while before != sum(1 for _ in function.body.walk()):
            before = sum(1 for _ in function.body.walk())
            uses = use_counts(function.body)
            for region in [function.body, *(r for op in function.body.walk() for r in op.regions)]:
                region.ops = [op for op in region.ops if not _is_dead(op, uses)]
    called = {op.attrs["callee"] for f in module.all_functions() for op in f.body.walk() if op.name == "call"}
    module.functions = {name: f for name, f in module.functions.items() if name in called}


def _is_dead(op: Op, uses: object) -> bool:
    if not op.results or op.regions or any(uses[r] for r in op.results):  # type: ignore[index]
        return False
    plain = all(isinstance(v.type, (Scalar, Vector)) for v in (*op.operands, *op.results))
    return op.name in _PURE or (plain and not op.name.startswith(("sg_", "atomic")) and op.name != "call")
