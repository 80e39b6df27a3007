"""Source edits, which replace a span of a kernel's source by other text.

An edit doesn't change the number of lines, so that source locations stay valid. Lines start at 1; columns are byte
offsets in UTF-8, as in Python's `ast`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from vkjit.errors import Loc

__all__ = ["Edit", "changed_lines", "replaced", "span_text"]


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit that replaces the text from column `start` of `line` to column `end` of `end_line`.

    `kind` is a description of a few words, such as "off by one". `before` and `after` are the old and the new text.
    """

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
        """Return the location of the edit in a file. The location of a multi-line span is its start."""
        return Loc(file, self.line, self.start, self.end if self.end_line == self.line else self.start)


def replaced(kind: str, node: ast.AST, lines: Sequence[str], after: str) -> Edit:
    """Return the edit that replaces the source of an AST node by `after`. `lines` are the lines of the source."""
    line, start = node.lineno, node.col_offset  # type: ignore[attr-defined]
    end_line, end = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    return Edit(kind, line, start, end_line, end, span_text(lines, line, start, end_line, end), after)


def span_text(lines: Sequence[str], line: int, start: int, end_line: int, end: int) -> str:
    """Return the text of a span; the parameters are those of `Edit`."""
    if line == end_line:
        return lines[line - 1].encode()[start:end].decode()
    first = lines[line - 1].encode()[start:].decode()
    last = lines[end_line - 1].encode()[:end].decode()
    return "".join([first, *lines[line : end_line - 1], last])


def changed_lines(lines: Sequence[str], edit: Edit) -> list[str]:
    """Return the lines with the edit applied.

    If the span has several lines, its first line gets the new text and the text after the span; the other lines of the
    span become empty.
    """
    changed = list(lines)
    head = lines[edit.line - 1].encode()[: edit.start].decode()
    tail = lines[edit.end_line - 1].encode()[edit.end :].decode()
    changed[edit.line - 1] = head + edit.after + tail
    for number in range(edit.line, edit.end_line):
        changed[number] = "\n"
    return changed
