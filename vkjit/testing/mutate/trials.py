"""Trials for mutants (kernels broken on purpose), for mutation testing of the library's tests.

A trial is a small test: a function that takes a kernel and raises if it is wrong. It must pass on the original kernel.
On a mutant, it may take ten times as long as on the original, plus `_EXTRA_SECONDS`. Trials that have killed (detected)
mutants are tried first on the next mutant, since they are the most likely to kill it. tests/stdlib_properties uses this
module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vkjit.errors import CompileError, InternalError, VkjitError
from vkjit.launch.kernel import Kernel
from vkjit.runtime.sanitizer_reports import parse_checks

from ..cases.case import Case
from ..cases.schedules import Schedule
from ..checks import collected_cases
from ..compare.tolerances import as_tolerance
from ..execution.run import executors
from ..execution.time_limited import Clock
from ..search.examiner import Examiner
from ..search.search import functions_of

__all__ = ["DETECTIONS", "CaseProperty", "Trial", "Trials"]

DETECTIONS = (AssertionError, VkjitError, ArithmeticError, MemoryError, ValueError, IndexError)
"""Exceptions by which a trial reports a wrong kernel."""

_EXTRA_SECONDS = 2.0
"""Additional time for each trial on a mutant, in seconds."""

_UNLIMITED = 1e9
"""Time limit for a trial on the original kernel, in seconds: effectively none."""


@dataclass(slots=True)
class Trial:
    """A trial: `run` raises one of `DETECTIONS` if a kernel is wrong.

    `seconds`: its time on the original kernel (NaN: not run yet). `kills`: the number of mutants that it has killed.
    """

    name: str
    run: Callable[[Kernel], None]
    seconds: float = math.nan
    kills: int = 0


class Trials:
    """The trials of one kernel.

    `clock` enforces the time limits of trials. `recover` is called after a mutant fails a trial, to clear pending
    errors of devices.
    """

    def __init__(self, kernel: Kernel, trials: Sequence[Trial], clock: Clock, recover: Callable[[], None]) -> None:
        self.kernel = kernel
        self.trials = list(trials)
        self.clock = clock
        self.recover = recover

    def proven_killers(self) -> list[Trial]:
        """Return the trials that have killed mutants, by decreasing number of kills."""
        return sorted((t for t in self.trials if t.kills), key=lambda t: -t.kills)

    def others(self) -> list[Trial]:
        """Return the trials that haven't killed a mutant, in the original order."""
        return [t for t in self.trials if not t.kills]

    def failed(self, changed: Kernel, trials: Sequence[Trial]) -> str:
        """Run trials on the mutant `changed`. Return the name of the first that it fails; "" if it passes all.

        Raises CompileError if the mutant doesn't compile.
        """
        for trial in trials:
            if math.isnan(trial.seconds):
                self.run_on_original(trial)
            if not self._passes(trial, changed):
                trial.kills += 1
                return trial.name
        return ""

    def run_on_original(self, trial: Trial) -> None:
        """Run a trial on the original kernel and measure its time. Raises the trial's exception if it fails."""
        self.clock.restart(_UNLIMITED)
        start = time.thread_time()
        trial.run(self.kernel)
        trial.seconds = time.thread_time() - start

    def _passes(self, trial: Trial, changed: Kernel) -> bool:
        """True if the mutant passes the trial within its time limit."""
        self.clock.restart(10 * trial.seconds + _EXTRA_SECONDS)
        try:
            trial.run(changed)
        except InternalError:
            raise  # a compiler bug, not an error of the mutant
        except CompileError:
            raise
        except DETECTIONS:
            self.recover()
            return False
        return True


class CaseProperty:
    """Trials that compare a kernel with a reference, one for each case that `check_kernel` would try.

    If the sanitizer is enabled, there is a second trial for each case, with it. `settings` are arguments of
    `check_kernel`.
    """

    def __init__(self, kernel: Kernel, reference: Callable[..., Any] | None, settings: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.reference = reference
        self.settings, self.cases = collected_cases(kernel, reference, settings)
        self._answers: dict[int, Any] = {}
        self._made: tuple[Kernel | None, dict[bool, Examiner]] = (None, {})

    def trials(self, name: str) -> Iterator[Trial]:
        """Yield the trials without the sanitizer for all cases, then those with it."""
        sanitized = (False, True) if self.settings["sanitize"] else (False,)
        for searched in sanitized:
            for number, (case, schedules) in enumerate(self.cases):
                title = f"{name}, case {number}{', sanitized' if searched else ''}"
                yield Trial(title, self._trial(case, schedules, searched))

    def _trial(self, case: Case, schedules: Mapping[str, Schedule], searched: bool) -> Callable[[Kernel], None]:
        """Return the function of a trial for one case. `searched`: it runs with the sanitizer."""

        def run(changed: Kernel) -> None:
            found = self._examiner(changed, searched).examine(case, schedules)
            assert found is None, found.kind

        return run

    def _examiner(self, changed: Kernel, searched: bool) -> Examiner:
        """Return the examiner of a kernel, without or with the sanitizer (`searched`).

        The examiners of the last kernel are cached, so that it is compiled once.
        """
        if self._made[0] is not changed:
            self._made = (changed, {})
        examiners = self._made[1]
        if searched not in examiners:
            settings = self.settings
            groups = settings["groups"]
            checks = (*parse_checks(settings["sanitize"]), "division") if searched else ()
            examiners[searched] = _CachingExaminer(
                self._answers, changed, self.reference, executors(changed, "interpreter", groups), groups=groups,
                tolerance=as_tolerance(settings["tolerance"]), precise=settings["precise"],
                partial=settings["partial"], checks=checks, unordered=settings["unordered"],
                judges=functions_of(settings["properties"]),
            )  # fmt: skip
        return examiners[searched]


class _CachingExaminer(Examiner):
    """An examiner that calls the reference once per case for all mutants. `answers` caches its results by case id."""

    def __init__(self, answers: dict[int, Any], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answers = answers

    def _expected(self, reference: Callable[..., Any], case: Case) -> Mapping[str, Any]:
        if id(case) not in self.answers:  # ids are unique, since the property keeps its cases alive
            self.answers[id(case)] = super()._expected(reference, case)
        answer: Mapping[str, Any] = self.answers[id(case)]
        return answer
