"""Trials that a changed kernel has to pass, those first that others have failed.

Enters: a kernel and trials, functions of a kernel that raise where it is wrong. Leaves: for a changed kernel, the name of
the trial that noticed. Holds: only what the unchanged kernel passes is held against changed ones; a trial has ten times
what it takes with the unchanged kernel, and some seconds more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import CompileError, InternalError, VkjitError
from ...findings import checks_of
from ...jit import Kernel
from ..case import Case
from ..checks import collected_cases
from ..examine import Examiner
from ..impatient import Clock
from ..run import executors
from ..schedules import Schedule
from ..search import functions_of
from ..tolerances import as_tolerance

__all__ = ["NOTICED", "CaseProperty", "Trial", "Trials"]

NOTICED = (AssertionError, VkjitError, ArithmeticError, MemoryError, ValueError, IndexError)
"""What a trial raises where the kernel is wrong."""

_SPARE = 2.0
"""Seconds that each trial has beside what the unchanged kernel takes."""

_FOREVER = 1e9


@dataclass(slots=True)
class Trial:
    """`run` raises one of `NOTICED` where a kernel is wrong. `seconds`: what the unchanged one takes (NaN: not run yet)."""

    name: str
    run: Callable[[Kernel], None]
    seconds: float = math.nan
    kills: int = 0


class Trials:
    """The trials of one kernel, quick ones first, those that noticed something before all others."""

    def __init__(self, kernel: Kernel, trials: Sequence[Trial], clock: Clock, recover: Callable[[], None]) -> None:
        """recover: called after each failure, to take pending errors from devices."""
        self.kernel = kernel
        self.trials = list(trials)
        self.clock = clock
        self.recover = recover

    def known(self) -> list[Trial]:
        """The trials that have noticed something, the most frequent ones first."""
        return sorted((t for t in self.trials if t.kills), key=lambda t: -t.kills)

    def others(self) -> list[Trial]:
        """The trials that haven't, in their order."""
        return [t for t in self.trials if not t.kills]

    def failed(self, changed: Kernel, trials: Sequence[Trial]) -> str:
        """The name of the first of these trials that the changed kernel fails; empty where it passes all.

        Raises CompileError where it doesn't compile.
        """
        for trial in trials:
            if math.isnan(trial.seconds):
                self.prove(trial)
            if not self._passes(trial, changed):
                trial.kills += 1
                return trial.name
        return ""

    def prove(self, trial: Trial) -> None:
        """Runs the trial with the unchanged kernel. What it raises is passed on: the property doesn't hold."""
        self.clock.restart(_FOREVER)
        start = time.thread_time()
        trial.run(self.kernel)
        trial.seconds = time.thread_time() - start

    def _passes(self, trial: Trial, changed: Kernel) -> bool:
        self.clock.restart(10 * trial.seconds + _SPARE)
        try:
            trial.run(changed)
        except InternalError:
            raise  # a defect of the compiler, not of the kernel
        except CompileError:
            raise
        except NOTICED:
            self.recover()
            return False
        return True


class CaseProperty:
    """A reference and a fixed list of cases, those that `check_kernel` would try: each makes two trials, without and
    with the sanitizer.

    settings: those of `check_kernel`.
    """

    def __init__(self, kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.reference = reference
        self.settings, self.cases = collected_cases(kernel, reference, settings)
        self._answers: dict[int, Any] = {}
        self._made: tuple[Kernel | None, dict[bool, Examiner]] = (None, {})

    def trials(self, name: str) -> Iterator[Trial]:
        """Values first, on all cases, then everything that is looked for."""
        sanitized = (False, True) if self.settings["sanitize"] else (False,)
        for searched in sanitized:
            for number, (case, schedules) in enumerate(self.cases):
                words = f"{name}, case {number}{', sanitized' if searched else ''}"
                yield Trial(words, self._trial(case, schedules, searched))

    def _trial(self, case: Case, schedules: Mapping[str, Schedule], searched: bool) -> Callable[[Kernel], None]:
        def run(changed: Kernel) -> None:
            found = self._examiner(changed, searched).examine(case, schedules)
            assert found is None, found.kind

        return run

    def _examiner(self, changed: Kernel, searched: bool) -> Examiner:
        """One per kernel, so that it is compiled once; only those of the last kernel are kept."""
        if self._made[0] is not changed:
            self._made = (changed, {})
        made = self._made[1]
        if searched not in made:
            settings = self.settings
            groups = settings["groups"]
            checks = (*checks_of(settings["sanitize"]), "division") if searched else ()
            made[searched] = _Remembering(
                self._answers, changed, self.reference, executors(changed, "interpreter", groups), groups=groups,
                tolerance=as_tolerance(settings["tolerance"]), precise=settings["precise"],
                partial=settings["partial"], checks=checks, unordered=settings["unordered"],
                judges=functions_of(settings["properties"]),
            )  # fmt: skip
        return made[searched]


class _Remembering(Examiner):
    """Asks the reference once per case."""

    def __init__(self, answers: dict[int, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answers = answers

    def _expected(self, reference: Callable[..., Any], case: Case) -> Mapping[str, Any]:
        if id(case) not in self.answers:  # cases live as long as their property
            self.answers[id(case)] = super()._expected(reference, case)
        known: Mapping[str, Any] = self.answers[id(case)]
        return known
