"""Where a wrong value comes from, beyond the store that wrote it: changes that mend the kernel, and what guards a store.

Enters: a kernel and cases on which it fails and passes. Leaves: a `Mend`: one small change with which all of the cases
pass, or None; lines of the conditions and loops around a store.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import CompileError, Loc, VkjitError
from ..frontend.source import source_of
from ..jit import Kernel
from .impatient import impatient
from .mutate.edits import Edit
from .mutate.grids import grids
from .mutate.mutant import mutant
from .mutate.repairs import repairs

__all__ = ["ALL", "FINITE", "Mend", "guards_of", "mend"]

_SECONDS = 3.0
"""What a search for a change may take."""

_SECONDS_OF_ONE = 1.0
"""What one change may take; loops may have become endless."""

_SECONDS_TO_CONFIRM = 3.0

_PRESERVING = frozenset({"wider"})
"""Kinds of changes that give the same wherever nothing overflows."""

Judged = Callable[[Kernel], str]
"""Which cases a kernel passes: ALL, FINITE (those without NaN and infinities), or nothing."""

Confirmed = Callable[[Kernel, str], bool]

ALL, FINITE = "all", "finite"


@dataclass(frozen=True, slots=True)
class Mend:
    """A change that makes the kernel pass all that was tried, or all of it without NaN and infinities."""

    edit: Edit
    loc: Loc
    finite: bool = False

    def __str__(self) -> str:
        before, after = " ".join(self.edit.before.split()), self.edit.after
        kind = "inputs without NaN and infinities" if self.finite else "inputs"
        return (
            f"with {after!r} in place of {before!r} in line {self.edit.line}, all {kind} that were tried come out right"
        )


def mend(kernel: Kernel, passes: Judged, confirmed: Confirmed, *, preserving: bool = False) -> Mend | None:
    """The first small change with which `passes` says ALL, and that is `confirmed`, which takes longer; else the first one that
    is right without NaN and infinities; None where there is none, or time runs out. What leaves right results as they are
    (`_PRESERVING`) needs no confirmation; with `preserving`, nothing else is tried."""
    deadline = time.thread_time() + _SECONDS
    nearly: tuple[Edit, Kernel, str] | None = None
    for edit, change, file in _changes(kernel, preserving):
        if time.thread_time() > deadline:
            break
        with contextlib.suppress(*_UNFIT):
            changed = change()
            with impatient(_SECONDS_OF_ONE):
                said = passes(changed)
            if said == FINITE and nearly is None:
                nearly = edit, changed, file
            if said == ALL and (edit.kind in _PRESERVING or _is_confirmed(changed, confirmed, ALL)):
                return Mend(edit, edit.loc(file))
    with contextlib.suppress(*_UNFIT):
        if nearly is not None and _is_confirmed(nearly[1], confirmed, FINITE):
            return Mend(nearly[0], nearly[0].loc(nearly[2]), finite=True)
    return None


_UNFIT = (VkjitError, ArithmeticError, ValueError, MemoryError)


def _changes(kernel: Kernel, preserving: bool) -> Iterator[tuple[Edit, Callable[[], Kernel], str]]:
    """The changes to try, each with what makes the changed kernel, and the file whose text it changes."""
    own = source_of(kernel.spec.fn).file
    if not preserving:
        for edit, changed in grids(kernel):
            yield edit, lambda changed=changed: changed, own  # type: ignore[misc]
    for edit, inside in repairs(kernel):
        if not preserving or edit.kind in _PRESERVING:
            file = own if inside is None else inside.fn.__code__.co_filename
            yield edit, lambda edit=edit, inside=inside: mutant(kernel, edit, inside), file  # type: ignore[misc]


def _is_confirmed(changed: Kernel, confirmed: Confirmed, said: str) -> bool:
    with impatient(_SECONDS_TO_CONFIRM):
        return confirmed(changed, said)


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
