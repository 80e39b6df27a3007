"""What the sanitizer finds in a running kernel, and the names of what it looks for.

Enters: places and invocations. Leaves: `SanitizerReport`s, and `SanitizerError`, which a sanitized launch raises. Nothing
here knows how findings come about.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .errors import ArgumentError, KernelError, Loc, render_caret

__all__ = [
    "CHECKS",
    "DEFAULT_CHECKS",
    "Access",
    "Invocation",
    "SanitizerError",
    "SanitizerReport",
    "checks_of",
    "sanitized",
    "wanted_checks",
]

CHECKS = ("bounds", "uninitialised", "races", "uniform", "outside", "division", "nan", "overflow", "loops")
"""Everything that can be asked for; `bounds` is always on, so that a sanitized kernel touches nothing but its arrays."""

DEFAULT_CHECKS = ("bounds", "uninitialised", "races", "uniform", "outside")
"""What `sanitize=True` means."""

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Invocation:
    """One invocation: its id in the grid, the id of its workgroup, its id in the workgroup."""

    global_id: Triple
    group_id: Triple
    local_id: Triple

    def __str__(self) -> str:
        return f"invocation {self.global_id} (workgroup {self.group_id}, local {self.local_id})"


@dataclass(frozen=True, slots=True)
class Access:
    """The other side of a race. `how` is "read", "write", "atomic read" or "atomic write"."""

    loc: Loc
    how: str
    invocation: Invocation

    @property
    def line(self) -> int:
        return self.loc.line


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """One finding, the first at its place.

    `kind`: out_of_bounds, race_shared, race_global, divergent_barrier, uninitialised_read, write_outside,
    integer_overflow, division_by_zero, nan_birth or loop_limit. `file`, `line`, `col` (from 0) and `end` span the
    source. `message` says it in words, with the source line and a caret below. `invocation` is None where the host found
    it. `values`: what the message speaks of (indices and extents, operands). `other`: the other side of a race.
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
        """The place in the source."""
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
    """A report with its message put together: what, who, where, the other side."""
    who = "" if invocation is None else f", {invocation}"
    parts = [f"{loc}: {kind}: {text} (kernel {kernel}{who})", render_caret(loc)]
    if other is not None:
        parts += [f"{other.loc}: {other.how} here by {other.invocation}", render_caret(other.loc)]
    message = "\n".join(part for part in parts if part)
    return SanitizerReport(kind, loc.file, loc.line, loc.col, message, invocation, values, other, loc.end)


class SanitizerError(KernelError):
    """What the sanitizer found in one launch: `reports`, in the order of the source; the message shows all of them."""

    def __init__(self, reports: Sequence[SanitizerReport], kernel: str = "") -> None:
        first = reports[0]
        where = None if first.invocation is None else first.invocation.global_id
        super().__init__(first.message, kernel=kernel, loc=first.loc, invocation=where)
        self.reports = list(reports)

    def __str__(self) -> str:
        count = len(self.reports)
        head = f"the sanitizer found {count} fault{'s' if count > 1 else ''} in kernel {self.kernel}:"
        return "\n".join([head, *(report.message for report in self.reports)])


def checks_of(value: bool | str | Iterable[str] | None) -> tuple[str, ...]:
    """What `sanitize=` or `checks=` asks for, as names in the order of `CHECKS`; () for nothing.

    True: the defaults. A string: "all", or names with commas between. Raises ArgumentError for an unknown name.
    """
    if value is None or value is False:
        return ()
    if value is True:
        return DEFAULT_CHECKS
    names = value.split(",") if isinstance(value, str) else list(value)
    wanted = {name.strip() for name in names} | {"bounds"}
    if "all" in wanted:
        return CHECKS
    unknown = sorted(wanted - set(CHECKS))
    if unknown:
        raise ArgumentError(f"the sanitizer has no check {unknown[0]!r}: expected {', '.join(CHECKS)}, or 'all'")
    return tuple(name for name in CHECKS if name in wanted)


class _Block(threading.local):
    """What a `with sanitized(...)` around the running code of this thread asks for; None outside of one."""

    checks: tuple[str, ...] | None = None


BLOCK = _Block()
OPEN: list[Any] = []
"""As long as there are `sanitized` blocks, in whichever threads."""


@contextmanager
def sanitized(checks: bool | str | Iterable[str] = True) -> Iterator[None]:
    """Inside the `with` block, launches of this thread are sanitized, those of the library's own kernels too.

    checks: as for `checks_of`. Kernels with `sanitize=` of their own keep that. Launches wait, and raise SanitizerError.
    """
    saved, BLOCK.checks = BLOCK.checks, checks_of(checks)
    OPEN.append(BLOCK.checks)
    try:
        yield
    finally:
        OPEN.pop()
        BLOCK.checks = saved


def wanted_checks() -> tuple[str, ...]:
    """What a `sanitized` block, or else VKJIT_SANITIZE, asks for: 0 or nothing, 1 (the defaults), "all", or names with
    commas between."""
    if BLOCK.checks is not None:
        return BLOCK.checks
    text = os.environ.get("VKJIT_SANITIZE", "").strip()
    return () if text in ("", "0") else checks_of(True if text == "1" else text)
