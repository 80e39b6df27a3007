"""The mutation score: the share of a kernel's mutants that its tests detect ("kill").

A test is given as a property: a function that takes a kernel and raises if the kernel is wrong. Two kinds of mutants
don't count: equivalent ones, which behave like the original kernel, and those that don't compile. A mutant is also
killed if it exceeds the time limit, for example because a loop doesn't end.
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
"""A function that takes a kernel and raises if the kernel is wrong."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome for one mutant.

    `state` is "killed" (a property detected the mutant), "survived" (none did), "equivalent" (it behaves like the
    original kernel) or "invalid" (it doesn't compile). `reason` is the user's reason if the user declared the mutant
    equivalent (see `mutation_score`), else "".
    """

    edit: Edit
    state: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MutationResult:
    """The verdicts on all mutants of one kernel. `file` is the kernel's source file."""

    kernel: str
    file: str
    verdicts: tuple[Verdict, ...]

    def count(self, state: str) -> int:
        """Return the number of mutants in a state."""
        return sum(v.state == state for v in self.verdicts)

    @property
    def mutants(self) -> int:
        """The number of mutants that count: those killed and those that survived."""
        return self.count("killed") + self.count("survived")

    @property
    def score(self) -> float:
        """The share of `mutants` that was killed; 1 if there are none."""
        return self.count("killed") / self.mutants if self.mutants else 1.0

    @property
    def survivors(self) -> list[Verdict]:
        """The verdicts on the mutants that survived."""
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

    properties: functions that take a kernel and raise if the kernel is wrong.
    same: a function that returns True if a mutant is equivalent (see `mutate.equivalence`). It is only called for
        survivors.
    argued: the mutants that the user knows to be equivalent: maps their keys (see `mutation_key`) to reasons. They
        aren't run.
    seconds: time limit for all properties together on one mutant; a mutant that exceeds it counts as killed.
    edits: the mutations to try (default: all).
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
    """Return a key of a mutation: "line | edit", with the text of the line instead of its number.

    So it stays valid if the line moves.
    """
    return f"{' '.join(lines[edit.line - 1].split())} | {edit}"


def _judge(
    kernel: Kernel, edit: Edit, properties: Sequence[Property], same: Callable[[Kernel], bool] | None, seconds: float
) -> str:
    """Run the properties on one mutant and return its state (see `Verdict`)."""
    try:
        changed = mutant(kernel, edit)
        with time_limited(seconds):
            for check in properties:
                check(changed)
    except CompileError:
        return "invalid"
    except (AssertionError, VkjitError, ArithmeticError, MemoryError, ValueError):  # also TimeLimitError
        return "killed"
    return "equivalent" if same is not None and same(changed) else "survived"
