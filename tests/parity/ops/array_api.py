#!/usr/bin/env python3
"""Run the array API standard's tests on `vkjit.array_api`: `python tests/parity/ops/array_api.py [--suite FOLDER]`.

Uses data-apis/array-api-tests at a fixed version, cloned into a temporary folder unless --suite names a copy. Prints
passed, failed and skipped tests by reason, and the share of failed and skipped tests among those in scope: complex
numbers, extensions and later versions of the standard are counted separately. The exit code is 1 if a test fails or is
skipped for a reason not listed here, or if the share reaches 3 %.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[3]
SUITE = "https://github.com/data-apis/array-api-tests"
VERSION = "2026.02.26"
STANDARD = "2024.12"
MAX_PERCENT = 3.0
"""Percentage of the tests in scope that may fail or be skipped."""

OUT_OF_SCOPE: dict[str, re.Pattern[str]] = {
    "complex numbers": re.compile(
        r"real\(x_i\)|imag\(x_i\)|\[(elementwise-)?(real|imag|conj)\]|__complex__|no complex data types"
    ),
    "the extension linalg": re.compile(r"linalg disabled|test_has_names\[linalg-"),
    "the extension fft, which needs complex numbers": re.compile(r"fft disabled|test_has_names\[fft-"),
    "later versions of the standard": re.compile(r"requires ARRAY_API_TESTS_VERSION"),
}
"""Tests out of scope, by a pattern of the test's name and skip reason."""

KNOWN: dict[str, re.Pattern[str]] = {
    "the operators // and //= of and by infinities follow PyTorch": re.compile(r"test_(binary|iop)\[__i?floordiv__\("),
    "floor_divide of a finite number by an infinity of the other sign is -1, as the standard allows": re.compile(
        r"test_binary\[floor_divide\(isfinite\(x1_i\)"
    ),
    "the suite marks it as flaky": re.compile(r"\bflaky\b"),
}
"""Known reasons for failures and skips of tests in scope."""


@dataclass(frozen=True, slots=True)
class Case:
    """One test: its name, its outcome ("passed", "failed" or "skipped"), and its message."""

    name: str
    outcome: str
    text: str

    def reason(self, patterns: dict[str, re.Pattern[str]]) -> str | None:
        """Return the first reason whose pattern matches the name or, for a skipped test, the message; else None."""
        searched = f"{self.name}\n{self.text}" if self.outcome == "skipped" else self.name
        return next((reason for reason, pattern in patterns.items() if pattern.search(searched)), None)


def fetch(folder: Path) -> Path:
    """Clone the suite at its version, with submodules; raises subprocess.CalledProcessError without network."""
    command = ["git", "clone", "--quiet", "--depth", "1", "--branch", VERSION, "--recurse-submodules", SUITE]
    subprocess.run([*command, str(folder)], check=True)
    return folder


def run(suite: Path, report: Path, device: str, examples: int, more: Sequence[str]) -> int:
    """Run the tests, write pytest's report as XML, and return pytest's exit code."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "VKJIT_DEVICE": device,
        "ARRAY_API_TESTS_MODULE": "vkjit.array_api",
        "ARRAY_API_TESTS_VERSION": STANDARD,
        "ARRAY_API_TESTS_SKIP_DTYPES": "complex64,complex128",
    }
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={report}"]
    command += [f"--max-examples={examples}", "--disable-deadline", "--derandomize"]
    command += ["--disable-extension", "linalg", "fft", "--", *(more or ["array_api_tests"])]
    return subprocess.run(command, cwd=suite, env=environment, check=False).returncode


def read(report: Path) -> list[Case]:
    """Return the tests of pytest's report."""
    cases = []
    for element in ET.parse(report).iter("testcase"):
        outcome, text = "passed", ""
        for tag, meaning in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = element.find(tag)
            if found is not None:
                outcome, text = meaning, f"{found.get('message', '')} {found.text or ''}"
        cases.append(Case(f"{element.get('classname')}.{element.get('name')}", outcome, text))
    return cases


def summary(cases: Sequence[Case]) -> tuple[list[str], float, list[Case]]:
    """Return lines to print, the percentage of tests in scope that failed or were skipped, and unexplained tests."""
    held, apart, why = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    unexplained = []
    for case in cases:
        outside = case.reason(OUT_OF_SCOPE) if case.outcome != "passed" else None
        if outside is not None:
            apart[outside] += 1
            continue
        held[case.outcome] += 1
        if case.outcome == "passed":
            continue
        known = case.reason(KNOWN)
        if known is None:
            unexplained.append(case)
        why[case.outcome, known or "no reason is known"] += 1
    total = sum(held.values())
    share = 100 * (held["failed"] + held["skipped"]) / max(total, 1)
    outcomes = f"{held['passed']} hold, {held['failed']} fail, {held['skipped']} are skipped"
    lines = [
        f"{len(cases)} tests; {total} in scope: {outcomes} ({share:.2f} %)",
        *(f"  {outcome}: {count} x {reason}" for (outcome, reason), count in sorted(why.items())),
        *(f"  not in scope: {count} x {reason}" for reason, count in sorted(apart.items())),
    ]
    return lines, share, unexplained


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: fetch the suite, run it and evaluate the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, metavar="FOLDER", help=f"a copy of the suite, version {VERSION}")
    parser.add_argument("--device", default="cpu", help="the device, as in VKJIT_DEVICE (default: cpu)")
    parser.add_argument("--examples", type=int, default=8, help="examples per test that hypothesis draws (default: 8)")
    parser.add_argument(
        "--report", type=Path, metavar="XML", help="judge a report of pytest written before, run nothing"
    )
    parser.add_argument("--keep", type=Path, metavar="XML", help="write the report of pytest there")
    parser.add_argument("tests", nargs="*", help="pytest's names of tests, below array_api_tests (default: all)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = options.report or options.keep or Path(folder) / "report.xml"
        if options.report is None:
            suite = options.suite or fetch(Path(folder) / "suite")
            code = run(suite.resolve(), report, options.device, options.examples, options.tests)
            if code not in (0, 1):
                print(f"pytest ended with {code}: see its output above", file=sys.stderr)
                return 2
        cases = read(report)
    lines, share, unexplained = summary(cases)
    print("\n".join(lines))
    for case in unexplained:
        print(f"{case.outcome} without a known reason: {case.name}: {' '.join(case.text.split())[:300]}")
    return int(bool(unexplained) or share >= MAX_PERCENT)


if __name__ == "__main__":
    sys.exit(main())
