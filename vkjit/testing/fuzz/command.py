"""`python -m vkjit.testing.fuzz`: compare generated kernels on the interpreter and devices; see docs/fuzzing.md.

Exit status: 0 without findings, 1 with findings, 2 for wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vkjit.errors import ArgumentError
from vkjit.files import write_text
from vkjit.ir.ops import OPS, OpName

from ..console import say
from .generate import generate
from .planted import run_planted
from .program import program_text
from .requests import device_names, requests
from .sources import HEAD, SOURCES, generate_source
from .worker import Config
from .worker_pool import WorkerPool

__all__ = ["coverage_text", "main"]

NOT_GENERATED: dict[OpName, str] = {}
"""Operations of the op table that are never generated, with the reason; at present there are none."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vkjit.testing.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=2000, help="how many programs (default 2000)")
    parser.add_argument("--seed", type=int, default=1, help="seed that determines all programs (default 1)")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this time (default: no limit)")
    parser.add_argument(
        "--devices", default="all", help="parts of device names, separated by commas; 'none': interpreter only"
    )
    parser.add_argument("--jobs", type=int, default=2, help="worker processes (default 2)")
    parser.add_argument("--statements", type=int, default=0, help="statements of a program (default: 6 to 26)")
    parser.add_argument("--tiles", action="store_true", help="only programs on tiles (otherwise one in eight)")
    parser.add_argument("--sources", action="store_true", help="only programs in Python (otherwise one in eight)")
    parser.add_argument("--keep", default="fuzz-findings", help="folder for failing programs")
    parser.add_argument("--thorough", action="store_true", help="every level for every program, all passes verified")
    parser.add_argument(
        "--watch", action="store_true", help="check the address of every access, on every Vulkan device"
    )
    parser.add_argument("--no-shrink", action="store_true", help="keep failing programs as they are")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of a seed")
    parser.add_argument("--replay", metavar="FILE", help="run one kept program again")
    parser.add_argument("--planted", metavar="FILE", help="plant each bug of a list in turn; say when it was found")
    parser.add_argument("--bug", default="", help="with --planted: only bugs whose name contains this")
    return parser


def coverage_text(seen: Counter[str]) -> str:
    """Describe the coverage of the op table: the number of operations seen, and a line for each operation not seen.

    `seen` maps the name of an operation to the number of programs that contain it.
    """
    missing = [name for name in OPS if not seen[name]]
    lines = [f"coverage: {len(OPS) - len(missing)} of {len(OPS)} operations, {1 - len(missing) / len(OPS):.1%}"]
    lines += [f"  without {name}: {NOT_GENERATED.get(name, 'too rare for so few programs')}" for name in missing]
    return "\n".join(lines)


def _text_of(seed: int, statements: int, notes: Sequence[str] = ()) -> str:
    """Return the program of a seed as text; `notes` become comments of programs in IR."""
    return generate_source(seed) if seed >= SOURCES else program_text(generate(seed, statements), notes)


@dataclass(slots=True)
class _Summary:
    """The results so far.

    - `keep`: the folder in which failing programs are saved.
    - `start`: the time at which the run started, by `time.monotonic`.
    - `programs`: the number of programs that were checked.
    - `seen`: for each operation, the number of programs that contain it (see `coverage_text`).
    - `counts`: the sums of `Checker.counts` over all programs.
    - `findings`: a text for each program that failed.
    """

    keep: Path
    start: float = field(default_factory=time.monotonic)
    programs: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def take(self, answer: dict[str, Any], statements: int) -> None:
        """Record a worker's answer for one program (see `worker`). Prints the progress every 100 programs.

        `statements` is the option `--statements`, with which the program was generated.
        """
        self.programs += 1
        self.seen.update(answer["ops"])
        self.counts.update(answer["counts"])
        if "stage" in answer:  # only answers for programs that fail have this key
            self.failed(answer, statements)
        elif self.programs % 100 == 0:
            seconds = time.monotonic() - self.start
            say(f"{self.programs} programs, {seconds:.0f} s, {len(self.findings)} findings")

    def failed(self, answer: dict[str, Any], statements: int) -> None:
        """Save the failing program and print how to replay it.

        If the answer has no program, since the worker crashed, the program is generated again from its seed.
        """
        seed = answer.get("seed", -1)
        text = answer["program"]
        if not text and seed >= 0:
            text = _text_of(seed, statements, [f"{answer['stage']}: {answer['text']}"])
        self.keep.mkdir(parents=True, exist_ok=True)
        path = self.keep / f"program-{seed}.{'py' if text.startswith(HEAD) else 'ir'}"
        write_text(path, text)
        self.findings.append(f"{answer['stage']}: {answer['text']}")
        say(f"FOUND in program {seed}, {answer['stage']}\n  {answer['text']}")
        say(f"  again: python -m vkjit.testing.fuzz --replay {path}")

    def text(self) -> str:
        """Return the final summary."""
        seconds = time.monotonic() - self.start
        counts = ", ".join(f"{value} {name}" for name, value in sorted(self.counts.items()))
        head = f"{self.programs} programs in {seconds:.0f} s ({counts}): {len(self.findings)} findings"
        return f"{coverage_text(self.seen)}\n{head}"


def _run(options: argparse.Namespace, work: Iterator[dict[str, Any]]) -> int:
    """Run programs in worker processes, print the summary and return the exit status.

    `work` yields a request for each program (see `worker`).
    """
    try:
        names = device_names(options.devices)
    except ArgumentError as error:
        say(str(error))
        return 2
    say(f"executors: interpreter{''.join(', ' + name for name in names)}; {options.jobs} jobs")
    shrink_seconds = 0.0 if options.no_shrink else 60.0
    pool = WorkerPool(
        Config(names, shrink_seconds=shrink_seconds, thorough=options.thorough, watch=options.watch), options.jobs
    )
    summary = _Summary(Path(options.keep))
    try:
        for answer in pool.run(work):
            summary.take(answer, options.statements)
    except KeyboardInterrupt:
        pool.stop()
        say("interrupted")
    say(summary.text())
    return 1 if summary.findings else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    options = _parser().parse_args(arguments)
    if options.show is not None:
        say(_text_of(options.show, options.statements))
        return 0
    if options.planted:
        return run_planted(options.planted, options.bug, options)
    if options.replay:  # check one program, thoroughly, and keep it as it is
        options.jobs = 1
        options.no_shrink = True
        options.thorough = True
        return _run(options, iter([{"text": Path(options.replay).read_text(encoding="utf-8")}]))
    work = requests(
        options.seed,
        options.programs,
        options.statements,
        options.minutes,
        tiles=options.tiles,
        sources=options.sources,
    )
    return _run(options, work)


if __name__ == "__main__":
    sys.exit(main())
