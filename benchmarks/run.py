#!/usr/bin/env python3
"""Compare vkjit with other libraries: `python benchmarks/run.py [GROUP...] [--list] [--only NAME] [--json FILE]`.

A group is a module of `benchmarks/groups/` with a list `ROWS`. Prints a table per group and writes JSON on request.
The exit code is 0 unless a measurement failed with an error; a missed target is reported but isn't an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.framework import LOWER_IS_BETTER, Result, Row, Target, run_row

HEADINGS = ("row", "ours", "reference", "ratio", "target", "")


def group_names() -> list[str]:
    """Return the names of the groups in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "groups")]))


def rows_of(group: str, only: str | None) -> list[Row]:
    """Return the rows of a group whose name contains `only`."""
    rows: Sequence[Row] = importlib.import_module(f"benchmarks.groups.{group}").ROWS
    return [row for row in rows if only is None or only.lower() in row.name.lower()]


def number(value: float | None, unit: str = "") -> str:
    """Format a value with three significant digits and its unit; a dash for None."""
    if value is None:
        return "-"
    text = f"{value:.0f}" if value >= 1000 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def target_text(target: Target, unit: str) -> str:
    """Format a target for display."""
    parts = []
    if target.value is not None:
        parts.append(f"{'<=' if unit in LOWER_IS_BETTER else '>='} {number(target.value, unit)}")
    if target.ratio is not None:
        parts.append(f">= {target.ratio:g}x")
    return ", ".join(parts)


def cells(result: Result) -> tuple[str, ...]:
    """Return the table cells of a result."""
    reference = f"{number(result.reference, result.unit)} {result.reference_name}" if result.reference else "-"
    ratio = f"{result.ratio:.2f}x" if result.ratio is not None else "-"
    target = target_text(result.target, result.unit)
    status = f"{result.status}: {result.reason}" if result.reason else result.status
    return (result.name, number(result.ours, result.unit), reference, ratio, target, status)


def show(group: str, results: Sequence[Result]) -> None:
    """Print a group's table, using rich if it is installed."""
    lines = [cells(result) for result in results]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        show_plain(group, lines)
        return
    table = Table(title=group, title_justify="left")
    for position, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if 0 < position < 4 else "left", overflow="fold")
    colours = {"ok": "green", "short": "red", "absent": "yellow"}
    for line, result in zip(lines, results, strict=True):
        table.add_row(*line[:-1], f"[{colours[result.status]}]{line[-1]}")
    Console().print(table)


def show_plain(group: str, lines: Sequence[tuple[str, ...]]) -> None:
    """Print the table as plain text."""
    widths = [max(len(line[column]) for line in (HEADINGS, *lines)) for column in range(len(HEADINGS))]
    print(f"\n{group}")
    for line in (HEADINGS, *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def machine() -> dict[str, object]:
    """Return a description of the machine: CPU, system, versions, devices."""
    versions = {}
    for name in ("vkjit", "numpy", "torch", "taichi", "triton"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "versions": versions,
        "devices": device_names(),
    }


def device_names() -> list[str]:
    """Return the names of the devices that vkjit finds, with their drivers."""
    import vkjit

    return [f"{info.name} ({info.kind}, {info.driver})" for info in vkjit.devices()]


def run_group(group: str, only: str | None) -> tuple[list[Result], int]:
    """Measure and print a group; return its results and the number of rows that failed with an error."""
    results: list[Result] = []
    errors = 0
    for row in rows_of(group, only):
        print(f"{group}: {row.name} ...", file=sys.stderr, flush=True)
        try:
            results.append(run_row(group, row))
        except Exception:  # noqa: BLE001  a failing row must not stop the others
            traceback.print_exc()
            errors += 1
    if results:
        show(group, results)
    return results, errors


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the groups named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    parser.add_argument("--list", action="store_true", help="print groups, rows and targets, measure nothing")
    parser.add_argument("--only", metavar="NAME", help="rows whose name contains NAME")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there too")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.groups) - set(group_names()))
    if unknown:
        parser.error(f"no group {', '.join(unknown)}; there are: {', '.join(group_names())}")
    groups = options.groups or group_names()
    if options.list:
        for group in groups:
            for row in rows_of(group, options.only):
                print(f"{group}: {row.name} [{target_text(row.bar(), row.unit)}]")
        return 0
    results: list[Result] = []
    errors = 0
    for group in groups:
        measured, failed = run_group(group, options.only)
        results += measured
        errors += failed
    counts = {status: sum(result.status == status for result in results) for status in ("ok", "short", "absent")}
    print("\n" + ", ".join(f"{count} {status}" for status, count in counts.items()) + f", {errors} errors")
    if options.json:
        report = {"machine": machine(), "results": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
