"""Fault localization in a kernel's source: a small edit that makes the kernel pass, and the conditions around a store.

`Explainer` calls `find_repair` with functions that run an edited kernel on test cases.
"""

from __future__ import annotations

import ast
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from vkjit.errors import CompileError, Loc, VkjitError
from vkjit.frontend.source import source_of
from vkjit.launch.kernel import Kernel

from ..edits.edit import Edit
from ..edits.grids import grids
from ..edits.mutant import mutant
from ..edits.repairs import repairs
from ..execution.time_limited import time_limited

__all__ = ["ALL", "FINITE", "Repair", "find_repair", "guards_of"]

_SECONDS = 3.0
"""Time limit of a search for a repair, in seconds of thread time."""

_SECONDS_PER_REPAIR = 1.0
"""Time limit for running the test cases on one edited kernel, whose loops may not terminate."""

_SECONDS_TO_CONFIRM = 3.0
"""Time limit of the search that confirms a repair."""

_PRESERVING = frozenset({"wider"})
"""Kinds of edits that don't change results unless something overflows."""

Judge = Callable[[Kernel], str]
"""A function that returns which cases a kernel passes: ALL, FINITE (those without NaN and infinities), or ""."""

Confirmed = Callable[[Kernel, str], bool]
"""A predicate that is true if a longer search, with ALL cases or only FINITE ones, finds no failure of the kernel."""

ALL, FINITE = "all", "finite"
"""Sets of cases: all of them, or only those without NaN and infinities."""


@dataclass(frozen=True, slots=True)
class Repair:
    """An edit with which the kernel passes all cases tried; if `finite` is True, those without NaN and infinities.

    `loc` is the source location of the edit.
    """

    edit: Edit
    loc: Loc
    finite: bool = False

    def __str__(self) -> str:
        before, after = " ".join(self.edit.before.split()), self.edit.after
        kind = "inputs without NaN and infinities" if self.finite else "inputs"
        return (
            f"with {after!r} in place of {before!r} in line {self.edit.line}, all {kind} that were tried come out right"
        )


def find_repair(kernel: Kernel, passes: Judge, confirmed: Confirmed, *, preserving: bool = False) -> Repair | None:
    """Search for a small edit that repairs the kernel. Returns None if none is found within the time limit.

    `passes` runs a kernel on the test cases, and `confirmed` is a slower, more thorough check (see `Judge` and
    `Confirmed`). Returns the first edit with which the kernel passes all cases and that is confirmed. If there is none,
    returns the first edit with which the kernel passes the cases without NaN and infinities, if it is confirmed for
    such cases. Edits that preserve correct results (`_PRESERVING`) need no confirmation. If `preserving` is True, only
    such edits are tried.
    """
    deadline = time.thread_time() + _SECONDS
    first_finite: tuple[Edit, Kernel, str] | None = None
    for edit, change, file in _changes(kernel, preserving):
        if time.thread_time() > deadline:
            break
        with contextlib.suppress(*_MUTANT_ERRORS):
            changed = change()
            with time_limited(_SECONDS_PER_REPAIR):
                passed = passes(changed)
            if passed == FINITE and first_finite is None:
                first_finite = edit, changed, file
            if passed == ALL and (edit.kind in _PRESERVING or _is_confirmed(changed, confirmed, ALL)):
                return Repair(edit, edit.loc(file))
    if first_finite is None:
        return None
    edit, changed, file = first_finite
    with contextlib.suppress(*_MUTANT_ERRORS):
        if _is_confirmed(changed, confirmed, FINITE):
            return Repair(edit, edit.loc(file), finite=True)
    return None


_MUTANT_ERRORS = (VkjitError, ArithmeticError, ValueError, MemoryError)
"""Errors that an edited kernel may raise; an edit that raises one isn't a repair."""


def _changes(kernel: Kernel, preserving: bool) -> Iterator[tuple[Edit, Callable[[], Kernel], str]]:
    """Yield the edits to try, each with a function that makes the edited kernel, and the file that the edit changes.

    If `preserving` is True, yield only those that preserve correct results (`_PRESERVING`).
    """
    kernel_file = source_of(kernel.spec.fn).file
    if not preserving:
        for edit, changed in grids(kernel):
            yield edit, lambda changed=changed: changed, kernel_file  # type: ignore[misc]
    for edit, inside in repairs(kernel):
        if not preserving or edit.kind in _PRESERVING:
            file = kernel_file if inside is None else inside.fn.__code__.co_filename
            yield edit, lambda edit=edit, inside=inside: mutant(kernel, edit, inside), file  # type: ignore[misc]


def _is_confirmed(changed: Kernel, confirmed: Confirmed, cases: str) -> bool:
    """Run the thorough check of an edited kernel, on ALL or FINITE cases, within its time limit."""
    with time_limited(_SECONDS_TO_CONFIRM):
        return confirmed(changed, cases)


def guards_of(kernel: Kernel, stores: Sequence[Loc]) -> list[Loc]:
    """Return the source locations of conditions that decide if the stores run, those closest to a store first.

    These are the headers of the `if`s and loops around each store, and of earlier `if`s and loops that contain a
    return.
    """
    try:
        source = source_of(kernel.spec.fn)
    except CompileError:
        return []
    store_lines = {loc.line for loc in stores if loc.file == source.file}
    guards: list[Loc] = []

    def visit(statements: Sequence[ast.stmt], around: tuple[Loc, ...]) -> None:
        for statement in statements:
            inside = _bodies(statement)
            if not inside:
                if store_lines & set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)):
                    guards.extend(reversed(around))
                continue
            # the condition of an `if` or `while`, the iterable of a `for`
            header = (
                statement.test if isinstance(statement, (ast.If, ast.While)) else getattr(statement, "iter", statement)
            )
            location = source.loc(header)
            for body in inside:
                visit(body, (*around, location))
            # statements after a conditional return run only if the condition let them
            if any(isinstance(s, ast.Return) for body in inside for s in body):
                around = (*around, location)

    visit(source.node.body, ())
    return list(dict.fromkeys(guards))


def _bodies(statement: ast.stmt) -> list[list[ast.stmt]]:
    """Return the bodies of a branch or loop; [] for other statements."""
    if isinstance(statement, (ast.If, ast.For, ast.While)):
        return [statement.body, *([statement.orelse] if statement.orelse else [])]
    return []
