"""Split deeply nested branches, for a driver that ignores the conditions of branches beyond a depth.

A driver with the quirk `shallow_nesting` keeps the masks of invocations on a stack of 80 entries, and pushes nothing
when the stack is full: more deeply nested branches run for all invocations. Early returns, guards and `elif`s nest as
deep as they are long. The pass moves the end of a region that is nested too deep, from a branch on, behind the
outermost branch. A flag says if control has reached it::

    %r = if %a : i32 {                 %p, %f, %x1 = if %a : i32, bool, i32 {
      %x = ...                           %x = ...
      %s = if %b : i32 {                 yield poison, true, %x
        ...                      ->    } else {
      }                                  yield %y, false, poison
      store ...                        }
      yield %s                         %r = if %f : i32 {
    } else {                             %s = if %b : i32 { ... }
      yield %y                           store ...
    }                                    yield %s
                                       } else {
                                         yield %p
                                       }

The example moves an end out of one branch. In general, it is nested in several, whose own ends follow it outside, each
with a flag, unless they only pass on the results. Code stays within the loops that enclose it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vkjit.errors import CompileError
from vkjit.ir.builder import Builder
from vkjit.ir.core import Module, Op, Region, Value
from vkjit.ir.ops import OpName
from vkjit.ir.rewrite import completes, replace_uses, use_counts
from vkjit.ir.types import BOOL, Array

__all__ = ["LimitNesting"]

DRIVER_DEPTH = 72
"""Depth that is never exceeded: the driver's 80, less a margin for branches that its compiler adds."""


@dataclass(frozen=True, slots=True)
class LimitNesting:
    """Nest branches and loops at most `max_depth` deep. The pass does nothing if `needed` is False.

    Raises CompileError if loops prevent that.
    """

    name: ClassVar[str] = "limit_nesting"
    needed: bool = True
    max_depth: int = 48

    def run(self, module: Module) -> Module:
        body = module.kernel.body
        if self.needed and _height(body, {}) > self.max_depth:
            _nest_after_continue(body)
            _limit(body, self.max_depth)
            height = _height(body, {})
            if height > max(DRIVER_DEPTH, self.max_depth):
                raise CompileError(
                    f"loops are nested {height} deep together with branches, and the device's driver supports {DRIVER_DEPTH}",
                    module.kernel.loc,
                    hint="nest fewer loops, or put the inner ones into another kernel",
                )
        return module


def _height(region: Region, heights: dict[Op, int]) -> int:
    """Return the number of levels nested in a region, and enter that of each operation with regions into `heights`.

    The code after an `if` that ends in `continue` counts as nested in it, since the driver's compiler nests it.
    """
    height = 0
    for op in reversed(region.ops):
        if op.regions:
            heights[op] = 1 + max(_height(inner, heights) for inner in op.regions)
            height = max(heights[op], height + (1 if _continues(op) else 0))
    return height


def _continues(op: Op) -> bool:
    """True for an `if` with one region that ends in `continue` and another that ends in `yield`."""
    return op.name == "if" and {region.terminator.name for region in op.regions} == {"continue", "yield"}


def _nest_after_continue(region: Region) -> None:
    """Move the code after an `if` that may end in `continue` into its other region, in all loops of a region."""
    for position, op in enumerate(region.ops):
        if _continues(op) and any(later.regions for later in region.ops[position + 1 :]):
            (inner,) = (r for r in op.regions if r.terminator.name == "yield")
            results = dict(zip(op.results, inner.ops.pop().operands, strict=True))
            inner.ops += region.ops[position + 1 :]
            replace_uses(inner, results)
            types = [v.type for v in inner.terminator.operands] if completes(op) else []
            op.results = [Value(type, op, index) for index, type in enumerate(types)]
            end: OpName = inner.terminator.name if completes(op) else "unreachable"
            region.ops[position + 1 :] = [Op(end, list(op.results), [], loc=op.loc)]
            break
    for op in region.ops:
        for inner in op.regions:
            _nest_after_continue(inner)


def _limit(region: Region, allowed: int) -> None:
    """Split the branches of a region until they nest at most `allowed` levels; loops may prevent that."""
    position = 0
    while position < len(region.ops):
        op = region.ops[position]
        heights: dict[Op, int] = {}
        height = 1 + max(_height(inner, heights) for inner in op.regions) if op.regions else 0
        path = _path(op, heights) if height > allowed > 1 else []
        if len(path) > 1:
            _Split(region, position, path[: min(max(height + 1 - allowed, 2), allowed)]).run()
            continue
        if height > allowed:
            for inner in op.regions:
                _limit(inner, allowed - 1)
        position += 1


@dataclass(slots=True)
class _Level:
    """An `if` on the path to the code that is moved.

    `inside` is the region on the path, `outside` the other one. `tail` is the code in `inside` that is moved: in the
    innermost level from the tallest operation on, in others what follows the next level's `if`. `results` are the
    results of the `if` before the split.
    """

    branch: Op
    inside: Region
    outside: Region
    tail: list[Op]
    results: list[Value]


