"""Every failure in the table of docs/operations.md has a reason."""

from __future__ import annotations

from pathlib import Path

from tests.parity.ops.reasons import REASONS

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "operations.md"


def test_failures_are_explained() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.partition("<!-- parity: begin -->")[2].partition("<!-- parity: end -->")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| `")]
    assert len(rows) >= 250
    failing = {row[0].strip("`"): row[4] for row in rows if int(row[2])}
    assert failing.keys() == REASONS.keys()
    for name, reasons in failing.items():
        assert reasons.startswith(REASONS[name])
