"""The mutation score: the share of a kernel's mutants that its properties detect.

Properties are functions that take a kernel and raise if it is wrong. Mutants that the optimizer reduces to the
original program, and those that don't compile, don't count. A property that exceeds its time limit kills the mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit.errors import CompileError, VkjitError
from vkjit.frontend.source import source_of
from vkjit.launch.kernel import Kernel

from ..edits.edit import Edit
from ..edits.mutant import mutant
from ..edits.mutations import mutations
from ..execution.time_limited import time_limited

__all__ = ["MutationResult", "Verdict", "mutation_score"]

Property = Callable[[Kernel], Any]
"""A function that takes a kernel and raises if it is wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one mutant.

    `state`: "killed", "survived", "equivalent" (the same program, or explained by `reason`) or "invalid" (doesn't
    compile).
    """

    edit: Edit
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MutationResult:
    """All verdicts on one kernel."""

    kernel: str
    file: str
    verdicts: tuple[Verdict, ...]

    def count(self, state: str) -> int:
        """Return the number of mutants in a state."""
        return sum(v.state == state for v in self.verdicts)

    @property
    def mutants(self) -> int:
        """Number of mutants that could be killed."""
        return self.count("killed") + self.count("survived")

    @property
    def score(self) -> float:
        """Share of these that were killed; 1 if there are none."""
        return self.count("killed") / self.mutants if self.mutants else 1.0

    @property
    def survivors(self) -> list[Verdict]:
        """Verdicts on the surviving mutants."""
        return [v for v in self.verdicts if v.state == "survived"]

    def __str__(self) -> str:
        same, broken = self.count("equivalent"), self.count("invalid")
        head = (
            f"{self.kernel}: {self.count('killed')} of {self.mutants} mutants noticed ({self.score:.0%}); "
            f"{same} mean the same, {broken} don't compile"
        )
        return "\n".join([head, *(f"    {self.file}:{v.edit.line}: {v.edit}" for v in self.survivors)])


def mutation_score(
    kernel: Kernel,
    properties: Sequence[Property],
    *,
    same: Callable[[Kernel], bool] | None = None,
    argued: Mapping[str, str] | None = None,
    seconds: float = 20.0,
    edits: Sequence[Edit] | None = None,
) -> MutationResult:
    """Run the properties on every mutant of the kernel.

    properties: functions that take a kernel and raise if it is wrong. same: returns True if a mutant is equivalent.
    argued: known equivalent mutants with the reason, keyed by "line text | edit" as in `mutation_key`. seconds: time
    limit, after which a mutant counts as killed.
    """
    lines = source_of(kernel.spec.fn).lines
    reasons = argued or {}
    verdicts = []
    for edit in mutations(kernel) if edits is None else edits:
        reason = reasons.get(mutation_key(lines, edit), "")
        if reason:
            verdicts.append(Verdict(edit, "equivalent", reason))
            continue
        state = _judge(kernel, edit, properties, same, seconds)
        verdicts.append(Verdict(edit, state))
    return MutationResult(kernel.name, source_of(kernel.spec.fn).file, tuple(verdicts))


def mutation_key(lines: Sequence[str], edit: Edit) -> str:
    """Return a key that identifies a mutation until its line changes."""
    return f"{' '.join(lines[edit.line - 1].split())} | {edit}"


def _judge(
    kernel: Kernel, edit: Edit, properties: Sequence[Property], same: Callable[[Kernel], bool] | None, seconds: float
) -> str:
    try:
        changed = mutant(kernel, edit)
        with time_limited(seconds):
            for check in properties:
                check(changed)
    except CompileError:
        return "invalid"
    except (AssertionError, VkjitError, ArithmeticError, MemoryError, ValueError):
        return "killed"
    return "equivalent" if same is not None and same(changed) else "survived"
