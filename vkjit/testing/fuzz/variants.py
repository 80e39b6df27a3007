"""Changes to generated programs that preserve their results: swapped operands, dead code, other workgroup sizes.

`check` compares a changed program with the original one (metamorphic testing). Each public function takes a program and
a random generator and returns a changed copy.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OPS, OpName
from vkjit.ir.rewrite import clone_module
from vkjit.ir.types import BOOL, Scalar

from .program import Program, Triple

__all__ = ["other_workgroups", "swapped", "with_dead_code"]


def swapped(program: Program, random: Random) -> Program:
    """Swap the operands of random commutative operations and of random comparisons. `lt` becomes `gt`, and so on."""
    module = clone_module(program.module)
    mirrored: dict[OpName, OpName] = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
    for function in module.all_functions():
        for op in function.body.walk():
            if len(op.operands) != 2 or random.random() < 0.3:
                continue
            if OPS[op.name].commutative and not _depends_on_zero_signs(op):
                op.operands.reverse()
            elif op.name in mirrored:
                op.name = mirrored[op.name]
                op.operands.reverse()
    return program.with_module(module)


def _depends_on_zero_signs(op: Op) -> bool:
    """True for `fmin` and `fmax`: of two zeros with different signs, they may return either."""
    return op.name in ("fmin", "fmax")


def with_dead_code(program: Program, random: Random) -> Program:
    """Insert operations whose results are unused, and branches that are never taken."""
    module = clone_module(program.module)
    for function in module.all_functions():
        _insert(function.body, [], random)
    return program.with_module(module)


def _insert(region: Region, outside: list[Value], random: Random) -> None:
    """Insert dead code before random operations of a region. `outside` are the values visible at its start."""
    visible = [*outside, *(a for a in region.args if isinstance(a.type, Scalar))]
    source, region.ops = region.ops, []
    for op in source:
        builder = Builder(region, op.loc)
        if op.name != "unreachable" and random.random() < 0.15:
            _dead(builder, visible, random)
        for inner in op.regions:
            _insert(inner, visible, random)
        region.ops.append(op)
        visible += [r for r in op.results if isinstance(r.type, Scalar)]


def _dead(builder: Builder, visible: list[Value], random: Random) -> None:
    """Emit operations on visible values whose results are unused, or a branch that is never taken."""
    numbers = [v for v in visible if v.type != BOOL]
    if not numbers:
        return
    value = random.choice(numbers)
    other = random.choice([v for v in numbers if v.type == value.type])
    result = builder.emit(random.choice(["add", "sub", "mul", "min", "max"]), value, other)
    if random.random() < 0.5:
        builder.emit("eq", result, value)
        return
    yes, no = Region(), Region()
    inner = Builder(yes)
    inner.op("yield", inner.emit("mul", result, result))
    Builder(no).op("yield", value)
    never = builder.const(False, BOOL)
    builder.op("if", never, types=[value.type], regions=[yes, no])


def other_workgroups(program: Program, random: Random) -> Program | None:
    """Divide the same invocations into workgroups of another size. Returns None if results depend on the workgroups."""
    if not program.any_workgroup_size:
        return None
    local, groups = [], []
    for old_size, count in zip(program.local, program.groups, strict=True):
        extent = old_size * count
        divisors = [n for n in range(1, extent + 1) if extent % n == 0]
        new_size = random.choice(divisors)
        local.append(new_size)
        groups.append(extent // new_size)
    module: Module = clone_module(program.module)
    module.kernel.attrs["local_size"] = (local[0], local[1], local[2])
    triple: Triple = (groups[0], groups[1], groups[2])
    return replace(program, module=module, groups=triple)
