"""The order in which mutants are judged, and storage of verdicts.

Mutants are ordered so that every prefix samples all kernels evenly. Verdicts are stored as lines of JSON, one per
mutant; a later run reuses them as long as the kernel's text is unchanged.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.stdlib_properties.breaking import Verdict
from vkjit.frontend.source import source_of
from vkjit.launch.kernel import Kernel
from vkjit.testing.mutate import Edit, mutations
from vkjit.testing.mutate.score import mutation_key

__all__ = ["Mutant", "Results", "in_order", "report"]

MISSED = ("survived", "uncovered", "defect")


@dataclass(frozen=True, slots=True)
class Mutant:
    """An edit of the kernel `name`; `key` identifies it in messages, `digest` is a hash of the kernel's text."""

    name: str
    edit: Edit
    place: str
    key: str
    digest: str

    @property
    def label(self) -> str:
        """A label that is stable as long as the kernel's text is."""
        edit = dataclasses.astuple(self.edit)
        return f"{self.name} {self.digest} {edit[0]} {edit[2:]} {self.edit.line}"


def mutants_of(name: str, kernel: Kernel) -> list[Mutant]:
    """Return all mutants of a kernel."""
    source = source_of(kernel.spec.fn)
    first, last = source.node.lineno, source.node.end_lineno or source.node.lineno
    digest = hashlib.sha256("".join(source.lines[first - 1 : last]).encode()).hexdigest()[:12]
    place = Path(source.file).name
    return [
        Mutant(name, edit, f"{place}:{edit.line}", f"{name}: {mutation_key(source.lines, edit)}", digest)
        for edit in mutations(kernel)
    ]


def in_order(kernels: Mapping[str, Kernel], seed: int) -> list[Mutant]:
    """Return all mutants, interleaved so that each prefix has about the same share of every kernel."""
    placed = []
    for name, kernel in sorted(kernels.items()):
        found = mutants_of(name, kernel)
        random.Random(f"{seed} {name}").shuffle(found)
        placed += [(number / len(found), name, number, mutant) for number, mutant in enumerate(found)]
    return [mutant for *_, mutant in sorted(placed, key=lambda p: p[:3])]


class Results:
    """Verdicts by mutant, stored in a file: a line when judging starts, and one with the verdict."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Verdict] = {}
        self.begun: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            row = json.loads(line)
            if row["state"] == "begun":
                self.begun = row
            else:
                self.known[row["mutant"]] = Verdict(row["state"], row["by"], row["seconds"])

    def of(self, mutant: Mutant) -> Verdict | None:
        """Return the verdict on a mutant, if there is one."""
        return self.known.get(mutant.label)

    def begin(self, mutant: Mutant) -> None:
        """Record that judging a mutant starts."""
        self._write({"mutant": mutant.label, "key": mutant.key, "place": mutant.place, "state": "begun"})

    def add(self, mutant: Mutant, verdict: Verdict) -> None:
        """Store a verdict."""
        self.known[mutant.label] = verdict
        row = {"mutant": mutant.label, "key": mutant.key, "place": mutant.place}
        self._write({**row, **dataclasses.asdict(verdict)})

    def crashed(self, verdict: Verdict) -> None:
        """Store a verdict on the mutant that was started last."""
        self._write({**self.begun, **dataclasses.asdict(verdict)})

    def drop(self, states: Iterable[str]) -> None:
        """Remove verdicts with these states."""
        dropped = frozenset(states)
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        kept = [line for line in lines if json.loads(line)["state"] not in dropped]
        self.path.write_text("".join(line + "\n" for line in kept), encoding="utf-8")

    def _write(self, row: dict[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def report(judged: Iterable[tuple[Mutant, Verdict]]) -> tuple[str, float]:
    """Return a report (missed mutants, a line per kernel, the total score) and the score."""
    by_kernel: dict[str, list[tuple[Mutant, Verdict]]] = {}
    for mutant, verdict in judged:
        by_kernel.setdefault(mutant.name, []).append((mutant, verdict))
    lines, totals = [], _Counts()
    for name, rows in sorted(by_kernel.items()):
        counts = _Counts()
        for _, verdict in rows:
            counts.add(verdict.state)
            totals.add(verdict.state)
        lines.append(f"{name}: {counts}")
        missed = sorted((r for r in rows if r[1].state in MISSED), key=lambda r: (r[0].edit.line, r[0].edit.start))
        lines += [f"    {m.place}: {v.state}: {m.key.partition(': ')[2]} {v.by}".rstrip() for m, v in missed]
    lines.append(f"mutation score: {totals}")
    return "\n".join(lines), totals.score


class _Counts:
    def __init__(self) -> None:
        self.of: dict[str, int] = {}

    def add(self, state: str) -> None:
        self.of[state] = self.of.get(state, 0) + 1

    @property
    def score(self) -> float:
        killed, missed = self.of.get("killed", 0), sum(self.of.get(s, 0) for s in MISSED)
        return killed / (killed + missed) if killed + missed else 1.0

    def __str__(self) -> str:
        of: dict[str, Any] = self.of
        killed, missed = of.get("killed", 0), sum(of.get(s, 0) for s in MISSED)
        others = {"equivalent": "mean the same", "invalid": "don't compile"}
        rest = "".join(f"; {of[s]} {words}" for s, words in others.items() if of.get(s))
        return f"{killed} of {killed + missed} mutants noticed ({self.score:.1%}){rest}"
