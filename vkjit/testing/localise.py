"""Where a wrong value comes from, beyond the store that wrote it: changes that mend the kernel, and what guards a store.

Enters: a kernel and cases on which it fails and passes. Leaves: a `Mend`: one small change with which all of the cases
pass, or None; lines of the conditions and loops around a store.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..errors import CompileError, Loc, VkjitError
from ..frontend.source import source_of
from ..jit import Kernel
from .impatient import impatient
from .mutate.edits import Edit
from .mutate.mutant import mutant
from .mutate.repairs import repairs

__all__ = ["Mend", "guards_of", "mend"]

_SECONDS_OF_ONE = 1.0
"""What one change may take; loops may have become endless."""

_SECONDS_TO_CONFIRM = 3.0

_PRESERVING = frozenset({"wider"})
"""Kinds of changes that give the same wherever nothing overflows."""

Passes = Callable[[Kernel], bool]


@dataclass(frozen=True, slots=True)
class Mend:
    """A change that makes the kernel pass all that was tried."""

    edit: Edit
    loc: Loc

    def __str__(self) -> str:
        before, after = " ".join(self.edit.before.split()), self.edit.after
        return (
            f"with {after!r} in place of {before!r} in line {self.edit.line}, all inputs that were tried come out right"
        )


def mend(
    kernel: Kernel, passes: Passes, confirmed: Passes, *, preserving: bool = False, seconds: float = 3.0
) -> Mend | None:
    """The first small change with which `passes` holds, and `confirmed`, which takes longer; None where there is none, or time
    runs out. What leaves right results as they are (`_PRESERVING`) needs no confirmation; with `preserving`, nothing else is
    tried."""
    deadline = time.thread_time() + seconds
    file = source_of(kernel.spec.fn).file
    for edit in repairs(kernel):
        if preserving and edit.kind not in _PRESERVING:
            continue
        if time.thread_time() > deadline:
            return None
        with contextlib.suppress(VkjitError, ArithmeticError, ValueError, MemoryError):
            changed = mutant(kernel, edit)
            with impatient(_SECONDS_OF_ONE):
                right = passes(changed)
            if right and edit.kind not in _PRESERVING:
                with impatient(_SECONDS_TO_CONFIRM):
                    right = confirmed(changed)
            if right:
                return Mend(edit, edit.loc(file))
    return None


def guards_of(kernel: Kernel, stores: Sequence[Loc]) -> list[Loc]:
    """The conditions and loops around the stores, the innermost first, and the returns before them."""
    try:
        source = source_of(kernel.spec.fn)
    except CompileError:
        return []
    wanted = {loc.line for loc in stores if loc.file == source.file}
    found: list[Loc] = []

    def visit(statements: Sequence[ast.stmt], around: tuple[Loc, ...]) -> None:
        for statement in statements:
            inside = _bodies(statement)
            if not inside:
                if wanted & set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)):
                    found.extend(reversed(around))
                continue
            head = (
                statement.test if isinstance(statement, (ast.If, ast.While)) else getattr(statement, "iter", statement)
            )
            place = source.loc(head)
            for body in inside:
                visit(body, (*around, place))
            if any(isinstance(s, ast.Return) for body in inside for s in body):
                around = (*around, place)

    visit(source.node.body, ())
    return list(dict.fromkeys(found))


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, (ast.If, ast.For, ast.While)):
        return [statement.body, *([statement.orelse] if statement.orelse else [])]
    return []
