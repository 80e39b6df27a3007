"""Generate docs/semantics.md from tables of cases: `python -m tests.semantics.generate` (`--check`: compare only)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.semantics import arithmetic, flow, numbers
from tests.semantics.table import COLUMNS, ROWS, Case, Exempt, Raised, Refused
from tools.ulp.measure import FUNCTIONS, bound_of

PAGE = Path(__file__).parents[2] / "docs" / "semantics.md"
TABLES = (numbers.TABLE, arithmetic.TABLE, flow.TABLE)
CASES: list[Case] = [case for table in TABLES for case in table.cases]
EXEMPT: list[Exempt] = [exempt for table in TABLES for exempt in table.exempt]
HEAD = """# Semantics

The semantics of kernels, in particular where Python and hardware differ. `python -m tests.semantics.generate` writes this page from
the tables in `tests/semantics/`. Each entry is a test that runs on every executor: the reference interpreter, Vulkan devices, and
the CPU through LLVM.

## Test coverage

`=`: the result is compared with NumPy's, bit by bit unless a bound is stated; `!`: the compiler rejects the kernel; `?`: the launch
raises an exception; `-`: not applicable (the section of the rule states the reason).

"""
FUNCTIONS_HEAD = """## Accuracy of functions

The maximum error in units in the last place (ULP), for results that are normal numbers. The bounds are the same for f16, f32
and f64 and on every device, except with `fast_math=True`. Subnormal operands and results may be flushed to zero with their sign.
`python -m tools.ulp` measures the errors on this machine's devices; `python -m tools.strict` compares kernels with `strict=True`
with NumPy bit by bit: in these, division and square roots are correctly rounded too.

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
            bound = f" (within {case.ulp:g} ULP)" if case.ulp else ""
            lines.append(f"- {_types(case.types)}: {case.says}{bound}")
    lines += [f"- {_types(e.types)}: not applicable: {e.because}" for e in EXEMPT if e.row == key]
    return "\n".join(lines) + "\n\n"


def _functions() -> str:
    cells = [f"`{name if name != 'div' else '/'}` | {bound_of(name):g}" for name in FUNCTIONS]
    cells += ["|"] * (-len(cells) % 3)
    return "".join(f"| {' | | '.join(cells[i : i + 3])} |\n" for i in range(0, len(cells), 3))


def page() -> str:
    """Return the text of the page."""
    sections = "".join(_section(row.key, row.decision) for row in ROWS)
    return f"{HEAD}{_matrix()}## The rules\n\n{sections}{FUNCTIONS_HEAD}{_functions()}"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or with `--check` return 1 if it is out of date."""
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
