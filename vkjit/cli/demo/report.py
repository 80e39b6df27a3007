"""Console output of the demo: lines, checks and tables, formatted by rich if it is installed, else as plain text."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

__all__ = ["Report"]

T = TypeVar("T")


class Report:
    """The demo's console output; `failed` is True if any check failed so far."""

    def __init__(self) -> None:
        self.failed = False
        self._rich: Any = None
        with contextlib.suppress(ImportError):
            from rich.console import Console

            self._rich = Console(highlight=False, soft_wrap=True)

    def line(self, text: str = "") -> None:
        """Print one line of text."""
        if self._rich is None:
            print(text, flush=True)
        else:
            self._rich.print(text, markup=False)

    def title(self, text: str) -> None:
        """Print the heading of a part."""
        self.line()
        if self._rich is None:
            self.line(f"== {text}")
        else:
            self._rich.rule(text, align="left")

    def check(self, name: str, good: bool, detail: str) -> None:
        """Print the result of one check; a result that isn't `good` sets `failed`."""
        self.failed = self.failed or not good
        self.line(f"  {'ok    ' if good else 'FAILED'} {name}: {detail}")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a small table."""
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
        """Yield `items`, `total` in number, with a progress bar labeled `text` if the terminal supports one."""
        if self._rich is None or not self._rich.is_terminal:
            yield from items
            return
        from rich.progress import Progress

        with Progress(console=self._rich, transient=True) as bar:
            task = bar.add_task(text, total=total)
            for item in items:
                yield item
                bar.advance(task)
