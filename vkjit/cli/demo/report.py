"""What the demo prints: lines, checks, tables; plain text, with rich where it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["Report"]

T = TypeVar("T")


class Report:
    """Collects whether a check failed while it prints."""

    def __init__(self) -> None:
        self.failed = False
        self._rich: Any = None
        with contextlib.suppress(ImportError):
            from rich.console import Console

            self._rich = Console(highlight=False, soft_wrap=True)

    def line(self, text: str = "") -> None:
        """One line of text."""
        if self._rich is None:
            print(text, flush=True)
        else:
            self._rich.print(text, markup=False)

    def title(self, text: str) -> None:
        """The heading of a part."""
        self.line()
        if self._rich is None:
            self.line(f"== {text}")
        else:
            self._rich.rule(text, align="left")

    def check(self, name: str, good: bool, detail: str) -> None:
        """One check against a reference."""
        self.failed = self.failed or not good
        self.line(f"  {'ok    ' if good else 'FAILED'} {name}: {detail}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A small table."""
        if self._rich is not None:
            from rich.table import Table

            table = Table(*columns)
            for row in rows:
                table.add_row(*row)
            self._rich.print(table)
            return
        widths = [max(len(str(row[i])) for row in [columns, *rows]) for i in range(len(columns))]
        for row in [columns, *rows]:
            self.line("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)))

    def progress(self, items: Iterable[T], total: int, text: str) -> Iterator[T]:
        """Goes through `items` behind a progress bar where a terminal can show one."""
        if self._rich is None or not self._rich.is_terminal:
            yield from items
            return
        from rich.progress import Progress

        with Progress(console=self._rich, transient=True) as bar:
            task = bar.add_task(text, total=total)
            for item in items:
                yield item
                bar.advance(task)
