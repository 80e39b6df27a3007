"""Sanitizer reports and check names.

Defines `SanitizerReport` and `SanitizerError`, which a sanitized launch raises, and selects the checks (`sanitize=`,
`sanitized()`, VKJIT_SANITIZE). The instrumentation and the decoding of its results are in `passes.sanitizer` and
`sanitizer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, KernelError, Loc, render_caret
from ..settings import RAW_KEYS, raw_value
from .open_blocks import block

__all__ = [
    "CHECKS",
    "DEFAULT_CHECKS",
    "Access",
    "Invocation",
    "SanitizerError",
    "SanitizerReport",
    "current_checks",
    "parse_checks",
    "sanitized",
]

CHECKS = ("bounds", "uninitialised", "races", "uniform", "outside", "division", "nan", "overflow", "loops")
"""All checks. `bounds` is always on, so that a sanitized kernel accesses only its own arrays."""

DEFAULT_CHECKS = ("bounds", "uninitialised", "races", "uniform", "outside")
"""The checks that `sanitize=True` selects."""

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation: its global id, the id of its workgroup and its local id in the workgroup."""

    global_id: Triple
    group_id: Triple
    local_id: Triple

    def __str__(self) -> str:
        return f"invocation {self.global_id} (workgroup {self.group_id}, local {self.local_id})"


@dataclass(frozen=True, slots=True)
class Access:
    """The other access of a race. `how` is "read", "write", "atomic read" or "atomic write"."""

    loc: Loc
    how: str
    invocation: Invocation

    @property
    def line(self) -> int:
        return self.loc.line


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """A sanitizer report: the first error at its source location.

    `kind` is out_of_bounds, race_shared, race_global, divergent_barrier, uninitialised_read, write_outside,
    integer_overflow, division_by_zero, nan_birth or loop_limit. `file`, `line`, `col` (from 0) and `end` give the
    source span. `message` is the full text with the source line and a caret. `invocation` is None for errors that the
    host detects. `values` are the values in the message (indices and extents, operands). `other` is the other access of
    a race.
    """

    kind: str
    file: str
    line: int
    col: int
    message: str
    invocation: Invocation | None = None
    values: tuple[Any, ...] = ()
    other: Access | None = None
    end: int = 0

    @property
    def loc(self) -> Loc:
        """The source span."""
        return Loc(self.file, self.line, self.col, self.end)

    def __str__(self) -> str:
        return self.message


def report_of(
    kind: str,
    loc: Loc,
    text: str,
    kernel: str,
    invocation: Invocation | None = None,
    values: tuple[Any, ...] = (),
    other: Access | None = None,
) -> SanitizerReport:
    """Return a report whose message shows the error, the invocation, the source line and the other access."""
    who = "" if invocation is None else f", {invocation}"
    parts = [f"{loc}: {kind}: {text} (kernel {kernel}{who})", render_caret(loc)]
    if other is not None:
        parts += [f"{other.loc}: {other.how} here by {other.invocation}", render_caret(other.loc)]
    message = "\n".join(part for part in parts if part)
    return SanitizerReport(kind, loc.file, loc.line, loc.col, message, invocation, values, other, loc.end)


class SanitizerError(KernelError):
    """The sanitizer's reports of one launch. `reports` is in source order; the message shows all of them."""

    def __init__(self, reports: Sequence[SanitizerReport], kernel: str = "") -> None:
        first = reports[0]
        where = None if first.invocation is None else first.invocation.global_id
        super().__init__(first.message, kernel=kernel, loc=first.loc, invocation=where)
        self.reports = list(reports)

    def __str__(self) -> str:
        count = len(self.reports)
        head = f"the sanitizer found {count} fault{'s' if count > 1 else ''} in kernel {self.kernel}:"
        return "\n".join([head, *(report.message for report in self.reports)])


def parse_checks(value: bool | str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the checks that a `sanitize=` or `checks=` value selects, in the order of `CHECKS`; () for none.

    True selects `DEFAULT_CHECKS`. A string is "all" or a comma-separated list of names. Raises ArgumentError for an
    unknown name.
    """
    if value is None or value is False:
        return ()
    if value is True:
        return DEFAULT_CHECKS
    names = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, Iterable) else [value]
    if not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"checks are named by texts, found {value!r}: expected {', '.join(CHECKS)}, or 'all'")
    selected = {name.strip() for name in names} | {"bounds"}
    if "all" in selected:
        return CHECKS
    unknown = sorted(selected - set(CHECKS))
    if unknown:
        raise ArgumentError(f"the sanitizer has no check {unknown[0]!r}: expected {', '.join(CHECKS)}, or 'all'")
    return tuple(name for name in CHECKS if name in selected)


_checks: ContextVar[tuple[str, ...] | None] = ContextVar("checks", default=None)
"""The checks of the innermost `with sanitized(...)` block of this thread or asyncio task; None outside of such blocks."""
OPEN_BLOCKS: list[object] = []
"""One object per open `sanitized` block of any thread."""


@block
def sanitized(checks: bool | str | Iterable[str] = True) -> Iterator[None]:
    """Context manager that sanitizes the launches of this thread, including those of the library's own kernels.

    `checks` is as in `parse_checks`. Kernels with a `sanitize=` of their own keep it. Launches are synchronous and
    raise SanitizerError.
    """
    former, selected, opened = _checks.get(), parse_checks(checks), object()
    try:
        _checks.set(selected)
        OPEN_BLOCKS.append(opened)
        yield
    finally:
        try:
            if opened in OPEN_BLOCKS:
                OPEN_BLOCKS.remove(opened)
        finally:
            _checks.set(former)


def current_checks() -> tuple[str, ...]:
    """Return the checks of the current `sanitized` block, else those of VKJIT_SANITIZE: 0 or empty for none, 1 for the
    defaults, "all", or a comma-separated list of names.
    """
    selected = _checks.get()
    if selected is not None:
        return selected
    if raw_value(RAW_KEYS["VKJIT_SANITIZE"]) is None:
        return ()
    text = os.environ.get("VKJIT_SANITIZE", "").strip()
    return () if text in ("", "0") else parse_checks(True if text == "1" else text)
