"""A worker process that runs programs, so that a driver crash is isolated.

Reads one JSON object per line from standard input: {"seed": n, "statements": m} requests a generated program, {"text":
t} a program from text. Writes one per line to standard output: {"start": ...} before a program, then {"done": ...} with
the finding, if any. Started as `python -m vkjit.testing.fuzz.worker CONFIG` with a `Config` as JSON.
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

__all__ = ["Config", "load_planted", "main"]


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of a worker. `bug` names an entry of the list in the file `planted`."""

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
    """Import the module at a path, which lists planted bugs as `BUGS`."""
    spec = importlib.util.spec_from_file_location("planted_bugs", Path(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted_bugs"] = module
    spec.loader.exec_module(module)
    return module


def _own_output() -> TextIO:
    """Return the pipe to the parent; other output is redirected to standard error."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return pipe


class _Worker:
    def __init__(self, config: Config, out: TextIO) -> None:
        from vkjit.backends.selection import device

        self.config = config
        self.out = out
        self.checker = Checker(
            [device(name) for name in config.devices], Options(thorough=config.thorough, watch=config.watch)
        )

    def say(self, **parts: Any) -> None:
        print(json.dumps(parts), file=self.out, flush=True)

    def run(self, request: dict[str, Any]) -> None:
        """Run one program."""
        self.say(start=request.get("seed", -1))
        if "text" in request:
            program = parse_program(request["text"])
        else:
            program = generate(request["seed"], request.get("statements", 0))
        self.checker.counts = Counter()
        finding = self.checker.check(program)
        names = sorted({op.name for f in program.module.all_functions() for op in f.body.walk()})
        answer: dict[str, Any] = {"done": program.seed, "ops": names, "counts": dict(self.checker.counts)}
        if finding is not None:
            answer.update(stage=finding.stage, text=finding.text, program=self.small(program, finding))
        self.say(**answer)

    def small(self, program: Program, finding: Finding) -> str:
        """Return the failing program, reduced, as text."""

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
        again = self.checker.check(program) or finding
        return program_text(program, [f"{again.stage}: {again.text}"])


def _failure_class(text: str) -> str:
    """Return the class of a finding: the first word of its text (an exception's class, or the kind of difference)."""
    return "%" if text.startswith("%") else text.split(maxsplit=1)[0]


def main(arguments: list[str]) -> int:
    """Serve requests until standard input ends."""
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
