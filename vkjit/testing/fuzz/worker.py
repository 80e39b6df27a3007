"""The worker process of a fuzzing run, which checks programs. If a driver crashes, only a worker ends.

`worker_pool` starts a worker as `python -m vkjit.testing.fuzz.worker CONFIG`, where CONFIG is a `Config` as JSON. The
worker reads requests from standard input, one JSON object per line: {"seed": n, "statements": m} for a generated
program, {"text": t} for a program from text, in IR or in Python. It writes messages to standard output, also one JSON
object per line:

- {"ready": true} after the start of the worker;
- {"start": seed} before each check, also while it shrinks a program, so that the parent knows that it is alive;
- {"done": seed, "ops": ..., "counts": ...} after a program, with the names of its operations and the counts of the
  `Checker`. For a program that fails, this answer also has "stage" and "text" of the `Finding`, and "program", the
  reduced program as text.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from .check import Checker, Finding, Options
from .generate import generate
from .program import Program, parse_program, program_text
from .shrink import shrink
from .sources import HEAD, SOURCES, check_source, generate_source

__all__ = ["Config", "load_planted", "main"]


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a worker.

    `devices` are device names. `planted` is the path of a file with a list of compiler bugs (see `planted`), and `bug`
    the name of the bug that the worker plants; "" plants none. `shrink_seconds` limits the time for reducing a failing
    program; 0 doesn't reduce it. `thorough` and `watch` are options of the `Checker`.
    """

    devices: tuple[str, ...] = ()
    planted: str = ""
    bug: str = ""
    shrink_seconds: float = 60.0
    thorough: bool = False
    watch: bool = False

    def text(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def parse(text: str) -> Config:
        """Parse the configuration from JSON."""
        parts = json.loads(text)
        return Config(**{**parts, "devices": tuple(parts["devices"])})


def load_planted(path: str) -> Any:
    """Import the Python file at a path, which has a list `BUGS` of compiler bugs (see `planted`)."""
    spec = importlib.util.spec_from_file_location("planted_bugs", Path(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_bugs"] = module
    spec.loader.exec_module(module)
    return module


def _own_output() -> TextIO:
    """Return the pipe to the parent; redirect all other output of the process to standard error."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


class _Worker:
    """Answers requests with one `Checker`. `out` is the pipe to the parent."""

    def __init__(self, config: Config, out: TextIO) -> None:
        from vkjit.backends.selection import device

        self.config = config
        self.out = out
        self.checker = Checker(
            [device(name) for name in config.devices], Options(thorough=config.thorough, watch=config.watch)
        )

    def say(self, **parts: Any) -> None:
        """Send a message to the parent."""
        print(json.dumps(parts), file=self.out, flush=True)

    def run(self, request: dict[str, Any]) -> None:
        """Check the program that is requested and send the answer."""
        seed, text = request.get("seed", -1), request.get("text", "")
        self.say(start=seed)
        self.checker.counts = Counter()
        if seed >= SOURCES or text.startswith(HEAD):
            self.run_source(seed, text or generate_source(seed))
            return
        program = parse_program(text) if text else generate(seed, request.get("statements", 0))
        finding = self.checker.check(program)
        names = sorted({op.name for f in program.module.all_functions() for op in f.body.walk()})
        answer: dict[str, Any] = {"done": program.seed, "ops": names, "counts": dict(self.checker.counts)}
        if finding is not None:
            answer.update(stage=finding.stage, text=finding.text, program=self.reduced(program, finding))
        self.say(**answer)

    def run_source(self, seed: int, text: str) -> None:
        """Check a program in Python and send the answer. It isn't reduced."""
        finding = check_source(text, self.checker.devices, self.checker.counts)
        answer: dict[str, Any] = {"done": seed, "ops": [], "counts": dict(self.checker.counts)}
        if finding is not None:
            answer.update(stage=finding.stage, text=finding.text, program=text)
        self.say(**answer)

    def reduced(self, program: Program, finding: Finding) -> str:
        """Reduce the failing program and return it as text, with the finding as a comment."""

        def fails(candidate: Program) -> bool:
            self.say(start=program.seed)  # tells the parent that the worker is alive
            result = self.checker.check(candidate, finding.stage)
            return (
                result is not None
                and result.stage == finding.stage
                and _failure_class(result.text) == _failure_class(finding.text)
            )

        if self.config.shrink_seconds > 0 and finding.stage != "generator":
            program = shrink(program, fails, self.config.shrink_seconds)
        final_finding = self.checker.check(program) or finding
        return program_text(program, [f"{final_finding.stage}: {final_finding.text}"])


def _failure_class(text: str) -> str:
    """Return the class of a failure. A reduced program fails in the same way if its failure has the same class.

    The class is the first word of the finding's text: the class name of an exception, "raised" or "printed". For a
    difference in an array, whose text starts with "%" and the array's name, the class is "%".
    """
    return "%" if text.startswith("%") else text.split(maxsplit=1)[0]


def main(arguments: list[str]) -> int:
    """Plant the configured bug, if any, and answer requests until standard input ends."""
    out = _own_output()
    config = Config.parse(arguments[0])
    if config.bug:
        bugs = {bug.name: bug for bug in load_planted(config.planted).BUGS}
        bugs[config.bug].plant()
    worker = _Worker(config, out)
    worker.say(ready=True)
    for line in sys.stdin:
        worker.run(json.loads(line))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