def _path(op: Op, heights: dict[Op, int]) -> list[tuple[Op, Region, Op]]:
    """Return the branches from `op` down to the deepest code or to a loop: (`if`, region, tallest operation in it)."""
    path = []
    while op.name == "if":
        height, inside, tallest = max(
            ((heights.get(inner, 0), region, inner) for region in op.regions for inner in region.ops),
            key=lambda item: item[0],
        )
        if not height:
            break
        path.append((op, inside, tallest))
        op = tallest
    return path


class _Split:
    """Moves the end of the innermost region of a path behind the outermost `if`, which is in `region` at `position`."""

    def __init__(self, region: Region, position: int, path: list[tuple[Op, Region, Op]]) -> None:
        self.region = region
        self.position = position
        self.hoisted: list[Op] = []
        self.levels: list[_Level] = []
        self.ends = not completes(path[0][0])  # before its regions are changed
        self.level_of: dict[Value, int] = {}  # of values that are defined on the path
        for number, (branch, inside, tallest) in enumerate(path):
            (outside,) = (r for r in branch.regions if r is not inside)
            cut = inside.ops.index(tallest) + (0 if number == len(path) - 1 else 1)
            tail, inside.ops = inside.ops[cut:], inside.ops[:cut]
            self.levels.append(_Level(branch, inside, outside, tail, branch.results))
            self.hoist(inside)
            self.level_of.update({r: number for op in inside.ops if op is not tallest for r in op.results})

    def hoist(self, inside: Region) -> None:
        """Move constants and arrays, which can't be results of an `if`, in front of the outermost `if`."""
        kept: list[Op] = []
        for op in inside.ops:
            is_array = any(isinstance(result.type, Array) for result in op.results)
            (self.hoisted if is_array or op.name in ("const", "poison") else kept).append(op)
        inside.ops = kept

    def run(self) -> None:
        levels, outer, ends = self.levels, self.levels[0].branch, self.ends
        for level in levels:
            level.branch.results = [Value(r.type, level.branch, index) for index, r in enumerate(level.results)]
        for number, level in enumerate(levels):
            builder = Builder(level.inside, level.branch.loc)
            if self.passes_on(number) and level.tail[0].name == "yield":
                builder.op("yield", *levels[number + 1].branch.results)
            else:
                builder.op("yield", *(builder.emit("poison", type=r.type) for r in level.results))
        moved, replaced = Region(), dict[Value, Value]()
        builder = Builder(moved, outer.loc)
        number = len(levels) - 1
        while number >= 0:
            source = number
            while number > 0 and self.passes_on(number - 1):
                number -= 1
            level = levels[number]
            if number == 0 and ends:  # all others have left the region
                # a `return` of poison takes the place of `unreachable` at the end of the function's body
                tail, last = levels[source].tail, self.region.ops[-1]
                moved.ops += [*tail[:-1], last] if last.name == "return" else tail
            else:
                inside, outside = Region(), Region()
                inside.ops = levels[source].tail
                kept = [self.export(value, number - 1) for value in level.branch.results[: len(level.results)]]
                Builder(outside, level.branch.loc).op("yield", *kept)
                flag = self.reached(source)
                branch = builder.op("if", flag, types=[r.type for r in level.results], regions=[inside, outside])
                replaced.update(zip(level.results, branch.results, strict=True))
            number -= 1
        for value in use_counts(moved):
            if value in self.level_of:
                replaced[value] = self.export(value, self.level_of[value])
        after = Region()
        after.ops = [] if ends else self.region.ops[self.position + 1 :]
        replace_uses(moved, replaced)
        replace_uses(after, replaced)
        self.region.ops[self.position :] = [*self.hoisted, outer, *moved.ops, *after.ops]

    def passes_on(self, number: int) -> bool:
        """True if the tail of a level, not the innermost, only passes on the results of the next one or is never run."""
        if number == len(self.levels) - 1:
            return False
        first = self.levels[number].tail[0]
        return first.name == "unreachable" or (
            first.name == "yield" and first.operands == self.levels[number + 1].results
        )

    def reached(self, number: int) -> Value:
        """Return a boolean that is True if control has reached the end of a level's region on the path."""
        inside = self.levels[number].inside
        flag = Builder(Region()).const(True, BOOL)
        inside.ops.insert(-1, flag.owner)  # type: ignore[arg-type]  # the owner of a constant is an operation
        return self.export(flag, number, is_flag=True)

    def export(self, value: Value, number: int, *, is_flag: bool = False) -> Value:
        """Make a value of a level's region available after the outermost `if`, by results of the branches around it.

        Where control doesn't reach the level, it is poison, or False for a flag.
        """
        for level in reversed(self.levels[: number + 1]):
            level.inside.terminator.operands.append(value)
            if level.outside.terminator.name == "yield":
                end = level.outside.ops.pop()
                builder = Builder(level.outside, end.loc)
                other = builder.const(False, BOOL) if is_flag else builder.emit("poison", type=value.type)
                end.operands.append(other)
                level.outside.ops.append(end)
            value = Value(value.type, level.branch, len(level.branch.results))
            level.branch.results.append(value)
        return value
