"""Writes docs/semantics.md from the tables of cases: `python -m tests.semantics.generate` (`--check` only compares)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.semantics import arithmetic, flow, numbers
from tests.semantics.table import COLUMNS, ROWS, Case, Exempt, Raised, Refused
from vkjit.testing.ulp import FUNCTIONS, bound_of

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
TABLES = (numbers.TABLE, arithmetic.TABLE, flow.TABLE)
CASES: list[Case] = [case for table in TABLES for case in table.cases]
EXEMPT: list[Exempt] = [exempt for table in TABLES for exempt in table.exempt]
HEAD = """# Semantics

What kernels mean where Python and hardware differ. This page is written by `python -m tests.semantics.generate` from the tables
under `tests/semantics/`; each entry is a test that runs on every executor: the reference interpreter, Vulkan devices, and the
processor through LLVM.

## Where each rule is tested

`=` the result is compared with NumPy's, bit by bit unless a bound is stated; `!` the compiler refuses the kernel; `?` the run
ends in an exception; `-` nothing to show (the reason stands in the row's section).

"""
FUNCTIONS_HEAD = """## Accuracy of functions

The greatest error in units in the last place, of results that are normal numbers; the same for f16, f32 and f64 and on every
device, `fast_math=True` apart. Subnormal operands and results may be taken for zeros with their sign.
`python -m vkjit.testing.ulp` measures the errors on this machine's devices; `python -m vkjit.testing.strict` compares the bits
of kernels with `strict=True`, where division and square roots are correctly rounded too.

| function | bound | | function | bound | | function | bound |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def _mark(row: str, dtype: object) -> str:
    marks = set()
    for case in CASES:
        if case.row == row and dtype in case.types:
            marks.add("!" if isinstance(case.expected, Refused) else "?" if isinstance(case.expected, Raised) else "=")
    return "".join(sorted(marks, key="=!?".index)) or "-"


def _matrix() -> str:
    lines = [f"| rule | {' | '.join(t.name for t in COLUMNS)} |", f"| --- |{' --- |' * len(COLUMNS)}"]
    for row in ROWS:
        lines.append(f"| {row.key} | {' | '.join(_mark(row.key, t) for t in COLUMNS)} |")
    return "\n".join(lines) + "\n\n"


def _types(types: Sequence[object]) -> str:
    names = [t.name for t in COLUMNS if t in types]
    return "all types" if len(names) >= len(COLUMNS) - 1 else ", ".join(names)


def _section(key: str, decision: str) -> str:
    lines = [f"### {key}\n", f"{decision[0].upper()}{decision[1:]}.\n"]
    for case in CASES:
        if case.row == key:
            bound = f" (within {case.ulp:g} units in the last place)" if case.ulp else ""
            lines.append(f"- {_types(case.types)}: {case.says}{bound}")
    lines += [f"- {_types(e.types)}: not applicable, because {e.because}" for e in EXEMPT if e.row == key]
    return "\n".join(lines) + "\n\n"


def _functions() -> str:
    cells = [f"`{name if name != 'div' else '/'}` | {bound_of(name):g}" for name in FUNCTIONS]
    cells += ["|"] * (-len(cells) % 3)
    return "".join(f"| {' | | '.join(cells[i : i + 3])} |\n" for i in range(0, len(cells), 3))


def page() -> str:
    """The text of the page."""
    sections = "".join(_section(row.key, row.decision) for row in ROWS)
    return f"{HEAD}{_matrix()}## The rules\n\n{sections}{FUNCTIONS_HEAD}{_functions()}"


def main(argv: Sequence[str] | None = None) -> int:
    """Writes the page, or says whether it is current."""
    parser = argparse.ArgumentParser(prog="python -m tests.semantics.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    arguments = parser.parse_args(argv)
    text = page()
    if not arguments.check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{PAGE.name} differs from the tables: run python -m tests.semantics.generate\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
