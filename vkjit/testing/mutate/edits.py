"""A change to a kernel's text: a stretch of source replaced by another one, line numbers left as they are.

Enters: places in a syntax tree. Leaves: `Edit`s and changed lines. Columns are those of syntax trees: bytes of UTF-8.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import Loc

__all__ = ["Edit", "changed_lines", "replaced", "span_text"]


@dataclass(frozen=True, slots=True)
class Edit:
    """`kind` in a word or two; the text from (line, start) to (end_line, end), lines from 1; what stands there instead."""

    kind: str
    line: int
    start: int
    end_line: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.before.split())} -> {self.after}"

    def loc(self, file: str) -> Loc:
        """The place in that file."""
        return Loc(file, self.line, self.start, self.end if self.end_line == self.line else self.start)


def replaced(kind: str, node: ast.AST, lines: Sequence[str], after: str) -> Edit:
    """The edit that puts `after` in the place of a node."""
    line, start = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return Edit(kind, line, start, end_line, end, span_text(lines, line, start, end_line, end), after)


def span_text(lines: Sequence[str], line: int, start: int, end_line: int, end: int) -> str:
    """The text between two places."""
    if line == end_line:
        return lines[line - 1].encode()[start:end].decode()
    first = lines[line - 1].encode()[start:].decode()
    last = lines[end_line - 1].encode()[:end].decode()
    return "".join([first, *lines[line : end_line - 1], last])


def changed_lines(lines: Sequence[str], edit: Edit) -> list[str]:
    """The lines with the edit made. What spanned several lines leaves empty ones behind, inside brackets where it stood
    inside brackets."""
    made = list(lines)
    head = lines[edit.line - 1].encode()[: edit.start].decode()
    tail = lines[edit.end_line - 1].encode()[edit.end :].decode()
    made[edit.line - 1] = head + edit.after + tail
    for number in range(edit.line, edit.end_line):
        made[number] = "\n"
    return made
